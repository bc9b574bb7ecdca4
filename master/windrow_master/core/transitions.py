"""The edges of the core's state machines, as data.

Every change of a state is looked up here: `Job.become`, `Step.become`, `Node.become`, `MiniBatches.become`,
`Allocation.become` and `CoreState.store_attempt` raise IllegalTransition for an edge that is not listed, in production
too, where it pauses the job (`shell.writer`). The diagrams in docs/state-machines.md are drawn from these tables.

Handlers decide when an edge is taken; `when` says so for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from windrow_master.core.states import AllocationState, AttemptState, JobState, MiniBatchState, NodeState, StepState

_STATES_MAX = 16
"""More than any of the enums has, so that an edge is one number."""


class InvariantBroken(AssertionError):
    """The counters or states of a step contradict each other: a bug. Raised in production as well, where it pauses
    the job.
    """


class IllegalTransition(InvariantBroken):
    """A state was about to change in a way that no state machine lists."""


class Edge(NamedTuple):
    """One transition. `before` is None when the object is created."""

    before: IntEnum | None
    after: IntEnum
    when: str


class Machine:
    """The transitions of one kind of object."""

    def __init__(self, name: str, edges: Iterable[Edge]) -> None:
        self.name = name
        self.edges = tuple(edges)
        self.allowed = frozenset(
            edge.before * _STATES_MAX + edge.after for edge in self.edges if edge.before is not None
        )

    def allows(self, before: int, after: int) -> bool:
        """Whether the edge is listed."""
        return before * _STATES_MAX + after in self.allowed

    def check(self, before: int, after: int) -> None:
        """Raise IllegalTransition unless the edge is listed."""
        if not self.allows(before, after):
            kind = type(self.edges[0].after)
            raise IllegalTransition(f"a {self.name} cannot become {kind(after).name} from {kind(before).name}")


def _from(*befores: IntEnum | None, to: IntEnum, when: str) -> list[Edge]:
    return [Edge(before, to, when) for before in befores]


_J, _S, _M, _A, _N, _L = JobState, StepState, MiniBatchState, AttemptState, NodeState, AllocationState
_OPEN_STEPS = (_S.WAITING, _S.RUNNING, _S.CONCATENATING)

JOB = Machine(
    "job",
    [
        *_from(None, to=_J.QUEUED, when="it is submitted"),
        *_from(
            _J.QUEUED,
            to=_J.RUNNING,
            when="it is admitted: few enough jobs of its project go before it, or it would get a worker now",
        ),
        *_from(_J.RUNNING, to=_J.QUEUED, when="it is retried, and nothing of it had begun: it stands in line again"),
        *_from(_J.RUNNING, to=_J.COMPLETED, when="all steps are done, without failures"),
        *_from(
            _J.RUNNING, to=_J.COMPLETED_WITH_FAILURES, when="all steps are done; the failures are within the thresholds"
        ),
        *_from(_J.RUNNING, _J.PAUSED, to=_J.FAILED, when="a step failed, and all others have ended"),
        *_from(_J.QUEUED, _J.RUNNING, to=_J.PAUSED, when="a command for it raised an error: its counters may be wrong"),
        *_from(
            _J.QUEUED,
            _J.RUNNING,
            _J.PAUSED,
            to=_J.CANCELLING,
            when="it is cancelled: its steps end, and nodes are told to end its workers",
        ),
        *_from(_J.CANCELLING, to=_J.CANCELLED, when="its nodes have ended its workers, or are gone"),
        *_from(
            _J.COMPLETED,
            _J.COMPLETED_WITH_FAILURES,
            _J.FAILED,
            _J.CANCELLED,
            to=_J.RUNNING,
            when="it is retried: the store opens it as its next generation",
        ),
    ],
)
STEP = Machine(
    "step",
    [
        *_from(None, to=_S.WAITING, when="its job is submitted"),
        *_from(_S.WAITING, to=_S.RUNNING, when="all steps it depends on are COMPLETED or SKIPPED"),
        *_from(
            _S.WAITING,
            to=_S.SKIPPED,
            when="the same, and its condition is not met, its loop has ended, or it reads an output of a SKIPPED step",
        ),
        *_from(_S.RUNNING, to=_S.COMPLETED, when="it reuses the outputs of an earlier job: nothing of it was planned"),
        *_from(_S.RUNNING, to=_S.CONCATENATING, when="every mini-batch has an outcome"),
        *_from(_S.CONCATENATING, to=_S.COMPLETED, when="its output stands"),
        *_from(_S.CONCATENATING, to=_S.RUNNING, when="committed rows were lost: their mini-batches run again"),
        *_from(*_OPEN_STEPS, to=_S.FAILED, when="a threshold is passed, or it cannot continue"),
        *_from(*_OPEN_STEPS, to=_S.CANCELLED, when="its job is cancelled, or the failure of another step ends it"),
        *_from(
            _S.COMPLETED,
            _S.FAILED,
            _S.CANCELLED,
            to=_S.RUNNING,
            when="its job is retried, and it continues where it stopped",
        ),
        *_from(
            _S.COMPLETED,
            _S.FAILED,
            _S.CANCELLED,
            _S.SKIPPED,
            to=_S.WAITING,
            when="its job is retried, and it starts again from nothing",
        ),
    ],
)
MINI_BATCH = Machine(
    "mini-batch",
    [
        *_from(None, to=_M.QUEUED, when="it is planned"),
        *_from(_M.QUEUED, to=_M.LEASED, when="a node gets a lease of it"),
        *_from(_M.QUEUED, to=_M.SUCCEEDED, when="its outcome in an earlier job is taken over"),
        *_from(_M.LEASED, to=_M.SUCCEEDED, when="`run()` returned"),
        *_from(_M.LEASED, to=_M.FAILED, when="it failed, and has no tries left"),
        *_from(_M.LEASED, to=_M.QUEUED, when="its lease ended without an outcome, or it failed and is tried again"),
        *_from(_M.SUCCEEDED, _M.FAILED, to=_M.QUEUED, when="its committed rows were lost"),
        *_from(_M.QUEUED, _M.LEASED, to=_M.CANCELLED, when="its step failed or was cancelled"),
    ],
)
ATTEMPT = Machine(
    "attempt",
    [
        *_from(None, to=_A.RUNNING, when="its lease is older than `store_leases_after_s`"),
        *_from(None, _A.RUNNING, to=_A.SUCCEEDED, when="its completion counts"),
        *_from(None, _A.RUNNING, to=_A.FAILED, when="it failed, for a cause that is counted"),
        *_from(None, _A.RUNNING, to=_A.ABANDONED, when="its lease was given back or taken away: charged to nobody"),
        *_from(_A.SUCCEEDED, to=_A.FAILED, when="its committed rows were lost"),
        *_from(_A.FAILED, to=_A.ABANDONED, when="its node was set aside since: charged to nobody"),
        *_from(_A.SUCCEEDED, to=_A.ABANDONED, when="its job is retried, and its mini-batch runs again"),
    ],
)
NODE = Machine(
    "node",
    [
        *_from(None, to=_N.DISCONNECTED, when="its agent registers"),
        *_from(_N.DISCONNECTED, to=_N.READY, when="its Work stream opens"),
        *_from(_N.READY, to=_N.DISCONNECTED, when="its Work stream ends"),
        *_from(_N.READY, to=_N.QUARANTINED, when="its attempts fail through its own fault again and again"),
        *_from(_N.QUARANTINED, to=_N.READY, when="it has been quarantined for a while"),
        *_from(_N.QUARANTINED, to=_N.DISCONNECTED, when="the same, and its Work stream has ended"),
        *_from(_N.DISCONNECTED, _N.READY, _N.QUARANTINED, to=_N.DRAINING, when="it leaves, or is asked to"),
        *_from(
            _N.DISCONNECTED,
            _N.READY,
            _N.QUARANTINED,
            _N.DRAINING,
            to=_N.LOST,
            when="it left, is silent for too long, was removed or replaced",
        ),
    ],
)
_OPEN_ALLOCATIONS = (_L.BEGUN, _L.QUEUED, _L.STARTED)
ALLOCATION = Machine(
    "allocation",
    [
        *_from(None, to=_L.BEGUN, when="its fleet is about to ask the engine for it"),
        *_from(_L.BEGUN, _L.STARTED, to=_L.QUEUED, when="the engine has it, and has not started it (again)"),
        *_from(_L.BEGUN, _L.QUEUED, to=_L.STARTED, when="the engine has started it, or its agent has joined"),
        *_from(*_OPEN_ALLOCATIONS, to=_L.COMPLETED, when="its agent has left, or the engine says that it ended well"),
        *_from(
            *_OPEN_ALLOCATIONS,
            _L.COMPLETED,
            to=_L.PREEMPTED,
            when="the engine took it away for others, or reclaimed its machine",
        ),
        *_from(*_OPEN_ALLOCATIONS, _L.COMPLETED, to=_L.EXPIRED, when="its time was over"),
        *_from(
            *_OPEN_ALLOCATIONS, _L.COMPLETED, to=_L.CANCELLED, when="the fleet, or a person at the engine, cancelled it"
        ),
        *_from(*_OPEN_ALLOCATIONS, _L.COMPLETED, to=_L.FAILED, when="the engine refused it, or it failed there"),
        *_from(*_OPEN_ALLOCATIONS, to=_L.LOST, when="the engine does not know it, and its agent is not there"),
    ],
)
MACHINES = (JOB, STEP, MINI_BATCH, ATTEMPT, NODE, ALLOCATION)
