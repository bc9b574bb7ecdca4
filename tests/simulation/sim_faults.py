"""Planted faults (`FAULTS`): here those of outcomes, rows, leases and retries; beside it those of nodes and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import sim_fleet_faults  # noqa: F401  (it registers its faults)
import sim_share_faults  # noqa: F401  (likewise)
from sim_client import Client
from sim_disk import Disk, Segment
from sim_planting import FAULTS, fault, handler, outcome_of
from sim_run import Simulation
from sim_tables import MemoryTables
from sim_writer import SimSegments, SimWriter
from windrow_master.core import (
    attempts,
    commands,
    ledger,
    lost_rows,
    nodes,
    plans,
    recovery,
    scheduling,
    splits,
    splitting,
    steps,
    ticks,
)
from windrow_master.core import state as state_module
from windrow_master.core.commands import Moment
from windrow_master.core.counters import Counters
from windrow_master.core.leases import Lease
from windrow_master.core.splitting import FailedItems
from windrow_master.core.state import CoreState, Job, Node, Step
from windrow_master.core.states import MiniBatchState, StepState, Verdict
from windrow_master.core.transitions import Machine

__all__ = ["FAULTS"]


@fault(34)
def what_is_taken_back_is_not_counted() -> Iterator[None]:
    """The time of attempts that the master ends itself is stored with them, and is missing in the ledger."""
    with patch.object(state_module, "count_attempt", lambda *arguments: None):
        yield


@fault(34)
def ledger_begins_anew() -> Iterator[None]:
    """A new master does not take up what its predecessor has counted, and overwrites it."""
    with patch.object(ledger, "load", lambda job, row: None):
        yield


@fault(7)
def ack_before_commit() -> Iterator[None]:
    """A completion is answered when it is handled, not when it is durable."""
    with patch.object(SimWriter, "keep", lambda self, reply, answer: reply(answer)):
        yield


@fault(5)
def commit_before_sync() -> Iterator[None]:
    """The rows of the tables become durable before the rows of the segments that they name."""

    def wrong(self: SimWriter, sync: Callable[[], None], commit: Callable[[], None]) -> Callable[[], None]:
        return commit

    with patch.object(SimWriter, "sync_then_commit", wrong):
        yield


@fault(2)
def no_fence_on_commit() -> Iterator[None]:
    """The store takes commits of an earlier incarnation."""
    with patch.object(MemoryTables, "fence", lambda self, incarnation: None):
        yield


@fault(4)
def no_generation_check() -> Iterator[None]:
    """Leases of earlier code are adopted, and their results accepted."""

    def open_work(state: CoreState, command: commands.OpenWork, now: Moment) -> Any:
        held = []
        for lease in command.held:
            step = state.steps.get(lease.step_id)
            generation = lease.generation if step is None else state.jobs[step.job_key].generation
            identity = lease.identity if step is None else state.identity_of(step)
            held.append(lease._replace(generation=generation, identity=identity))
        return nodes.on_open_work(state, command._replace(held=tuple(held)), now)

    # A cancelled job ends when its nodes have confirmed it: only one that failed leaves leases behind. Retried at once,
    # and by a new master, it finds them.
    soon = patch.multiple(Client, retry_every_s=0.02, master_dies=1.0)
    with handler(commands.OpenWork, open_work), soon:
        yield


@fault(5)
def segment_reused() -> Iterator[None]:
    """A new incarnation writes to the segments of the one before, from their beginning."""

    def create(self: SimSegments, name: str) -> Segment:
        segment = self._disk.segments[name] = Segment(self._incarnation)
        return segment

    with (
        patch.object(SimSegments, "name", lambda self, step_id, count: f"{step_id}/{count}.rows"),
        patch.object(SimSegments, "create", create),
    ):
        yield


@fault(3, 21)
def two_completions_both_accepted() -> Iterator[None]:
    """A lease stays live until the end of the group, so that a repeated completion counts again."""
    original = attempts.on_complete_attempts

    def complete(state: CoreState, command: commands.CompleteAttempts, now: Moment) -> Any:
        ended = getattr(state.dirty, "ended", {})
        state.dirty.ended = ended  # type: ignore[attr-defined]
        for result in command.results:
            lease = ended.get(result.lease_id)
            if lease is not None and lease.lease_id not in state.leases and lease.node_id in state.nodes:
                step = state.steps[lease.step_id]
                if step.state == StepState.RUNNING:
                    state.add_leases([lease], state.nodes[lease.node_id], step)
        before = dict(state.leases)
        reply = original(state, command, now)
        ended.update({at: lease for at, lease in before.items() if at not in state.leases})
        return reply

    # The core's own assertions would notice at once: the rules must find it without them.
    with handler(commands.CompleteAttempts, complete), patch.object(Machine, "check"), patch.object(Counters, "check"):
        yield


@fault(6, 10)
def planner_group_applied_twice() -> Iterator[None]:
    """Handing over a group does not compare its checkpoint with the stored one."""

    def plan(state: CoreState, command: commands.PlanGroup, now: Moment) -> Any:
        step = state.steps.get(command.step_id)
        if step is None or step.plan.is_done:
            return False
        changed = commands.PlanGroup(
            command.step_id, step.plan.checkpoint, command.end, len(step.mini_batches), command.records, command.done,
            command.reader or step.plan.reader or b"{}", command.warnings,
        )  # fmt: skip
        return plans.on_plan_group(state, changed, now)

    with handler(commands.PlanGroup, plan):
        yield


@fault(1)
def lease_ids_start_again() -> Iterator[None]:
    """Every master draws the same prefix."""
    with patch.object(Simulation, "next_prefix", lambda self: 1):
        yield


@fault(21)
def requeued_but_not_dropped() -> Iterator[None]:
    """A mini-batch goes back to the queue while its lost lease stays live."""

    def drop(self: CoreState, lease: Lease, step: Step) -> None:
        if self.nodes.get(lease.node_id) is None or lease.step_id not in self.steps or self.nodes[lease.node_id].stream:
            original(self, lease, step)

    original = CoreState.drop_lease
    with patch.object(CoreState, "drop_lease", drop):
        yield


@fault(3)
def cancelled_job_takes_rows() -> Iterator[None]:
    """The outcome of a lease that was out when its step ended is still written."""

    def revoke_all(state: CoreState, step: Step, now: Moment) -> None:
        taken = [state.leases[lease_id] for lease_id in step.lease_ids]
        original(state, step, now)
        for lease in taken:
            state.nodes[lease.node_id].claims[lease.lease_id] = (step.step_id, lease.mini_batch)

    def complete(state: CoreState, command: commands.CompleteAttempts, now: Moment) -> Any:
        node = state.nodes.get(command.node_id)
        reply = attempts.on_complete_attempts(state, command, now)
        for lease_id in reply.get(Verdict.JOB_ENDED, ()):
            step_id, mini_batch = node.claims[lease_id] if node is not None else (0, -1)  # type: ignore[index]
            state.dirty.outcomes.append(outcome_of(step_id, mini_batch, lease_id))
        return reply

    original = steps._revoke_all
    with handler(commands.CompleteAttempts, complete), patch.object(steps, "_revoke_all", revoke_all):
        yield


@fault(8)
def pause_not_made_up_for() -> Iterator[None]:
    """A late tick does not move the deadlines."""
    with patch.object(ticks, "_shift_deadlines", lambda state, gap_s, now: None):
        yield


@fault(3)
def late_result_counts_too() -> Iterator[None]:
    """A result that comes after another attempt's outcome takes that one's place."""

    def judge(state: CoreState, node: Node | None, lease_id: int) -> Verdict:
        verdict = original(state, node, lease_id)
        if verdict == Verdict.SUPERSEDED and node is not None and lease_id in node.claims:
            step_id, mini_batch = node.claims[lease_id]  # type: ignore[index]
            if state.steps[step_id].mini_batches.states[mini_batch] == MiniBatchState.SUCCEEDED:
                state.dirty.outcomes.append(outcome_of(step_id, mini_batch, lease_id))
                return Verdict.ACCEPTED
        return verdict

    original = attempts._judge_claim
    with patch.object(attempts, "_judge_claim", judge):
        yield


@fault(10)
def counters_left_behind() -> Iterator[None]:
    """Outcomes are committed, the step's row with its counters is not."""
    with patch.object(CoreState, "touch_step", lambda self, step: None):
        yield


