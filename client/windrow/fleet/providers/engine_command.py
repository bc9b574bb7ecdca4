"""Runs a command of an engine's, and holds it to its bounds: it may be stuck, write without end, or leave behind what
keeps its output open.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from windrow.fleet.provider import Unreachable

OUT_BYTES_MAX = 32 << 20
"""Of what a command may write to standard output. A list of 10,000 allocations is a tenth of it."""
ERR_BYTES_MAX = 64 << 10
"""Of what is kept of standard error; the rest is dropped."""
WORDS_MAX = 300
"""Characters of standard error that a message of a fault of the command shows."""
_CHUNK = 64 << 10
_LOOK_S = 0.05
"""So soon it is seen that a command has ended whose output something else keeps open."""


class Done(NamedTuple):
    """How a command has ended. `code`: as `subprocess` counts, negative for a signal."""

    code: int
    out: bytes
    err: bytes


def run(
    words: Sequence[str],
    *,
    stdin: bytes,
    time_limit_s: float,
    folder: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    asks: str = "",
) -> Done:
    """Run a command to its end. What it has started and left behind goes on. `asks`: the machine that it asks, which
    messages name. Raises Unreachable if it cannot be run, has not ended in time, or writes more than it may: then it is
    killed, with its process group.
    """
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise Unreachable(f"{words[0]} cannot be run: {why}.") from error
    with _Pipes(process, stdin) as pipes:
        try:
            has_ended = _has_ended(process, pipes, time.monotonic() + time_limit_s)
        except BaseException:
            _kill(process)
            raise
        is_too_much = len(pipes.out) > OUT_BYTES_MAX
        if has_ended and not is_too_much:
            return Done(process.returncode, bytes(pipes.out), bytes(pipes.err))
        _kill(process)
    told = " ".join(pipes.err.decode(errors="replace").split())[:WORDS_MAX]
    if is_too_much:
        did = f"wrote more than {OUT_BYTES_MAX >> 20} MiB"
    else:
        did = f"did not {'answer' if asks else 'end'} within {time_limit_s:g} s"
    raise Unreachable(f"{asks or words[0]} {did}{': ' if told else '.'}{told}")


def _has_ended(process: subprocess.Popen[bytes], pipes: _Pipes, ends_s: float) -> bool:
    """Read until the command has ended, has written too much, or its time is over; returns whether it has ended."""
    while len(pipes.out) <= OUT_BYTES_MAX:
        if process.poll() is not None:
            # All that it has written itself is there now; what it has left behind may go on writing.
            while len(pipes.out) <= OUT_BYTES_MAX and time.monotonic() < ends_s and pipes.move(0):
                pass
            return True
        if (left_s := ends_s - time.monotonic()) <= 0:
            break
        if pipes.are_open:
            pipes.move(min(_LOOK_S, left_s))
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(left_s)
    return False


class _Pipes:
    """The pipes of a command."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        self.out, self.err = bytearray(), bytearray()
        self._stdin, self._todo = process.stdin, memoryview(stdin)
        self._files: tuple[IO[bytes], ...] = (process.stdin, process.stdout, process.stderr)
        self._selector = selectors.DefaultSelector()
        for file, kept in ((process.stdout, self.out), (process.stderr, self.err)):
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, selectors.EVENT_READ, kept)
        os.set_blocking(process.stdin.fileno(), False)
        self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *error: object) -> None:
        self._selector.close()
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()

    @property
    def are_open(self) -> bool:
        """Whether there is anything to read or write yet."""
        return bool(self._selector.get_map())

    def move(self, wait_s: float) -> bool:
        """Write and read what is possible now, after at most `wait_s`; returns whether anything was read."""
        has_read = False
        if not self.are_open:
            return False
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._stdin:
                self._write()
                continue
            data = os.read(key.fd, _CHUNK)
            has_read = has_read or bool(data)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.data is self.out:
                self.out += data
            else:
                self.err += data[: ERR_BYTES_MAX - len(self.err)]
        return has_read

    def _write(self) -> None:
        try:
            self._todo = self._todo[os.write(self._stdin.fileno(), self._todo[:_CHUNK]) :]
        except BrokenPipeError:
            self._todo = self._todo[:0]
        if not self._todo:
            self._selector.unregister(self._stdin)
            self._stdin.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
