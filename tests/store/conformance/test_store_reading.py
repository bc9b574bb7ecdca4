"""What every store tells its readers (windrow_master.store.protocol.StoreReader)."""

from __future__ import annotations

import pytest
from store_groups import (
    attempt_row,
    begun,
    completed,
    job_row,
    lease,
    outcome_row,
    planned,
    step_row,
)
from store_harness import StoreHarness
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Dirty, EventRow, ItemOutcomeRow, NodeRow
from windrow_master.core.states import AttemptState, Cause, MiniBatchState
from windrow_master.store.records import AttemptFigures, OutputRow

STEP = StepId(1)


def test_jobs_are_found_and_listed(harness: StoreHarness) -> None:
    store = harness.open()
    jobs = [job_row(key) for key in range(1, 8)] + [job_row(8, request_id=""), job_row(9, request_id="")]
    store.commit(Dirty(jobs=jobs), [], [])
    reader = store.reader()
    assert [row.job_key for row in reader.jobs_newest_first(4)] == [9, 8, 7, 6]
    assert [row.job_key for row in reader.jobs_newest_first(4, 6)] == [5, 4, 3, 2]
    assert reader.jobs_newest_first(4, 1) == []
    assert reader.job_by_id("job-3") == reader.job_by_key(JobKey(3)) == reader.job_by_request("request-3") == jobs[2]
    assert reader.job_by_id("job-77") is None
    assert reader.job_by_request("") is None


@pytest.mark.parametrize("page_rows", [1, 3, 7, 8, 100])
def test_ranges_come_in_output_order_without_gaps(harness: StoreHarness, page_rows: int) -> None:
    store = harness.open()
    group = begun()
    group.steps.append(step_row(2))
    group.planned.append(planned(2, 0, 3))
    store.commit(group, [], [])
    with_rows = [0, 9, 4, 3, 2, 8, 7]
    dirty, ranges = completed(store, with_rows)
    dirty.outcomes.append(outcome_row(5, lease(store, 90)))
    store.commit(dirty, ranges, [])
    pages = list(store.reader().ranges_of(STEP, page_rows))
    assert all(len(page) <= page_rows for page in pages)
    rows = [row for page in pages for row in page]
    assert [row.mini_batch for row in rows] == sorted(with_rows)
    for row in rows:
        assert (row.lease_id, row.offset, row.length, row.crc32) == (
            lease(store, row.mini_batch + 1), row.mini_batch * 50, 50, row.mini_batch,
        )  # fmt: skip
        assert (row.item_count, row.ok_count, row.row_count) == (10, 10, 10)
    everything = [row for page in store.reader().mini_batches_of(STEP, page_rows) for row in page]
    assert [row.mini_batch for row in everything] == list(range(10))


@pytest.mark.parametrize("page_rows", [1, 2, 100])
def test_attempts_come_in_order_of_lease_id(harness: StoreHarness, page_rows: int) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    rows = [
        attempt_row(number, lease(store, 10 - number), message=f"snow \u2603 \n {number}", detail="\x00\x1f\"'\\")
        for number in range(9)
    ]
    store.commit(Dirty(attempts=[*rows, attempt_row(1, 5, step_id=2)]), [], [])
    found = [row for page in store.reader().attempts_of(STEP, page_rows) for row in page]
    assert found == sorted(rows)


@pytest.mark.parametrize("page_rows", [1, 2, 100])
def test_item_outcomes_are_cleared_and_listed(harness: StoreHarness, page_rows: int) -> None:
    store = harness.open()
    store.commit(begun(), [], [])

    def row(mini_batch: int, message: str, step_id: int = 1) -> ItemOutcomeRow:
        return ItemOutcomeRow(StepId(step_id), mini_batch, mini_batch * 10, 1, Cause.EXCEPTION, message)

    first = [row(5, "e"), row(3, "a"), row(3, "b"), row(4, "c"), row(3, "other", 2)]
    store.commit(Dirty(item_outcomes=first), [], [])
    store.commit(
        Dirty(item_outcomes_cleared=[(STEP, 3), (STEP, 77), (STEP, 5)], item_outcomes=[row(3, "d"), row(9, "f")]),
        [],
        [],
    )
    found = [row for page in store.reader().item_outcomes_of(STEP, page_rows) for row in page]
    assert found == [row(3, "d"), row(4, "c"), row(9, "f")]
    assert [row for page in store.reader().item_outcomes_of(StepId(2), page_rows) for row in page] == [first[-1]]


