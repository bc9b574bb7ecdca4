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
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow_master.planning.earlier.earlier import NONE, EarlierJob
from windrow_master.planning.emitter import Emitter
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.inputs import about
from windrow_master.planning.listing.entries import AnyEntry, common_root, nothing_found
from windrow_master.planning.listing.stamps import through
from windrow_master.planning.plan_files.checkpoint import Checkpoint
from windrow_master.planning.plan_files.plan_files import PlanFiles
from windrow_master.planning.request import DividedInput, Request

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
    taking_over = TakenOver(lists, root, reader, request, plan_files, emitter)
    if taking_over.run():
        start = None
    frontier = None if start is None else start.position["frontier"]
    size = FILES_DEFAULT if request.mini_batch_size is None else request.mini_batch_size
    begin, first = max(_next_of(start), taking_over.recipes_bytes), 0
    for number, one in enumerate(lists):
        behind = first + len(one.entries)
        if frontier is None or frontier["entry"] < behind:
            if len(lists) > 1:
                emitter.begin_input(number)
            with about(one.given, request, emitter):
                begin = _plan_one(one, first, root, size, begin, start, plan_files, emitter, taking_over)
            start = frontier = None
        first = behind
    emitter.finish()


def in_recipes(names: list[bytes], entry: AnyEntry, root: bytes) -> list[bytes]:
    """Names of an entry as recipes have them."""
    return names if root else [os.path.join(entry.folder, name) for name in names]


class TakenOver:
    """Mini-batches of an earlier job whose files are all in these lists and unchanged. They come first.

    Not the core's `TakenOver`, which is the outcome of one.

    The rest of the lists is divided after them. `recipes_bytes`: where they end in the recipes; `names`: their files. A
    file is taken over only if the lists and the mini-batches name it once; a file that is listed more often runs. What
    an earlier planner took over stays taken over, whatever this planner is asked.
    """

    def __init__(
        self,
        lists: Sequence[FileList],
        root: bytes,
        reader: dict[str, Any],
        request: Request,
        plan_files: PlanFiles,
        emitter: Emitter,
    ) -> None:
        self._lists = lists
        self._root = root
        self._reader = reader
        self._earlier = request.earlier
        self._start = request.checkpoint
        self._plan_files = plan_files
        self._emitter = emitter
        self.recipes_bytes = 0
        self.names: set[bytes] = set()

    def run(self) -> bool:
        """Emit them. Return whether dividing the rest has yet to begin. Raises PlanningError."""
        done = 0
        if self._start is not None:
            position = self._start.position["frontier"]
            if "earlier" not in position:
                self.recipes_bytes = position.get("taken", 0)
                self._note_names()
                return False
            done = position["earlier"]
            self.recipes_bytes = self._start.recipes_bytes
        if self._earlier is not None:
            self._take_over(self._earlier, done)
        # At the end, not one by one: millions of names are not held twice.
        self._note_names()
        return True

    def _take_over(self, earlier: EarlierJob, done: int) -> None:
        """Emit those after the first `done` of the index."""
        uploaded = earlier.unchanged_names(self._reader)
        why = self._why_nothing(earlier, uploaded=uploaded is not None)
        if why:
            self._emitter.warn(f"Nothing of job {earlier.job_id} is taken over: {why}. All files run.")
            return
        there, doubled, left = self._listed_once()
        if uploaded is not None:
            there = {name for name in uploaded if name in there}
        self._note_names()
        there -= self.names
        for number, one in enumerate(earlier.mini_batches(done), done):
            names = one.recipe.split(b"\0")
            if (
                one.mini_batch != NONE
                and all(name in there and (uploaded is not None or self._is_unchanged(name, earlier)) for name in names)
                and len(set(names)) == len(names)
            ):
                there.difference_update(names)
                end = self._plan_files.recipes.length + len(one.recipe) + 1
                self._emitter.add_earlier(len(names), one.recipe, end, one.mini_batch)
                self.recipes_bytes = end
            self._emitter.frontier = {"entry": -1, "earlier": number + 1}
        if trouble := earlier.trouble():
            self._emitter.warn(trouble)
        taken = self._emitter.items
        self._emitter.warn(
            f"Results of job {earlier.job_id} are taken over: {taken:,} files; {left - taken:,} are new, have "
            f"changed, {f'are listed more than once ({doubled:,}), ' if doubled else ''}have no result there, or were "
            "in a mini-batch with one of these: their rows come after those that are taken over."
        )

    def _why_nothing(self, earlier: EarlierJob, *, uploaded: bool) -> str:
        """Why nothing is taken over; "" if something may be. `uploaded`: both lists are of uploads, and alike."""
        if any(one.steps is not None for one in self._lists):
            return "the steps of an MLTable file choose among its files"
        if uploaded or earlier.reads_alike(self._reader):
            return ""
        if any(one.given.type == "mltable" for one in self._lists):
            return "its MLTable file names other files"
        return "its files were elsewhere"

    def _listed_once(self) -> tuple[set[bytes], int, int]:
        """Names that are listed once; the number of names listed more often, and of all entries."""
        once, more, count = set[bytes](), set[bytes](), 0
        for name in (name for one in self._lists for entry in one.entries for name in self._listed(entry)):
            count += 1
            if name in once:
                more.add(name)
            else:
                once.add(name)
        return once - more if more else once, len(more), count

    def _listed(self, entry: AnyEntry) -> Iterator[bytes]:
        for chunk in entry.names(lambda text: None, self._emitter.places.note):
            yield from in_recipes(chunk, entry, self._root)

    def _is_unchanged(self, name: bytes, earlier: EarlierJob) -> bool:
        path = os.path.join(self._root, name)
        # In a store, the stamp in the name shows a change.
        return not path.startswith(b"/") or earlier.is_unchanged(path)

    def _note_names(self) -> None:
        text = self._plan_files.recipes.read(0, self.recipes_bytes)
        self.names = set(text[:-1].split(b"\0")) if text else set()


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
) -> int:
    """Plan an input whose entries are numbered from `first` on; return where the names of the next one begin."""
    have, end, crc = 0, begin, 0
    for names in _runs(one, first, root, begin, start, plan_files, emitter, taking_over):
        at = 0
        while at < len(names):
            part = names[at : at + size - have]
            at += len(part)
            text = b"\0".join(part)
            crc = zlib.crc32(text, zlib.crc32(b"\0", crc)) if have else zlib.crc32(text)
            have += len(part)
            end += len(text) + 1
            if have == size:
                emitter.add(have, begin, end - begin - 1, crc, end)
                begin, have = end, 0
    if have:
        emitter.add(have, begin, end - begin - 1, crc, end)
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


def _runs(
    one: FileList,
    first: int,
    root: bytes,
    begin: int,
    start: Checkpoint | None,
    plan_files: PlanFiles,
    emitter: Emitter,
    taking_over: TakenOver,
) -> Iterator[list[bytes]]:
    """Names in order from `begin` on; each chunk is written before it is yielded."""
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
                names = [name for name in names if name not in taking_over.names]
                more["taken"] = taking_over.recipes_bytes
            if names:
                plan_files.recipes.append(b"\0".join(names) + b"\0")
            emitter.frontier = {"entry": index, "name": os.fsdecode(chunk[-1]), **more}
            if names:
                yield names
