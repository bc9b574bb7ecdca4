"""What every store must do (windrow_master.store.protocol.Store)."""

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
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.records import (
    CLOCK_SET_BACK,
    EVENTS_OF_NO_JOB_KEPT,
    Dirty,
    EventRow,
    ItemOutcomeRow,
    NodeRow,
)
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState
from windrow_master.store.errors import JobNotEnded, OwnershipLost, StoreBroken
from windrow_master.store.records import OutputRow, SegmentRow

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
        old.delete_job(JobKey(1))
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
    assert list(step.recipe_crcs) == [at * 7 for at in range(10)]


def test_the_planned_item_count_outlives_the_counted_one(harness: StoreHarness) -> None:
    # What is in memory after a completion keeps the planned number; a reload must not differ.
    store = harness.open()
    group = begun(1)
    group.planned = [planned(1, 0, 1)._replace(records=bytes(28))]
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
    with pytest.raises(StoreBroken):
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


def test_nodes_are_removed(harness: StoreHarness) -> None:
    store = harness.open()
    nodes = [NodeRow(f"node-{number}", "a", 1, "", b"{}", b"{}", 1.0, 0) for number in range(20)]
    store.commit(Dirty(nodes=nodes), [], [])
    gone = [NodeId(node.node_id) for node in nodes[:17]]
    store.commit(Dirty(nodes_removed=[*gone, NodeId("never here")]), [], [])
    assert store.reader().nodes() == sorted(nodes[17:])
    store.commit(Dirty(nodes=nodes[:1], nodes_removed=gone[1:3]), [], [])
    assert harness.open().load().nodes == sorted([nodes[0], *nodes[17:]])


def test_a_deleted_job_is_gone_at_once_and_its_rows_go_in_pieces(harness: StoreHarness) -> None:
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
    with pytest.raises(JobNotEnded, match="job-1 has not ended"):
        store.delete_job(JobKey(1))
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED)]), [], [])
    with pytest.raises(ValueError, match="was not deleted"):
        store.delete_rows(JobKey(1), [STEP])
    reader = store.reader()
    assert len(reader.steps_of(JobKey(1))) == 1
    store.delete_job(JobKey(1))
    assert reader.job_by_id("job-1") is None
    assert reader.steps_of(JobKey(1)) == []
    assert [job.job_key for job in reader.jobs_newest_first(10)] == [2]
    calls = 1
    while store.delete_rows(JobKey(1), [STEP], rows_max=7):
        calls += 1
    assert calls > 10
    for pages in (reader.mini_batches_of(STEP), reader.attempts_of(STEP), reader.item_outcomes_of(STEP)):
        assert list(pages) == []
    assert reader.events_of(JobKey(1)) == reader.segments_of(STEP) == reader.steps_of(JobKey(1)) == []
    assert [len(page) for page in reader.mini_batches_of(StepId(2))] == [5]
    assert len(reader.events_of(JobKey(2))) == 1
    store.delete_job(JobKey(1))
    assert store.delete_rows(JobKey(1), [STEP]) is False


def test_a_half_deleted_job_stays_deleted_for_the_next_master(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(begun(30), [], [])
    store.commit(Dirty(jobs=[job_row(1, JobState.FAILED)]), [], [])
    store.delete_job(JobKey(1))
    assert store.delete_rows(JobKey(1), [STEP], rows_max=7)
    store = harness.open()
    assert store.load().jobs == []
    while store.delete_rows(JobKey(1), [STEP], rows_max=7):
        pass
    assert list(store.reader().mini_batches_of(STEP)) == []


def test_numbers_are_not_given_again_after_deleting(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(5, JobState.FAILED)], steps=[step_row(9, 5, StepState.FAILED)]), [], [])
    store.delete_job(JobKey(5))
    snapshot = harness.open().load()
    assert (snapshot.job_key_last, snapshot.step_id_last) == (5, 9)


def test_rows_that_nobody_asks_for_go(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED), job_row(2, JobState.COMPLETED)]), [], [])
    store.commit(Dirty(events=[EventRow(float(time), None, "kind", "x") for time in range(10)]), [], [])
    store.commit(Dirty(events=[EventRow(1.0, JobKey(1), "kind", "x")]), [], [])
    for number in range(30):
        for key in (1, 2):
            row = OutputRow(f"/out-{key}", JobKey(key), StepId(key), 1, 1, number, "d", 0, 1)
            store.record_output(row)
    store.delete_job(JobKey(1))
    store.commit(Dirty(events=[EventRow(1.0, None, CLOCK_SET_BACK, "by 5 s")]), [], [])
    while store.delete_old(5.0, rows_max=4):
        pass
    reader = store.reader()
    assert [row.time for _, row in reader.events_of(None)] == [5.0, 6.0, 7.0, 8.0, 9.0, 1.0]
    assert len(reader.events_of(JobKey(1))) == 1
    assert [row.length for row in reader.outputs_at("/out-1")] == list(reversed(range(14, 30)))
    assert store.delete_old(5.0) is False
    store.delete_job(JobKey(2))
    assert store.delete_old(5.0, rows_max=10) is True


def test_only_the_newest_events_of_no_job_stay(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(jobs=[job_row(1, JobState.COMPLETED)]), [], [])
    more = 25
    store.commit(
        Dirty(events=[EventRow(1.0, None, CLOCK_SET_BACK, "x"), EventRow(2.0, JobKey(1), "kind", "x")]), [], []
    )
    times = range(10, 10 + EVENTS_OF_NO_JOB_KEPT + more)
    store.commit(Dirty(events=[EventRow(float(time), None, "kind", "x") for time in times]), [], [])
    while store.delete_old(0.0, rows_max=10):
        pass
    reader = store.reader()
    left = [row.time for _, row in reader.events_of(None, limit=2 * EVENTS_OF_NO_JOB_KEPT)]
    assert left == [1.0, *map(float, times[more:])]
    assert len(reader.events_of(JobKey(1))) == 1


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
