"""A mini-batch that has used up its tries is split: its lease says how, and what is named as failed fails alone."""

from __future__ import annotations

from core_driver import CoreDriver, completion
from windrow.rpc.v1 import work_pb2
from windrow_master.core.splitting import FailedItems, begin, note_death, read_items, with_rest
from windrow_master.core.states import Cause, MiniBatchState, Phase


def failed_items(*items: int, cause: Cause = Cause.EXCEPTION) -> list[work_pb2.FailedItems]:
    """Single items, as a node reports them."""
    return [
        work_pb2.FailedItems(first=at, count=1, cause=int(cause), message=f"no {at}")  # type: ignore[arg-type]
        for at in items
    ]


def test_the_items_that_fail_alone_are_failed_and_the_others_count() -> None:
    driver = CoreDriver()
    step = driver.running([8, 8], max_retries=1, split=1)
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(second.lease_id, items=8))
    for given in (first, None):
        lease = given or driver.held()[0]
        assert lease.split is None
        driver.fail("n1", lease, Cause.EXCEPTION, items=8, phase=Phase.RUNNING)
    (lease,) = driver.held()
    assert lease.split is not None and lease.split.cuts == [4]
    driver.complete("n1", completion(lease.lease_id, items=8, results=6, failed_items=failed_items(2, 7)))
    counters = step.counters
    assert (counters.items_ok, counters.items_failed, counters.succeeded, counters.failed) == (14, 2, 1, 1)
    rows = driver.tables.item_outcomes[1, 0]
    assert [(row.item_first, row.item_count, row.cause) for row in rows] == [(2, 1, Cause.EXCEPTION), (7, 1, 1)]
    driver.assert_reload_equals_live()


def test_a_death_is_split_at_once_and_narrowed_to_the_item() -> None:
    driver = CoreDriver()
    driver.running([4], split=1)
    driver.join()
    pieces = [(0, 0), (2, 2), (3, 1), (3, 1)]
    for first, count in pieces:
        (lease,) = driver.held()
        driver.fail("n1", lease, Cause.CRASH, items=4, phase=Phase.RUNNING, piece_first=first, piece_count=count)
    (lease,) = driver.held()
    assert lease.split is not None and [one.first for one in lease.split.given_up] == [3]
    driver.complete(
        "n1", completion(lease.lease_id, items=4, results=3, failed_items=failed_items(3, cause=Cause.CRASH))
    )
    assert driver.step().mini_batches.states[0] == MiniBatchState.FAILED
    assert (driver.step().counters.items_ok, driver.step().counters.items_failed) == (3, 1)


def test_one_mini_batch_at_a_time_is_split_and_the_next_one_after_it() -> None:
    driver = CoreDriver()
    driver.running([2, 2], max_retries=0, split=1)
    driver.join()
    for lease in driver.held():
        driver.fail("n1", lease, Cause.EXCEPTION, items=2, phase=Phase.RUNNING)
    (lease,) = driver.held()
    driver.complete("n1", completion(lease.lease_id, items=2, results=1, failed_items=failed_items(0)))
    (other,) = driver.held()
    assert other.split is not None and other.mini_batch != lease.mini_batch
    driver.complete("n1", completion(other.lease_id, items=2, results=1, failed_items=failed_items(1)))
    assert (driver.step().counters.items_ok, driver.step().counters.items_failed) == (2, 2)


def test_without_splitting_all_items_fail() -> None:
    driver = CoreDriver()
    driver.running([4], max_retries=0)
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION, items=4, phase=Phase.RUNNING)
    assert driver.step().counters.items_failed == 4


def test_what_a_node_says_of_items_must_fit_the_mini_batch() -> None:
    assert read_items(failed_items(1, 3), 4) is not None
    assert read_items(failed_items(1, 1), 4) is None
    assert read_items(failed_items(4), 4) is None
    driver = CoreDriver()
    driver.running([4], split=1)
    driver.join()
    driver.complete("n1", completion(driver.held()[0].lease_id, items=4, results=3, failed_items=failed_items(1, 2)))
    assert driver.step().counters.failed_attempts == {str(int(Cause.NODE_FAULT)): 1}


def test_every_item_is_told_once() -> None:
    named = [FailedItems(1, 2, Cause.CRASH, "died")]
    whole = with_rest(named, 5, Cause.TIMEOUT, "late")
    assert [(one.first, one.count, one.cause) for one in whole] == [(0, 1, 2), (1, 2, 4), (3, 2, 2)]
    split = begin(5)
    assert split.cuts == [3]
    note_death(split, 3, 2, Cause.OOM, "died")
    assert split.cuts == [3, 4]
