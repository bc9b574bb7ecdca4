"""Asks a command whether this machine is about to be taken away: `windrow agent --preemption-check COMMAND`.

The command is run every few seconds, with a time limit. Exit code 0 with a text on standard output: yes, and the text
says why. Exit code 1: no. Anything else is a fault of the command, and no notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence

from windrow.common.journal import Condition
from windrow.common.signal_names import signal_name

EVERY_S = 3.0
LIMIT_S = 10.0
"""So long the command may take."""
NO_NOTICE = 1
WORDS_MAX = 300
"""Characters of what the command says that are shown."""
KEPT_BYTES_MAX, READ_BYTES_MAX = 64 << 10, 4 << 20
"""Of what it writes."""
_CHUNK = 64 << 10


class CheckFailed(Exception):
    """The command said neither yes nor no; the text says what it did."""


async def watch(command: Sequence[str], notice: Callable[[str], None]) -> None:
    """Asks until there is a notice, and passes on its text. Never returns."""
    fails = Condition(
        logging.WARNING,
        "the command of --preemption-check fails: this agent would not hear that its machine is taken away",
        "the command of --preemption-check works again",
    )
    while True:
        try:
            why = await ask(command)
        except CheckFailed as error:
            fails.goes_on(why=str(error))
        else:
            fails.is_over()
            if why:
                notice(why)
                await asyncio.Event().wait()
        await asyncio.sleep(EVERY_S)


async def ask(command: Sequence[str]) -> str:
    """Why this machine is about to be taken away; "" if it is not. Raises CheckFailed."""
    with _Output() as out, _Output() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=out.end, stderr=said.end, start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise CheckFailed(f"{command[0]} cannot be run: {why}") from error
        try:
            await asyncio.wait_for(process.wait(), LIMIT_S)
        except TimeoutError:
            raise CheckFailed(f"{command[0]} had not ended after {LIMIT_S:g} s") from None
        finally:
            await _end(process)
        words, complaint = out.words(), said.words()
    code = process.returncode
    assert code is not None
    if code == 0 and words:
        return words
    if code == NO_NOTICE:
        return ""
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    how += ", and printed nothing" if code == 0 else ""
    raise CheckFailed(": ".join(filter(None, (f"{command[0]} {how}", complaint))))


class _Output:
    """What a command writes. Not a pipe of asyncio: with one, a command ends only when all have closed it, what it has
    left behind in a session of its own, too; and one that is not read to its end never does.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._source, self.end = os.pipe()
        self._kept = bytearray()
        self._count = 0
        os.set_blocking(self._source, False)
        self._loop.add_reader(self._source, self._take)

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.remove_reader(self._source)
        os.close(self._source)
        os.close(self.end)

    def words(self) -> str:
        """What was written so far, in one line."""
        while self._take():
            pass
        return " ".join(self._kept.decode(errors="replace").split())[:WORDS_MAX]

    def _take(self) -> bool:
        """Reads some of it; returns whether there was any. A command that writes without end is not read any more, and
        waits until its time is over.
        """
        if self._count > READ_BYTES_MAX:
            self._loop.remove_reader(self._source)
            return False
        try:
            data = os.read(self._source, _CHUNK)
        except BlockingIOError:
            return False
        self._count += len(data)
        self._kept += data[: KEPT_BYTES_MAX - len(self._kept)]
        return bool(data)


async def _end(process: Process) -> None:
    """Ends the command with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()
