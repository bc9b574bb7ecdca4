"""File lists: mini-batches of a fixed number of files, in listing order.

`recipes` is the listing itself: every name, each followed by NUL. A recipe is a run of it, so nothing is written
twice. Names are written a chunk at a time, ahead of the mini-batches cut from them: `next` of a position is where the
first name not yet in a mini-batch begins; `frontier` is the last name listed, its entry, and the progress of the steps
of an MLTable file. A restarted planner takes the names between the two from the file and continues the walk after the
last one, so nothing is listed twice.

Several inputs form one list of their entries, in turn. The last mini-batch of an input is cut before names of the next
one are written, so the names between the two always belong to one input.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.quantities import counted

from windrow_master.planning.earlier.earlier import NONE, EarlierJob, EarlierMiniBatch, digest_of
from windrow_master.planning.earlier.why import Why, reasons_in_words
from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.inputs import about
from windrow_master.planning.listing.entries import AnyEntry, common_root, nothing_found
from windrow_master.planning.listing.stamps import through
from windrow_master.planning.plan_files.checkpoint import Checkpoint
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.request import DividedInput, Request
from windrow_master.planning.size_ranks import SizeRanks

if TYPE_CHECKING:
    # This imports YAML, which lists of files start without.
    from windrow_master.planning.file_steps import FileSteps

FILES_DEFAULT = 10
"""Files in a mini-batch by default. Reference: docs/reference/azure-ml/parallel-job.md#division-by-size."""


class FileList(NamedTuple):
    """An input that is a list of files. `path`: of the input, for messages; `steps`: of its MLTable file, at the
    progress that the checkpoint says."""

    given: DividedInput
    path: bytes
    entries: Sequence[AnyEntry]
    steps: FileSteps | None = None


def plan_file_lists(lists: Sequence[FileList], request: Request, plan_files: PlanFiles, emitter: Emitter) -> None:
    """Plan the whole step. Raises PlanningError when a folder cannot be read or an input has no file at all."""
    start = request.checkpoint
    entries = [entry for one in lists for entry in one.entries]
    root = common_root(entries)
    reader = _reader(lists, entries, root)
    emitter.set_reader(reader)
    size = FILES_DEFAULT if request.mini_batch_size is None else request.mini_batch_size
    ranks = SizeRanks(size, root, remote=reader.get("remote", False))
    taking_over = TakenOver(lists, root, reader, request, plan_files, emitter, ranks.lowest)
    frontier = None if start is None else start.position["frontier"]
    begin, first = max(_next_of(start), taking_over.recipes_bytes), 0
    for number, one in enumerate(lists):
        behind = first + len(one.entries)
        if frontier is None or frontier["entry"] < behind:
            if len(lists) > 1:
                emitter.begin_input(number)
            with about(one.given, request, emitter):
                begin = _plan_one(one, first, root, size, begin, start, plan_files, emitter, taking_over, ranks)
            start = frontier = None
        first = behind
    taking_over.emit_rest(begin)
    emitter.finish()


def in_recipes(names: list[bytes], entry: AnyEntry, root: bytes) -> list[bytes]:
    """Names of an entry as recipes have them."""
    return names if root else [os.path.join(entry.folder, name) for name in names]


class _Taken(NamedTuple):
    """A mini-batch that is taken over: its first file and their number, its recipe, and the earlier mini-batch."""

    first: bytes
    items: int
    offset: int
    length: int
    crc32: int
    before: int


