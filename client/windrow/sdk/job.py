"""Jobs and their steps, as plain frozen values made from the messages of the protocol.

The numbers of a step belong to one commit, so mini-batches and items always add up.

Named tuples cost a tenth of dataclasses to define, and these are on the way to the first `run()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.failure_kinds import FailureKind
from windrow.errors import UsageError

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from google.protobuf.timestamp_pb2 import Timestamp

    from windrow.rpc.v1 import job_pb2, work_pb2
    from windrow.sdk.forecast import Forecast


class JobState(StrEnum):
    """States of jobs, as in proto/windrow/rpc/v1/job.proto. Not the core's `JobState`, whose numbers are stored.

    Example:
        if job.state is windrow.JobState.COMPLETED_WITH_FAILURES:
            print(job.items.failed, "items failed")
    """

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """A state that only a newer master knows."""

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the outputs are complete."""
        return self in (JobState.COMPLETED, JobState.COMPLETED_WITH_FAILURES)

    @property
    def label(self) -> str:
        """The state as shown to users, such as `CompletedWithFailures`."""
        return self.value.title().replace("_", "")

    @property
    def words(self) -> str:
        """The state within a sentence, such as `completed with failures`."""
        return self.value.replace("_", " ")


_ENDED = frozenset({JobState.COMPLETED, JobState.COMPLETED_WITH_FAILURES, JobState.FAILED, JobState.CANCELLED})
_JOB_STATES = (
    JobState.UNKNOWN,
    JobState.QUEUED,
    JobState.RUNNING,
    JobState.PAUSED,
    JobState.CANCELLING,
    JobState.COMPLETED,
    JobState.COMPLETED_WITH_FAILURES,
    JobState.FAILED,
    JobState.CANCELLED,
)
_STEP_STATES = ("unknown", "waiting", "running", "concatenating", "completed", "failed", "cancelled", "skipped")
CAUSES = (
    "unspecified",
    "exception",
    "timeout",
    "bad_return",
    "crash",
    "oom",
    "init_failed",
    "load_failed",
    "input_changed",
    "node_fault",
    "node_lost",
    "preempted",
    "rows_lost",
    "cancelled",
    "node_killer",
    "output_failed",
    "input_misread",
    "marked",
)


class MiniBatchCounts(NamedTuple):
    """Numbers of mini-batches. Each mini-batch counts in exactly one of the fields from `queued` to `cancelled`."""

    total: int = 0
    queued: int = 0
    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    taken_over: int = 0
    """Succeeded mini-batches whose result comes from an earlier job; they did not run."""
    speculated: int = 0
    """Times that a straggler was begun once more (`--speculate`)."""
    speculated_won: int = 0
    """Of those, the ones where the second attempt succeeded first."""

    @property
    def ended(self) -> int:
        """Mini-batches with an outcome."""
        return self.done + self.cancelled

    @property
    def done(self) -> int:
        """Mini-batches that ran, whatever the outcome, or were taken over."""
        return self.succeeded + self.failed

    @property
    def ran(self) -> int:
        """Mini-batches that ran, whatever the outcome."""
        return self.done - self.taken_over


class ItemCounts(NamedTuple):
    """Numbers of items: files or records."""

    total: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    taken_over: int = 0
    """Ok items whose result comes from an earlier job."""

    @property
    def ended(self) -> int:
        """Items with an outcome."""
        return self.done + self.cancelled

    @property
    def done(self) -> int:
        """Items that ran, whatever the outcome, or were taken over."""
        return self.ok + self.failed

    @property
    def ran(self) -> int:
        """Items that ran, whatever the outcome."""
        return self.done - self.taken_over


class FailureExample(NamedTuple):
    """The first failure with a given cause."""

    cause: str
    mini_batch_index: int
    message: str
    detail: str
    node_id: str
    process_number: int | None
    """None if no worker had it, because its data could not be fetched."""
    status: str = ""
    """As in the reports: `RUN_EXCEPTION`, `LOAD_TIMEOUT`, `NODE_LOST`, …"""
    error_category: str = ""
    """`UserError`, `SystemError` or `DependencyError`."""


