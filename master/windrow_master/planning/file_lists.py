"""File lists: mini-batches of so many files, in listing order.

`recipes` is the listing itself: every name, each followed by NUL. A recipe is a run of it, so nothing is written
twice. Names are written a chunk at a time, ahead of the mini-batches cut from them: `next` of a position is where the
first name not yet in a mini-batch begins; `frontier` is the last name listed, its entry, and how far the steps of an
MLTable file had come with it. A planner that is
started again takes the names between the two from the file, and walks on after the last: what was listed once is not
listed again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from windrow_master.planning.checkpoint import Checkpoint
from windrow_master.planning.emitter import Emitter
from windrow_master.planning.entries import AnyEntry, common_root, nothing_found
from windrow_master.planning.journal import Journal
from windrow_master.planning.request import Request
from windrow_master.planning.stamps import through

if TYPE_CHECKING:
    # It brings YAML along, which lists of files start without.
    from windrow_master.planning.file_steps import FileSteps

FILES_DEFAULT = 10
"""Files in a mini-batch where none is given. Source: reference/parallel-job.md, section 4.1."""


def plan_file_list(
    path: bytes,
    entries: Sequence[AnyEntry],
    request: Request,
    start: Checkpoint | None,
    journal: Journal,
    emitter: Emitter,
    steps: FileSteps | None = None,
) -> None:
    """Plan the whole step; `steps`, of an MLTable file, have come as far as `start` says.

    Raises PlanningError when a folder cannot be read or there is no file at all.
    """
    root = common_root(entries)
    emitter.set_reader(reader_of_files(root, entries, request))
    size = FILES_DEFAULT if request.mini_batch_size is None else request.mini_batch_size
    begin = 0 if start is None else start.position["next"]
    have, end = 0, begin
    for names in _runs(entries, root, begin, start, journal, emitter, steps):
        at = 0
        while at < len(names):
            part = names[at : at + size - have]
            at += len(part)
            have += len(part)
            end += sum(map(len, part)) + len(part)
            if have == size:
                emitter.add(have, begin, end - begin - 1, end)
                begin, have = end, 0
    if have:
        emitter.add(have, begin, end - begin - 1, end)
    if emitter.mini_batches == 0:
        raise nothing_found(path, entries) if steps is None else steps.nothing_left()
    emitter.finish()


def reader_of_files(root: bytes, entries: Sequence[AnyEntry], request: Request) -> dict[str, Any]:
    """The reader document of a list of files, whose names are relative to `root`."""
    reader: dict[str, Any] = {"kind": "files", "root": os.fsdecode(root)}
    if any(not entry.folder.startswith(b"/") for entry in entries):
        # Agents fetch what lies in stores; its names are followed by stamps.
        reader["remote"] = True
    if request.copies:
        reader["copy"] = True
    return reader


def _runs(
    entries: Sequence[AnyEntry],
    root: bytes,
    begin: int,
    start: Checkpoint | None,
    journal: Journal,
    emitter: Emitter,
    steps: FileSteps | None,
) -> Iterator[list[bytes]]:
    """Names in order from `begin` on, each chunk written before it is handed over."""
    frontier: dict[str, Any] | None = None if start is None else start.position["frontier"]
    if start is not None and begin < start.recipes_bytes:
        yield journal.recipes.read(begin, start.recipes_bytes)[:-1].split(b"\0")
    first = 0 if frontier is None else frontier["entry"]
    for index in range(first, len(entries)):
        entry = entries[index]
        after = os.fsencode(frontier["name"]) if frontier is not None and index == first else b""
        for chunk in entry.names(emitter.warn, after):
            names, seen = chunk, {}
            if steps is not None:
                if steps.nothing_passes:
                    return
                names = through(steps.apply, entry.folder, names)
                seen = {"seen": steps.seen}
            if names:
                names = names if root else [os.path.join(entry.folder, name) for name in names]
                journal.recipes.append(b"\0".join(names) + b"\0")
            emitter.frontier = {"entry": index, "name": os.fsdecode(chunk[-1]), **seen}
            if names:
                yield names
