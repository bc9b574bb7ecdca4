"""What every store must do (windrow_master.store.protocol.Store and StoreReader)."""

from __future__ import annotations

import pytest
from store_groups import (
    StoreHarness,
    attempt_row,
    begun,
    completed,
    job_row,
    lease,
    outcome_row,
    planned,
    step_row,
)
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.records import Dirty, EventRow, ItemOutcomeRow, NodeRow
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState
from windrow_master.store.protocol import OwnershipLost, StoreBroken
from windrow_master.store.rows import OutputRow, SegmentRow

STEP = StepId(1)


def states(harness_store: object) -> bytes:
    """States of step 1's mini-batches as loaded."""
    return bytes(harness_store.load().steps[0].states)  # type: ignore[attr-defined]


def test_incarnations_rise_and_lease_prefixes_differ(harness: StoreHarness) -> None:
    opened = [(store.incarnation, store.lease_prefix) for store in (harness.open() for _ in range(5))]
    assert [incarnation for incarnation, _ in opened] == [1, 2, 3, 4, 5]
    prefixes = [prefix for _, prefix in opened]
    assert len(set(prefixes)) == 5
    assert all(0 < prefix < 1 << 31 for prefix in prefixes)


def test_an_earlier_incarnation_cannot_write_any_more(harness: StoreHarness) -> None:
    old = harness.open()
    old.commit(begun(), [], [])
    new = harness.open_beside()
    dirty, ranges = completed(old, range(3))
    with pytest.raises(OwnershipLost, match="belongs to master incarnation 2"):
        old.commit(dirty, ranges, [])
    with pytest.raises(OwnershipLost):
        old.record_address("unix:/x")
    with pytest.raises(OwnershipLost):
        old.prune(JobKey(1))
    assert states(new) == bytes(10)


def test_an_empty_store_loads_empty(harness: StoreHarness) -> None:
    snapshot = harness.open().load()
    assert (snapshot.job_key_last, snapshot.step_id_last) == (0, 0)
    assert (snapshot.jobs, snapshot.steps, snapshot.nodes) == ([], [], [])