class StepReason(NamedTuple):
    """Why a step is in its current state. `code`: for programs, such as `NO_NODE`. `message`: what, why, what to do.
    `brief`: what happens or is waited for, in a few words; empty for a step that has ended.
    """

    step: str
    code: str
    message: str
    brief: str = ""

    @property
    def waits_for_node(self) -> bool:
        """Whether no node takes work of the step, so that nothing happens until one does."""
        return self.code in (
            *("NO_NODE", "NO_NODE_IN_POOL", "WAITS_FOR_AGENTS"),
            *("NODES_SET_ASIDE", "NODES_TOO_SMALL", "NODES_END_TOO_SOON"),
        )


def no_work(reasons: Iterable[StepReason]) -> str:
    """Why no node takes work of a job, and what to check; empty if one does, or none has to."""
    return " ".join(dict.fromkeys(reason.message for reason in reasons if reason.waits_for_node))


class Output(NamedTuple):
    """Where an output is, as a path on the master's machine. `append_row`: whether it holds the rows.

    Not `windrow.ml.Output`, by which a step asks for an output.
    """

    name: str
    path: str
    append_row: bool
    ready: bool


class GpuUse(NamedTuple):
    """What the workers of a step have used of the GPUs that they held, as far as nodes have measured it."""

    peak_memory_bytes: int | None = None
    """The most memory that one worker used; None if that was not measured."""
    busy_percent: float | None = None
    """Part of the time in which the GPUs computed for the workers that held them, on average; None if that was not
    measured."""
    measurements: int = 0
    """So many measurements of workers that is the average of."""


class DataCacheUse(NamedTuple):
    """What the data of a step has had of the data caches of nodes (`windrow agent --data-cache`)."""

    hits: int = 0
    """Objects, and parts of objects, that were on the node when they were needed."""
    misses: int = 0
    """Those that were fetched from their store."""
    bytes_saved: int = 0
    """Bytes of the hits."""
    evictions: int = 0
    """Entries that were removed from the caches to make room meanwhile."""


class Step(NamedTuple):
    """One step of a job.

    Not the `Step` of `windrow.ml`, which is under construction, nor the master's record (`windrow_master.core.state`).
    """

    name: str
    state: str
    message: str = ""
    planned: bool = False
    """The totals are final."""
    mini_batches: MiniBatchCounts = MiniBatchCounts()
    items: ItemCounts = ItemCounts()
    failed_attempts: Mapping[str, int] = MappingProxyType({})
    """By cause."""
    retries: int = 0
    rows: int = 0
    output_bytes: int = 0
    outputs: tuple[Output, ...] = ()
    start_time: datetime | None = None
    end_time: datetime | None = None
    failure_examples: tuple[FailureExample, ...] = ()
    failure_kinds: tuple[FailureKind, ...] = ()
    """What failed, by cause, type of error and place in the script: those that cost most first, at most 50."""
    error_category: str = ""
    """What kind of error it failed by: `UserError`, `SystemError` or `DependencyError`; empty while it has not."""
    is_command: bool = False
    """It runs a command once; its one mini-batch holds no items."""
    step_id: int = 0
    """Its number, never used again within one state folder."""
    reused_from: str = ""
    """The earlier job whose outputs are reused, so that this step did not run; empty if there is none."""
    misfits: int = 0
    """Values of its tables that did not fit their column: they are null, cut or left out; and records with more or
    fewer fields than the header. `Job.warnings` says which, once the step has ended."""
    gpu_use: GpuUse | None = None
    """What its workers have used of GPUs; None if nothing was measured."""
    forecast: Forecast | None = None
    """When it is likely to begin and end; None if it has ended, or nothing is known."""
    data_cache: DataCacheUse | None = None
    """What its data has had of the data caches of nodes; None if no node that has one has fetched any."""

    @property
    def shown_state(self) -> str:
        """The state, or `reused`."""
        return "reused" if self.reused_from else self.state

    @property
    def failed_items_file(self) -> str:
        """The file on the master's machine that lists what failed in a step that ended well; otherwise empty.

        `Client.read_log(job_id, f"{step.name}/failed_items.csv")` reads it from any machine.
        """
        from windrow.common.failure_list import place_in

        return place_in(self.message) or ""


