"""The facts for all texts about a job. They come from its rows in the store, so they are durable."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windrow.common.failure_kinds import FailureKind
from windrow.spec.one_line.words import failure_in_options, in_options

from windrow_master.core.counters import Counters
from windrow_master.core.records import JobRow, StepRow
from windrow_master.core.states import JobState, StepState
from windrow_master.step_paths import StepPaths
from windrow_master.store.protocol import StoreReader


class StepFacts(NamedTuple):
    """One step. `settings`: its part of the effective job (docs/contracts.md, section 1)."""

    row: StepRow
    counters: Counters
    paths: StepPaths
    settings: Mapping[str, Any]
    logs: Path
    """`logs/<step>` of the job."""
    job_file: str = ""
    """Of the job: it says how messages call settings."""

    @property
    def name(self) -> str:
        """The step's key in the job file."""
        return self.row.name

    @property
    def outcome(self) -> str:
        """The state as one word, as in docs/reference/azure-ml/parallel-job.md#the-end-of-a-job."""
        if self.row.state == StepState.COMPLETED and (self.counters.failed or self.counters.items_failed):
            return "CompletedWithFailures"
        return StepState(self.row.state).name.title()

    @property
    def is_command(self) -> bool:
        """Whether the step runs a command, which is one mini-batch without input."""
        return self.settings.get("command") is not None

    @property
    def message(self) -> str:
        """Why the step is in its state."""
        return in_options(self.row.message, self.job_file)

    @property
    def failure_kinds(self) -> list[FailureKind]:
        """Its failures by kind, as `Counters.failure_kinds`."""
        return [
            kind._replace(message=failure_in_options(kind.cause, kind.message, self.job_file))
            for kind in self.counters.failure_kinds()
        ]

    @property
    def has_failures(self) -> bool:
        """Whether anything failed, even if a retry succeeded."""
        return bool(self.counters.failed or self.counters.items_failed or self.counters.failed_attempts)


class JobFacts(NamedTuple):
    """A job with its steps."""

    row: JobRow
    steps: tuple[StepFacts, ...]
    warnings: tuple[str, ...]
    options: str
    """The options by which commands find the job's master, as in ` --state folder`; "" if none are needed."""

    @property
    def outcome(self) -> str:
        """The state, as it is shown everywhere."""
        return JobState(self.row.state).name.title().replace("_", "")

    @property
    def message(self) -> str:
        """Why the job is in its state."""
        return in_options(self.row.message, self.job_file)

    @property
    def job_file(self) -> str:
        """The job file that was submitted; "" if there was none."""
        return str(json.loads(self.row.document or b"{}").get("job_file", ""))

    def command(self, words: str, *rest: str) -> str:
        """A command about this job, ready to be typed: `windrow job logs JOB …`."""
        return " ".join(("windrow", words, self.row.job_id, *map(shlex.quote, rest))) + self.options

    def mini_batch(self, step: StepFacts, number: int) -> str:
        """How commands name a mini-batch: with its step if there are several."""
        return f"{step.name}/{number}" if len(self.steps) > 1 else str(number)

    def retry_command(self) -> str:
        """The command that runs what is not done; with the job file, if it is here: it may be repaired by then."""
        file = self.job_file
        with_file = ("--file", file) if self.row.state != JobState.CANCELLED and Path(file).is_file() else ()
        return self.command("job retry", *with_file)


def read_facts(reader: StoreReader, job: JobRow, logs: Path, options: str) -> JobFacts:
    """Everything that the texts about a job need. Raises StateError."""
    document = json.loads(job.document or b"{}")
    documents, job_file = document.get("steps", ()), document.get("job_file", "")
    steps = []
    for row in reader.steps_of(job.job_key):
        settings = documents[row.ordinal] if row.ordinal < len(documents) else {}
        steps.append(
            StepFacts(
                row,
                Counters.from_json(row.counters),
                StepPaths.from_json(row.paths),
                settings,
                logs / row.name,
                job_file,
            )
        )
    return JobFacts(job, tuple(steps), tuple(json.loads(job.warnings or b"[]")), options)
