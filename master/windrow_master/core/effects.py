"""What the core wants done outside. Names begin with a verb. Effects in AFTER_COMMIT wait for the group's commit."""

from typing import NamedTuple

from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease


class SendStep(NamedTuple):
    """Offer a step to an agent."""

    node_id: NodeId
    stream: int
    step_id: StepId


class SendShares(NamedTuple):
    """Tell an agent how many workers each step should have on its node: those that are not named none."""

    node_id: NodeId
    stream: int
    shares: tuple[tuple[StepId, int], ...]
    reclaim_after_s: float
    """How long a worker whose place another step waits for may go on with the mini-batch that it runs."""


class SendAssignments(NamedTuple):
    """Hand leases out. Never waits for the disk: leases are volatile."""

    node_id: NodeId
    stream: int
    step_id: StepId
    leases: list[Lease]


class RevokeLeases(NamedTuple):
    """Take leases away; what runs is killed."""

    node_id: NodeId
    stream: int
    lease_ids: list[LeaseId]


class RecallLeases(NamedTuple):
    """Ask for leases of a step that have not started, at most `leases_max`, none of them `kept`. The agent knows best
    which those are.
    """

    node_id: NodeId
    stream: int
    step_id: StepId
    leases_max: int
    kept: tuple[LeaseId, ...] = ()


class EndStep(NamedTuple):
    """Tell an agent that a step has ended."""

    node_id: NodeId
    stream: int
    step_id: StepId
    generation: int
    """The generation that has ended; 0 for all of them, since the master does not know the step."""


class SendDrain(NamedTuple):
    """Ask an agent to leave."""

    node_id: NodeId
    stream: int


class CloseStream(NamedTuple):
    """End a Work stream (a newer one of the node took its place, or the node was given up)."""

    node_id: NodeId
    stream: int


class PrepareStep(NamedTuple):
    """Resolve paths, make folders, start the planner from the checkpoint; StartStep, PlanGroup, ReuseStep or FailStep
    follow."""

    step_id: StepId


class StopStepWork(NamedTuple):
    """Stop a step's planner, and the making of its output: the step is over."""

    step_id: StepId


class ConcatenateRows(NamedTuple):
    """Make the output from the committed rows, and the list of failed items.

    FinishStep, RequeueLostRows or FailStep follow.
    """

    step_id: StepId
    generation: int


class ReportFailures(NamedTuple):
    """List the failed items of a step that failed, which has no output beside which the list could be."""

    step_id: StepId


class NotifyJob(NamedTuple):
    """A job changed: wake who watches it."""

    job_key: JobKey
    ended: bool


Effect = (
    SendStep
    | SendShares
    | SendAssignments
    | RevokeLeases
    | RecallLeases
    | EndStep
    | SendDrain
    | CloseStream
    | PrepareStep
    | StopStepWork
    | ConcatenateRows
    | ReportFailures
    | NotifyJob
)

AFTER_COMMIT = frozenset((EndStep, SendDrain, PrepareStep, ConcatenateRows, ReportFailures, NotifyJob))
"""Effects that wait until the rows of their group are durable. Their step or job may have ended meanwhile."""
