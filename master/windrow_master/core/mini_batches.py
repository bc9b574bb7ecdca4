"""The mini-batches of one step, flat: some 37 bytes each, so that a million cost tens of megabytes.

State machine: `transitions.MINI_BATCH`. The end of a step cancels what is open by dropping the whole table.

Invariants:
1. A mini-batch is LEASED exactly when a lease in `CoreState.leases` names it, or two rivals (`speculation`) do.
2. `lease_ids[i]` is not 0 exactly when an attempt's outcome counts for i: SUCCEEDED and not taken over, or FAILED by
   an attempt.
3. QUEUED exactly when its index is in the step's ready queue (as long as the step runs).
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from dataclasses import dataclass, field

from windrow_master.core.causes import Budget
from windrow_master.core.ids import NodeId
from windrow_master.core.records import PLAN_RECORD, OpenSums
from windrow_master.core.splitting import Split
from windrow_master.core.states import MiniBatchState
from windrow_master.core.transitions import MINI_BATCH

QUEUED_RUN = re.compile(re.escape(bytes([MiniBatchState.QUEUED])) + b"+")


@dataclass(slots=True)
class Tries:
    """What has gone wrong with one mini-batch so far. Kept only for mini-batches with trouble."""

    failures: Counter[Budget] = field(default_factory=Counter)
    """Charged to each budget."""
    nodes: list[NodeId] = field(default_factory=list)
    """Where it failed, in order; a node that was lost with it is not among them."""
    lease_ids: set[int] = field(default_factory=set)
    """Attempts that failed: a repeated completion of one gets the same answer."""
    lost_lease_ids: set[int] = field(default_factory=set)
    """Attempts that were given up with their node: a completion of one comes too late."""
    split: Split | None = None
    """How it is split; None if a `run()` gets all its items."""
    kinds: list[str] = field(default_factory=list)
    """The kinds of its failures (`Counters.kinds`), as far as this incarnation of the master has seen them."""


@dataclass(slots=True)
class MiniBatches:
    """Columns, indexed by mini-batch index."""

    states: bytearray = field(default_factory=bytearray)
    item_firsts: array[int] = field(default_factory=lambda: array("Q"))
    item_counts: array[int] = field(default_factory=lambda: array("I"))
    """As planned; 0 if known only after loading."""
    recipe_offsets: array[int] = field(default_factory=lambda: array("Q"))
    recipe_lengths: array[int] = field(default_factory=lambda: array("I"))
    recipe_crcs: array[int] = field(default_factory=lambda: array("I"))
    """zlib.crc32 of the recipe."""
    lease_ids: array[int] = field(default_factory=lambda: array("Q"))
    tries: dict[int, Tries] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    """Attempts started before the current one, for those that were started before."""
    sums: OpenSums | None = None
    """In place of the columns, where the step is known only to be cancelled."""

    def __len__(self) -> int:
        return len(self.states)

    def become(self, index: int, after: MiniBatchState) -> None:
        """Change the state of one mini-batch. Raises IllegalTransition."""
        MINI_BATCH.check(self.states[index], after)
        self.states[index] = after

    def append(self, records: bytes) -> int:
        """Append planned mini-batches (packed PLAN_RECORDs), all QUEUED; return the number of their items."""
        count = len(records) // PLAN_RECORD.size
        if not count:
            return 0
        firsts, counts, offsets, lengths, crcs = zip(*PLAN_RECORD.iter_unpack(records), strict=True)
        self.item_firsts.extend(firsts)
        self.item_counts.extend(counts)
        self.recipe_offsets.extend(offsets)
        self.recipe_lengths.extend(lengths)
        self.recipe_crcs.extend(crcs)
        self.lease_ids.frombytes(bytes(8 * count))
        self.states.extend(bytes(count))  # MiniBatchState.QUEUED is 0
        return sum(counts)

    def queued_ranges(self) -> list[tuple[int, int]]:
        """Runs [start, stop) of QUEUED mini-batches, ascending."""
        return [found.span() for found in QUEUED_RUN.finditer(self.states)]