class Job(NamedTuple):
    """A job at one moment. `seq` grows with each change.

    Not the master's record of it (`windrow_master.core.state`), which changes.

    Example:
        job = windrow.run("job.yml").job
        print(job.job_id, job.state.label, job.items.ok, "of", job.items.total)
    """

    job_id: str
    display_name: str
    state: JobState
    message: str = ""
    steps: tuple[Step, ...] = ()
    create_time: datetime | None = None
    end_time: datetime | None = None
    seq: int = 0
    generation: int = 1
    run_digest: str = ""
    warnings: tuple[str, ...] = ()
    experiment_name: str = ""
    notes: tuple[str, ...] = ()
    """What its steps tell that is no reason to warn, such as how much of an earlier job is taken over."""
    project: str = ""
    """The project that it belongs to."""
    submitter: str = ""
    """The name of the client token that submitted it; empty if the master asked for none."""
    priority: int = 0
    """Jobs of a higher one go first in their project."""
    weight: int = 1
    """Jobs of one priority and deadline share by their weights."""
    deadline: datetime | None = None
    """When it should have ended."""
    place: int = 0
    """Its place in the line of jobs, of all projects, that wait for their first worker; the one at 1 is served next. 0:
    it has workers, or waits for something else."""
    forecast: Forecast | None = None
    """What lies ahead of it; None once it has ended, and where nothing runs it."""

    @property
    def parallel(self) -> Job:
        """The job reduced to those of its parallel steps that run: they have items and mini-batches to count."""
        return self._replace(
            steps=tuple(
                step for step in self.steps if not (step.is_command or step.reused_from or step.state == "skipped")
            )
        )

    @property
    def commands(self) -> MiniBatchCounts:
        """The command steps, counted as one mini-batch each."""
        return self._replace(steps=tuple(step for step in self.steps if step.is_command)).mini_batches

    @property
    def items(self) -> ItemCounts:
        """Items of all steps."""
        return ItemCounts(*_sums(step.items for step in self.steps))

    @property
    def mini_batches(self) -> MiniBatchCounts:
        """Mini-batches of all steps."""
        return MiniBatchCounts(*_sums(step.mini_batches for step in self.steps))

    @property
    def retries(self) -> int:
        """Retries of all steps."""
        return sum(step.retries for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def __repr__(self) -> str:
        """The job in one line; `to_dict` has all of it."""
        from windrow.sdk.job_html import progress_of

        return f"<Job {self.job_id}: {self.state.words}, {progress_of(self).words}>"

    def _repr_html_(self) -> str:
        """How notebooks show the job."""
        from windrow.sdk.job_html import job_html

        return job_html(self)


def id_of(job: str | Job) -> str:
    """The id of a job: calls take the job itself as well. Raises UsageError."""
    if isinstance(job, Job):
        return job.job_id
    if not isinstance(job, str):
        raise UsageError(f"{job!r} is not a job. Give its id, which is a text, or the Job itself.")
    return job


def told_name(name: str, what: str) -> str:
    """A name that a master tells, and that becomes one of files on this machine. Raises TransferFailed for one that
    would lead elsewhere.
    """
    if "/" in name or "\0" in name or name.startswith("."):
        from windrow.errors import TransferFailed

        raise TransferFailed(
            f"The master names {what} {name[:200]!r}, which is no name: files that are named by it would be written "
            "elsewhere. Nothing was written. Do not trust this master; ask whoever runs it."
        )
    return name


def job_from_message(message: job_pb2.Job) -> Job:
    """Make a job from its message. Raises TransferFailed for names that are none."""
    return Job(
        job_id=told_name(message.job_id, "a job"),
        display_name=message.display_name,
        state=_JOB_STATES[message.state] if message.state < len(_JOB_STATES) else JobState.UNKNOWN,
        message=message.message,
        steps=tuple(map(_step, message.steps)),
        create_time=moment_of(message, "create_time"),
        end_time=moment_of(message, "end_time"),
        seq=message.seq,
        generation=message.generation,
        run_digest=message.run_digest,
        warnings=tuple(message.warnings),
        experiment_name=message.experiment_name,
        notes=tuple(message.notes),
        project=message.project,
        submitter=message.submitter,
        priority=message.priority,
        weight=message.weight,
        deadline=moment_of(message, "deadline"),
        place=message.place,
        forecast=_forecast(message),
    )


def _forecast(message: job_pb2.Job | job_pb2.Step) -> Forecast | None:
    if not message.HasField("forecast"):
        return None
    # Short runs end before anyone looks ahead.
    from windrow.sdk.forecast import forecast_from_message

    return forecast_from_message(message.forecast)


def _step(message: job_pb2.Step) -> Step:
    batches, items = message.mini_batches, message.items
    return Step(
        name=told_name(message.name, "a step"),
        state=_STEP_STATES[message.state] if message.state < len(_STEP_STATES) else "unknown",
        message=message.message,
        planned=message.planned,
        mini_batches=MiniBatchCounts(
            batches.total,
            batches.queued,
            batches.leased,
            batches.succeeded,
            batches.failed,
            batches.cancelled,
            batches.taken_over,
            batches.speculated,
            batches.speculated_won,
        ),
        items=ItemCounts(items.total, items.ok, items.failed, items.cancelled, items.taken_over),
        failed_attempts={_cause(entry.cause): entry.count for entry in message.failed_attempts},
        retries=message.retries,
        rows=message.rows,
        output_bytes=message.output_bytes,
        outputs=tuple(
            Output(told_name(out.name, "an output"), out.path, out.append_row, out.ready) for out in message.outputs
        ),
        start_time=moment_of(message, "start_time"),
        end_time=moment_of(message, "end_time"),
        failure_examples=tuple(
            FailureExample(
                _cause(example.cause),
                example.mini_batch_index,
                example.message,
                example.detail,
                example.node_id,
                example.process_number if example.HasField("process_number") else None,
                example.status,
                example.error_category,
            )
            for example in message.failure_examples
        ),
        failure_kinds=tuple(
            FailureKind(
                _cause(kind.cause),
                kind.error,
                kind.place,
                kind.attempts,
                kind.final_attempts,
                kind.mini_batches,
                kind.items,
                kind.mini_batch_index if kind.HasField("mini_batch_index") else -1,
                kind.message,
                kind.detail,
                kind.node_id,
                kind.process_number if kind.HasField("process_number") else None,
                kind.status,
                kind.error_category,
            )
            for kind in message.failure_kinds
        ),
        error_category=message.error_category,
        is_command=message.is_command,
        misfits=message.misfits,
        step_id=message.step_id,
        reused_from=message.reused_from,
        gpu_use=_gpu_use(message.gpu_use) if message.HasField("gpu_use") else None,
        forecast=_forecast(message),
        data_cache=_data_cache(message.data_cache) if message.HasField("data_cache") else None,
    )


def _gpu_use(message: job_pb2.GpuUse) -> GpuUse:
    return GpuUse(
        message.peak_memory_bytes or None,
        message.busy_percent if message.HasField("busy_percent") else None,
        message.measurements,
    )


def _data_cache(message: work_pb2.DataCacheUse) -> DataCacheUse:
    return DataCacheUse(message.hits, message.misses, message.bytes_saved, message.evictions)


def _cause(number: int) -> str:
    return CAUSES[number] if number < len(CAUSES) else f"cause_{number}"


def moment_of(message: Message, name: str) -> datetime | None:
    """A timestamp of a message; None if it is not set, or is no date."""
    if not message.HasField(name):
        return None
    stamp: Timestamp = getattr(message, name)
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _sums(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, StrEnum) else value
