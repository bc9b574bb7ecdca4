"""The ledger: what worker time was spent on, by day, project, job and pool. It outlives the job.

An attempt counts when it ends, on the day (UTC) on which it ends, under the project that its job belongs to then. The
time that a worker took to start counts with its first result. What workers lived in all is the number of workers that
each node reports for each step, over time; it is noted whenever that number changes, and every NOTED_S while it does
not. A node that is not connected reports nothing, so its workers do not count meanwhile. What they lived beyond all
else is idle time; whoever shows the ledger computes it (`SPENT`).

Entries hold sums, and a changed one is stored whole, in the group of what changed it: nothing is counted twice if a
group is written again, and a master that dies takes nothing with it but the last NOTED_S of what workers lived.

Invariants:
1. Over all entries of a job, the sum of `ATTEMPTS` is the sum of `elapsed_us` over the attempts that it ever stored.
2. The entries of a job that has not ended are all in memory, also those of earlier days: the clock may be set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from windrow_master.core.records import LedgerRow
from windrow_master.core.states import AttemptState, Cause

if TYPE_CHECKING:
    from windrow_master.core.commands import Moment
    from windrow_master.core.ids import StepId
    from windrow_master.core.state import CoreState, Job, Node

USEFUL, RETRIED, LOST, PREEMPTED, CANCELLED, STARTED, LIVED = range(7)
"""What time was spent on; the last is what workers lived in all. For the hot path: plain numbers."""
ATTEMPTS: Final = 5
"""The kinds before this one are of attempts."""
SPENT: Final = 6
"""The kinds before this one are parts of what workers lived."""
DAY_S: Final = 86_400
NOTED_S: Final = 30.0
"""What workers live is noted at least so often, in seconds, while their nodes are heard of."""

_BY_CAUSE = {int(Cause.NODE_LOST): LOST, int(Cause.PREEMPTED): PREEMPTED, int(Cause.CANCELLED): CANCELLED}
_SUCCEEDED = int(AttemptState.SUCCEEDED)


def kind_of(state: int, cause: int) -> int:
    """What the time of an attempt was spent on, given how it ended."""
    return USEFUL if state == _SUCCEEDED else _BY_CAUSE.get(cause, RETRIED)


class Entry:
    """The sums of one job in one pool on one day, under one project, in µs: `us[kind]`."""

    __slots__ = ("day", "job", "pool", "project", "us")

    def __init__(self, job: Job, day: int, project: str, pool: str, us: list[int]) -> None:
        self.job = job
        self.day = day
        self.project = project
        self.pool = pool
        self.us = us

    def row(self) -> LedgerRow:
        """Return the stored form."""
        job = self.job
        return LedgerRow(job.job_key, self.day, self.project, self.pool, job.job_id, job.submitter, *self.us)


def count_attempt(state: CoreState, job: Job, node: Node | None, kind: int, us: int, now: Moment) -> None:
    """Count the time of an attempt that has ended. `node`: None if it is gone."""
    if us:
        _entry(state, job, frozenset() if node is None else node.pools, now).us[kind] += us


def count_start(state: CoreState, job: Job, node: Node, us: int, now: Moment) -> None:
    """Count what a worker took to be ready: Python, the script's imports, and `init()`."""
    _entry(state, job, node.pools, now).us[STARTED] += us


def set_workers(state: CoreState, node: Node, step_id: StepId, workers: int, now: Moment) -> None:
    """Note how many workers a node has for a step."""
    if node.workers.get(step_id) != workers:
        note_lived(state, node, now)
        node.workers[step_id] = workers


def drop_workers(state: CoreState, node: Node, now: Moment, step_id: StepId | None = None) -> None:
    """Note that a node has no workers for a step, or reports none at all."""
    if node.workers if step_id is None else step_id in node.workers:
        note_lived(state, node, now)
        if step_id is None:
            node.workers.clear()
        else:
            del node.workers[step_id]


def note_now_and_then(state: CoreState, node: Node, now: Moment) -> None:
    """Note what the workers of a node that was heard of have lived, if that was done too long ago."""
    if now.monotonic_s - node.noted_s >= NOTED_S:
        note_lived(state, node, now)


def note_lived(state: CoreState, node: Node, now: Moment) -> None:
    """Count what the workers of a node have lived since this was done last."""
    lived_us = int((now.monotonic_s - node.noted_s) * 1e6)
    node.noted_s = now.monotonic_s
    if lived_us <= 0:
        return
    for step_id, workers in node.workers.items():
        if workers and (step := state.steps.get(step_id)) is not None:
            _entry(state, state.jobs[step.job_key], node.pools, now).us[LIVED] += workers * lived_us


def load(job: Job, row: LedgerRow) -> None:
    """Enter a stored row."""
    pools = frozenset(row.pool.split(",")) if row.pool else frozenset[str]()
    job.ledger[row.day, row.project, pools] = Entry(job, row.day, row.project, row.pool, list(row.sums))


def _entry(state: CoreState, job: Job, pools: frozenset[str], now: Moment) -> Entry:
    """Today's entry, to be changed."""
    key = (int(now.wall_s) // DAY_S, job.queue, pools)
    entry = job.ledger.get(key)
    if entry is None:
        entry = job.ledger[key] = Entry(job, key[0], job.queue, ",".join(sorted(pools)), [0] * (LIVED + 1))
    state.dirty_entries.add(entry)
    return entry
