"""How well a node performs on a step. `blame` and `scheduling` use it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from windrow_master.core.ids import LeaseId, NodeId
from windrow_master.core.states import Cause

EVIDENCE_MIN = 5
"""A node is in good standing with a step while fewer mini-batches than this failed there in a row."""

EVIDENCE_MAX = 64
"""Pieces of evidence kept. A node is never doubted where more would be needed: the others fail nearly as often."""


class Past(NamedTuple):
    """Where a mini-batch has failed, which decides where it is tried next."""

    nodes: tuple[NodeId, ...]
    """In order; one that it failed on twice is there twice."""
    ran_out_of_memory: bool = False


@dataclass(slots=True)
class Evidence:
    """A mini-batch that failed on a node, and on no other node before."""

    lease_id: LeaseId
    cause: Cause
    message: str
    final: bool
    """It has no tries left: no other node can show whether it was the node's fault."""
    cleared: bool = False
    """It has succeeded on another node since."""


@dataclass(slots=True)
class Standing:
    """The standing of one node with one step; `core/blame.py` lists the states."""

    succeeded: int = 0
    failed: int = 0
    evidence: dict[int, Evidence] = field(default_factory=dict)
    """By mini-batch."""
    doubted_s: float | None = None
    """When it was handed work last although it is doubted, at first when the doubt began (monotonic); None if it is
    not doubted."""
    aside_until_s: float | None = None
    """ASIDE until then (monotonic), on TRIAL afterwards; None if it is neither."""
    asides: int = 0
    """How many times in a row it was set aside."""

    @property
    def is_suspected(self) -> bool:
        """Whether there is any evidence against the node. If so, its next success does more than add one to its
        count.
        """
        return bool(self.evidence) or self.aside_until_s is not None

    @property
    def is_suspicious(self) -> bool:
        """Whether the node is under enough suspicion that it must not count among the nodes that do well."""
        return self.aside_until_s is not None or len(self.evidence) >= EVIDENCE_MIN

    @property
    def is_proven(self) -> bool:
        """Whether the step's script is known to work on the node: what fails there as well is not another node's
        fault.
        """
        return self.succeeded > 0 and not self.is_suspicious