@fault(20)
def success_not_taken_back() -> Iterator[None]:
    """Rows are lost, and the attempt that brought them still counts as a success."""

    def requeue(state: CoreState, command: commands.RequeueLostRows, now: Moment) -> None:
        before = len(state.dirty.attempts)
        lost_rows.on_requeue_lost_rows(state, command, now)
        del state.dirty.attempts[before:]

    with handler(commands.RequeueLostRows, requeue):
        yield


@fault(10)
def restart_forgets_tries() -> Iterator[None]:
    """Failed attempts of open mini-batches are not counted after a restart."""
    with patch.object(recovery, "count_failure", lambda step, mini_batch, lease_id, cause: 0):
        yield


@fault(13)
def checksums_not_looked_at() -> Iterator[None]:
    """Concatenation trusts the tables and does not look at checksums."""

    def read(self: Disk, at: Any, *, durable: bool = False) -> bytes:
        segment = self.segments[at.segment]
        return bytes(segment.data[at.offset : at.offset + at.length])

    with patch.object(Disk, "read", read):
        yield


@fault(21)
def leased_twice() -> Iterator[None]:
    """A mini-batch is handed out again although it is leased."""

    def grant(state: CoreState, step: Step, node: Node, mini_batches: list[int], now: Moment) -> list[Lease]:
        for mini_batch in mini_batches:
            if not mini_batch % 7:
                step.ready.put_back(mini_batch, now.monotonic_s)
        return original(state, step, node, mini_batches, now)

    original = scheduling._grant
    with patch.object(scheduling, "_grant", grant):
        yield


