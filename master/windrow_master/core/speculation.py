"""Second attempts of stragglers (`--speculate`): when nothing waits and slots are free, a mini-batch that takes far
longer than others is begun once more, on another node if there is one. The first attempt that succeeds counts; the
other is taken back.

One that fails while the other runs is charged to nobody: only the last one that runs decides about its mini-batch.

Invariants:
1. Two live leases on one mini-batch are each other's `rival`.
2. A mini-batch that is split has one lease.
"""

from __future__ import annotations

import math

from windrow_master.core import effects as fx
from windrow_master.core.commands import Moment
from windrow_master.core.leases import Lease
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.core.states import AttemptState, Cause

LATE_FACTOR = 2.0
"""A mini-batch that has been leased for longer than this many times the mean duration is a straggler."""

LATE_AFTER_S = 1.0
"""No mini-batch is a straggler before it has been leased for so long, in seconds."""

SECOND_ATTEMPTS_MAX = 2
"""How often a mini-batch is begun once more, for each time that it is leased alone. A second attempt may fail early, or
be lost with its node."""


def stragglers(state: CoreState, step: Step, now: Moment) -> list[Lease]:
    """Leases whose mini-batches may be begun once more, the oldest first."""
    if not _is_waiting_for_last(step):
        return []
    leases = [state.leases[lease_id] for lease_id in step.lease_ids]
    late = [lease for lease in leases if _late_at_s(step, lease) <= now.monotonic_s]
    return sorted(late, key=lambda lease: (lease.granted_s, lease.lease_id))


def late_moments_s(state: CoreState, step: Step) -> list[float]:
    """The moments (monotonic) from which leases count as stragglers, unless something else comes first."""
    if not _is_waiting_for_last(step):
        return []
    return [_late_at_s(step, state.leases[lease_id]) for lease_id in step.lease_ids]


def begin_again(state: CoreState, step: Step, straggler: Lease, node: Node, now: Moment) -> Lease:
    """Lease the mini-batch of a straggler to another node as well."""
    (lease_id,) = state.next_lease_ids(1)
    mini_batch = straggler.mini_batch
    lease = Lease(
        lease_id, step.step_id, mini_batch, straggler.generation, node.node_id, now.monotonic_s, straggler.attempt
    )
    lease.rival, straggler.rival = straggler, lease
    lease.is_second = True
    step.second_attempts[mini_batch] = step.second_attempts.get(mini_batch, 0) + 1
    step.counters.speculated += 1
    state.touch_step(step)
    state.add_leases([lease], node, step)
    state.unstored.append(lease_id)
    return lease


def supersede_rival(state: CoreState, step: Step, winner: Lease, now: Moment) -> None:
    """Take the other attempt of a mini-batch back, because this one has succeeded. It is charged to nobody."""
    lease, winner.rival = winner.rival, None
    if lease is None:
        return
    step.counters.speculated_won += winner.is_second
    if lease.stored:
        state.store_attempt(lease, AttemptState.ABANDONED, now, Cause.PREEMPTED, "Another attempt was faster.")
    state.drop_lease(lease, step)
    node = state.nodes.get(lease.node_id)
    if node is not None and node.stream:
        state.effects.append(fx.RevokeLeases(node.node_id, node.stream, [lease.lease_id]))
    state.scheduling_wanted = True


def _is_waiting_for_last(step: Step) -> bool:
    """Whether all that is left of a step runs, so that slots may be free for stragglers."""
    return step.settings.speculate and step.plan.is_done and not len(step.ready)


def _late_at_s(step: Step, lease: Lease) -> float:
    """When (monotonic) a lease becomes a straggler; inf if it never does, as far as is known."""
    counters = step.counters
    measured = counters.measured
    tries = step.mini_batches.tries.get(lease.mini_batch)
    if (
        lease.rival is not None
        or lease.exclusive
        or lease.trial
        or measured <= 0
        or (tries is not None and tries.split is not None)
        or step.second_attempts.get(lease.mini_batch, 0) >= SECOND_ATTEMPTS_MAX
    ):
        return math.inf
    expected_s = counters.mean_s()
    items = step.mini_batches.item_counts[lease.mini_batch]
    mean_items = (counters.items_ok - counters.items_taken_over) / max(1, counters.succeeded - counters.taken_over)
    if items > mean_items > 0:
        expected_s *= items / mean_items
    return lease.granted_s + max(LATE_AFTER_S, LATE_FACTOR * expected_s)
