"""The agent's end of the fetch process, which is started when it is needed, and again when it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import windrow
from windrow.common.journal import say

from windrow_agent.fetch_process.messages import Decoder, encode
from windrow_agent.node import strays

DEATHS_MAX = 5
"""After more deaths in a row without any answer, requests fail."""
_READ_BYTES = 1 << 18
_BOOT = Path(__file__).with_name("boot.py")
_IS_UTF8 = sys.getfilesystemencoding() == "utf-8"
"""Names of files must mean the same there."""
_NEEDED = ("LD_LIBRARY_PATH",)
"""What Python may not start without."""


class NotRunning(Exception):
    """The process cannot be started, or dies again and again; the text says which."""


async def _nothing() -> None:
    pass


class FetchProcess:
    """A request is either asked or sent. `ask` awaits the answer, and asks the next process if one dies. `send` calls
    back with the answer, or with the death; numbers of sent requests are above 0.
    """

    def __init__(
        self,
        name: str,
        on_message: Callable[[dict[str, Any]], None] = lambda answer: None,
        on_death: Callable[[NotRunning | None], None] = lambda given_up: None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """`name`: for messages. `on_message`: called with each answer to a sent request. `on_death`: called when sent
        requests will get no answer, with a reason if they should not be sent again. `settings`: what each process gets
        before the first request; None: nothing.
        """
        self._name = name
        self._on_message = on_message
        self._on_death = on_death
        self._settings = settings
        self._asked: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._last_asked = 0
        self._deaths = 0
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._decoder = Decoder()
        self._unsent = bytearray()

    async def ask(
        self, request: dict[str, Any], before_again: Callable[[], Awaitable[None]] = _nothing
    ) -> dict[str, Any]:
        """The answer to a request, which gets its number here. Raises NotRunning.

        `before_again`: awaited after a death, before the next process is asked.
        """
        self._last_asked -= 1
        number = request["id"] = self._last_asked
        try:
            while True:
                answer: asyncio.Future[dict[str, Any] | None] = self._loop.create_future()
                self._asked[number] = answer
                self.send(request)
                if (found := await answer) is not None:
                    return found
                if (given_up := self._given_up()) is not None:
                    raise given_up
                await before_again()
        except asyncio.CancelledError:
            self.cancel(number)
            raise
        finally:
            del self._asked[number]

    def send(self, message: dict[str, Any]) -> None:
        """Sends a request; starts the process if there is none. Raises NotRunning."""
        if self._channel is None:
            try:
                self._start()
            except OSError as error:
                raise NotRunning(f"{self._name} cannot be started: {error}") from error
        self._unsent += encode(message)
        self._flush()

    def cancel(self, number: int) -> None:
        """Cancels a request."""
        if self._channel is not None:
            self._unsent += encode({"cancel": number})
            self._flush()

    def close(self) -> None:
        """Ends the process."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            self._loop.remove_reader(channel.fileno())
            self._loop.remove_writer(channel.fileno())
            channel.close()
        if process is not None:
            process.kill()
            process.wait()
            strays.AWAITED.discard(process.pid)
            strays.CHILDLESS.discard(process.pid)
        self._decoder = Decoder()
        self._unsent.clear()

    def _start(self) -> None:
        near, far = socket.socketpair()
        with far:
            try:
                self._process = subprocess.Popen(
                    # Isolated, and without our environment: see there.
                    [sys.executable, "-I", "-X", f"utf8={_IS_UTF8:d}", str(_BOOT), str(far.fileno()), str(os.getpid())],
                    env={name: os.environ[name] for name in _NEEDED if name in os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[far.fileno()],
                    process_group=0,
                )
            except OSError:
                near.close()
                raise
        # Otherwise, it would be taken for an orphan.
        strays.AWAITED.add(self._process.pid)
        strays.CHILDLESS.add(self._process.pid)
        near.setblocking(False)
        self._channel = near
        self._loop.add_reader(near.fileno(), self._readable)
        first = encode({"environment": dict(os.environ), "path": _search_path()})
        self._unsent[:0] = first + (b"" if self._settings is None else encode(self._settings))
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
            # It is gone; the reader will notice.
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
            self._deaths += 1
            for answer in self._asked.values():
                _set(answer, None)
            self._on_death(self._given_up())
            return
        for message in self._decoder.feed(data):
            self._deaths = 0
            if message["id"] > 0:
                self._on_message(message)
            elif (asked := self._asked.get(message["id"])) is not None:
                _set(asked, message)

    def _given_up(self) -> NotRunning | None:
        if self._deaths <= DEATHS_MAX:
            return None
        return NotRunning(f"{self._name} keeps dying on this node: see the agent's log")


def _set(answer: asyncio.Future[dict[str, Any] | None], found: dict[str, Any] | None) -> None:
    """Sets the answer: None if the process has died."""
    if not answer.done():
        answer.set_result(found)


def _search_path() -> list[str]:
    """Where our own modules come from: nothing in the working folder, where scripts may leave some."""
    found = [path for path in sys.path[0 if sys.flags.safe_path else 1 :] if Path(path).is_absolute()]
    ours = [str(Path(windrow.__file__).parents[1]), str(_BOOT.parents[2])]
    return found + [path for path in ours if path not in found]
