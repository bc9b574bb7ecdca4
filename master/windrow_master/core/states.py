"""The lifecycle enums of the core. Numbers are stored: never renumber."""

from __future__ import annotations

from enum import IntEnum


class JobState(IntEnum):
    """Equal to windrow.rpc.v1.JobState. Not the client's `JobState`, which holds names."""

    QUEUED = 1
    RUNNING = 2
    PAUSED = 3
    CANCELLING = 4
    COMPLETED = 5
    COMPLETED_WITH_FAILURES = 6
    FAILED = 7
    CANCELLED = 8


class StepState(IntEnum):
    """Equal to windrow.rpc.v1.StepState. Not the agent's `StepState`, which is of one node."""

    WAITING = 1
    RUNNING = 2
    CONCATENATING = 3
    COMPLETED = 4
    FAILED = 5
    CANCELLED = 6
    SKIPPED = 7


ENDED_JOBS = frozenset((JobState.COMPLETED, JobState.COMPLETED_WITH_FAILURES, JobState.FAILED, JobState.CANCELLED))
ENDED_STEPS = frozenset((StepState.COMPLETED, StepState.FAILED, StepState.CANCELLED, StepState.SKIPPED))

DONE_STEPS = frozenset((StepState.COMPLETED, StepState.SKIPPED))
"""Ended as they should: steps that wait for them may begin."""


class MiniBatchState(IntEnum):
    """QUEUED -> LEASED -> SUCCEEDED | FAILED | QUEUED; any open one -> CANCELLED.

    LEASED is never stored: leases are volatile (old ones are stored as RUNNING attempts).
    Not the client's `MiniBatchState`, which is an option's value.
    """

    QUEUED = 0
    LEASED = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4


class AttemptState(IntEnum):
    """RUNNING -> SUCCEEDED | FAILED | ABANDONED (given back or superseded: charged to nobody)."""

    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    ABANDONED = 4


class NodeState(IntEnum):
    """The states of nodes. Equal to windrow.rpc.v1.NodeState."""

    READY = 1
    DISCONNECTED = 2
    DRAINING = 3
    QUARANTINED = 4
    LOST = 5


class AllocationState(IntEnum):
    """The states of what fleets ask engines for. Equal to windrow.rpc.v1.AllocationState."""

    BEGUN = 1
    QUEUED = 2
    STARTED = 3
    COMPLETED = 4
    PREEMPTED = 5
    EXPIRED = 6
    CANCELLED = 7
    FAILED = 8
    LOST = 9


OPEN_ALLOCATIONS = frozenset((AllocationState.BEGUN, AllocationState.QUEUED, AllocationState.STARTED))


class Cause(IntEnum):
    """The causes of failures. Equal to windrow.rpc.v1.Cause (docs/explanation/failures.md)."""

    NONE = 0
    EXCEPTION = 1
    TIMEOUT = 2
    BAD_RETURN = 3
    CRASH = 4
    OOM = 5
    INIT_FAILED = 6
    LOAD_FAILED = 7
    INPUT_CHANGED = 8
    NODE_FAULT = 9
    NODE_LOST = 10
    PREEMPTED = 11
    ROWS_LOST = 12
    CANCELLED = 13
    NODE_KILLER = 14
    OUTPUT_FAILED = 15
    INPUT_MISREAD = 16
    MARKED = 17
    """Of items alone: the script has marked them. Their attempt succeeded."""


class Phase(IntEnum):
    """What was happening when an attempt ended, as far as it matters; numbers of windrow.rpc.v1.WorkerPhase.

    Not the agent's `Phase`, which is what a worker does now.
    """

    UNKNOWN = 0
    LOADING = 4
    RUNNING = 5
    RETURNING = 6
    FETCHING = 8
    """By the agent, from storage: no worker had it yet."""

    @classmethod
    def _missing_(cls, value: object) -> Phase:
        return cls.UNKNOWN


class Verdict(IntEnum):
    """Equal to windrow.rpc.v1.Verdict."""

    ACCEPTED = 1
    SUPERSEDED = 2
    JOB_ENDED = 3
    UNKNOWN = 4