class TakenOver:
    """Mini-batches of an earlier job whose files are all in these lists and unchanged.

    Not the core's `TakenOver`, which is the outcome of one.

    Each has the place of its first file among those that run, so that rows come in the order of the input. Which are
    taken over is decided before the lists are divided, and written down at the beginning of `recipes`: each recipe in
    the order of these places, followed by two NULs. `recipes_bytes`: where they end; `names`: their files. A file is
    taken over only if the lists and the mini-batches name it once; a file that is listed more often runs. What an
    earlier planner took over stays taken over, whatever this planner is asked; what it divided is not taken over later.
    `rank`: of all of them, as `Emitter.add` takes it.
    """

    def __init__(
        self,
        lists: Sequence[FileList],
        root: bytes,
        reader: dict[str, Any],
        request: Request,
        plan_files: PlanFiles,
        emitter: Emitter,
        rank: int | None,
    ) -> None:
        self._lists = lists
        self._rank = rank
        self._root = root
        self._reader = reader
        self._earlier = request.earlier
        self._plan_files = plan_files
        self._emitter = emitter
        self.recipes_bytes = 0
        self.names: set[bytes] = set()
        self._found: list[_Taken] = []
        self._places: dict[bytes, int] = {}
        self._emitted = 0
        if request.checkpoint is not None:
            position = request.checkpoint.position["frontier"]
            self.recipes_bytes, self._emitted = position.get("taken", 0), position.get("emitted", 0)
        elif self._earlier is not None:
            self._decide(self._earlier)
        self._read_back()

    @property
    def progress(self) -> dict[str, int]:
        """The part of the frontier that is about this."""
        return {"taken": self.recipes_bytes, "emitted": self._emitted} if self.recipes_bytes else {}

    def place_of(self, name: bytes) -> int | None:
        """The number of the mini-batch that begins with this file and is still to be emitted."""
        found = self._places.get(name)
        return found if found is not None and found >= self._emitted else None

    def emit(self, number: int, position: int, frontier: dict[str, Any]) -> None:
        """Emit one of them, after those before it whose first file has gone since this was decided.

        `position`: where the names begin that are not in a mini-batch. `frontier`: how far the lists are walked then.
        """
        while self._emitted <= number:
            one = self._found[self._emitted]
            self._emitter.add(one.items, one.offset, one.length, one.crc32, position, self._rank, one.before)
            self._emitted += 1
            # Not before: a group that is sent by `add` does not hold this mini-batch.
            walked = frontier if self._emitted > number else self._emitter.frontier
            self._emitter.frontier = {**(walked or {}), **self.progress}

    def emit_rest(self, position: int) -> None:
        """Emit those whose first files have gone since this was decided."""
        if self._emitted < len(self._found):
            self.emit(len(self._found) - 1, position, self._emitter.frontier or {})

    def _decide(self, earlier: EarlierJob) -> None:
        """Choose them, and write them down. Raises PlanningError, OSError."""
        uploaded = earlier.unchanged_names(self._reader)
        why = self._why_nothing(earlier, uploaded=uploaded is not None)
        if why:
            self._emitter.warn(f"Nothing of job {earlier.job_id} is taken over: {why}. All files run.")
            return
        firsts = {_first_of(one.recipe) for one in earlier.mini_batches()}
        left, doubled, places, count = self._listed(firsts)
        unchanged = None if uploaded is None else {name for name in uploaded if name in left}
        whys = Counter({Why.LISTED_TWICE: doubled} if doubled else {})
        chosen: list[tuple[int, int, int, int]] = []
        taken = 0
        for one in earlier.mini_batches():
            names = one.recipe.split(b"\0")
            changes = [self._change_of(name, one, left, unchanged, earlier) for name in names]
            if not any(changes) and left.issuperset(names) and len(set(names)) == len(names):
                chosen.append((places[names[0]], one.offset, len(one.recipe), zlib.crc32(one.recipe)))
                taken += len(names)
            else:
                whys.update(change or Why.BESIDE for name, change in zip(names, changes, strict=True) if name in left)
            left.difference_update(names)
        if left:
            whys[Why.NEW] += len(left)
        chosen.sort()
        for recipe in earlier.recipes_at([place[1:] for place in chosen]):
            self._plan_files.recipes.append(recipe + b"\0\0")
            self.recipes_bytes += len(recipe) + 2
        if trouble := earlier.trouble():
            self._emitter.warn(trouble)
        told = f"Results of job {earlier.job_id} are taken over: {taken:,} of {counted(count, 'file')}."
        self._emitter.note(f"{told} {reasons_in_words(whys, 'file')}".rstrip())

    def _change_of(
        self,
        name: bytes,
        one: EarlierMiniBatch,
        left: set[bytes],
        unchanged: set[bytes] | None,
        earlier: EarlierJob,
    ) -> Why | None:
        """Why a file of an earlier mini-batch runs; None if nothing speaks against taking it over."""
        if not one.is_good:
            return Why.NO_RESULT
        if name not in left:
            return None
        if unchanged is not None:
            return None if name in unchanged else Why.CHANGED
        path = os.path.join(self._root, name)
        # In a store, the stamp in the name shows a change.
        return earlier.change_of(path) if path.startswith(b"/") else None

    def _why_nothing(self, earlier: EarlierJob, *, uploaded: bool) -> str:
        """Why nothing is taken over; "" if something may be. `uploaded`: both lists are of uploads, and alike."""
        if any(one.steps is not None for one in self._lists):
            return "the steps of an MLTable file choose among its files"
        if uploaded or earlier.reads_alike(self._reader):
            return ""
        if any(one.given.type == "mltable" for one in self._lists):
            return "its MLTable file names other files"
        return "its files were elsewhere"

    def _listed(self, wanted: set[bytes]) -> tuple[set[bytes], int, dict[bytes, int], int]:
        """Names that are listed once; the number of entries with a name that is listed more often; the place in the
        lists of each name that is wanted; the number of all entries.
        """
        once, more, places, count, doubled = set[bytes](), set[bytes](), dict[bytes, int](), 0, 0
        for name in (name for one in self._lists for entry in one.entries for name in self._names_of(entry)):
            if name in once:
                more.add(name)
                doubled += 1
            else:
                once.add(name)
            if name in wanted:
                places.setdefault(name, count)
            count += 1
        return once - more if more else once, doubled + len(more), places, count

    def _names_of(self, entry: AnyEntry) -> Iterator[bytes]:
        for chunk in entry.names(lambda text: None, self._emitter.places.note):
            yield from in_recipes(chunk, entry, self._root)

    def _read_back(self) -> None:
        """Read what was decided, by this planner or by one before it."""
        text = self._plan_files.recipes.read(0, self.recipes_bytes)
        numbers: dict[bytes, int] = {}
        if text and self._earlier is not None:
            for one in self._earlier.mini_batches():
                if one.is_good:
                    numbers.setdefault(digest_of(one.recipe), one.mini_batch)
        offset = 0
        for recipe in text.split(b"\0\0")[:-1]:
            names = recipe.split(b"\0")
            # The earlier job may have gone since: then it runs.
            before = numbers.get(digest_of(recipe), NONE)
            self._found.append(_Taken(names[0], len(names), offset, len(recipe), zlib.crc32(recipe), before))
            self.names.update(names)
            offset += len(recipe) + 2
        self._places = {one.first: number for number, one in enumerate(self._found)}
        if self._found and self._emitter.frontier is None:
            self._emitter.frontier = {"entry": 0, "name": "", **self.progress}


