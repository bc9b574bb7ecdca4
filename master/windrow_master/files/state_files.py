"""Every place in a state folder (docs/contracts.md, section 2). No other module joins a path below it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windrow.common.state_mark import STATE_MARK

_MADE_AFTER_THE_DATABASE = ("jobs", "artifacts", "uploads", "reuse", "outputs")


class StepFiles(NamedTuple):
    """The files of one step."""

    folder: Path

    @property
    def recipes(self) -> Path:
        """What each mini-batch reads (`recipes.Recipes`)."""
        return self.folder / "recipes"

    @property
    def listing(self) -> Path:
        """For a table: its files, as they were when it was divided."""
        return self.folder / "listing"

    @property
    def places(self) -> Path:
        """What the folders and links of the input led to (`planning.plan_files.places_seen`)."""
        return self.folder / "places"

    @property
    def earlier(self) -> Path:
        """The mini-batches of an earlier job that may be taken over (`planning.earlier`)."""
        return self.folder / "earlier"

    @property
    def sorted_rows(self) -> Path:
        """In embedded mode: the folder of rows that were sorted by partition keys."""
        return self.folder / "rows"

    @property
    def segments(self) -> Path:
        """The folder of result rows (`output.segments`)."""
        return self.folder / "segments"

    @property
    def reuse(self) -> Path:
        """A note: what the step began with, so that later jobs may reuse what it makes."""
        return self.folder / "reuse.json"


class RemovedFiles(NamedTuple):
    """What is left of a job that is being deleted (`retention.removal`)."""

    folder: Path

    @property
    def note(self) -> Path:
        """A note: which job, and which steps it had."""
        return self.folder / "note"

    @property
    def job(self) -> Path:
        """What was the job's folder."""
        return self.folder / "job"

    @property
    def outputs(self) -> Path:
        """What was the folder of the outputs that the master kept for it."""
        return self.folder / "outputs"


class StateFiles:
    """The places in one state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def database(self) -> Path:
        """The database of a store that keeps one here. Its name marks a folder as a state folder."""
        return self.folder / STATE_MARK

    @property
    def lock(self) -> Path:
        """The lock of the live master (`lock.StateLock`)."""
        return self.folder / "lock"

    @property
    def reserve(self) -> Path:
        """Disk space in reserve (`reserve.Reserve`)."""
        return self.folder / "reserve"

    @property
    def unfinished_restore(self) -> Path:
        """A mark: a backup is being restored here, or that broke off (`backup.restoring`, docker/backup.sh)."""
        return self.folder / ".restored"

    @property
    def backup_lock(self) -> Path:
        """Keeps backups and deletions apart (`backup_lock`)."""
        return self.folder / "backup.lock"

    def before_migration(self, schema: int) -> Path:
        """The copy of the database that was made before it left a schema."""
        return self.folder / f"{STATE_MARK}.schema-{schema}"

    def before_migrations(self) -> list[Path]:
        """All such copies."""
        return sorted(self.folder.glob(f"{STATE_MARK}.schema-*"))

    def not_backed_up(self) -> frozenset[str]:
        """What a backup leaves out, by its path below the folder: what belongs to live processes, what an agent or a
        client can do without, what is copied in another way, and what is being deleted.
        """
        left = {
            "lock",
            "backup.lock",
            "reserve",
            "clock",
            "deletions-clock",
            "health",
            "socket",
            "embedded.lock",
            "embedded.json",
            "agent",
        }
        left |= {f"{STATE_MARK}{end}" for end in ("", "-wal", "-shm", "-journal")}
        left |= {path.name for path in (self.unfinished_restore, *self.before_migrations())}
        for _, place in self.removed_found():
            left |= {str(path.relative_to(self.folder)) for path in (place.job, place.outputs)}
        return frozenset(left)

    def links(self) -> list[Path]:
        """What lies directly in the folder and is a link. Windrow makes none there but that to its socket; it would
        write, and delete, where such a link leads. Raises OSError.
        """
        with os.scandir(self.folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_symlink() and entry.name != "socket")

    @staticmethod
    def is_of_scripts(name: str) -> bool:
        """Whether a path below the folder lies where scripts write. Only they make links in a state folder."""
        return name.startswith("outputs/")

    @property
    def journal(self) -> Path:
        """The master's own log."""
        return self.folder / "master.log"

    @property
    def clock(self) -> Path:
        """A note: how the clocks of the machine stood (`clock_watch`)."""
        return self.folder / "clock"

    @property
    def deletions_clock(self) -> Path:
        """A note: the time by which old jobs are deleted (`retention.patient_clock`)."""
        return self.folder / "deletions-clock"

    @property
    def audit(self) -> Path:
        """Who changed what (`identity.audit`); earlier files have `.1`, `.2` … added."""
        return self.folder / "audit.jsonl"

    @property
    def artifacts(self) -> Path:
        """The folder of archives, by digest (`artifacts.ArtifactFolder`)."""
        return self.folder / "artifacts"

    @property
    def uploads(self) -> Path:
        """The folder of lists of clients' data, by digest (`upload_lists`)."""
        return self.folder / "uploads"

    @property
    def made(self) -> Path:
        """The folder of notes on what steps made, so that later jobs may reuse it (`reuse.notes`)."""
        return self.folder / "reuse" / "made"

    @property
    def digests(self) -> Path:
        """The folder of the cache of files' digests (`reuse.digest_cache`)."""
        return self.folder / "reuse" / "listings"

    @property
    def outputs(self) -> Path:
        """The default folder of outputs."""
        return self.folder / "outputs"

    @property
    def jobs(self) -> Path:
        """The folder of all jobs."""
        return self.folder / "jobs"

    @property
    def removed(self) -> Path:
        """The folder of jobs that are being deleted, by their number."""
        return self.folder / "removed"

    def removed_job(self, job_key: int) -> RemovedFiles:
        """What is left of a job that is being deleted."""
        return RemovedFiles(self.removed / str(job_key))

    def removed_found(self) -> Iterator[tuple[int, RemovedFiles]]:
        """The number of every job that is being deleted, and what is left of it."""
        for path in sorted(self.removed.glob("*")):
            if path.name.isdecimal():
                yield int(path.name), RemovedFiles(path)

    def job(self, job_id: str) -> Path:
        """The folder of a job."""
        return self.jobs / job_id

    def logs(self, job_id: str) -> Path:
        """The folder of a job's logs and reports."""
        return self.jobs / job_id / "logs"

    def step(self, job_id: str, step_id: int) -> StepFiles:
        """The files of a step."""
        return StepFiles(self.jobs / job_id / "steps" / str(step_id))

    def jobs_found(self) -> Iterator[str]:
        """The name of every job that has a folder."""
        for path in sorted(self.jobs.glob("*")):
            yield path.name

    def steps_of(self, job_id: str) -> Iterator[StepFiles]:
        """The files of every step of a job that has a folder."""
        for path in sorted(self.job(job_id).glob("steps/*")):
            yield StepFiles(path)

    def steps_found(self) -> Iterator[tuple[str, int, StepFiles]]:
        """The job, number and files of every step that has a folder."""
        for path in sorted(self.jobs.glob("*/steps/*")):
            if path.name.isdecimal():
                yield path.parts[-3], int(path.name), StepFiles(path)

    def signs_of_use(self) -> str:
        """What beside the database shows that the folder was in use, in words; empty if nothing does."""
        for name in _MADE_AFTER_THE_DATABASE:
            with contextlib.suppress(OSError):
                if next((self.folder / name).iterdir(), None) is not None:
                    return f"{name}/ beside it, which is not empty"
        return ""