@pytest.mark.parametrize("page_rows", [1, 100])
def test_failures_are_listed_with_their_tries_and_their_node(harness: StoreHarness, page_rows: int) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    short, tried_twice, never_run = 3, 4, 5
    # The clock of a node may be behind, or set back: the leases tell what came first.
    attempts = [
        attempt_row(short, lease(store, 1), AttemptState.ABANDONED, node_id="lost", start_unix_us=1),
        attempt_row(short, lease(store, 2), AttemptState.SUCCEEDED, node_id="did-it", start_unix_us=2),
        attempt_row(tried_twice, lease(store, 4), AttemptState.FAILED, node_id="last", start_unix_us=1),
        attempt_row(tried_twice, lease(store, 3), AttemptState.FAILED, node_id="first", start_unix_us=2),
    ]
    failures = [
        ItemOutcomeRow(STEP, short, 0, 2, Cause.NONE, "short"),
        ItemOutcomeRow(STEP, tried_twice, 0, 7, Cause.EXCEPTION, "raised"),
        ItemOutcomeRow(STEP, never_run, 0, 7, Cause.CANCELLED, "cancelled"),
    ]
    store.commit(
        Dirty(outcomes=[outcome_row(short, attempts[1].lease_id)], attempts=attempts, item_outcomes=failures), [], []
    )
    found = [row for page in store.reader().failures_of(STEP, page_rows) for row in page]
    assert [(row.mini_batch, row.item_count, row.cause, row.message, row.tries, row.node_id) for row in found] == [
        (short, 2, Cause.NONE, "short", 1, "did-it"),
        (tried_twice, 7, Cause.EXCEPTION, "raised", 2, "last"),
        (never_run, 7, Cause.CANCELLED, "cancelled", 0, ""),
    ]
    for mini_batch in (short, tried_twice, never_run, 0):
        assert store.reader().failures_at(STEP, mini_batch) == [row for row in found if row.mini_batch == mini_batch]
    rows = {row.mini_batch: row for page in store.reader().mini_batches_of(STEP) for row in page}
    for row in found:
        counted = rows[row.mini_batch]
        assert row[4:8] == (counted.items_counted, counted.recipe_offset, counted.recipe_length, counted.recipe_crc32)


