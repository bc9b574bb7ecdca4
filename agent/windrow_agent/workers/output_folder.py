"""The local folder of one worker for the outputs that lie in a store: what is in it that the store has not.

Each worker has one of its own, so that whatever is there when its `run()` has returned is whole: nobody else is
writing. A file counts as changed when its inode, its size or the time of its last change is another. That time is as
coarse as the kernel's clock: a look ends when the clock has gone on, so that what is written later is seen.

Invariants:

1. What a `run()` that failed has left is not brought to the store, unless a later one changes it.
2. What `init()` has left is owed until it is in the store, whatever becomes of the mini-batches.
3. Nothing is followed that leads out: links are refused, and never opened.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from windrow.rpc.v1 import work_pb2 as work
from windrow.storage.urls import parse_url

from windrow_agent.fetch_process.messages import Save

_CLOCK_REALTIME_COARSE = 5
_TICK_S = 0.001
_TICKS_MAX = 50


class Stamp(NamedTuple):
    """What tells a state of a file from another. `ctime_ns`: of its last change, by name, mode or content."""

    inode: int
    size: int
    ctime_ns: int


class Look(NamedTuple):
    """What is in the folder: all of it; what the store has not; and why something can not go there ("": all can)."""

    stamps: dict[str, Stamp]
    new: list[Save]
    refused: str


class OutputFolder:
    """`root`: for this worker alone. Methods that touch the disk are for threads, one at a time (`lock`)."""

    def __init__(self, root: Path, outputs: Iterable[work.StoredOutput]) -> None:
        """Makes it, with a folder for each output. Raises OSError."""
        self.root = root
        self.lock = asyncio.Lock()
        self._outputs = {output.name: output for output in outputs}
        self._seen: dict[str, Stamp] = {}
        self._owed: set[str] = set()
        for name in self._outputs:
            (root / name).mkdir(parents=True)
        self.device = root.stat().st_dev

    @property
    def places(self) -> dict[str, str]:
        """What the script is given for each output: a folder, or a file that is not there yet."""
        return {name: str(self.root / name / self._file_of(output)) for name, output in self._outputs.items()}

    def look(self) -> Look:
        """What is there now. Raises OSError."""
        stamps: dict[str, Stamp] = {}
        new: list[Save] = []
        refused = ""
        for name, output in self._outputs.items():
            for path, status in _files_below(self.root, name):
                stamp = Stamp(status.st_ino, status.st_size, status.st_ctime_ns)
                stamps[path] = stamp
                below = path[len(name) + 1 :]
                if self._seen.get(path) == stamp or (output.is_file and below != self._file_of(output)):
                    continue
                why = _why_not(below, status)
                if why:
                    refused = refused or why
                    continue
                address = output.address if output.is_file else str(parse_url(output.address).below(below))
                new.append(Save(path, address, *stamp))
        _wait_for_clock(max((save.ctime_ns for save in new), default=0))
        return Look(stamps, new, refused)

    def owe(self, look: Look) -> None:
        """All of it is what `init()` has left."""
        self._owed = set(look.stamps)

    def saved(self, look: Look) -> None:
        """All of it is in the store."""
        self._seen = look.stamps
        self._owed.clear()

    def passed_over(self, look: Look) -> None:
        """What is new is of no use to anybody: its mini-batch has failed."""
        self._seen = {path: stamp for path, stamp in look.stamps.items() if path not in self._owed}

    def remove(self) -> None:
        """The worker is gone, and what has to be in the store is there."""
        shutil.rmtree(self.root, ignore_errors=True)

    @staticmethod
    def _file_of(output: work.StoredOutput) -> str:
        return output.address.rpartition("/")[2] if output.is_file else ""


def _files_below(root: Path, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Whatever is no folder, by its name relative to the root; in no order."""
    folders = [name]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    continue
                try:
                    yield path, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    # A process that the script has left running takes it away.
                    continue


def _why_not(name: str, status: os.stat_result) -> str:
    """Why something cannot be an object; "" when it can."""
    shown = os.fsencode(name).decode(errors="backslashreplace")
    if stat.S_ISLNK(status.st_mode):
        return f"The script has left a link in its output, {shown!r}, and a store has none: write a file instead"
    if not stat.S_ISREG(status.st_mode):
        return f"The script has left something in its output that is no file, {shown!r}, and cannot be in a store"
    if shown != name:
        return f'The script has written a file named "{shown}" (no UTF-8), which cannot be in a store: rename it'
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        return f"The script has written a file named {shown!r}, which cannot be in a store: rename it"
    return ""


def _wait_for_clock(newest_ns: int) -> None:
    """Until the clock that the file system goes by shows a later time."""
    for _ in range(_TICKS_MAX):
        if time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > newest_ns:
            return
        time.sleep(_TICK_S)
