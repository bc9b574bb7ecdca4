"""A lease: the right of one node to run one attempt of one mini-batch. Volatile: only old ones are written down."""

from __future__ import annotations

from windrow_master.core.ids import LeaseId, NodeId, StepId
from windrow_master.core.splitting import Split


class Lease:
    """One lease. Its id is its token: never given twice, so that a late result cannot be mistaken for another's.

    Not the agent's lease, which has a state on its node and never expires.
    """

    __slots__ = (
        "attempt",
        "begun_s",
        "exclusive",
        "generation",
        "granted_s",
        "is_second",
        "lease_id",
        "mini_batch",
        "node_id",
        "rival",
        "split",
        "step_id",
        "stored",
        "trial",
    )

    def __init__(
        self,
        lease_id: LeaseId,
        step_id: StepId,
        mini_batch: int,
        generation: int,
        node_id: NodeId,
        granted_s: float,
        attempt: int = 1,
        exclusive: bool = False,
    ) -> None:
        self.lease_id = lease_id
        self.step_id = step_id
        self.mini_batch = mini_batch
        self.generation = generation
        self.node_id = node_id
        self.granted_s = granted_s
        """Monotonic."""
        self.begun_s: float | None = None
        """Monotonic: when a worker began it, as far as its node has said; kept for nodes that an engine may end."""
        self.attempt = attempt
        """Counted from 1."""
        self.exclusive = exclusive
        self.stored = False
        """An attempt row, RUNNING, is written or dirty."""
        self.trial = False
        """Given to try whether the node works again: a failure is charged to nobody."""
        self.split: Split | None = None
        """How its mini-batch is split; None if a `run()` gets all its items."""
        self.rival: Lease | None = None
        """Another attempt of its mini-batch that runs, too (`speculation`), or did when this lease ended."""
        self.is_second = False
        """Given because its rival took too long."""

    def __repr__(self) -> str:
        return f"Lease({self.lease_id:#x}, step {self.step_id}, mini-batch {self.mini_batch}, {self.node_id})"
