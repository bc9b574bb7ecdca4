"""File lists by keys in their paths: each group is the list of its files.

The whole input is listed first, into `listing`: a line with what all groups have in common, then the names, each
followed by NUL. Then the names are written into `recipes` once more, group by group. `file_group` of a position is the
number of the next group: a planner that is started again reads the listing, neither folders nor the MLTable file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from windrow.spec.tables.partition_format import compile_format
from windrow_worker.tables.partition_format import PathColumns

from windrow_master.planning.emitter import Emitter
from windrow_master.planning.file_lists import reader_of_files
from windrow_master.planning.file_steps import FileSteps
from windrow_master.planning.listing.entries import AnyEntry, common_root, nothing_found
from windrow_master.planning.listing.stamps import through, unstamped
from windrow_master.planning.partitions.grouping import Grouping
from windrow_master.planning.partitions.keys import Unmatched
from windrow_master.planning.plan_files.plan_files import AppendFile, PlanFiles
from windrow_master.planning.sections import Section

_READ_BYTES = 1024 * 1024


def list_file_groups(
    path: bytes,
    entries: Sequence[AnyEntry],
    columns: PathColumns,
    keys: Sequence[str],
    plan_files: PlanFiles,
    emitter: Emitter,
    steps: FileSteps | None = None,
    *,
    copies: bool,
) -> dict[str, Any]:
    """List an input, of whose files workers get copies or not; return the reader document.

    Raises PlanningError when a folder cannot be read or there is no file at all.
    """
    root = common_root(entries)
    partition = {"keys": list(keys), "formats": [one.text for one in columns.formats]}
    reader = {**reader_of_files(root, entries, copies=copies), "partition": partition}
    plan_files.listing.append(json.dumps(reader, separators=(",", ":")).encode() + b"\n")
    unmatched, files = Unmatched(columns), 0
    for entry in entries:
        for chunk in entry.names(emitter.warn, emitter.places.note):
            names = chunk if steps is None else through(steps.apply, entry.folder, chunk)
            if not names:
                continue
            names = names if root else [os.path.join(entry.folder, name) for name in names]
            plan_files.listing.append(b"\0".join(names) + b"\0")
            files += len(names)
            for name in names:
                unmatched.look_at(os.path.join(root, unstamped(name, remote="remote" in reader)))
    if not files:
        raise nothing_found(path, entries) if steps is None else steps.nothing_left()
    unmatched.tell(emitter.warn)
    return reader


def emit_file_groups(section: Section, first: int, plan_files: PlanFiles, emitter: Emitter) -> None:
    """Emit the groups of an input, from number `first` on."""
    begin, end = section.listing
    reader, names_at = _reader(plan_files.listing, begin, end)
    root, keys = os.fsencode(reader["root"]), reader["partition"]["keys"]
    columns = PathColumns([compile_format(text) for text in reader["partition"]["formats"]])
    grouping = Grouping()
    for begin, name in _names(plan_files.listing, names_at, end):
        path = os.path.join(root, unstamped(name, remote="remote" in reader))
        grouping.add(columns.values_of(os.fsdecode(path), keys), begin, 1)
    for number, group in enumerate(grouping.in_order(end, first), first + 1):
        names = b"".join(plan_files.listing.read(*run) for run in group.runs)[:-1]
        emitter.add_recipe(group.files, names, {"file_group": number}, rank=group.size)


def _reader(listing: AppendFile, begin: int, end: int) -> tuple[dict[str, Any], int]:
    """The first line, and where the names begin."""
    line, size = b"", 4096
    while b"\n" not in line:
        line = listing.read(begin, min(begin + size, end))
        size *= 4
    line = line[: line.index(b"\n") + 1]
    return json.loads(line), begin + len(line)


def _names(listing: AppendFile, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Each name up to the offset `end`, with its own offset."""
    rest, offset = b"", at
    while at < end:
        part = listing.read(at, min(end, at + _READ_BYTES))
        at += len(part)
        *names, rest = (rest + part).split(b"\0")
        for name in names:
            yield offset, name
            offset += len(name) + 1