def _first_of(recipe: bytes) -> bytes:
    return recipe.partition(b"\0")[0]


def _reader(lists: Sequence[FileList], entries: Sequence[AnyEntry], root: bytes) -> dict[str, Any]:
    """The reader document. Raises PlanningError if workers should get copies of some inputs only."""
    refuse_some_copies([one.given for one in lists])
    return reader_of_files(root, entries, copies=lists[0].given.copies)


def refuse_some_copies(inputs: Sequence[DividedInput]) -> None:
    """Raise PlanningError if workers should get copies of the files of some inputs, but not of others."""
    copied = [given.name for given in inputs if given.copies]
    if copied and len(copied) < len(inputs):
        others = [given.name for given in inputs if not given.copies]
        raise PlanningError(
            f"The mode of {', '.join(copied)} asks for copies, that of {', '.join(others)} does not. Set mode: "
            "download on all inputs that are divided together, or on none."
        )


def _next_of(start: Checkpoint | None) -> int:
    """Where the first name not yet in a mini-batch begins."""
    if start is None:
        return 0
    following = start.position["next"]
    offset: int = following["at"] if isinstance(following, dict) else following
    return offset


def _plan_one(
    one: FileList,
    first: int,
    root: bytes,
    size: int,
    begin: int,
    start: Checkpoint | None,
    plan_files: PlanFiles,
    emitter: Emitter,
    taking_over: TakenOver,
    ranks: SizeRanks,
) -> int:
    """Plan an input whose entries are numbered from `first` on; return where the names of the next one begin."""
    have, end, crc = 0, begin, 0
    for names in _runs(one, first, root, begin, start, plan_files, emitter, taking_over):
        if isinstance(names, _Met):
            if have:
                emitter.add(have, begin, end - begin - 1, crc, end, ranks.take())
                begin, have = end, 0
            taking_over.emit(names.number, end, names.frontier)
            continue
        at = 0
        while at < len(names):
            part = names[at : at + size - have]
            at += len(part)
            ranks.count(part)
            text = b"\0".join(part)
            crc = zlib.crc32(text, zlib.crc32(b"\0", crc)) if have else zlib.crc32(text)
            have += len(part)
            end += len(text) + 1
            if have == size:
                emitter.add(have, begin, end - begin - 1, crc, end, ranks.take())
                begin, have = end, 0
    if have:
        emitter.add(have, begin, end - begin - 1, crc, end, ranks.take())
    if emitter.is_input_empty and not taking_over.recipes_bytes:
        raise nothing_found(one.path, one.entries) if one.steps is None else one.steps.nothing_left()
    return end