def test_the_longest_attempts_are_told_by_their_recipes(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    took = {0: 5_000, 1: 70_000, 2: 70_000, 3: 9_000, 4: 90_000}
    attempts = [
        attempt_row(index, lease(store, index + 1), AttemptState.FAILED if index == 4 else AttemptState.SUCCEEDED,
                    elapsed_us=elapsed, start_unix_us=index + 1)
        for index, elapsed in took.items()
    ]  # fmt: skip
    outcomes = [outcome_row(row.mini_batch, row.lease_id) for row in attempts if row.state == AttemptState.SUCCEEDED]
    store.commit(Dirty(outcomes=outcomes, attempts=attempts), [], [])
    reader = store.reader()
    rows = {row.mini_batch: row for page in reader.mini_batches_of(STEP) for row in page}
    places = [(rows[at].recipe_length, rows[at].recipe_crc32, took[at]) for at in (1, 2, 3)]
    assert reader.longest_of(STEP, 5_000, 10) == places, "failed ones do not count"
    assert reader.longest_of(STEP, 5_000, 1) == places[:1]
    assert reader.longest_of(STEP, 70_000, 10) == []


def test_events_and_nodes(harness: StoreHarness) -> None:
    store = harness.open()
    events = [EventRow(float(number), JobKey(1), "kind", f"{number}") for number in range(5)]
    lonely = EventRow(9.0, None, "node", "n")
    node = NodeRow("node-1", "a", 1, "", b"{}", b"{}", 1.0, 0)
    store.commit(Dirty(events=[*events, lonely], nodes=[node, node._replace(node_id="node-0")]), [], [])
    changed = node._replace(state=5, node_incarnation="b", cordoned=1)
    store.commit(Dirty(nodes=[changed]), [], [])
    reader = store.reader()
    numbered = reader.events_of(JobKey(1), limit=2)
    assert [event for _, event in numbered] == events[:2]
    assert [event for _, event in reader.events_of(JobKey(1), after=numbered[-1][0])] == events[2:]
    assert [event for _, event in reader.events_of(None)] == [lonely]
    expected = [node._replace(node_id="node-0"), changed]
    assert reader.nodes() == harness.open().load().nodes == expected


def test_outputs_are_known_again(harness: StoreHarness) -> None:
    store = harness.open()
    rows = [
        OutputRow("/out/a", JobKey(1), STEP, generation, 1, 100, f"digest {generation}", 1 << 60, 7)
        for generation in range(1, 4)
    ]
    for row in rows:
        store.record_output(row)
    store.record_output(rows[0]._replace(path="/out/b"))
    assert harness.open().reader().outputs_at("/out/a") == rows[::-1]


def test_mini_batches_are_found_by_state_and_cause(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun()
    group.steps.append(step_row(2))
    group.planned.append(planned(2, 0, 3))
    store.commit(group, [], [])
    failed = outcome_row(3, lease(store, 5), state=MiniBatchState.FAILED, ok_count=0)
    store.commit(
        Dirty(
            outcomes=[outcome_row(1, lease(store, 2)), outcome_row(7, lease(store, 3)), failed],
            attempts=[
                attempt_row(1, lease(store, 1), AttemptState.FAILED, cause=Cause.TIMEOUT),
                attempt_row(1, lease(store, 2)),
                attempt_row(7, lease(store, 3)),
                attempt_row(3, lease(store, 4), AttemptState.FAILED, cause=Cause.TIMEOUT),
                attempt_row(3, lease(store, 5), AttemptState.FAILED, cause=Cause.OOM),
                attempt_row(2, lease(store, 6), AttemptState.FAILED, step_id=2, cause=Cause.OOM),
            ],
            item_outcomes=[
                ItemOutcomeRow(STEP, 3, 30, 10, Cause.OOM, ""),
                ItemOutcomeRow(STEP, 7, 70, 2, Cause.NONE, ""),
            ],
        ),
        [],
        [],
    )
    reader = store.reader()
    assert reader.mini_batches_after(STEP, -1, 4) == [0, 1, 2, 3]
    assert reader.mini_batches_after(STEP, 3, 100) == [4, 5, 6, 7, 8, 9]
    assert reader.mini_batches_after(STEP, -1, 100, [MiniBatchState.SUCCEEDED, MiniBatchState.FAILED]) == [1, 3, 7]
    assert reader.mini_batches_after(STEP, -1, 100, (), Cause.TIMEOUT) == [1, 3]
    assert reader.mini_batches_after(STEP, 1, 100, (), Cause.TIMEOUT) == [3]
    assert reader.mini_batches_after(STEP, -1, 1, (), Cause.TIMEOUT) == [1]
    assert reader.mini_batches_after(STEP, -1, 100, [MiniBatchState.SUCCEEDED], Cause.TIMEOUT) == [1]
    assert reader.mini_batches_after(STEP, -1, 100, (), 0) == [7]
    assert reader.mini_batches_after(StepId(2), -1, 100, (), Cause.OOM) == [2]
    assert [row.mini_batch for row in reader.mini_batches_at(STEP, [9, 3, 77])] == [3, 9]
    assert [(row.mini_batch, row.cause) for row in reader.attempts_at(STEP, [3, 1, 0])] == [
        (1, Cause.TIMEOUT), (1, 0), (3, Cause.TIMEOUT), (3, Cause.OOM),
    ]  # fmt: skip
    lease_ids = [row.lease_id for row in reader.attempts_at(STEP, [3, 1])]
    found = reader.attempts_with([*reversed(lease_ids), 1, 2**63 - 1])
    assert sorted(row.lease_id for row in found) == sorted(lease_ids) == [row.lease_id for row in found]


def test_attempts_are_found_from_the_newest_on_over_incarnations(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    store.commit(Dirty(attempts=[attempt_row(number, lease(store, number + 1)) for number in range(4)]), [], [])
    store = harness.open()
    again = [attempt_row(number, lease(store, number + 1), AttemptState.FAILED) for number in (0, 5)]
    store.commit(Dirty(attempts=[*again, attempt_row(1, lease(store, 9), step_id=2)]), [], [])
    reader = store.reader()
    found = reader.begun_before(STEP, None, 100)
    assert [row.mini_batch for row in found] == [5, 0, 3, 2, 1, 0]
    paged, before = [], None
    while page := reader.begun_before(STEP, before, 2):
        paged += page
        before = (page[-1].incarnation, page[-1].lease_id)
    assert paged == found


@pytest.mark.parametrize("page_rows", [1, 2, 100])
def test_figures_of_attempts_are_those_of_the_attempts(harness: StoreHarness, page_rows: int) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    rows = [attempt_row(number, lease(store, number + 1), cpu_us=number, detail="x" * 100) for number in range(5)]
    store.commit(Dirty(attempts=[*rows, attempt_row(1, 5, step_id=2)]), [], [])
    found = [row for page in store.reader().attempt_figures_of(STEP, page_rows) for row in page]
    assert [row._asdict() for row in found] == [
        {name: getattr(row, name) for name in AttemptFigures._fields} for row in rows
    ]
