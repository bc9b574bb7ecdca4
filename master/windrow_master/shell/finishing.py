"""The end of a step: writes its output from the committed rows, and the list of failed items beside it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from windrow.common.beneath import Folder
from windrow.common.failure_list import FILE_NAME, listed_in, named_for
from windrow.common.journal import Condition, say
from windrow.storage.errors import StorageError, Trouble
from windrow.storage.urls import is_remote

from windrow_master.core.causes import DEPENDENCY_ERROR, USER_ERROR
from windrow_master.core.commands import FailStep, FinishStep, LostRows, PostponeFinish, RequeueLostRows
from windrow_master.core.ids import JobKey, StepId
from windrow_master.crash_points import reach
from windrow_master.files.artifacts import sha256_of
from windrow_master.files.durable import make_durable
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StepFiles
from windrow_master.output.concatenation import (
    ConcatenationError,
    ConcatenationStopped,
    OutputFull,
    OutputRequest,
    RowsLost,
    RowsUnreadable,
    concatenate,
)
from windrow_master.output.errors import ColumnUnwritable, RowsOtherwise, TargetForeign
from windrow_master.output.remote import need_bucket, refuse_foreign_object, stands_there, upload
from windrow_master.output.staging import remove_orphans
from windrow_master.output.target import foreign, need_as_written, refuse_foreign, stamp_if_equal
from windrow_master.output_places import OutputPlaces
from windrow_master.reports.failed_items import copy_list, describer, write_failed_items
from windrow_master.shell.output_values import ValueUnreadable, read_values
from windrow_master.shell.project_turns import ProjectThreads
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import StorePostponed
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import AssetRow, CommittedRange, OutputRow

RETRY_S = 2.0
UPLOADS_MAX = 5
"""How often the upload of an output is tried; each time, its requests have all their own tries."""
ASSEMBLED = "assembled"
"""The folder below the step's own in which an output for remote storage is assembled before the upload."""
THREADS, OF_ONE_PROJECT = 4, 2
"""Threads that write outputs: in all, and of one project at most."""


@dataclass(frozen=True, kw_only=True)
class Finish:
    """A step to finish, as plain values: objects of the core stay on the event loop's thread."""

    job_key: JobKey
    job_id: str
    step_id: StepId
    step_name: str
    only_step: bool
    generation: int
    header: bytes | None
    row_format: str
    missing: str
    reader: bytes
    has_failures: bool
    paths: StepPaths
    files: StepFiles
    logs: Path
    """The folder `logs/<step>` of the job."""
    job_file: str = ""
    project: str = ""
    rows: int | None = None
    """How many rows the step has counted as committed; None if it did not count them."""
    assets: tuple[AssetRow, ...] = ()
    """The assets as which its outputs are registered."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The outputs whose values other steps need, with their types."""


