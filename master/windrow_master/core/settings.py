"""What the core must know of a step's settings, and its own intervals. Reference:
docs/reference/azure-ml/parallel-job.md#parallel-steps, #program-arguments, #retries.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

CRASH_TRIES = 3
"""Tries of a mini-batch whose worker process ends on its own; separate from `max_retries`."""

OOM_TRIES = 3
"""Tries of a mini-batch whose worker is killed for lack of memory; apart from `max_retries`."""

INPUT_CHANGED_TRIES = 2
"""Tries of a mini-batch whose input has changed since it was listed, where there is another node: that may see it as
it was. On the same node a retry would read the same wrong thing."""

NODE_LOSSES_UNTIL_EXCLUSIVE = 3
"""After this many lost nodes, a mini-batch runs alone on its node."""

NODE_LOSSES_UNTIL_FAILED = 10
"""After this many lost nodes, a mini-batch counts as the one that kills them."""

SPLIT_TRIES = 2
"""Tries more of a mini-batch that is split and fails otherwise than by its items."""

ROWS_LOSSES_MAX = 5
"""A mini-batch whose committed rows were lost this often is not run again: the disk of the state folder is damaged."""

INIT_FAILURES_PER_PROCESS = 2
"""The number of failures of `init()` per worker process of all nodes that end a step if none has succeeded."""

INIT_FAILURES_AFTER_S = 120.0
"""How long a step has been at work, at least, before failures of `init()` end it."""


class RunIf(NamedTuple):
    """A condition of a step, as in the effective job: a boolean that an output of another step holds; never met if
    `step` is None."""

    node: str
    wanted: bool
    step: str | None = None
    output: str | None = None


class Iteration(NamedTuple):
    """That a step repeats another one, as in the effective job: `follows`, in iteration `number` - 1 of a loop."""

    node: str
    number: int
    follows: str
    step: str | None = None
    output: str | None = None


class StepSettings(NamedTuple):
    """Settings of one step, validated before they get here.

    Not the client's `StepSettings`, which reads them from a job file.

    Counts and thresholds as in Azure ML; -1 switches a threshold off; all compare with "greater than".
    """

    name: str
    depends_on: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    """The steps whose outputs it reads; `depends_on` holds them, too."""
    run_if: tuple[RunIf, ...] = ()
    """It is skipped unless all of these are met."""
    iterations: tuple[Iteration, ...] = ()
    """The loops in which it repeats a step, the outermost first."""
    append_row: bool = True
    row_format: str = "text"
    ends_workers_first: bool = False
    """Its workers are ended before its output is made: what their `shutdown()` does, and what nodes bring to a store of
    what they wrote, belongs to the step."""
    without_input: bool = False
    """Mini-batches hold no items, so that a step does not fail because none of its items succeeded."""
    is_command: bool = False
    """Its one mini-batch is a command."""
    reuse: bool = False
    """Before it begins, its inputs are compared with those of earlier jobs."""
    reads_outputs: bool = False
    """Before it begins, rows that other steps have written are verified."""
    compute: str = ""
    """The pool of nodes that it runs on; "" any node."""
    instance_count: int | None = None
    """The number of nodes that may work on it at a time; all if None."""
    error_threshold: int = -1
    mini_batch_error_threshold: int = -1
    allowed_failed_percent: float = 100.0
    max_retries: int = 2
    retry_delay_s: float = 0.0
    """The delay of the first retry of a mini-batch; it doubles with each further one (`pace`)."""
    rate_per_s: float = math.inf
    """The most calls of `run()`, or items given to it, a second on all nodes together; no limit if inf."""
    rate_counts_items: bool = False
    """`rate_per_s` counts items."""
    split: int = 0
    """How many mini-batches at a time are split to find the items that fail; none if 0."""
    speculate: bool = False
    """A mini-batch may run twice at the same time: stragglers are begun once more (`speculation`)."""
    returns_items: bool = True
    """A row that `run()` returns stands for an item."""
    first_task_creation_timeout_s: float = 600.0
    progress_update_timeout_s: float | None = None
    """How long the step may make no progress before it fails, in seconds; no limit if None."""
    max_concurrency_per_instance: int | None = None
    """Worker processes on a node; one per slot of the node if None."""
    cpus_per_worker: float | None = None
    """The processors that a worker takes of a node, of which it has one for each slot; a slot if None."""
    memory_per_worker: int = 0
    """The bytes that a worker takes of a node's memory; 0: none is counted."""
    gpus_per_worker: float = 0.0
    """The GPUs that a worker takes; below 1, a part of one; 0: none is counted."""
    min_nodes: int = 1
    """It begins when it has workers on so many nodes at once (`gathering`)."""

    idle_gpu_timeout_s: float | None = None
    """A worker without a mini-batch that has not used its GPUs for so long gives them back; never if None."""

    @property
    def has_needs(self) -> bool:
        """Whether the step says what a worker needs."""
        return self.cpus_per_worker is not None or self.memory_per_worker > 0 or self.gpus_per_worker > 0


class JobSettings(NamedTuple):
    """Settings of a whole job, and of its steps in their order."""

    steps: tuple[StepSettings, ...]
    continue_on_step_failure: bool = False
    """A step that fails ends those alone that wait for its outputs."""


@dataclass(slots=True)
class Timing:
    """Intervals that decide about nodes, in seconds."""

    heartbeat_s: float = 1.0
    """The interval between heartbeats of a node that holds leases."""
    idle_heartbeat_s: float = 4.0
    """The same for a node that holds none. It says with each heartbeat when the next one is due at the latest."""
    store_leases_after_s: float = 1.0
    """Older leases are written down."""
    lease_ttl_s: float = 4.5
    """A node silent for longer loses its leases. More than 3 s, since a stall of 3 s must cost nothing."""
    disconnected_ttl_s: float = 1.5
    """The same for a node whose connection was closed (not merely silent): its process is most likely dead."""
    cut_off_max_s: float = 30.0
    """How long the silence of all connected nodes is attributed to the master itself."""
    adoption_grace_s: float = 15.0
    """After a start of the master: how long leases of nodes that have not come back yet are kept for them."""
    settle_s: float = 1.5
    """After a start of the master: how long known nodes may take to say what they hold before work is handed out."""
    quarantine_s: float = 30.0
    """How long a node stays quarantined, or is set aside for a step the first time."""
    aside_max_s: float = 600.0
    """The longest that a node is set aside for a step at a time."""
    quarantine_faults: int = 10
    """After this many attempts in a row that failed by a fault of their node (a full disk), the node is quarantined,
    even if it is the only one."""
    node_fault_delay_s: float = 2.0
    retry_wait_s: float = 30.0
    """How long a retry waits for a slot of another node before it goes to any."""
    reclaim_after_s: float = 30.0
    """How long a worker whose place another step waits for may go on with the mini-batch that it runs."""
    recall_answer_s: float = 0.5
    """How long a node that was asked for leases it has not begun is not asked again, unless it gives some back."""
