"""The local folder of one worker for outputs that go to a store: what is in it that the store does not have.

Each worker has its own folder, so that everything in it is complete when `run()` returns: nobody else writes there. A
file has changed if its inode, its size or its change time differs. That time is as coarse as the kernel's clock, so a
listing ends only when the clock has moved on; a later write then has a later time.

Invariants:

1. Files of a failed `run()` do not go to the store, unless a later run changes them.
2. Files of `init()` are owed until they are in the store, whatever happens to the mini-batches.
3. Links are refused and never followed, also in place of the folder itself, so that nothing outside it is read.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from windrow.common.beneath import Folder, LinkRefused
from windrow.common.removal import discard_tree
from windrow.common.trees import PATH_BYTES_MAX, NestedTooDeep, entries_below
from windrow.rpc.v1 import work_pb2 as work
from windrow.storage.urls import parse_url

from windrow_agent.fetch_process.messages import Save

_CLOCK_REALTIME_COARSE = 5
_TICK_S = 0.001
_TICKS_MAX = 50


class Stamp(NamedTuple):
    """What distinguishes two states of a file. `ctime_ns`: of the last change of its name, mode or content."""

    inode: int
    size: int
    ctime_ns: int


class Listing(NamedTuple):
    """A listing of the folder: all files; those to save; and why something cannot be saved, "" if everything can.

    Not the listing of an input, which the planner writes.
    """

    stamps: dict[str, Stamp]
    new: list[Save]
    refused: str


class OutputFolder:
    """`root` belongs to this worker alone. Methods that use the disk run in threads, one at a time (`lock`)."""

    def __init__(self, root: Path, outputs: Iterable[work.StoredOutput]) -> None:
        """Makes the folder, with one in it for each output. Raises OSError."""
        self.root = root
        self.lock = asyncio.Lock()
        self._outputs = {output.name: output for output in outputs}
        self._seen: dict[str, Stamp] = {}
        self._owed: set[str] = set()
        for name in self._outputs:
            (root / name).mkdir(parents=True)
        self.device = root.stat().st_dev
        # No script has run here yet.
        self.place = os.path.realpath(root)
        """The path of the folder, in which no part is a link, or a script has laid it."""

    @property
    def places(self) -> dict[str, str]:
        """The path that the script gets for each output: a folder, or a file that does not exist yet."""
        return {name: str(self.root / name / self._file_of(output)) for name, output in self._outputs.items()}

    def list_files(self) -> Listing:
        """What is there now. Raises OSError."""
        try:
            with Folder.open(self.place) as top:
                return self._list(top)
        except LinkRefused as error:
            return Listing({}, [], str(error))
        except NestedTooDeep:
            return Listing({}, [], "The script has nested folders in its output deeper than a path may be long")

    def _list(self, top: Folder) -> Listing:
        stamps: dict[str, Stamp] = {}
        new: list[Save] = []
        refused = ""
        for name, output in self._outputs.items():
            for path, status in _files_below(top, name):
                stamp = Stamp(status.st_ino, status.st_size, status.st_ctime_ns)
                stamps[path] = stamp
                below = path[len(name) + 1 :]
                if self._seen.get(path) == stamp or (output.is_file and below != self._file_of(output)):
                    continue
                why = _why_not(below, status)
                if why:
                    refused = refused or why
                    continue
                # Without a name below it: the command has written one file in place of a folder.
                is_file = output.is_file or not below
                address = output.address if is_file else str(parse_url(output.address).below(below))
                new.append(Save(path, address, *stamp))
        _wait_for_clock(max((save.ctime_ns for save in new), default=0))
        return Listing(stamps, new, refused)

    def owe(self, listing: Listing) -> None:
        """Notes that all of it is from `init()`."""
        self._owed = set(listing.stamps)

    def saved(self, listing: Listing) -> None:
        """Notes that all of it is in the store."""
        self._seen = listing.stamps
        self._owed.clear()

    def passed_over(self, listing: Listing) -> None:
        """Notes that the new files are useless, since their mini-batch failed."""
        self._seen = {path: stamp for path, stamp in listing.stamps.items() if path not in self._owed}

    def remove(self) -> None:
        """Removes the folder: the worker is gone, and its outputs are saved."""
        discard_tree(self.root)

    @staticmethod
    def _file_of(output: work.StoredOutput) -> str:
        return output.address.rpartition("/")[2] if output.is_file else ""


def _files_below(top: Folder, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything that is not a folder, by its name relative to the top, in no order: also `name` itself, if it is
    none.
    """
    try:
        status = top.status(name)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        yield name, status
        return

    def fail(error: OSError) -> None:
        # Between two looks, a script has put something else in the place of a folder.
        raise LinkRefused(name) if error.errno in (errno.ELOOP, errno.ENOTDIR) else error

    with top.folder(name) as folder:
        for entry in entries_below(folder.descriptor, fail, path_max=PATH_BYTES_MAX):
            if not entry.is_folder:
                yield f"{name}/{entry.path}", entry.status


def _why_not(name: str, status: os.stat_result) -> str:
    """Why this cannot be an object in a store; "" if it can."""
    shown = os.fsencode(name).decode(errors="backslashreplace")
    if stat.S_ISLNK(status.st_mode):
        return f"The script has left a link in its output, {shown!r}, which a store cannot hold: write a file instead"
    if not stat.S_ISREG(status.st_mode):
        return f"The script has left something in its output that is not a file, {shown!r}, which a store cannot hold"
    if shown != name:
        return f'The script has written a file named "{shown}" (not UTF-8), which a store cannot hold: rename it'
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        return f"The script has written a file named {shown!r}, which a store cannot hold: rename it"
    return ""


def _wait_for_clock(newest_ns: int) -> None:
    """Waits until the file system's clock shows a later time."""
    for _ in range(_TICKS_MAX):
        if time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) > newest_ns:
            return
        time.sleep(_TICK_S)
