"""Parts of a step (`state.Step`) that belong together."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windrow_master.core.ids import NodeId
from windrow_master.core.standing import Standing

if TYPE_CHECKING:
    from windrow_master.core.data_places import Preferred


@dataclass(slots=True)
class StepPlan:
    """How far the step's input is divided into mini-batches."""

    reader: bytes | None = None
    """As in records.StepRow."""
    checkpoint: bytes | None = None
    """As in records.StepRow."""
    is_done: bool = False
    """The input is divided to its end."""
    known_before: int = 0
    """The number of mini-batches that were durably planned before this master started. Only of these can a node hold a
    lease of an earlier master."""


@dataclass(slots=True)
class StepProgress:
    """When the step began, and when it last made progress. Monotonic moments; volatile."""

    begun: bool = False
    """Its paths are resolved, and its planner is started, by this master."""
    started_s: float = 0.0
    last_s: float = 0.0
    """When a mini-batch was last planned, an attempt last ended, or a worker last reported its failure. A node's fault
    is not such an end: it costs its mini-batch nothing, so that only the lack of progress ends a lasting one."""
    waits_for_planner: bool = False
    """Other steps are divided first; the clock begins when this one is."""
    fault_message: str = ""
    """What the node's fault was that ended the last attempt; "" when that ended in another way."""


@dataclass(slots=True)
class StepWorkers:
    """The step's workers on all nodes, as far as nodes have reported them. Volatile."""

    offered_s: float | None = None
    """When a node was first offered the step (monotonic); None if none was."""
    is_ready: bool = False
    """One has got through `init()`, on whatever node."""
    init_failures: dict[NodeId, int] = field(default_factory=dict)
    """Those that failed before they were ready, by node, since the last one there that was."""
    may_be_on: set[NodeId] = field(default_factory=set)
    """Nodes that were offered the step, or say that they have it, since its workers were ended last."""
    gave_gpus_back: bool = False
    """Some have ended since they did not use their GPUs: it gets no worker in advance until it has something to begin
    (`gpus`)."""
    ending_on: set[NodeId] = field(default_factory=set)
    """Nodes that still end them, where that is waited for: before the output is made, or the job is CANCELLED."""
    shutdown_failures: int = 0
    """Those whose `shutdown()` failed, on all nodes that have said that they are done."""
    shutdown_failure: str = ""
    """What the first of these said, and where."""


@dataclass(slots=True)
class StepNodes:
    """How nodes do with the step. Volatile: a new master learns it again.

    Not the `StepNodes` of `windrow.spec.job`, which holds nodes of a YAML tree.
    """

    standings: dict[NodeId, Standing] = field(default_factory=dict)
    doubted: set[NodeId] = field(default_factory=set)
    """Those whose standing is suspicious: empty nearly always."""
    chosen: set[NodeId] = field(default_factory=set)
    """Those that work on it, where `instance_count` bounds their number; else empty (`pools.works_on`)."""
    hungry: set[NodeId] = field(default_factory=set)
    """Those that may want more leases than they hold, and perhaps others: scheduling drops these when it meets them."""
    preferred: Preferred | None = None
    """Its ready mini-batches by the nodes whose data caches may have their data; None: nobody has looked yet."""
    cut_off_s: float = 0.0
    """The longest that a lease lasted that came back, without a result, from a node whose lifetime ended."""


@dataclass(slots=True)
class StepSplits:
    """The step's mini-batches that are split (`splits`). Volatile: a new master starts from scratch."""

    running: set[int] = field(default_factory=set)
    waiting: deque[int] = field(default_factory=deque)
    """Those whose turn has not come."""
    in_vain: int = 0
    """The number of mini-batches in a row that had no good item."""
    ok_seen: int = 0
    """The items that were ok when the last one ended."""
    single_rows: int = 0
    """Mini-batches of several items for which `run()` returned one row."""


@dataclass(slots=True)
class StepGathering:
    """How far the step is that begins on several nodes at once (`gathering`). Volatile."""

    is_done: bool = False
    """It has begun."""
    nodes: int = 0
    """On how many it holds a place."""
    since_s: float | None = None
    """Since when it holds some, and not all (monotonic)."""
    rests_until_s: float = -math.inf
    """It holds nothing until then (monotonic)."""
    able: int = 0
    """The nodes that may have its workers, as of the last decision."""
    entitled: int | None = None
    """How many workers it was entitled to then; None: nobody asked."""
    is_behind: bool = False
    """Another step gathers on these nodes first."""
