"""The rows of inputs that are sorted by partition keys: where planners put them, and when they go.

They go when their job is done, and that is durable; those of a job that ended in another way stay for its retry. What
a master leaves behind that dies before it has removed them, the next one over its state folder removes at its start.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windrow.common.journal import say

from windrow_master.core.states import JobState
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles
from windrow_master.files.step_damage import StepDamaged
from windrow_master.store.protocol import StoreReader

PARTITIONS = "partitions"
"""In the default datastore, which all agents read: `<job_id>/<step_id>` (served master)."""


def reads_sorted_rows(reader: bytes) -> bool:
    """Whether a step's reader (JSON, docs/contracts.md, section 3) reads rows that were sorted for it."""
    return any(each.get("format") == "sorted_rows" for each in _readers(reader))


def _readers(reader: bytes) -> Sequence[dict[str, Any]]:
    """Those of the inputs of a step."""
    value = json.loads(reader)
    found: Sequence[dict[str, Any]] = value.get("inputs", (value,))
    return found


def need_sorted_rows(reader: bytes) -> None:
    """Raise StepDamaged where rows that were sorted for a step with this reader are not there any more: its state was
    brought back from a backup after its job had ended, or somebody has removed them."""
    for each in _readers(reader):
        if each.get("format") == "sorted_rows":
            # Here, and not at the top: most steps sort nothing, and the first run() waits for imports.
            from windrow_worker.tables.sorted_sums import SUMS

            for name in (each["file"], each["file"] + SUMS):
                if not Path(name).exists():
                    raise StepDamaged(name, "it is gone, with the rows of the input sorted by the partition keys")


class SortedRows:
    """Its functions touch the disk, and may wait for it: but for `folder_of`, they are for threads."""

    def __init__(self, files: StateFiles, shared: Path | None, *, embedded: bool) -> None:
        """`shared`: the default datastore of a served master; None: it has none, and nothing can be sorted."""
        self._files = files
        self._shared = shared
        self._embedded = embedded

    def folder_of(self, job_id: str, step_id: int) -> Path | None:
        """Where a step's sorted rows lie, so that agents can read them; None: there is no such place."""
        if self._embedded:
            return self._files.step(job_id, step_id).sorted_rows
        return None if self._shared is None else self._shared / PARTITIONS / job_id / str(step_id)

    def remove(self, job_id: str, step_ids: Sequence[int]) -> None:
        """Remove those of a job's steps, and the job's folder where it is empty then. What cannot be removed stays."""
        for step_id in step_ids:
            folder = self.folder_of(job_id, step_id)
            if folder is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            if not self._embedded:
                with contextlib.suppress(OSError):
                    folder.parent.rmdir()

    def remove_left(self, reader: StoreReader) -> None:
        """Remove those of jobs that ended under an earlier master, from the datastore: what lies in a state folder goes
        with its job. Folders of jobs that this state does not know are another master's.
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
