"""A worker that runs a mini-batch some of whose items always fail, and what must hold of how such are split."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from sim_planting import Broken
from windrow.rpc.v1 import work_pb2
from windrow_master.core.core import Core
from windrow_master.core.records import OutcomeRow
from windrow_master.core.splitting import IN_VAIN_MAX, ITEM_TRIES, RUNS_MAX, Split
from windrow_master.core.states import Cause, MiniBatchState, Phase
from windrow_worker.splitting import FailedItems, Order, find_failures

if TYPE_CHECKING:
    from sim_run import Simulation


class Ordered(NamedTuple):
    """How a lease is to be split, as it was when it was given."""

    cuts: list[int]
    given_up: list[FailedItems]
    suspects: list[int]


class _Died(Exception):
    """A piece has ended the worker."""


def ordered(split: Split) -> Ordered:
    """A copy: the core goes on changing its own."""
    return Ordered(
        list(split.cuts),
        [FailedItems(one.first, one.count, one.cause.name, one.message) for one in split.given_up],
        list(split.suspects),
    )


def run_items(lease_id: int, items: int, bad: Mapping[int, Cause], order: Ordered | None) -> Any:
    """The completion of a lease, without its rows. The worker's own code looks for the items that fail."""

    def attempt(first: int, count: int) -> tuple[str, str, str] | None:
        causes = [bad[at] for at in range(first, first + count) if at in bad]
        if Cause.CRASH in causes:
            raise _Died(first, count)
        return ("EXCEPTION", "bad items", "") if causes else None

    result = work_pb2.Completion(lease_id=lease_id, item_count=items, phase=Phase.RUNNING)  # type: ignore[arg-type]
    try:
        if order is None:
            failed, last = [], attempt(0, items)
        else:
            failed, last = find_failures(
                Order(order.cuts, order.given_up, order.suspects, RUNS_MAX), items, attempt, attempt
            )
    except _Died as died:
        result.cause, result.message = work_pb2.CAUSE_CRASH, "died"
        if order is not None:
            result.piece_first, result.piece_count = died.args
        return result
    for one in failed:
        cause = int(Cause[one.cause])
        result.failed_items.add(first=one.first, count=one.count, cause=cause, message=one.message)  # type: ignore[arg-type]
    if last is not None and (order is None or sum(one.count for one in failed) == items):
        result.cause, result.message = work_pb2.CAUSE_EXCEPTION, "bad items"
    return result


class Splits:
    """Checks the rules of splitting."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.by_items: Counter[tuple[int, int]] = Counter()
        """Mini-batch -> attempts that failed by its items."""
        self._failed_s: dict[tuple[int, int], float] = {}
        """Mini-batch -> when its last attempt failed."""
        self._in_vain_s: dict[int, float] = {}
        """Step -> when splitting was last in vain. Whether to split was decided then, not when it is committed."""

    def on_failure(self, key: tuple[int, int], result: Any) -> None:
        """An attempt has failed, and its node says so for the first time."""
        bad = self._bad(key)
        self._failed_s[key] = self._sim.world.now_s
        if not bad or result.message not in ("died", "bad items"):
            return
        self.by_items[key] += 1
        settings, items = self._sim.settings_of(key[0]), self._items(key)
        if not settings.split or items < 2:
            return
        deadly = sum(cause == Cause.CRASH for cause in bad.values())
        most = settings.max_retries + 3 + deadly * (math.ceil(math.log2(items)) + ITEM_TRIES)
        # A new master, and a new generation, begin anew; so does a mini-batch whose rows were lost.
        most *= 2 * self._sim.disk.tables.incarnation * (1 + self._generation(key))
        if self.by_items[key] > most:
            raise Broken(26, f"mini-batch {key} of {items} items, {len(bad)} bad, failed {self.by_items[key]} times")

    def on_effects(self, core: Core) -> None:
        """Leases are handed out."""
        if not self._sim.config.bad_items:
            return
        for step in core.state.steps.values():
            if step.splits.in_vain >= IN_VAIN_MAX:
                self._in_vain_s[step.step_id] = self._sim.world.now_s
        split = Counter(lease.step_id for lease in core.state.leases.values() if lease.split is not None)
        for step_id, count in split.items():
            most = core.state.steps[step_id].settings.split
            if count > most:
                raise Broken(24, f"{count} mini-batches of step {step_id} are split at once, not {most}")

    def on_outcome(self, outcome: OutcomeRow, others: int) -> None:
        """An outcome is committed. `others`: failures of its mini-batch that its items have not caused."""
        key = (outcome.step_id, outcome.mini_batch)
        bad = self._bad(key) if outcome.lease_id else {}
        settings = self._sim.settings_of(outcome.step_id)
        if not bad or not settings.split:
            return
        stored = self._sim.disk.tables.item_outcomes.get(key, [])
        first = self._sim.disk.tables.mini_batches[key[0]][key[1]].item_first
        named = {row.item_first - first + at: row.cause for row in stored for at in range(row.item_count)}
        if outcome.ok_count:
            if named != bad:
                raise Broken(23, f"of mini-batch {key} failed {named}, but {bad} fail alone")
            return
        items = self._items(key)
        was_in_vain = self._in_vain_s.get(outcome.step_id, -math.inf) >= self._failed_s.get(key, 0.0)
        if outcome.state == MiniBatchState.FAILED and 1 < items > len(bad) and not others and not was_in_vain:
            raise Broken(25, f"mini-batch {key} is given up whole, though only {bad} of {items} items fail")

    def _bad(self, key: tuple[int, int]) -> dict[int, Cause]:
        step = self._sim.disk.tables.steps[key[0]]
        return self._sim.bad_items(self._sim.disk.tables.jobs[step.job_key].job_id, step.ordinal, key[1])

    def _items(self, key: tuple[int, int]) -> int:
        step = self._sim.disk.tables.steps[key[0]]
        return self._sim.items(self._sim.disk.tables.jobs[step.job_key].job_id, step.ordinal, key[1])

    def _generation(self, key: tuple[int, int]) -> int:
        return self._sim.disk.tables.jobs[self._sim.disk.tables.steps[key[0]].job_key].generation
