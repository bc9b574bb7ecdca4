"""What the core wants done in the world. Verb first. `after_commit`: only when the group's dirty rows are durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease


@dataclass(frozen=True, slots=True)
class SendStep:
    """Offer a step to an agent."""

    after_commit: ClassVar[bool] = False
    node_id: NodeId
    stream: int
    step_id: StepId


@dataclass(frozen=True, slots=True)
class SendAssignments:
    """Hand leases out. Never waits for the disk: leases are volatile."""

    after_commit: ClassVar[bool] = False
    node_id: NodeId
    stream: int
    step_id: StepId
    leases: list[Lease]


@dataclass(frozen=True, slots=True)
class RevokeLeases:
    """Take leases away; `started_too` kills what runs, else only what has not started comes back."""

    after_commit: ClassVar[bool] = False
    node_id: NodeId
    stream: int
    lease_ids: list[LeaseId]
    started_too: bool


@dataclass(frozen=True, slots=True)
class EndStep:
    """Tell an agent that a step has ended."""

    after_commit: ClassVar[bool] = True
    node_id: NodeId
    stream: int
    step_id: StepId


@dataclass(frozen=True, slots=True)
class SendDrain:
    """Ask an agent to leave."""

    after_commit: ClassVar[bool] = False
    node_id: NodeId
    stream: int


@dataclass(frozen=True, slots=True)
class CloseStream:
    """End a Work stream (a newer one of the node took its place, or the node was given up)."""

    after_commit: ClassVar[bool] = False
    node_id: NodeId
    stream: int


@dataclass(frozen=True, slots=True)
class PrepareStep:
    """Resolve paths, make folders, start the planner from the checkpoint; StartStep, PlanGroup or FailStep follow."""

    after_commit: ClassVar[bool] = True
    step_id: StepId


@dataclass(frozen=True, slots=True)
class StopPlanner:
    """The step is over: its planner need not go on."""

    after_commit: ClassVar[bool] = False
    step_id: StepId


@dataclass(frozen=True, slots=True)
class ConcatenateRows:
    """Make the output from the committed rows, and the list of failed items.

    FinishStep, RequeueLostRows or FailStep follow.
    """

    after_commit: ClassVar[bool] = True
    step_id: StepId
    generation: int


@dataclass(frozen=True, slots=True)
class ReportFailures:
    """List the failed items of a step that failed: there is no output to put the list beside."""

    after_commit: ClassVar[bool] = True
    step_id: StepId


@dataclass(frozen=True, slots=True)
class NotifyJob:
    """A job changed: wake who watches it."""

    after_commit: ClassVar[bool] = True
    job_key: JobKey
    ended: bool


Effect = (
    SendStep
    | SendAssignments
    | RevokeLeases
    | EndStep
    | SendDrain
    | CloseStream
    | PrepareStep
    | StopPlanner
    | ConcatenateRows
    | ReportFailures
    | NotifyJob
)
