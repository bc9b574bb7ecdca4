"""Checks the files of a state folder against their checksums: what planning wrote, archives, notes and lists."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from windrow.common.notes import NoteDamaged, read_note
from windrow.spec.effective.document import DocumentError
from windrow.spec.effective.job import EffectiveJob
from windrow_worker.loaded import InputChanged
from windrow_worker.tables.sorted_sums import SUMS, SortedSums

from windrow_master.files import upload_lists
from windrow_master.files.artifacts import DIGEST, sha256_of
from windrow_master.files.checked_records import read_records
from windrow_master.files.step_damage import StepDamaged
from windrow_master.planning.plan_files.places_seen import read_places
from windrow_master.planning.plan_files.plan_files import known_sums
from windrow_master.reuse import digest_cache
from windrow_master.salvage.damage import AGAIN, Damage, has_ended, means_for_step, named, steps_of, unread
from windrow_master.salvage.folder import DamagedState
from windrow_master.store.found import FoundJob, FoundStep

_NOTES = {
    "jobs/*/run.json": "the job cannot be retried; all of it can be read",
    "jobs/*/steps/*/reuse.json": "the step's outputs are not reused later",
    "jobs/*/logs/.reports.json": "the job's reports are written again",
    "jobs/*/logs/*/nodes.json": "an agent's logs may continue in the folder of an earlier agent of its node",
    "reuse/made/*.json": "steps that could be reused run again",
    "embedded.json": "commands beside a run are refused; the run continues",
    "datastores.json": "runs are refused: remove that file, and give all datastores again (--datastore NAME=PLACE)",
    "untold": "an equal run starts from the beginning, as if the end of the last one had been reported",
    "agent/incarnation.json": "of the processes that an earlier agent left running, only the recorded ones are found",
}
"""What damage to a note means, by the pattern of its path."""


_CODE_GONE = "fails; the next submission of the job uploads it again"


def check_planning(state: DamagedState) -> Iterator[Damage]:
    """Check what planning wrote: recipes and listing against the checkpoint, places, and sorted rows."""
    for job, step in steps_of(state):
        files, name_of_step = state.step_files(job, step), named(job, step)
        means = means_for_step(step)
        for path in (files.recipes, files.listing):
            length, checksum = step.planned.get(f"{path.name}_bytes"), step.planned.get(f"{path.name}_checksum")
            if length and checksum is not None:
                try:
                    with path.open("rb") as file:
                        known_sums(file.fileno(), os.fsencode(path), length, checksum)
                except StepDamaged as damage:
                    yield Damage(damage.where, f"{damage.what}; it belongs to {name_of_step}: {means}")
                except OSError as error:
                    yield Damage(str(path), f"{unread(error)}; it belongs to {name_of_step}: {means}")
        places = files.places
        try:
            bad = sum(told is None for told in read_places(str(places)))
        except FileNotFoundError:
            bad = 0
        except OSError as error:
            yield Damage(str(places), unread(error))
            bad = 0
        if bad:
            what = "1 record fails its" if bad == 1 else f"{bad:,} records fail their"
            meaning = "for a job that takes over its results, these places count as changed: their files run again"
            yield Damage(str(places), f"{what} checksum; it belongs to {name_of_step}: {meaning}")
        if not has_ended(step):
            for found in _damaged_sorted_rows(step):
                yield Damage(
                    found.where, f"{found.what}; it belongs to {name_of_step}: its mini-batches there fail; {AGAIN}"
                )


def _damaged_sorted_rows(step: FoundStep) -> Iterator[Damage]:
    try:
        reader = json.loads(step.reader or b"{}")
    except ValueError:
        return
    for each in reader.get("inputs", (reader,)):
        if "sums_crc32" not in each:
            continue
        name = each["file"]
        try:
            sums = SortedSums(name, each["sums_crc32"])
            with open(name, "rb") as file:
                for part in range(len(sums)):
                    try:
                        sums.verify(part, lambda begin, length: os.pread(file.fileno(), length, begin))
                    except InputChanged:
                        where = f"batch {part - 1:,}" if 0 < part < len(sums) - 1 else "the parts around the batches"
                        yield Damage(name, f"{where} fails its checksum")
        except InputChanged:
            yield Damage(name + SUMS, "it fails its checksum")
        except OSError as error:
            yield Damage(name, unread(error))


def check_artifacts(state: DamagedState) -> Iterator[Damage]:
    """Check archives against the digests that are their names, and that those are there that steps still need."""
    for job, step in steps_of(state):
        digest = "" if has_ended(job) or has_ended(step) else _code_of(job, step)
        if digest and not (path := state.files.artifacts / digest).exists():
            yield Damage(str(path), f"it is gone; it is the code of {named(job, step)}, which {_CODE_GONE}")
    for path in _entries(state.files.artifacts):
        if DIGEST.fullmatch(path.name):
            try:
                found = sha256_of(path)
            except OSError as error:
                yield Damage(str(path), unread(error))
                continue
            if found != path.name:
                meaning = "steps that need it fail, and the next submission of the job uploads it again"
                yield Damage(str(path), f"its content has the sha256 {found}; {meaning}")


def _code_of(job: FoundJob, step: FoundStep) -> str:
    """The digest of a step's code; "" if the document does not tell, which is damage of its own."""
    try:
        return EffectiveJob.from_json(job.document).steps[step.ordinal].code_digest
    except (DocumentError, ValueError, IndexError):
        return ""


def check_notes(state: DamagedState) -> Iterator[Damage]:
    """Check notes against their checksums."""
    for pattern, meaning in _NOTES.items():
        for path in sorted(state.files.folder.glob(pattern)):
            try:
                read_note(path)
            except NoteDamaged as damage:
                yield Damage(damage.where, f"{damage.what}; {meaning}")
            except OSError as error:
                yield Damage(str(path), f"{unread(error)}; {meaning}")


def check_lists(state: DamagedState) -> Iterator[Damage]:
    """Check the lists of uploads and the cached digests of files against the checksums of their records."""
    for folder, bytes_max, meaning in (
        (
            state.files.uploads,
            upload_lists.RECORD_BYTES_MAX,
            "it is not known which files of that data are unchanged: they run again",
        ),
        (state.files.digests, digest_cache.RECORD_BYTES_MAX, "files that it does not list are read again"),
    ):
        for path in _entries(folder):
            if path.name.startswith("."):
                continue  # a list that is being written
            told: list[str] = []
            try:
                with path.open("rb") as file:
                    for _ in read_records(file, bytes_max, told.append):
                        pass
            except OSError as error:
                told.append(unread(error))
            for what in told:
                yield Damage(str(path), f"{what}; {meaning} again")


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []
