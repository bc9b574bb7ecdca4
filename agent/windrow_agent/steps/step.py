"""A step as it lives on this node: its folder, its code, its workers, its pace.

Not the master's step, which knows all mini-batches: this one knows only what one node needs to run some of them.

States::

    PREPARING ──code is here──► SERVING ──ended by the master, or replaced by a later generation──► ENDING ──► (gone)
        └──────────────────────────────ended──────────────────────────────────────────────────────────┘

A step that is offered again while it is ENDING also replaces the old one, whose workers are then killed.

Invariants:

1. Workers exist in SERVING and ENDING only; in ENDING none is started.
2. A Step has its own copy of the code, shared with no other. If a worker finds it changed, the next workers get a fresh
   copy, once. If that one changes too, the script itself changes it, and it is used as it is.
3. Process numbers rise, and one incarnation of the agent uses none twice (the master keeps the logs of incarnations
   apart). So a log file belongs to one process, or to one failure to start any. Logs of the node are one file each; a
   later Step appends to those of the earlier one.
4. A folder belongs to one Step. A step that comes back, even in the same generation, gets another folder, since the
   former is removed once the master has its last logs.
5. After 3 x `workers_max` failures to become ready, without a finished mini-batch in between, no more workers are
   started (`given_up`): docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.common.device_packing import ROUNDING
from windrow.common.removal import discard_tree, remove_tree
from windrow.rpc.log_paths import WORKER_LOGS, place_of
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import CacheUse
from windrow_agent.leases.pace import Pace
from windrow_agent.node.capacity import NOTHING, Need
from windrow_agent.steps.code_cache import CodeSums
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.reader import needs_fetching
from windrow_agent.workers.capture import LIMIT_BYTES, CapturedFile, LogFile
from windrow_agent.workers.deadlines import Limits
from windrow_agent.workers.process import WorkerProcess

if TYPE_CHECKING:
    from windrow_agent.environments.provider import Held

_ERROR_FILE_BYTES = 4 << 20
_ERRORS = frozenset((rpc.LOG_KIND_ERROR, rpc.LOG_KIND_RUNTIME_ERROR))
_WORKER_LOGS = WORKER_LOGS.keys() - {rpc.LOG_KIND_ENVIRONMENT}
"""Logs of one process, whose number is unique. The others belong to the node, under one name in each generation."""


class StepState(IntEnum):
    """Where a step stands on this node. Not the master's `StepState`, which is about the step on all nodes."""

    PREPARING = 1
    SERVING = 2
    ENDING = 3


class BadStep(ValueError):
    """The specification of a step cannot be used."""


