"""Input rows that planners sorted by partition keys: where they are, and when they are removed.

They are removed when their job has durably completed. After any other end they stay, for a retry. If a master dies
before itremoves them, the next master over its state folder does so at its start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from windrow.common.beneath import Folder
from windrow.common.journal import say
from windrow.common.removal import discard_tree

from windrow_master.core.states import JobState
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles
from windrow_master.files.step_damage import StepDamaged
from windrow_master.kept_folders import PARTITIONS
from windrow_master.store.protocol import StoreReader


def reads_sorted_rows(reader: bytes) -> bool:
    """Whether a reader (JSON; docs/contracts.md, section 3) reads rows that were sorted for its step."""
    return any(each.get("format") == "sorted_rows" for each in _readers(reader))


def _readers(reader: bytes) -> Sequence[dict[str, Any]]:
    """The readers of the single inputs of a step."""
    value = json.loads(reader)
    found: Sequence[dict[str, Any]] = value.get("inputs", (value,))
    return found


def need_sorted_rows(reader: bytes) -> None:
    """Raise StepDamaged if the sorted rows that this reader names are gone.

    That happens if the state was restored from a backup after its job had ended, or if somebody removed them.
    """
    for each in _readers(reader):
        if each.get("format") == "sorted_rows":
            # Imported here, not at the top: most steps sort nothing, and the first run() waits for imports.
            from windrow_worker.tables.sorted_sums import SUMS

            for name in (each["file"], each["file"] + SUMS):
                if not Path(name).exists():
                    raise StepDamaged(name, "it is gone, with the rows of the input sorted by the partition keys")


class SortedRows:
    """Knows the places of sorted rows, and removes them.

    Call its methods in threads, because they may wait for the disk; only `folder_of` does not.

    Not the `SortedRows` of `planning.partitions`, which writes them.
    """

    def __init__(self, files: StateFiles, shared: Path | None, *, embedded: bool) -> None:
        """`shared`: the default datastore of a served master; if None, there is none, so nothing can be sorted."""
        self._files = files
        self._shared = shared
        self._embedded = embedded

    def folder_of(self, job_id: str, step_id: int) -> Path | None:
        """The folder of a step's sorted rows, which agents can read; None if there is no such place."""
        if self._embedded:
            return self._files.step(job_id, step_id).sorted_rows
        return None if self._shared is None else self._shared / PARTITIONS / job_id / str(step_id)

    def is_full(
        self, job_id: str, step_id: int, most: int, counts: Callable[[str], bool] = lambda job_id: True
    ) -> bool:
        """Whether there are the sorted rows of so many steps in the datastore that another one gets no folder.
        `counts`: whether those of a job do. Raises OSError.
        """
        folder = self.folder_of(job_id, step_id)
        if self._embedded or self._shared is None or folder is None or folder.exists():
            return False
        try:
            jobs = [job.name for job in os.scandir(self._shared / PARTITIONS) if job.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return False
        found = 0
        with Folder.open(os.path.realpath(self._shared)) as shared:
            for job in filter(counts, jobs):
                # Whatever is removed meanwhile is none.
                with contextlib.suppress(FileNotFoundError), shared.folder(f"{PARTITIONS}/{job}") as steps:
                    found += len(steps.names())
                if found >= most:
                    return True
        return False

    def remove(self, job_id: str, step_ids: Sequence[int]) -> None:
        """Remove the sorted rows of steps, and the folder of their job if it is empty then. What cannot be removed
        stays."""
        for step_id in step_ids:
            folder = self.folder_of(job_id, step_id)
            if folder is None:
                continue
            discard_tree(folder)
            if not self._embedded:
                with contextlib.suppress(OSError):
                    folder.parent.rmdir()

    def remove_left(self, reader: StoreReader) -> None:
        """Remove from the datastore the sorted rows of jobs that completed under an earlier master.

        Rows in a state folder go with their job. Folders of jobs that this master does not know belong to another one.
        """
        if self._shared is None:
            return
        try:
            for folder in (self._shared / PARTITIONS).iterdir():
                job = reader.job_by_id(folder.name)
                if job is not None and job.state == JobState.COMPLETED:
                    self.remove(job.job_id, [step.step_id for step in reader.steps_of(job.job_key)])
        except FileNotFoundError:
            return
        except (OSError, StateError) as error:
            say(logging.WARNING, "sorted rows that an earlier master left were not removed", reason=str(error))