def reader_of_files(root: bytes, entries: Sequence[AnyEntry], *, copies: bool) -> dict[str, Any]:
    """The reader document of a list of files, whose names are relative to `root`."""
    reader: dict[str, Any] = {"kind": "files", "root": os.fsdecode(root)}
    if any(not entry.folder.startswith(b"/") for entry in entries):
        # Agents fetch what is in stores; its names are followed by stamps.
        reader["remote"] = True
    if copies:
        reader["copy"] = True
    return reader


class _Met(NamedTuple):
    """The walk has come to the first file of a mini-batch that is taken over. `frontier`: behind that file."""

    number: int
    frontier: dict[str, Any]


def _runs(
    one: FileList,
    first: int,
    root: bytes,
    begin: int,
    start: Checkpoint | None,
    plan_files: PlanFiles,
    emitter: Emitter,
    taking_over: TakenOver,
) -> Iterator[list[bytes] | _Met]:
    """Names in order from `begin` on, each group written before it is yielded; what is taken over, in its place."""
    steps = one.steps
    frontier: dict[str, Any] | None = None if start is None else start.position["frontier"]
    if start is not None and begin < start.recipes_bytes:
        yield plan_files.recipes.read(begin, start.recipes_bytes)[:-1].split(b"\0")
    entry_first = first if frontier is None else frontier["entry"]
    for index in range(entry_first, first + len(one.entries)):
        entry = one.entries[index - first]
        after = os.fsencode(frontier["name"]) if frontier is not None and index == entry_first else b""
        for chunk in entry.names(emitter.warn, emitter.places.note, after):
            names = chunk
            more: dict[str, Any] = {}
            if steps is not None:
                if steps.nothing_passes:
                    return
                names = through(steps.apply, entry.folder, names)
                more = {"seen": steps.seen}
            names = in_recipes(names, entry, root)
            if taking_over.names:
                yield from _around_taken(chunk, names, index, plan_files, emitter, taking_over)
                continue
            if names:
                plan_files.recipes.append(b"\0".join(names) + b"\0")
            emitter.frontier = {"entry": index, "name": os.fsdecode(chunk[-1]), **more}
            if names:
                yield names


def _around_taken(
    listed: list[bytes],
    names: list[bytes],
    index: int,
    plan_files: PlanFiles,
    emitter: Emitter,
    taking_over: TakenOver,
) -> Iterator[list[bytes] | _Met]:
    """The names of a chunk that run, and what is taken over, in their order. `listed`: the names as the entry has
    them.
    """
    running: list[bytes] = []

    def walked(behind: bytes) -> dict[str, Any]:
        return {"entry": index, "name": os.fsdecode(behind), **taking_over.progress}

    def written(behind: bytes) -> Iterator[list[bytes]]:
        emitted = running.copy()
        running.clear()
        if emitted:
            plan_files.recipes.append(b"\0".join(emitted) + b"\0")
        emitter.frontier = walked(behind)
        if emitted:
            yield emitted

    for at, name in enumerate(names):
        number = taking_over.place_of(name)
        if number is not None:
            if running:
                yield from written(listed[at - 1])
            yield _Met(number, walked(listed[at]))
        elif name not in taking_over.names:
            running.append(name)
    yield from written(listed[-1])
