"""The agent's end of the fetch process: started when it is needed, started again when it dies."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from windrow.journal import say

from windrow_agent.fetching.messages import Decoder, encode

DEATHS_MAX = 5
"""So many deaths in a row without any answer, and what was asked for is given up."""
_READ_BYTES = 1 << 18


class FetchProcess:
    """``on_message``: for each answer. ``on_death``: the process is gone, and what it was asked for is not answered."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None], on_death: Callable[[], None]) -> None:
        self._on_message = on_message
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._decoder = Decoder()
        self._unsent = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """Ask for something; starts the process where there is none. Raises OSError: it cannot be started."""
        if self._channel is None:
            self._start()
        self._unsent += encode(message)
        self._flush()

    def cancel(self, number: int) -> None:
        """The answer to a request is of no use any more."""
        if self._channel is not None:
            self._unsent += encode({"cancel": number})
            self._flush()

    def close(self) -> None:
        """Ends it."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            self._loop.remove_reader(channel.fileno())
            self._loop.remove_writer(channel.fileno())
            channel.close()
        if process is not None:
            process.kill()
            process.wait()
        self._decoder = Decoder()
        self._unsent.clear()

    def _start(self) -> None:
        near, far = socket.socketpair()
        with far:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "windrow_agent.fetching", str(far.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[far.fileno()],
                    process_group=0,
                )
            except OSError:
                near.close()
                raise
        near.setblocking(False)
        self._channel = near
        self._loop.add_reader(near.fileno(), self._readable)
        say(logging.INFO, "fetch process started", pid=self._process.pid)

    def _flush(self) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            while self._unsent:
                del self._unsent[: channel.send(memoryview(self._unsent)[:_READ_BYTES].tobytes())]
        except BlockingIOError:
            self._loop.add_writer(channel.fileno(), self._flush)
            return
        except OSError:
            # It is gone; reading tells.
            self._unsent.clear()
        self._loop.remove_writer(channel.fileno())

    def _readable(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            say(logging.WARNING, "the fetch process has ended")
            self.close()
            self._on_death()
            return
        for message in self._decoder.feed(data):
            self._on_message(message)