@dataclass(slots=True, eq=False)
class Step:
    """One (step, generation) on this node.

    Not the master's `Step`, which spans all nodes.

    `target`: how many workers it should have now. `reported`: the capacity that the master knows: leases wanted,
    workers, given up. `given_up_for`: the failure after which no more workers are started.
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
    opened_ns: int = 0
    """When the node was offered it."""
    logs: list[LogFile] = field(default_factory=list)
    side_inputs: dict[str, Path] = field(default_factory=dict)
    """Where side inputs that had to be fetched are on this node, by name."""
    places: dict[str, str] = field(default_factory=dict)
    """Where the paths of its inputs and outputs led when its first worker was confined, without links."""
    saves: set[asyncio.Task[None]] = field(default_factory=set)
    """Saves of its workers' outputs that are under way."""
    attempt_saves: set[asyncio.Task[None]] = field(default_factory=set)
    """Those that the completion of a mini-batch waits for."""
    unsaved: str = ""
    """Why something that a worker wrote outside `run()` is not in its store."""
    shutdown_failures: int = 0
    """Workers whose `shutdown()` failed or did not finish."""
    shutdown_failure: str = ""
    """The message of the first of them."""
    monitor_at: float | None = None
    """When the node's resources are measured next (monotonic seconds); None if that is not decided yet."""
    asked_generation: int | None = None
    """The generation up to which the master has asked when the step has ended on this node; None if it has not."""
    replaced: bool = False
    """Another Step has replaced it: nobody wants to hear how this one ends."""
    foreign: bool = False
    """The master's state does not have this step: not even its logs are wanted."""
    environment: Held | None = None
    """The environment in which its scripts run; None for the node's own Python."""
    takes_work: bool = True
    """False while it waits for its environment, or for a fresh copy of its code."""
    code_copies: int = 1
    """Number of copies made of the code. Only the newest is used."""
    code_sums: CodeSums | None = None
    """Checksums that workers compare the code with when they import it; None if they compare nothing."""
    building_since_ns: int = 0
    """When the build of its environment began; 0 if none is being built."""
    user: int | None = None
    """The user of its job on this node; None if its scripts run as the agent's user."""
    notes: list[str] = field(default_factory=list)
    """What its scripts cannot do here, in words, for the logs of its workers."""
    cache_use: CacheUse | None = None
    """What fetching its side inputs had of the data cache, until a completion tells it."""
    fetch_s: float | None = None
    """How long fetching a mini-batch takes on average, in seconds; None if none was fetched yet."""
    _removing: threading.RLock = field(default_factory=threading.RLock)
    _dropped: bool = False

    @classmethod
    def open(cls, spec: work.StepSpec, folder: Path, node_id: str, slots: int, now_ns: int, lineage: Lineage) -> Step:
        """Makes a Step and its folders. Raises BadStep, OSError."""
        try:
            reader, rows = json.loads(spec.reader or b"{}"), json.loads(spec.rows or b"{}")
        except ValueError as error:
            raise BadStep(f"The settings of step {spec.step_name!r} are not valid JSON: {error}") from error
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
            workers_max=spec.max_concurrency_per_instance or _fitting(slots, spec.cpus_per_worker),
            active_ns=now_ns,
            opened_ns=now_ns,
            lineage=lineage,
        )
        step.log_folder.mkdir(parents=True, exist_ok=True)
        step.scratch.mkdir(parents=True, exist_ok=True)
        return step

    @property
    def step_id(self) -> int:
        """Unique within one master's state."""
        return self.spec.step_id

    @property
    def need(self) -> Need:
        """What one of its workers takes of the node."""
        spec = self.spec
        return Need(spec.cpus_per_worker or None, spec.memory_per_worker, spec.gpus_per_worker)

    def slots_each(self, slots: int) -> float:
        """What one of its workers takes of a node with so many slots, as the master counts it."""
        return self.spec.cpus_per_worker or min(1.0, slots / max(1, self.workers_max))

    @property
    def has_needs(self) -> bool:
        """Whether it says what a worker takes of the node."""
        return self.need != NOTHING

    @property
    def code(self) -> Path:
        """The newest copy of the code, the working folder of new workers."""
        return self.code_copy(self.code_copies)

    def code_copy(self, number: int) -> Path:
        """Where a copy of the code is; the first has the number 1."""
        return self.folder / ("code" if number == 1 else f"code-{number}")

    def note_shutdown_failure(self, process_number: int, message: str) -> None:
        """Counts a worker that did not shut down in good order."""
        self.shutdown_failures += 1
        self.shutdown_failure = self.shutdown_failure or f"process{process_number:03d}: {message}"

    def as_ended(self) -> rpc.EndedStep:
        """The report to the master, once no worker is left."""
        return rpc.EndedStep(
            step_id=self.step_id,
            unsaved=self.unsaved,
            shutdown_failures=self.shutdown_failures,
            shutdown_failure=self.shutdown_failure,
            generation=self.spec.generation,
            asked_generation=self.asked_generation or 0,
        )

    def localised(self, text: str, outputs: Mapping[str, str]) -> str:
        """A text of the specification, with the paths of side inputs and of a worker's stored outputs filled in."""
        for name, place in self.side_inputs.items():
            text = text.replace(f"\0{name}\0", str(place))
        for name, folder in outputs.items():
            text = text.replace(f"\0outputs/{name}\0", folder)
        return text

    @property
    def saves_outputs(self) -> bool:
        """Whether its workers' outputs go to a store, through local folders."""
        return bool(self.spec.stored_outputs)

    @property
    def depth(self) -> int:
        """How many leases a worker may have now: only one if its outputs are saved before it continues."""
        return 1 if self.saves_outputs else self.pace.depth

    @property
    def outputs(self) -> Path:
        """Outputs that go to a store, one folder for each worker."""
        return self.folder / "outputs"

    @property
    def fetched(self) -> Path:
        """Data fetched from remote storage, one folder for each lease."""
        return self.folder / "fetched"

    @property
    def needs_fetching(self) -> bool:
        """Whether data has to be fetched before a worker gets a mini-batch."""
        return needs_fetching(self.reader)

    @property
    def scratch(self) -> Path:
        """The folder of large recipes and rows, and of configurations and pages of workers."""
        return self.folder / "scratch"

    @property
    def log_folder(self) -> Path:
        """Root of the log tree (docs/reference/azure-ml/parallel-job.md#logs)."""
        return self.folder / "logs"

    @property
    def live(self) -> list[WorkerProcess]:
        """Workers that are not ending."""
        return [w for w in self.workers.values() if not w.retiring and w.overrun is None and w.killed_for is None]

    @property
    def given_up(self) -> bool:
        """Whether no more workers are started."""
        return self.given_up_for is not None

    @property
    def failures_max(self) -> int:
        """Failures in a row after which no more workers are started."""
        return 3 * max(1, self.workers_max)

    @property
    def may_start(self) -> bool:
        """Whether another worker may be started: even if all that are starting fail, the bound must hold."""
        starting = sum(1 for worker in self.live if not worker.ready)
        return not self.given_up and (self.failures == 0 or self.failures + starting < self.failures_max)

    def log_file(self, kind: rpc.LogKind.ValueType, number: int) -> CapturedFile:
        """The log file of one kind and process, at its place in the tree of
        docs/reference/azure-ml/parallel-job.md#logs. `number` is 0 or the minute for logs of the node.
        """
        place = place_of(kind, self.node_id, number)
        assert place is not None, kind
        path = self.log_folder / place
        for log in self.logs:
            if log.file.path == path:
                return log.file
        earlier = self.lineage.node_logs.get(kind)
        follows = earlier.file if earlier is not None and earlier.process_number == number else None
        limit = _ERROR_FILE_BYTES if kind in _ERRORS else LIMIT_BYTES
        file = CapturedFile(path, limit, follows, of_rows=kind == rpc.LOG_KIND_METRICS)
        log = LogFile(kind, number, file)
        self.logs.append(log)
        if kind not in _WORKER_LOGS:
            self.lineage.node_logs[kind] = log
        return file

    def end_logs(self, number: int) -> None:
        """A process is gone: its log files no longer grow."""
        if self.spec.profiling_module:
            # Not earlier: a live process writes its profile again and again.
            self.log_file(rpc.LOG_KIND_PROFILE, number)
        for log in self.logs:
            if log.process_number == number and log.kind in WORKER_LOGS:
                log.file.end()

    def drop_work(self) -> None:
        """Removes code, scratch files, fetched data and outputs, and releases the environment. The logs stay until the
        master has them. Again, once what was still being made for the step is there. Raises OSError.
        """
        try:
            with self._removal():
                for folder in (self.scratch, self.fetched, self.outputs):
                    discard_tree(folder)
                self.drop_code()
        finally:
            if self.environment is not None:
                self.environment.release()

    def drop_code(self) -> None:
        """Removes every copy of the code. Raises OSError."""
        with self._removal():
            for copy in self.folder.glob("code*"):
                if copy.is_dir():
                    discard_tree(copy)
                else:
                    copy.unlink(missing_ok=True)

    def drop(self) -> None:
        """Removes the step's folder. Raises OSError, after it has removed what it can."""
        with self._removing, suppress(FileNotFoundError):
            self._dropped = True
            remove_tree(self.folder)

    @contextmanager
    def _removal(self) -> Iterator[None]:
        """One at a time: two removals of one folder would move things from under each other. What is made after the
        step's folder was dropped, and so made it anew, goes with it.
        """
        with self._removing:
            yield
            if self._dropped:
                discard_tree(self.folder)


def _fitting(slots: int, cpus: float) -> int:
    """How many workers the slots are enough for, at least one."""
    return max(1, int(slots / cpus + ROUNDING)) if cpus else slots


def _duration(spec: work.StepSpec, name: str, default: float) -> float:
    if not spec.HasField(name):  # type: ignore[arg-type]
        return default
    duration = getattr(spec, name)
    seconds = float(duration.seconds + duration.nanos / 1e9)
    return seconds if seconds > 0 else default