def test_a_group_is_there_after_a_restart(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    dirty, ranges = completed(store, range(2, 5))
    store.commit(dirty, ranges, [])
    leases = [0, 0, *(lease(store, number) for number in (3, 4, 5)), 0, 0, 0, 0, 0]
    step = harness.open().load().steps[0]
    assert bytes(step.states) == bytes([0, 0, 2, 2, 2, 0, 0, 0, 0, 0])
    assert list(step.lease_ids) == leases
    assert list(step.item_firsts) == [at * 10 for at in range(10)]
    assert list(step.item_counts) == [10] * 10
    assert list(step.recipe_offsets) == [at * 100 for at in range(10)]
    assert list(step.recipe_lengths) == [100] * 10


def test_the_planned_item_count_outlives_the_counted_one(harness: StoreHarness) -> None:
    # What is in memory after a completion keeps the planned number; a reload must not differ.
    store = harness.open()
    group = begun(1)
    group.planned = [planned(1, 0, 1)._replace(records=bytes(24))]
    store.commit(group, [], [])
    store.commit(Dirty(outcomes=[outcome_row(0, lease(store, 1), item_count=77, ok_count=77)]), [], [])
    assert list(store.load().steps[0].item_counts) == [0]
    [row] = next(store.reader().mini_batches_of(STEP))
    assert (row.item_count, row.items_counted, row.ok_count) == (0, 77, 77)


def test_a_group_is_written_whole_or_not_at_all(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    dirty, ranges = completed(store, range(3))
    dirty.events.append(EventRow(1.0, JobKey(1), "kind", "message"))
    dirty.outcomes.append(outcome_row(99, lease(store, 100)))
    with pytest.raises(StoreBroken, match="only 3 of them were ever planned"):
        store.commit(dirty, ranges, [])
    assert states(store) == bytes(10)
    assert store.reader().events_of(JobKey(1)) == []
    assert store.reader().attempt(lease(store, 1)) is None
    dirty.outcomes.pop()
    store.commit(dirty, ranges, [])
    assert states(store)[:3] == bytes([2, 2, 2])


def test_committing_a_group_again_changes_nothing(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    dirty, ranges = completed(store, range(3))
    segment = SegmentRow(store.incarnation << 32 | 1, STEP, "1-1.rows", 1, 1, 150)
    store.commit(dirty, ranges, [segment])
    before = list(store.reader().mini_batches_of(STEP)), list(store.reader().attempts_of(STEP))
    store.commit(dirty, ranges, [segment])
    assert (list(store.reader().mini_batches_of(STEP)), list(store.reader().attempts_of(STEP))) == before
    assert store.reader().segments_of(STEP) == [segment]


def test_a_mini_batch_succeeds_once(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    store.commit(*completed(store, [4]), [])
    with pytest.raises(StoreBroken, match="UNIQUE"):
        store.commit(Dirty(attempts=[attempt_row(4, lease(store, 50))]), [], [])
    other_step = Dirty(steps=[step_row(2)], planned=[planned(2, 0, 5)], attempts=[attempt_row(4, 51, step_id=2)])
    store.commit(other_step, [], [])


def test_lost_rows_clear_the_way_for_another_success(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    store.commit(*completed(store, [4]), [])
    first, second = lease(store, 5), lease(store, 60)
    # As the core says it: an attempt without a node is a verdict on one that is stored already.
    verdict = attempt_row(4, first, AttemptState.FAILED)._replace(
        node_id="", node_incarnation="", process_number=0, start_unix_us=0, cause=Cause.ROWS_LOST, message="lost"
    )
    back = outcome_row(4, 0, state=MiniBatchState.QUEUED, item_count=0, ok_count=0)
    store.commit(Dirty(outcomes=[back], attempts=[verdict]), [], [])
    assert list(store.reader().ranges_of(STEP)) == []
    assert store.load().steps[0].attempts == [(4, first, AttemptState.FAILED, Cause.ROWS_LOST, "node-1")]
    store.commit(Dirty(outcomes=[outcome_row(4, second)], attempts=[attempt_row(4, second)]), [], [])
    kept = store.reader().attempt(first)
    assert kept is not None
    assert (kept.state, kept.cause, kept.message) == (AttemptState.FAILED, Cause.ROWS_LOST, "lost")
    assert (kept.node_id, kept.process_number, kept.start_unix_us) == ("node-1", 3, 1_700_000_000_000_000)


def test_within_a_group_the_last_row_counts(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    one = lease(store, 1)
    store.commit(
        Dirty(
            attempts=[attempt_row(0, one, AttemptState.RUNNING), attempt_row(0, one, elapsed_us=9)],
            outcomes=[outcome_row(0, 0, state=MiniBatchState.QUEUED), outcome_row(0, one)],
        ),
        [],
        [],
    )
    attempt = store.reader().attempt(one)
    assert attempt is not None
    assert (attempt.state, attempt.elapsed_us) == (AttemptState.SUCCEEDED, 9)
    assert states(store)[0] == MiniBatchState.SUCCEEDED


def test_a_cancelled_step_cancels_what_is_queued(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun()
    group.steps.append(step_row(2))
    group.planned.append(planned(2, 0, 3))
    store.commit(group, [], [])
    dirty, ranges = completed(store, range(3))
    dirty.cancelled_steps.append(STEP)
    store.commit(dirty, ranges, [])
    first, second = store.load().steps
    assert bytes(first.states) == bytes([2] * 3 + [4] * 7)
    assert bytes(second.states) == bytes(3)


def test_only_what_has_not_ended_is_loaded(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun()
    group.jobs += [job_row(2, JobState.COMPLETED), job_row(3)]
    group.steps = [
        step_row(1, 1),
        step_row(2, 2, StepState.COMPLETED),
        step_row(3, 3, StepState.COMPLETED),
        step_row(4, 3),
    ]
    group.planned += [planned(2, 0, 4), planned(3, 0, 4), planned(4, 0, 4)]
    store.commit(group, [], [])
    snapshot = harness.open().load()
    assert [job.job_key for job in snapshot.jobs] == [1, 3]
    assert [(step.step.step_id, len(step.states)) for step in snapshot.steps] == [(1, 10), (3, 0), (4, 4)]
    assert (snapshot.job_key_last, snapshot.step_id_last) == (3, 4)


def test_attempts_of_queued_mini_batches_come_oldest_first(harness: StoreHarness) -> None:
    # Lease ids are ordered within an incarnation only: their prefixes are random.
    expected = []
    for _ in range(4):
        store = harness.open()
        if store.incarnation == 1:
            store.commit(begun(), [], [])
        ids = [lease(store, number) for number in (1, 2)]
        store.commit(
            Dirty(attempts=[attempt_row(7, one, AttemptState.FAILED, cause=Cause.CRASH) for one in ids]), [], []
        )
        expected += [(7, one, AttemptState.FAILED, Cause.CRASH, "node-1") for one in ids]
    store = harness.open()
    done, running = lease(store, 1), lease(store, 2)
    store.commit(Dirty(outcomes=[outcome_row(8, done)], attempts=[attempt_row(8, done)]), [], [])
    store.commit(Dirty(attempts=[attempt_row(9, running, AttemptState.RUNNING)]), [], [])
    expected.append((9, running, AttemptState.RUNNING, 0, "node-1"))
    assert store.load().steps[0].attempts == expected
    assert [row.lease_id for row in store.reader().attempts_of_mini_batch(STEP, 7)] == [row[1] for row in expected[:8]]


def test_large_columns_are_written_when_they_change(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    store.commit(
        Dirty(jobs=[job_row(document=b"new", seq=2)], steps=[step_row(reader=b"{}", header=b"a,b\n", paths=b"[1]")]),
        [],
        [],
    )
    store.commit(Dirty(jobs=[job_row(document=b"new", seq=3)]), [], [])
    reader = store.reader()
    job = reader.job_by_id("job-1")
    assert job == job_row(document=b"new", seq=3)
    assert reader.steps_of(JobKey(1)) == [step_row(reader=b"{}", header=b"a,b\n", paths=b"[1]")]
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(document=b"patched", seq=4)]), [], [])
    assert store.load().jobs == [job_row(document=b"patched", seq=4)]


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
    attempts = [
        attempt_row(short, lease(store, 1), AttemptState.ABANDONED, node_id="lost", start_unix_us=1),
        attempt_row(short, lease(store, 2), AttemptState.SUCCEEDED, node_id="did-it", start_unix_us=2),
        attempt_row(tried_twice, lease(store, 4), AttemptState.FAILED, node_id="first", start_unix_us=1),
        attempt_row(tried_twice, lease(store, 3), AttemptState.FAILED, node_id="last", start_unix_us=2),
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
    rows = {row.mini_batch: row for page in store.reader().mini_batches_of(STEP) for row in page}
    for row in found:
        counted = rows[row.mini_batch]
        assert row[4:7] == (counted.items_counted, counted.recipe_offset, counted.recipe_length)


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


def test_nodes_are_removed(harness: StoreHarness) -> None:
    store = harness.open()
    nodes = [NodeRow(f"node-{number}", "a", 1, "", b"{}", b"{}", 1.0, 0) for number in range(20)]
    store.commit(Dirty(nodes=nodes), [], [])
    gone = [NodeId(node.node_id) for node in nodes[:17]]
    store.commit(Dirty(nodes_removed=[*gone, NodeId("never here")]), [], [])
    assert store.reader().nodes() == sorted(nodes[17:])
    store.commit(Dirty(nodes=nodes[:1], nodes_removed=gone[1:3]), [], [])
    assert harness.open().load().nodes == sorted([nodes[0], *nodes[17:]])


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


def test_pruning_takes_one_ended_job_in_pieces(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun(30)
    group.jobs.append(job_row(2))
    group.steps.append(step_row(2, 2))
    group.planned.append(planned(2, 0, 5))
    group.events = [EventRow(1.0, JobKey(key), "kind", "x") for key in (1, 2)]
    store.commit(group, [], [])
    dirty, ranges = completed(store, range(20))
    dirty.item_outcomes = [ItemOutcomeRow(STEP, number, 0, 1, 1, "x") for number in range(20)]
    store.commit(dirty, ranges, [SegmentRow(1, STEP, "1-1.rows", 1, 1, 1)])
    with pytest.raises(ValueError, match="job-1 has not ended"):
        store.prune(JobKey(1))
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED)]), [], [])
    calls = 1
    while store.prune(JobKey(1), rows_max=7):
        calls += 1
        assert store.reader().job_by_id("job-1") is not None or calls > 10
    assert calls > 10
    reader = store.reader()
    assert reader.job_by_id("job-1") is None
    for pages in (reader.mini_batches_of(STEP), reader.attempts_of(STEP), reader.item_outcomes_of(STEP)):
        assert list(pages) == []
    assert reader.events_of(JobKey(1)) == reader.segments_of(STEP) == reader.steps_of(JobKey(1)) == []
    assert [len(page) for page in reader.mini_batches_of(StepId(2))] == [5]
    assert len(reader.events_of(JobKey(2))) == 1
    assert store.prune(JobKey(1)) is False


def test_numbers_are_not_given_again_after_pruning(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(5, JobState.FAILED)], steps=[step_row(9, 5, StepState.FAILED)]), [], [])
    store.prune(JobKey(5))
    snapshot = harness.open().load()
    assert (snapshot.job_key_last, snapshot.step_id_last) == (5, 9)


def test_what_cannot_be_stored_as_it_is_does_not_stop_the_master(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    odd = attempt_row(0, lease(store, 1), elapsed_us=1 << 64, message="file \udcff.csv")
    store.commit(Dirty(attempts=[odd], events=[EventRow(1.0, None, "k", "\udc80")]), [], [])
    found = store.reader().attempt(odd.lease_id)
    assert found is not None
    assert (found.elapsed_us, found.message) == ((1 << 63) - 1, r"file \udcff.csv")


def test_ranges_must_fit_the_row_blocks(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(), [], [])
    dirty, ranges = completed(store, range(3))
    with pytest.raises(ValueError, match="3 row blocks came with 2 ranges"):
        store.commit(dirty, ranges[:2], [])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 63, 64, 65, 300, 1023, 1024, 1025, 2500])
def test_groups_of_any_size(harness: StoreHarness, count: int) -> None:
    store = harness.open()
    store.commit(begun(count), [], [])
    store.commit(*completed(store, range(count)), [])
    assert states(store) == bytes([2]) * count
    rows = [row for page in store.reader().attempts_of(STEP) for row in page]
    assert rows == [attempt_row(number, lease(store, number + 1)) for number in range(count)]


def test_a_closed_store_says_so(harness: StoreHarness) -> None:
    store = harness.open()
    store.close()
    store.close()
    with pytest.raises(StoreBroken, match="closed"):
        store.commit(begun(), [], [])