@fault(13)
def deadlines_of_nodes_forgotten() -> Iterator[None]:
    """What comes next leaves out when nodes are lost: nobody ticks at that moment."""

    def next_due(state: CoreState, now: Moment) -> float:
        nodes, state.nodes = state.nodes, {}
        try:
            return original(state, now)
        finally:
            state.nodes = nodes

    original = ticks.next_due
    with patch.object(ticks, "next_due", next_due):
        yield


@fault(10)
def taken_over_in_memory_alone() -> Iterator[None]:
    """The commit of a group of mini-batches leaves out the outcomes that came with it."""

    def take_over(state: CoreState, job: Job, step: Step, taken: commands.TakenOver) -> None:
        original(state, job, step, taken)
        state.dirty.outcomes.pop()
        if taken.source:
            state.dirty.row_blocks.pop()

    original = plans._take_over
    with patch.object(plans, "_take_over", take_over):
        yield


@fault(15)
def taken_over_although_items_are_missing() -> Iterator[None]:
    """Mini-batches of an earlier job are taken over although some of their items have no result."""
    with patch.object(Simulation, "is_whole", lambda self, row: row.state == MiniBatchState.SUCCEEDED):
        yield


@fault(23)
def failed_items_begin_at_the_first() -> Iterator[None]:
    """Failed items are stored as the first ones of their mini-batch, as many as there are."""
    stored = attempts._store_failed_items

    def wrong(state: CoreState, step: Step, mini_batch: int, found: Sequence[FailedItems]) -> None:
        begin, moved = 0, []
        for one in found:
            moved.append(replace(one, first=begin))
            begin += one.count
        stored(state, step, mini_batch, moved)

    with patch.object(attempts, "_store_failed_items", wrong):
        yield


@fault(24)
def all_are_split_at_once() -> Iterator[None]:
    """No mini-batch waits for its turn to be split."""

    def turn_of(step: Step, mini_batch: int) -> float:
        tries = step.mini_batches.tries.get(mini_batch)
        if tries is not None and tries.split is not None:
            step.splits.running.add(mini_batch)
        return 0.0

    with patch.object(splits, "turn_of", turn_of):
        yield


@fault(25)
def only_deaths_are_split() -> Iterator[None]:
    """A mini-batch whose tries are used up by exceptions is given up whole."""
    with patch.object(splits, "SPLIT_AT_LAST", frozenset()):
        yield


@fault(26)
def pieces_are_never_given_up() -> Iterator[None]:
    """A single item that ends its worker is tried again and again."""
    with patch.object(splitting, "ITEM_TRIES", 1_000), patch.object(splitting, "DEATHS_MAX", 1_000):
        yield


@fault(28)
def retries_are_not_charged_to_the_rate() -> Iterator[None]:
    """A mini-batch that was tried before begins without a place in the schedule."""
    charge = scheduling._charge

    def wrong(step: Step, mini_batches: list[int], now: Moment) -> None:
        charge(step, [at for at in mini_batches if at not in step.mini_batches.attempts], now)

    with patch.object(scheduling, "_charge", wrong):
        yield


@fault(27)
def stragglers_run_alone() -> Iterator[None]:
    """No mini-batch is begun once more, however long it takes."""
    with patch.object(scheduling, "stragglers", lambda state, step, now: []):
        yield
