"""What a job uses of other jobs and of the state folder, and what others may use of it: read from its rows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from windrow_master.core.counters import Counters
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import JobRow, StepRow, planned_in_checkpoint
from windrow_master.core.states import DONE_STEPS, ENDED_JOBS, JobState, StepState
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import StoreReader

_PAGE = 200
_UPLOADED = re.compile(rb"uploads/([0-9a-f]{64})")


class JobUse(NamedTuple):
    """One job, as far as keeping and deleting is concerned."""

    job_key: JobKey
    job_id: str
    project: str
    state: JobState
    generation: int
    seq: int
    end_time: float
    ended_nth: int
    """Rises from one end of a job to the next, whatever the clock says; 0 while the job has not ended."""
    job_file: str
    steps: tuple[StepId, ...]
    step_names: tuple[str, ...]
    takes_over: frozenset[str]
    """Jobs whose results its steps take over (`resume_from`)."""
    takes_over_still: frozenset[str]
    """Those of them that a step needs which has not divided its input to its end."""
    reused: Mapping[str, str]
    """Steps that were reused, and the job that made their outputs."""
    reads: tuple[str, ...]
    """Places of its inputs."""
    outputs: Mapping[str, str]
    """The places of its outputs, by `step.output`; outputs of reused steps are left out."""
    archives: frozenset[str]
    """Digests of its code."""
    uploads: frozenset[str]
    """Digests of clients' data that it names."""
    may_be_reused: tuple[str, ...]
    """Steps whose outputs later jobs may reuse."""
    divided: bool
    """Whether it has mini-batches with results, which `--since` may take over."""

    @property
    def has_ended(self) -> bool:
        """Whether it may be deleted at all."""
        return self.state in ENDED_JOBS


class JobUses:
    """Reads the uses of all jobs; those of ended jobs are read once. Methods block; one thread at a time."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._known: dict[JobKey, JobUse] = {}

    def all(self) -> list[JobUse]:
        """All jobs, the newest first. Raises StateError."""
        found: list[JobUse] = []
        before: int | None = None
        while page := self._reader.jobs_newest_first(_PAGE, before):
            found += [self.of(row) for row in page]
            before = page[-1].job_key
        self._known = {use.job_key: use for use in found if use.has_ended}
        return found

    def of(self, row: JobRow) -> JobUse:
        """One job. Raises StateError."""
        known = self._known.get(row.job_key)
        if known is not None and (known.generation, known.seq) == (row.generation, row.seq):
            return known
        ended_nth = self._last_end(row.job_key) if row.state in ENDED_JOBS else 0
        return _read(row, self._reader.steps_of(row.job_key), ended_nth)

    def _last_end(self, job_key: JobKey) -> int:
        """The number of the event by which a job ended last."""
        last = after = 0
        while events := self._reader.events_of(job_key, after):
            after = events[-1][0]
            last = max([number for number, event in events if event.kind == "ended"], default=last)
        return last


def _read(row: JobRow, steps: list[StepRow], ended_nth: int) -> JobUse:
    document: dict[str, Any] = json.loads(row.document)
    settings: list[dict[str, Any]] = document["steps"]
    paths = {step.name: StepPaths.from_json(step.paths) for step in steps}
    given = [data for one in settings for data in one.get("inputs", {}).values() if data.get("kind") == "data"]
    return JobUse(
        job_key=row.job_key,
        job_id=row.job_id,
        project=row.queue,
        state=JobState(row.state),
        generation=row.generation,
        seq=row.seq,
        end_time=row.end_time or 0.0,
        ended_nth=ended_nth,
        job_file=document.get("job_file", ""),
        steps=tuple(step.step_id for step in steps),
        step_names=tuple(step.name for step in steps),
        takes_over=frozenset(one["resume_from"] for one in settings if one.get("resume_from")),
        takes_over_still=frozenset(
            settings[step.ordinal]["resume_from"]
            for step in steps
            if settings[step.ordinal].get("resume_from")
            and step.state not in DONE_STEPS
            and not planned_in_checkpoint(step.checkpoint)
        ),
        reused={name: one.reused_from for name, one in paths.items() if one.reused_from},
        reads=tuple(data["path"] for data in given),
        outputs={
            f"{name}.{output}": place
            for name, one in paths.items()
            if not one.reused_from
            for output, place in one.outputs.items()
        },
        archives=frozenset(one["code_digest"] for one in settings),
        uploads=frozenset(digest.decode() for digest in _UPLOADED.findall(row.document)),
        may_be_reused=tuple(
            step.name
            for step in steps
            if settings[step.ordinal].get("reuse")
            and step.state == StepState.COMPLETED
            and not paths[step.name].reused_from
        ),
        divided=any(
            settings[step.ordinal].get("input_data") and Counters.from_json(step.counters).succeeded for step in steps
        ),
    )
