"""One held lease, and what the ledger answers about several: plain records, changed by the ledger alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum


class LeaseState(IntEnum):
    """Where a held lease stands."""

    FETCHING = 0
    QUEUED = 1
    GIVEN = 2
    STARTED = 3
    FINISHED = 4


@dataclass(slots=True, eq=False)
class Lease:
    """One held lease: what the master sent, and where it stands here.

    `worker` is the agent's own number of the worker process that has it, 0 for none.
    """

    lease_id: int
    step_id: int
    generation: int
    mini_batch_index: int
    item_first: int
    item_count: int
    recipe: bytes
    attempt: int
    exclusive: bool = False
    identity: int = 0
    """Of its step, as in StepSpec."""
    state: LeaseState = LeaseState.QUEUED
    worker: int = 0
    revoked: bool = False


@dataclass(slots=True)
class Revocation:
    """What a revocation or recall asks of the shell.

    `released`: gone from the ledger already; tell the master.
    `take_back`: workers whose channels hold some of the leases.
    """

    released: list[int] = field(default_factory=list)
    take_back: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Loss:
    """What became of a dead worker's leases. `charged` is FINISHED now and needs a completion."""

    charged: Lease | None = None
    requeued: list[Lease] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
