"""One held lease, and the answers of the ledger about several: plain records that only the ledger changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class LeaseState(IntEnum):
    """The state of a held lease."""

    FETCHING = 0
    QUEUED = 1
    GIVEN = 2
    STARTED = 3
    FINISHED = 4


class CacheUse(NamedTuple):
    """What data had of the node's data cache. A hit is an object, or a part of one, that was not fetched again."""

    hits: int = 0
    misses: int = 0
    bytes_saved: int = 0
    evictions: int = 0

    def plus(self, other: CacheUse) -> CacheUse:
        """Both together."""
        return CacheUse(*map(sum, zip(self, other, strict=True)))


@dataclass(slots=True, eq=False)
class Lease:
    """A lease as this node holds it: what the master sent, and its local state. Not the master's lease, which expires.

    `worker`: the key of the worker process that has it, 0 for none.
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
    """The identity of its step, as in StepSpec."""
    order: bytes = b""
    """How its mini-batch is split, as the worker reads it; empty: a `run()` gets all items."""
    state: LeaseState = LeaseState.QUEUED
    worker: int = 0
    revoked: bool = False
    cache_use: CacheUse | None = None
    """What fetching its data had of the data cache; None: nothing was fetched, or there is no cache."""


@dataclass(slots=True)
class Revocation:
    """What the caller must do after a revocation.

    `released`: no longer in the ledger; to be reported. `take_back`: keys of workers that have some of them.
    """

    released: list[int] = field(default_factory=list)
    take_back: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Loss:
    """What happened to a dead worker's leases. `charged` is now FINISHED and needs a completion."""

    charged: Lease | None = None
    requeued: list[Lease] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