@dataclass(eq=False, slots=True)
class _Making:
    """One making of a step's output, by one generation of its job."""

    stop: threading.Event = field(default_factory=threading.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Finisher:
    """Concatenates in its own threads, and tries again until it succeeds or cannot succeed.

    Two makings of one step's output share files, so the second begins when the first is over.
    """

    def __init__(
        self,
        reader: StoreReader,
        record: Callable[[OutputRow], None],
        incarnation: int,
        places: OutputPlaces,
        register: Callable[[AssetRow], str] = lambda row: "",
    ) -> None:
        """`record` makes an OutputRow durable (Store.record_output). `places` opens the folders of outputs. `register`
        registers an asset (Assets.register)."""
        self._places = places
        self._register = register
        self._reader = reader
        self._record = record
        self._incarnation = incarnation
        self._threads = ProjectThreads(THREADS, OF_ONE_PROJECT, "finisher")
        self._makings: dict[StepId, _Making] = {}
        """The newest making of each step, until it is over."""

    def need_as_written(self, rows: Path, paths: StepPaths) -> None:
        """Raise OutputDamaged unless a finished file of rows is still what was written. Reads all of it.

        `paths`: of the step that wrote it.
        """
        need_as_written(rows, lambda: self._places.holder(rows, paths), self._reader.outputs_at)

    def refuse_foreign(self, paths: StepPaths, submitted: float) -> None:
        """Check, before any work is done, that the output can be written and does not replace somebody else's file.

        `submitted`: when the job was submitted. Raises TargetForeign, StorageError, OSError.
        """
        for place in paths.outputs.values():
            if is_remote(place):
                need_bucket(place)
        if paths.append_row is None:
            return
        if is_remote(paths.append_row):
            refuse_foreign_object(paths.append_row, self._reader.outputs_at, submitted=submitted)
            return
        target = Path(paths.append_row)
        with self._places.folder(target.parent, paths) as folder:
            refuse_foreign(folder, target, self._reader.outputs_at, submitted=submitted)

    async def finish(
        self, work: Finish, postpone: Callable[[PostponeFinish], object]
    ) -> FinishStep | RequeueLostRows | FailStep | None:
        """Finish a step. Return the command that tells the core how it went, or None if the output was abandoned.

        While the disk of the output is full, it waits, and says so by `postpone`.
        Raises StateError if the master's own state is at fault.
        """
        earlier, making = self._makings.get(work.step_id), _Making()
        self._makings[work.step_id] = making
        try:
            if earlier is not None:
                earlier.stop.set()
                await earlier.over.wait()
            return await self._finish_until(making.stop, work, postpone)
        finally:
            making.stop.set()  # cancelling the task does not stop its thread
            making.over.set()
            if self._makings.get(work.step_id) is making:
                del self._makings[work.step_id]

    def abandon(self, step_id: StepId) -> None:
        """Stop making the output of a step. An output that is already in place stays."""
        making = self._makings.get(step_id)
        if making is not None:
            making.stop.set()

    async def _finish_until(
        self, stop: threading.Event, work: Finish, postpone: Callable[[PostponeFinish], object]
    ) -> FinishStep | RequeueLostRows | FailStep | None:
        uploads_left = UPLOADS_MAX
        waits = Condition(logging.WARNING, "the output waits", "the output no longer waits")
        while not stop.is_set():
            try:
                made = await self._threads.run(work.project, self._finish_once, work, stop)
                waits.is_over(step=work.step_id)
                return made
            except ConcatenationStopped:
                break
            except (OutputFull, RowsUnreadable, StorePostponed) as error:
                waits.goes_on(step=work.step_id, reason=str(error))
                postpone(PostponeFinish(work.step_id, work.generation, str(error)))
                await asyncio.sleep(RETRY_S)
            except StorageError as error:
                uploads_left -= 1
                if error.trouble is not Trouble.FAILED or not uploads_left:
                    text = f"The output could not be written: {error} Then retry the job: nothing needs to run again."
                    return FailStep(work.step_id, text, DEPENDENCY_ERROR, work.generation)
                waits.goes_on(step=work.step_id, reason=str(error))
                postpone(PostponeFinish(work.step_id, work.generation, str(error)))
                await asyncio.sleep(RETRY_S)
            except ConcatenationError as error:
                category = (
                    USER_ERROR
                    if isinstance(error, (TargetForeign, ColumnUnwritable, RowsOtherwise))
                    else DEPENDENCY_ERROR
                )
                return FailStep(work.step_id, str(error), category, work.generation)
            except ValueUnreadable as error:
                return FailStep(work.step_id, str(error), USER_ERROR, work.generation)
            except OSError as error:
                message = f"The output of step {work.step_name!r} could not be finished: {error}."
                return FailStep(work.step_id, message, DEPENDENCY_ERROR, work.generation)
        return None

    async def report(self, work: Finish) -> None:
        """List the failed items of a failed step."""
        try:
            await self._threads.run(work.project, self._list_without_output, work)
        except (OSError, StateError) as error:
            say(logging.WARNING, "the failed items could not be listed", step=work.step_id, reason=str(error))

    def register(self, assets: Sequence[AssetRow]) -> list[str]:
        """Register outputs as assets; return messages for the user. Blocks on the disk. Raises StateError."""
        told = [text for row in assets if (text := self._register(row))]
        if assets:
            reach("assets.registered")
        return told

    def close(self) -> None:
        """Stop all makings. The next master makes the outputs again."""
        for making in self._makings.values():
            making.stop.set()
        self._threads.shutdown()

    def _finish_once(self, work: Finish, stop: threading.Event) -> FinishStep | RequeueLostRows:
        # Before anything is registered under a name.
        values = read_values(work.step_name, work.paths, work.values, self._places)
        segments = work.files.segments
        warnings: list[str] = []
        append_row = work.paths.append_row
        if append_row is not None:
            remote = is_remote(append_row)
            target = work.files.folder / ASSEMBLED / append_row.rpartition("/")[2] if remote else Path(append_row)
            if remote:
                make_durable(target.parent, work.files.folder)
            try:
                with self._opened(target.parent, work) as folder:
                    wanted = OutputRequest(
                        work.job_key,
                        work.job_id,
                        work.step_id,
                        work.generation,
                        self._incarnation,
                        target,
                        folder,
                        segments,
                        work.header,
                        work.row_format,
                        work.missing,
                        work.rows,
                    )
                    row = concatenate(wanted, self._reader, self._record, stop=stop, warn=warnings.append)
            except RowsLost as error:
                say(logging.ERROR, "committed rows are lost", step=work.step_id, reason=str(error))
                lost = tuple(self._lost_rows(work.step_id, row) for row in error.lost)
                return RequeueLostRows(work.step_id, work.generation, lost)
            if remote:
                try:
                    self._upload(target, row._replace(path=append_row, mtime_ns=0), work, stop)
                finally:
                    target.unlink(missing_ok=True)
        # If the step was ended meanwhile, it may be running again, with staged rows that are not committed yet.
        _unless_stopped(stop, work)
        remove_orphans(segments, self._incarnation, {row.name for row in self._reader.segments_of(work.step_id)})
        message = self._leave_list(work)
        _unless_stopped(stop, work)
        # Register last: what an asset name leads to must be complete. If the master dies now, the next one finds the
        # asset registered.
        told = self.register(work.assets)
        paths = replace(work.paths, values=values).to_json() if values else None
        message = " ".join([*told, message]) if told else message
        return FinishStep(work.step_id, work.generation, message, paths, tuple(warnings))

    def _upload(self, rows: Path, row: OutputRow, work: Finish, stop: threading.Event) -> None:
        """Upload an output to remote storage, unless it already exists: Windrow recognizes its own by their digest."""
        try:
            refuse_foreign_object(row.path, self._reader.outputs_at)
        except TargetForeign:
            if not stands_there(row):
                raise foreign(row.path, known=bool(self._reader.outputs_at(row.path)), made=work.job_id) from None
            self._record(row)
            return
        upload(rows, row, self._record, stop)

    def _lost_rows(self, step_id: StepId, row: CommittedRange) -> LostRows:
        failures = tuple(self._reader.counted_failures_of(step_id, row.mini_batch))
        return LostRows(row.mini_batch, row.lease_id, row.item_count, row.ok_count, row.row_count, row.length, failures)

    def _leave_list(self, work: Finish) -> str:
        """Write the list of failed items, and return the message for the step.

        The list is in the logs, where `windrow job logs` finds it from any machine, and beside the output. If nothing
        failed, an old list is removed. A file beside the output that is not Windrow's stays.
        """
        logged, places = work.logs / FILE_NAME, self._places_of_list(work)
        if not work.has_failures:
            logged.unlink(missing_ok=True)
            for path in self._own_lists(places, work):
                self._remove(path, work)
            return ""
        logged.parent.mkdir(parents=True, exist_ok=True)
        if not self._list_failures(work, logged):
            return ""
        own = [path for path in self._own_lists(places, work) if self._is_file(path, work)]
        # The name stays while the list does, whatever becomes of those of other outputs.
        beside = next(iter(own), None) or next(
            (path for path in places if not self._is_of_another_output(path, work)), places[-1]
        )
        for path in own:
            if path != beside:
                self._remove(path, work)
        if beside == logged:
            return listed_in(logged)
        if self._is_foreign(beside, work):
            if not self._is_copy(beside, logged, work):
                return (
                    f"{beside} already exists, and was not written by Windrow from this state folder; Windrow "
                    f"does not touch it. {listed_in(logged)}"
                )
            with self._opened(beside.parent, work) as folder:
                self._record_list(work, folder.status(beside.name), logged, beside)
            return listed_in(beside)
        self._copy_list(work, logged, beside)
        return listed_in(beside)

    def _places_of_list(self, work: Finish) -> list[Path]:
        """Where the list of failed items may be: as `failed_items_paths`, or in the logs where nothing can be written
        beside the output, or nothing may be.
        """
        places = failed_items_paths(work)
        try:
            with self._opened(places[0].parent, work) as folder:
                writable = os.access(".", os.W_OK | os.X_OK, dir_fd=folder.descriptor)
        except OSError:
            writable = False
        return places if writable else [work.logs / FILE_NAME]

    @contextmanager
    def _opened(self, path: Path, work: Finish) -> Iterator[Folder]:
        """Open a folder of the step: of an output, or in the state folder. Raises OSError."""
        if path in (work.logs, work.files.folder, work.files.folder / ASSEMBLED):
            path.mkdir(parents=True, exist_ok=True)
            opened = Folder.open(os.path.realpath(path))
        else:
            opened = self._places.folder(path, work.paths)
        with opened as folder:
            yield folder

    def _list_without_output(self, work: Finish) -> None:
        """Write the list of a step that has made no output, in its logs. A list that an earlier run has left beside the
        output is replaced, so that nobody takes it for the list of this one.
        """
        logged = work.logs / FILE_NAME
        logged.parent.mkdir(parents=True, exist_ok=True)
        if not self._list_failures(work, logged):
            return
        for beside in self._own_lists(self._places_of_list(work), work):
            if beside != logged and self._is_file(beside, work):
                self._copy_list(work, logged, beside)

    def _copy_list(self, work: Finish, logged: Path, beside: Path) -> None:
        with self._opened(beside.parent, work) as folder:
            copy_list(
                logged,
                folder,
                beside.name,
                work.step_id,
                before=lambda status: self._record_list(work, status, logged, beside),
            )

    def _remove(self, path: Path, work: Finish) -> None:
        with self._opened(path.parent, work) as folder:
            folder.remove(path.name)

    def _is_file(self, path: Path, work: Finish) -> bool:
        with self._opened(path.parent, work) as folder:
            return folder.has_file(path.name)

    def _is_foreign(self, path: Path, work: Finish) -> bool:
        try:
            with self._opened(path.parent, work) as folder:
                refuse_foreign(folder, path, self._reader.outputs_at)
        except TargetForeign:
            return True
        return False

    def _is_copy(self, path: Path, logged: Path, work: Finish) -> bool:
        with self._opened(path.parent, work) as folder:
            if not folder.has_file(path.name):
                return False
            return stamp_if_equal(folder, path.name, logged.stat().st_size, sha256_of(logged)) is not None

    def _own_lists(self, places: Sequence[Path], work: Finish) -> list[Path]:
        """Where earlier lists of this output may be, of those beside it."""
        return [path for path in places if self._is_of_this_output(path, work) and not self._is_foreign(path, work)]

    def _is_of_another_output(self, report: Path, work: Finish) -> bool:
        return (
            self._is_file(report, work)
            and not self._is_of_this_output(report, work)
            and not self._is_foreign(report, work)
        )

    def _is_of_this_output(self, report: Path, work: Finish) -> bool:
        """Whether this list is from an earlier generation of the job, or an earlier run into the same output.

        One folder may hold the outputs of several jobs, each with its own list.
        """
        lists = self._reader.outputs_at(str(report))
        if not lists:
            return False
        writer = (lists[0].job_key, lists[0].step_id)
        append_row = work.paths.append_row
        earlier = self._reader.outputs_at(append_row) if append_row is not None else []
        return writer in {(work.job_key, work.step_id), *((row.job_key, row.step_id) for row in earlier)}

    def _record_list(self, work: Finish, status: os.stat_result, logged: Path, report: Path) -> None:
        """Record durably, before the rename to `report`, that the file is Windrow's own: a copy of `logged`."""
        self._record(
            OutputRow(
                str(report),
                work.job_key,
                work.step_id,
                work.generation,
                self._incarnation,
                status.st_size,
                sha256_of(logged),
                status.st_mtime_ns,
                0,
            )
        )

    def _list_failures(self, work: Finish, target: Path) -> int:
        describe = describer(json.loads(work.reader))
        return write_failed_items(
            self._reader, work.step_id, work.files.recipes, describe, target, job_file=work.job_file
        )


def _unless_stopped(stop: threading.Event, work: Finish) -> None:
    if stop.is_set():
        raise ConcatenationStopped(f"Finishing step {work.step_name!r} was stopped.")


def failed_items_paths(work: Finish) -> list[Path]:
    """Where the list of failed items may be: beside the output, or in the logs if the output is in remote storage. If
    the list of another output is at the first place, it goes to the second, which a file of rows has.

    It is never inside an output folder: every file there is data to a later step, or to a pattern such as `*.csv`.
    """
    outputs = [path for path in work.paths.outputs.values() if not is_remote(path)]
    first = next(iter(work.paths.outputs.values()), "") if work.paths.append_row is None else work.paths.append_row
    if is_remote(first):
        return [work.logs / FILE_NAME]
    name = FILE_NAME if work.only_step else f"{work.step_name}.{FILE_NAME}"
    if not first:
        return [work.files.folder / name]
    place = Path(first)
    folders = [Path(path) for path in sorted(outputs, key=len)]
    outermost = next((folder for folder in folders if folder in (place, *place.parents) and folder.is_dir()), place)
    beside = outermost.parent / name
    return [beside] if work.paths.append_row is None else [beside, outermost.parent / named_for(outermost)]
