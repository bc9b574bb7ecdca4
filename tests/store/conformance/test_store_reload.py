"""Reload equals what was written, whatever the groups: a Hypothesis model beside every store."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_groups import attempt_row, job_row, outcome_row, planned, step_row
from store_harness import StoreHarness
from stores import all_harnesses
from windrow_master.core.ids import StepId
from windrow_master.core.ready import RANK_MAX
from windrow_master.core.records import RANK, AttemptRow, Dirty, ItemOutcomeRow, RowBlock
from windrow_master.core.states import AttemptState, MiniBatchState
from windrow_master.store.protocol import Store
from windrow_master.store.records import CommittedRange, RowRange

STEPS = (1, 2)
HARNESSES = all_harnesses()
NOWHERE = Path("/nonexistent")

Operation = tuple[str, int, int, int]


@dataclass
class Model:
    """What the store should hold, in plain dictionaries."""

    states: dict[int, list[int]] = field(default_factory=lambda: {step_id: [] for step_id in STEPS})
    lease_ids: dict[int, list[int]] = field(default_factory=lambda: {step_id: [] for step_id in STEPS})
    ranks: dict[int, list[int]] = field(default_factory=lambda: {step_id: [] for step_id in STEPS})
    """Only the mini-batches of the second step have some."""
    ranges: dict[tuple[int, int], CommittedRange] = field(default_factory=dict)
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    item_outcomes: list[ItemOutcomeRow] = field(default_factory=list)
    seq: int = 0
    lease_count: int = 0


@st.composite
def operations(draw: st.DrawFn) -> list[Operation]:
    kinds = st.sampled_from(["plan", "start", "succeed", "fail", "lose", "cancel", "restart"])
    numbers = st.integers(0, 30)
    return draw(st.lists(st.tuples(kinds, st.sampled_from(STEPS), numbers, numbers), max_size=12))


def apply(
    store: Store, model: Model, dirty: Dirty, ranges: list[RowRange], operation: tuple[str, int, int, int]
) -> None:
    """One change of the core: to the group, and to the model."""
    kind, step_id, which, how = operation
    states, lease_ids = model.states[step_id], model.lease_ids[step_id]
    if kind == "plan":
        ranks = [(at * 7919) << 40 & RANK_MAX for at in range(len(states), len(states) + how)] if step_id == 2 else []
        dirty.planned.append(planned(step_id, len(states), how, b"".join(map(RANK.pack, ranks))))
        model.ranks[step_id].extend(ranks)
        states.extend([0] * how)
        lease_ids.extend([0] * how)
        return
    if kind == "cancel":
        dirty.cancelled_steps.append(StepId(step_id))
        states[:] = [MiniBatchState.CANCELLED if state == MiniBatchState.QUEUED else state for state in states]
        return
    if not states:
        return
    mini_batch = which % len(states)
    state = states[mini_batch]
    model.lease_count += 1
    lease_id = store.lease_prefix << 32 | model.lease_count
    if kind == "start" and state == MiniBatchState.QUEUED:
        row = attempt_row(mini_batch, lease_id, AttemptState.RUNNING, step_id=step_id)
        dirty.attempts.append(row)
        model.attempts[lease_id] = row
    elif kind == "succeed" and state == MiniBatchState.QUEUED:
        row = attempt_row(mini_batch, lease_id, step_id=step_id, elapsed_us=how)
        dirty.attempts.append(row)
        model.attempts[lease_id] = row
        block = len(dirty.row_blocks) if how % 3 else -1
        if block >= 0:
            place = RowRange(store.incarnation, which, how, how * 7)
            dirty.row_blocks.append(RowBlock("job", StepId(step_id), b"", "", how, how * 7))
            ranges.append(place)
            model.ranges[step_id, mini_batch] = CommittedRange(mini_batch, row.lease_id, 10, 10, 10, *place)
        dirty.outcomes.append(outcome_row(mini_batch, lease_id, step_id=step_id, rows=block))
        states[mini_batch], lease_ids[mini_batch] = MiniBatchState.SUCCEEDED, lease_id
    elif kind == "fail" and state == MiniBatchState.QUEUED:
        row = attempt_row(mini_batch, lease_id, AttemptState.FAILED, step_id=step_id, cause=1 + how % 12)
        dirty.attempts.append(row)
        model.attempts[lease_id] = row
        outcome = ItemOutcomeRow(StepId(step_id), mini_batch, 0, 10, row.cause, f"m{how}")
        dirty.item_outcomes.append(outcome)
        model.item_outcomes.append(outcome)
        dirty.outcomes.append(
            outcome_row(mini_batch, lease_id, step_id=step_id, state=MiniBatchState.FAILED, ok_count=0)
        )
        states[mini_batch], lease_ids[mini_batch] = MiniBatchState.FAILED, lease_id


def lose(store: Store, model: Model, step_id: int, which: int) -> None:
    """Rows of a success are lost: a group of its own, as concatenation comes after the commit."""
    ended = [number for number, state in enumerate(model.states[step_id]) if state == MiniBatchState.SUCCEEDED]
    if not ended:
        return
    mini_batch = ended[which % len(ended)]
    lease_id = model.lease_ids[step_id][mini_batch]
    verdict = attempt_row(mini_batch, lease_id, AttemptState.FAILED, step_id=step_id, node_id="", cause=12, message="l")
    dirty = Dirty(
        attempts=[verdict],
        item_outcomes_cleared=[(StepId(step_id), mini_batch)],
        outcomes=[outcome_row(mini_batch, 0, step_id=step_id, state=MiniBatchState.QUEUED, item_count=0, ok_count=0)],
    )
    store.commit(dirty, [], [])
    model.attempts[lease_id] = model.attempts[lease_id]._replace(state=AttemptState.FAILED, cause=12, message="l")
    model.states[step_id][mini_batch] = MiniBatchState.QUEUED
    model.lease_ids[step_id][mini_batch] = 0
    model.ranges.pop((step_id, mini_batch), None)


def compare(store: Store, model: Model) -> None:
    snapshot, reader = store.load(), store.reader()
    assert snapshot.jobs == [job_row(seq=model.seq)]
    for step_id, loaded in zip(STEPS, snapshot.steps, strict=True):
        assert loaded.step == step_row(step_id, counters=b"%d" % model.seq)
        assert list(loaded.states) == model.states[step_id]
        assert list(loaded.lease_ids) == model.lease_ids[step_id]
        assert list(loaded.ranks) == model.ranks[step_id]
        of_step = [row for row in model.attempts.values() if row.step_id == step_id]
        queued = {
            (row.mini_batch, row.lease_id, row.state, row.cause, row.node_id)
            for row in of_step
            if model.states[step_id][row.mini_batch] == 0 and row.state != AttemptState.SUCCEEDED
        }
        assert set(loaded.attempts) == queued
        assert len(loaded.attempts) == len(queued)
        found = [row for page in reader.ranges_of(StepId(step_id), 4) for row in page]
        assert found == [model.ranges[key] for key in sorted(model.ranges) if key[0] == step_id]
        attempts = [row for page in reader.attempts_of(StepId(step_id), 4) for row in page]
        assert attempts == sorted(of_step)
        items = [row for page in reader.item_outcomes_of(StepId(step_id), 3) for row in page]
        expected = [row for row in model.item_outcomes if row.step_id == step_id]
        assert items == sorted(expected, key=lambda row: row.mini_batch)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(groups=st.lists(operations(), max_size=6))
def test_reload_equals_what_was_written(groups: list[list[Operation]]) -> None:
    for name in ("memory", "plain"):
        check(HARNESSES[name](NOWHERE), groups)


def test_reload_equals_what_was_written_in_every_store(harness: StoreHarness) -> None:
    check(
        harness,
        [
            [("plan", 1, 0, 20), ("plan", 2, 0, 5), ("start", 1, 3, 0), ("succeed", 1, 3, 4)],
            [("restart", 1, 0, 0), ("succeed", 1, 4, 5), ("succeed", 2, 1, 1), ("fail", 2, 2, 2)],
            [("lose", 1, 0, 0), ("succeed", 1, 3, 7), ("restart", 1, 0, 0), ("cancel", 1, 0, 0)],
        ],
    )


def check(harness: StoreHarness, groups: list[list[Operation]]) -> None:
    model, store = Model(), harness.open()
    for group in [[], *groups]:
        dirty, ranges = Dirty(), []
        model.seq += 1
        dirty.jobs = [job_row(seq=model.seq)]
        dirty.steps = [step_row(step_id, counters=b"%d" % model.seq) for step_id in STEPS]
        # Planning and outcomes of a step end when it is cancelled.
        for operation in sorted(group, key=lambda operation: operation[0] == "cancel"):
            if operation[0] not in ("restart", "lose"):
                apply(store, model, dirty, ranges, operation)
        store.commit(dirty, ranges, [])
        for kind, step_id, which, _ in group:
            if kind == "lose":
                lose(store, model, step_id, which)
        if any(operation[0] == "restart" for operation in group):
            store = harness.open()
        compare(store, model)
    harness.close()
