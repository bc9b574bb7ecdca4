"""What can still be read of a state folder, as files that need no Windrow.

OUT/
  salvage.json                  what was saved, what was not, and why
  artifacts/<digest>.tar        code archives (and data archives on their way), whose content is what was written
  <job>/job.json                the job's document
  <job>/<step>/rows.<ending>    committed rows in output order, each verified against its checksum
  <job>/<step>/missing.csv      mini-batches whose rows are missing: never run, failed, or no longer readable
  <job>/<step>/segments/        where it is no longer known what is in them: the segments as they are
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from windrow.common.durable import write_whole
from windrow.common.quantities import counted
from windrow.common.spreadsheet_cells import as_texts
from windrow.common.state_mark import STATE_MARK
from windrow.common.trees import walk

from windrow_master.core.headers import MIXED, SELF_DESCRIBED
from windrow_master.core.states import MiniBatchState
from windrow_master.files.artifacts import DIGEST, sha256_of
from windrow_master.files.durable import is_full
from windrow_master.files.recipes import RecipePlace, Recipes
from windrow_master.files.state_files import StateFiles
from windrow_master.files.step_damage import StepDamaged
from windrow_master.files.temporary import temporary_folder
from windrow_master.output.extents import SegmentReader
from windrow_master.output.fitting import ArrowFitting, Fitting, make_fitting
from windrow_master.reports.failed_items import describer
from windrow_master.salvage.checks import rows_are_sound
from windrow_master.salvage.folder import DamagedState
from windrow_master.store.errors import StoreBroken
from windrow_master.store.found import FoundJob, FoundMiniBatch, FoundStep
from windrow_master.store.records import CommittedRange
from windrow_master.store.sqlite.saved import SavedDatabase
from windrow_master.store.sqlite.saved_records import SavedRecords

_ENDINGS = {"csv": "csv", "jsonl": "jsonl", "parquet": "parquet"}
_NOT_RUN = {
    MiniBatchState.QUEUED: "it has not run, or has no result",
    MiniBatchState.LEASED: "it has no result",
    MiniBatchState.FAILED: "it failed",
    MiniBatchState.CANCELLED: "it was cancelled",
}
_UNREADABLE = "its rows cannot be read, or fail their checksum"
COLUMNS = ("mini_batch", "items", "why", "names")
NAMES_MAX = 1000
"""The number of items of one mini-batch that are named."""


def export(files: StateFiles, out: Path) -> dict[str, Any]:
    """Save what can be read into the empty folder `out`; return the content of `salvage.json`.

    `salvage.json` is written last: a folder without it is incomplete. Raises OSError.
    """
    told: dict[str, Any] = {"state": str(files.folder), "jobs": [], "notes": []}
    told["artifacts"] = _artifacts(files.artifacts, out / "artifacts", told["notes"])
    with temporary_folder(".windrow-copy-", out) as place:
        try:
            saved = SavedDatabase(files.database, place)
        except (OSError, StoreBroken) as error:
            if is_full(error):
                raise
            told["notes"].append(f"Nothing of {files.database} can be read ({error}): segments are copied as they are.")
            _copy_segments(files, out, told)
        else:
            with contextlib.closing(saved):
                _export_jobs(DamagedState(files, SavedRecords(saved)), out, told)
            told["notes"] += saved.notes
            told["notes"] += [
                f"{STATE_MARK}, table {gap.table}: keys {gap.first} to {gap.last} cannot be read, if any existed."
                for gap in dict.fromkeys(saved.gaps)
            ]
    _write_last(out / "salvage.json", told)
    return told


def _write_last(path: Path, told: dict[str, Any]) -> None:
    for folder, _, names in walk(path.parent):
        for name in names:
            with Path(folder, name).open("rb") as file:
                os.fsync(file.fileno())
    write_whole(path, (json.dumps(told, indent=2, ensure_ascii=False) + "\n").encode())


def _export_jobs(state: DamagedState, out: Path, told: dict[str, Any]) -> None:
    jobs, steps = state.records.jobs(), [*state.records.steps(), *state.lost_steps()]
    told["notes"] += [f"{damage.where} was left out: {damage.what}." for _, _, damage in state.records.damaged_rows()]
    known = {job.job_key for job in jobs}
    # The row of a job may be lost. Its steps and the folder's name still show that it existed.
    for number in sorted({step.job_key for step in steps} - known):
        name = _name_of(state.files, {step.step_id for step in steps if step.job_key == number})
        jobs.append(FoundJob(number, name or f"job-{number}", 0, 0, "", b""))
        told["notes"].append(f"The row of job number {number} cannot be read; it is assumed to be {jobs[-1].job_id!r}.")
    for job in jobs:
        place = out / _plain(job.job_id)
        place.mkdir(exist_ok=True)
        if job.document:
            (place / "job.json").write_bytes(job.document)
        entry: dict[str, Any] = {"job": job.job_id, "state": job.state_name, "message": job.message, "steps": []}
        for step in steps:
            if step.job_key == job.job_key:
                entry["steps"].append(_export_step(state, job, step, place / _plain(step.name)))
                _note_losses(told["notes"], job, entry["steps"][-1])
        told["jobs"].append(entry)


def _note_losses(notes: list[str], job: FoundJob, step: dict[str, Any]) -> None:
    where = f"Step {step['step']!r} of job {job.job_id!r}"
    if damaged := step["damaged"]:
        notes.append(f"{where}: left out {counted(damaged, 'mini-batch')} without a sound record. See missing.csv.")
    if unreadable := step["unreadable"]:
        what = counted(unreadable, "mini-batch")
        notes.append(f"{where}: left out the rows of {what}: unreadable, or with a wrong checksum. See missing.csv.")


def _export_step(state: DamagedState, job: FoundJob, step: FoundStep, place: Path) -> dict[str, Any]:
    place.mkdir(exist_ok=True)
    files = state.step_files(job, step)
    segments = state.records.segments_of(step.step_id)
    reader = SegmentReader(files.segments, {number: one.name for number, one in segments.items()}.get)
    form, missing_value = _format_of(job, step)
    target = place / f"rows.{_ENDINGS.get(form, 'txt')}"
    entry: dict[str, Any] = {"step": step.name, "state": step.state_name}
    entry |= dict.fromkeys(("mini_batches", "rows", "missing", "damaged", "unreadable"), 0)
    count = 0
    # Without the header, the rows themselves tell their columns.
    header = MIXED if step.header is None and form in SELF_DESCRIBED else step.header

    def heads() -> Iterator[tuple[bytes, bool]]:
        for batch in state.records.mini_batches_of(step.step_id):
            row = _rows_of(batch)
            if row is not None and rows_are_sound(reader, row):
                yield next(reader.pieces(row)), bool(row.row_count)

    sink = _Sink(target, lambda: make_fitting(form, header, missing_value, heads))
    try:
        with (
            (place / "missing.csv").open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
            contextlib.ExitStack() as opened,
        ):
            names = _names(files.recipes, step, opened)
            missing = csv.writer(file)
            missing.writerow(COLUMNS)
            for batch in state.records.mini_batches_of(step.step_id):
                if not batch.sound:
                    entry["damaged"] += 1
                    if batch.number == count:  # else its number is also damaged, and the right one will be missing
                        missing.writerow((count, "", "its record in the database does not have its check value", ""))
                        entry["missing"] += 1
                        count += 1
                    continue
                for lost in range(count, min(batch.number, count + 1_000_000)):
                    missing.writerow((lost, "", "its record in the database cannot be read", ""))
                entry["missing"] += batch.number - count
                count = batch.number + 1
                why = _write_rows(batch, reader, sink, step)
                if why:
                    entry["missing"] += 1
                    entry["unreadable"] += why == _UNREADABLE
                    missing.writerow(
                        as_texts((batch.number, batch.item_count or batch.items_counted or "", why, names(batch)))
                    )
                else:
                    entry["mini_batches"] += 1
                    entry["rows"] += batch.range.row_count if batch.range is not None else 0
            planned = int(step.planned.get("mini_batches", 0))
            for lost in range(count, min(planned, count + 1_000_000)):
                missing.writerow((lost, "", "its record in the database cannot be read", ""))
            entry["missing"] += max(0, planned - count)
    finally:
        sink.close()
        reader.close()
    if sink.written:
        entry["file"] = str(target)
    if step.append_row is not None:
        entry["output"] = step.append_row
    return entry


class _Sink:
    """The file of rows. It is made with the first row."""

    def __init__(self, path: Path, make: Callable[[], Fitting]) -> None:
        self.written = False
        self._path = path
        self._make = make
        self._file: io.BufferedWriter | None = None
        self._fitting: Fitting | None = None
        self._parquet: Any = None

    def put(self, pieces: Callable[[], Any]) -> None:
        """Append the rows of a mini-batch, which are sound. Raises OSError."""
        file = self._begin()
        if self._parquet is not None:
            self._parquet.append(io.BytesIO(b"".join(pieces())))
            return
        assert self._fitting is not None
        for piece in self._fitting.fit(pieces()):
            file.write(piece)

    def close(self) -> None:
        """Write what is left."""
        if self._parquet is not None:
            self._parquet.finish()
        if self._file is not None:
            self._file.close()

    def _begin(self) -> io.BufferedWriter:
        if self._file is None:
            self._file = self._path.open("wb")
            self.written = True
            self._fitting = self._make()
            if isinstance(self._fitting, ArrowFitting):
                from windrow_master.output.parquet_file import ParquetFile

                self._parquet = ParquetFile(self._fitting, self._file.write)
            self._file.write(self._fitting.header)
        return self._file


def _write_rows(batch: FoundMiniBatch, reader: SegmentReader, sink: _Sink, step: FoundStep) -> str:
    """Append the rows of a mini-batch; return why they are missing, "" if they are not."""
    if batch.state != MiniBatchState.SUCCEEDED:
        return next((why for state, why in _NOT_RUN.items() if state == batch.state), f"it has state {batch.state}")
    row = _rows_of(batch)
    if row is None:
        return ""
    if not rows_are_sound(reader, row):
        if step.state_name == "completed":
            return f"its rows are no longer in the state folder; the step's output is {step.append_row}"
        return _UNREADABLE
    sink.put(lambda: reader.pieces(row))
    return ""


def _rows_of(batch: FoundMiniBatch) -> CommittedRange | None:
    """Where the rows of a mini-batch are, if it has any and its record is sound."""
    if not batch.sound or batch.state != MiniBatchState.SUCCEEDED or batch.range is None or not batch.range.length:
        return None
    return batch.range


def _names(recipes: Path, step: FoundStep, opened: contextlib.ExitStack) -> Callable[[FoundMiniBatch], str]:
    """A function that names the items of a mini-batch, as far as its recipe can be read. `opened` closes its files."""
    try:
        describe = describer(json.loads(step.reader or b"{}")).items
        held = opened.enter_context(Recipes(recipes))
    except (OSError, StepDamaged, ValueError, LookupError, TypeError, AttributeError):
        return lambda batch: ""

    def named(batch: FoundMiniBatch) -> str:
        try:
            recipe = held.read(RecipePlace(batch.number, batch.recipe_offset, batch.recipe_length, batch.recipe_crc32))
            return "\n".join(describe(recipe)[:NAMES_MAX]) if recipe else ""
        except StepDamaged:
            return "(not known: the recipe of this mini-batch is damaged)"
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
            return ""

    return named


def _format_of(job: FoundJob, step: FoundStep) -> tuple[str, str]:
    """The format of the rows, and what stands in them for a missing value, as far as that can be read."""
    try:
        steps = json.loads(job.document)["steps"]
        if step.ordinal >= 0:
            rows = steps[step.ordinal]["rows"]
            return rows.get("format", "text"), str(rows.get("dataframe_to_csv", {}).get("na_rep") or "")
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    written = Path(step.append_row or "").suffix[1:]
    return ("parquet" if written == "parquet" else "text"), ""


def _artifacts(folder: Path, out: Path, notes: list[str]) -> int:
    saved = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not DIGEST.fullmatch(path.name):
            continue
        out.mkdir(exist_ok=True)
        target = out / f"{path.name}.tar"
        try:
            shutil.copyfile(path, target)
            sound = sha256_of(target) == path.name
        except OSError as error:
            if is_full(error):
                raise
            notes.append(f"{path} cannot be read: {error.strerror}.")
            continue
        if sound:
            saved += 1
        else:
            target.rename(target.with_suffix(".damaged"))
            notes.append(f"{path} is not what was written; what is left of it is in {target.with_suffix('.damaged')}.")
    return saved


def _copy_segments(files: StateFiles, out: Path, told: dict[str, Any]) -> None:
    for job, step, step_files in files.steps_found():
        segments = step_files.segments
        if not segments.is_dir():
            continue
        target = out / _plain(job) / f"step-{step}" / "segments"
        target.mkdir(parents=True)
        for segment in sorted(segments.iterdir()):
            try:
                shutil.copyfile(segment, target / segment.name)
            except OSError as error:
                if is_full(error):
                    raise
                told["notes"].append(f"{segment} cannot be copied completely: {error.strerror}.")
        told["jobs"].append(
            {"job": job, "state": "", "message": "", "steps": [{"step": str(step), "segments": str(target)}]}
        )


def _name_of(files: StateFiles, step_ids: set[int]) -> str:
    """The name of the job whose folder holds these steps."""
    return next((job_id for job_id, number, _ in files.steps_found() if number in step_ids), "")


def _plain(name: str) -> str:
    """A name from a damaged database, made safe as a name of a folder."""
    return re.sub(r"[^\w.-]", "_", name)[:120].lstrip(".") or "_"
