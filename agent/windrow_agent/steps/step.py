"""A step as it lives on this node: its folder, its code, its workers, its pace.

States and edges::

    PREPARING ──code is here──► SERVING ──ended by the master, or replaced by a later generation──► ENDING ──► (gone)
        └──────────────────────────────ended──────────────────────────────────────────────────────────┘

One that comes back while it is ENDING replaces it, too: what still runs of a replaced one is killed.

Invariants:

1. Workers exist in SERVING and ENDING only; in ENDING none is started.
2. A Step has its own copy of the code, never shared with another. Where a worker finds that it has changed, the next
   workers get a fresh copy, once: if that changes, too, the script itself does it, and it is used as it is.
3. Process numbers rise and are never used twice by one incarnation of the agent (the master keeps the logs of another
   incarnation apart): a log file belongs to one process, or to one failure before any was started. Logs of the node
   are one file each, in which a later Step's follow those of the former.
4. A folder belongs to one Step: one that comes back, be it with the same generation, gets another, since the former one
   is removed whenever the master has its last logs.
5. After 3 x `workers` failures to become ready, with no mini-batch finished in between, no worker is started any more
   (`given_up`): docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.rpc.log_paths import WORKER_LOGS, place_of
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.pace import Pace
from windrow_agent.steps.code_cache import CodeSums
from windrow_agent.steps.reader import needs_fetching
from windrow_agent.workers.capture import LIMIT_BYTES, CapturedFile
from windrow_agent.workers.deadlines import Limits
from windrow_agent.workers.process import WorkerProcess

if TYPE_CHECKING:
    from windrow_agent.environments.provider import Held

_ERROR_FILE_BYTES = 4 << 20
_ERRORS = frozenset((rpc.LOG_KIND_ERROR, rpc.LOG_KIND_RUNTIME_ERROR))
_WORKER_LOGS = WORKER_LOGS.keys() - {rpc.LOG_KIND_ENVIRONMENT}
"""Of one process, whose number no other has; the others are of the node, and have the same name in each generation."""


class StepState(IntEnum):
    """Where a step stands on this node."""

    PREPARING = 1
    SERVING = 2
    ENDING = 3


class BadStep(ValueError):
    """What the master says about a step cannot be used."""


@dataclass(slots=True)
class LogFile:
    """One log file of one worker, and what the master calls it."""

    kind: rpc.LogKind.ValueType
    process_number: int
    file: CapturedFile


@dataclass(slots=True, eq=False)
class Lineage:
    """What all Steps of one step id share on this node, one after the other.

    `opened`: how many there were. `next_process`: the next number of a process. `node_logs`: the newest log of
    each kind that is of the node.
    """

    opened: int = 0
    next_process: int = 0
    node_logs: dict[rpc.LogKind.ValueType, LogFile] = field(default_factory=dict)

    def number(self) -> int:
        """Takes the next number of a process."""
        self.next_process += 1
        return self.next_process - 1


@dataclass(slots=True, eq=False)
class Step:
    """One (step, generation). `target`: workers it should have now; `told`: the capacity the master knows of.

    `given_up_for`: the failure after which no worker is started any more.
    """

    spec: work.StepSpec
    folder: Path
    node_id: str
    reader: Any
    rows: Any
    limits: Limits
    workers_max: int
    lineage: Lineage
    state: StepState = StepState.PREPARING
    workers: dict[int, WorkerProcess] = field(default_factory=dict)
    target: int = 0
    failures: int = 0
    given_up_for: rpc.WorkerFailure | None = None
    pace: Pace = field(default_factory=Pace)
    reported: tuple[int, int, bool] | None = None
    active_ns: int = 0
    logs: list[LogFile] = field(default_factory=list)
    side_inputs: dict[str, Path] = field(default_factory=dict)
    """Where on this node the side inputs are that had to be brought, by name."""
    saves: set[asyncio.Task[None]] = field(default_factory=set)
    """What of its workers' outputs is on its way to a store."""
    attempt_saves: set[asyncio.Task[None]] = field(default_factory=set)
    """Those among them that the completion of a mini-batch waits for."""
    unsaved: str = ""
    """Why something that a worker wrote outside of `run()` is not in its store."""
    shutdown_failures: int = 0
    """Workers whose `shutdown()` failed, or did not come to its end."""
    shutdown_failure: str = ""
    """What the first of them says."""
    monitor_at: float | None = None
    """When its node's resources are looked at next (monotonic seconds); None: not yet settled."""
    asked_to_end: bool = False
    """The master wants to hear when it has ended here."""
    replaced: bool = False
    """Another one has come in its place: nobody wants to hear how this one has ended."""
    foreign: bool = False
    """The master's state does not have it: not even its logs are wanted."""
    environment: Held | None = None
    """In which its scripts run; None: in the node's own Python."""
    takes_work: bool = True
    """False: it waits for its environment, or for a fresh copy of its code, and wants no work."""
    code_copies: int = 1
    """How many copies of the code were made. Only the newest is used."""
    code_sums: CodeSums | None = None
    """What its code is compared with when workers import it; None: nothing is compared."""
    building_since_ns: int = 0
    """Since when its environment is being built here; 0: it is not."""

    @classmethod
    def open(cls, spec: work.StepSpec, folder: Path, node_id: str, slots: int, now_ns: int, lineage: Lineage) -> Step:
        """Raises BadStep, OSError."""
        try:
            reader, rows = json.loads(spec.reader or b"{}"), json.loads(spec.rows or b"{}")
        except ValueError as error:
            raise BadStep(f"The settings of step {spec.step_name!r} are no JSON: {error}") from error
        limits = Limits(
            run_s=_duration(spec, "run_invocation_timeout", 60.0),
            load_s=_duration(spec, "task_overhead_timeout", 600.0),
        )
        lineage.opened += 1
        step = cls(
            spec=spec,
            folder=folder / "steps" / f"{spec.step_id}-{lineage.opened}",
            node_id=node_id,
            reader=reader,
            rows=rows,
            limits=limits,
            workers_max=spec.max_concurrency_per_instance or slots,
            active_ns=now_ns,
            lineage=lineage,
        )
        step.log_folder.mkdir(parents=True, exist_ok=True)
        step.scratch.mkdir(parents=True, exist_ok=True)
        return step

    @property
    def step_id(self) -> int:
        """Unique for ever over one master's state."""
        return self.spec.step_id

    @property
    def code(self) -> Path:
        """The newest copy of the code; working folder of its workers."""
        return self.code_copy(self.code_copies)

    def code_copy(self, number: int) -> Path:
        """Where a copy of the code is; the first has the number 1."""
        return self.folder / ("code" if number == 1 else f"code-{number}")

    def note_shutdown_failure(self, process_number: int, message: str) -> None:
        """A worker that was told to shut down did not do so in good order."""
        self.shutdown_failures += 1
        self.shutdown_failure = self.shutdown_failure or f"process{process_number:03d}: {message}"

    def as_ended(self) -> rpc.EndedStep:
        """What the master is told when no worker is left."""
        return rpc.EndedStep(
            step_id=self.step_id,
            unsaved=self.unsaved,
            shutdown_failures=self.shutdown_failures,
            shutdown_failure=self.shutdown_failure,
            generation=self.spec.generation,
        )

    def localised(self, text: str, outputs: Mapping[str, str]) -> str:
        """A text of the specification with the places of side inputs on this node, and of a worker's stored outputs."""
        for name, place in self.side_inputs.items():
            text = text.replace(f"\0{name}\0", str(place))
        for name, folder in outputs.items():
            text = text.replace(f"\0outputs/{name}\0", folder)
        return text

    @property
    def saves_outputs(self) -> bool:
        """Whether its workers write to a store, by way of local folders."""
        return bool(self.spec.stored_outputs)

    @property
    def depth(self) -> int:
        """Leases that a worker may have now: one only, where what it has written is saved before it goes on."""
        return 1 if self.saves_outputs else self.pace.depth

    @property
    def outputs(self) -> Path:
        """What workers have written that goes to a store, a folder for each worker."""
        return self.folder / "outputs"

    @property
    def fetched(self) -> Path:
        """What has been brought from remote storage, a folder for each lease."""
        return self.folder / "fetched"

    @property
    def needs_fetching(self) -> bool:
        """Whether its input lies in remote storage."""
        return needs_fetching(self.reader)

    @property
    def scratch(self) -> Path:
        """Large recipes and rows, configurations and pages of workers."""
        return self.folder / "scratch"

    @property
    def log_folder(self) -> Path:
        """Root of the log tree (docs/reference/azure-ml/parallel-job.md#logs)."""
        return self.folder / "logs"

    @property
    def live(self) -> list[WorkerProcess]:
        """Workers that are not on their way out."""
        return [w for w in self.workers.values() if not w.retiring and w.overrun is None and w.killed_for is None]

    @property
    def given_up(self) -> bool:
        """No worker is started any more."""
        return self.given_up_for is not None

    @property
    def failures_max(self) -> int:
        """Failures in a row after which no worker is started any more."""
        return 3 * max(1, self.workers_max)

    @property
    def may_start(self) -> bool:
        """Whether another worker may be started: those that still start may all fail, too, and must not pass the
        bound.
        """
        starting = sum(1 for worker in self.live if not worker.ready)
        return not self.given_up and (self.failures == 0 or self.failures + starting < self.failures_max)

    def log_file(self, kind: rpc.LogKind.ValueType, number: int) -> CapturedFile:
        """The file for one kind of log of one process (of the node: number 0, or the minute), where the tree of
        docs/reference/azure-ml/parallel-job.md#logs has it."""
        place = place_of(kind, self.node_id, number)
        assert place is not None, kind
        path = self.log_folder / place
        for log in self.logs:
            if log.file.path == path:
                return log.file
        earlier = self.lineage.node_logs.get(kind)
        follows = earlier.file if earlier is not None and earlier.process_number == number else None
        file = CapturedFile(path, _ERROR_FILE_BYTES if kind in _ERRORS else LIMIT_BYTES, follows)
        log = LogFile(kind, number, file)
        self.logs.append(log)
        if kind not in _WORKER_LOGS:
            self.lineage.node_logs[kind] = log
        return file

    def end_logs(self, number: int) -> None:
        """A process is gone: its files do not grow any more."""
        if self.spec.profiling_module:
            # Only now: while it lives its profile is written anew again and again.
            self.log_file(rpc.LOG_KIND_PROFILE, number)
        for log in self.logs:
            if log.process_number == number and log.kind in WORKER_LOGS:
                log.file.end()

    def drop_work(self) -> None:
        """Removes code, scratch, fetched data and outputs, and gives the environment back; the logs stay until the
        master has them.
        """
        if self.environment is not None:
            self.environment.release()
        self.drop_code()
        for folder in (self.scratch, self.fetched, self.outputs):
            shutil.rmtree(folder, ignore_errors=True)

    def drop_code(self) -> None:
        """Removes every copy of the code."""
        for copy in self.folder.glob("code*"):
            if copy.is_dir():
                shutil.rmtree(copy, ignore_errors=True)
            else:
                copy.unlink(missing_ok=True)

    def drop(self) -> None:
        """Removes the step's folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _duration(spec: work.StepSpec, name: str, default: float) -> float:
    if not spec.HasField(name):  # type: ignore[arg-type]
        return default
    duration = getattr(spec, name)
    seconds = float(duration.seconds + duration.nanos / 1e9)
    return seconds if seconds > 0 else default
