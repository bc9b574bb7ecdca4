"""A mini-batch that has used up its tries is split: its lease says how, and what is named as failed fails alone."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow.rpc.v1 import work_pb2
from windrow_master.core import commands
from windrow_master.core.settings import SPLIT_TRIES
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


@pytest.mark.parametrize("cause", [Cause.LOAD_FAILED, Cause.OUTPUT_FAILED])
def test_a_bad_read_while_a_mini_batch_is_split_costs_no_good_item(cause: Cause) -> None:
    driver = CoreDriver()
    driver.running([4], max_retries=0, split=1)
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.EXCEPTION, items=4, phase=Phase.RUNNING)
    for _ in range(SPLIT_TRIES):
        driver.fail("n1", driver.held()[0], cause, items=4, phase=Phase.LOADING)
    driver.complete("n1", completion(driver.held()[0].lease_id, items=4, results=3, failed_items=failed_items(1)))
    assert (driver.step().counters.items_ok, driver.step().counters.items_failed) == (3, 1)


def test_a_mini_batch_that_can_never_be_read_again_is_given_up_while_it_is_split() -> None:
    driver = CoreDriver()
    driver.running([4, 1], max_retries=0, split=1)
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(second.lease_id))
    driver.fail("n1", first, Cause.EXCEPTION, items=4, phase=Phase.RUNNING)
    for _ in range(SPLIT_TRIES + 1):
        driver.fail("n1", driver.held()[0], Cause.LOAD_FAILED, items=4, phase=Phase.LOADING)
    assert driver.step().mini_batches.states[0] == MiniBatchState.FAILED
    assert driver.step().counters.items_failed == 4 and not driver.step().splits.running


def test_what_waits_to_be_split_still_waits_when_an_old_lease_of_it_is_claimed() -> None:
    driver = CoreDriver()
    driver.running([2, 2, 2], max_retries=0, split=1)
    driver.join("n2")
    old = next(lease for lease in driver.held("n2") if lease.mini_batch == 1)
    driver.open("n2")  # its agent does not know its leases yet: they go to another
    driver.capacity("n2", 0)
    driver.join("n1")
    for lease in driver.held("n1"):
        driver.fail("n1", lease, Cause.EXCEPTION, items=2, phase=Phase.RUNNING)
    driver.open("n2", held=driver.as_held(old))
    assert not driver.held("n2"), "a lease that has ended is not taken up again"
    driver.capacity("n2", 0)
    (lease,) = driver.held("n1")
    assert (lease.mini_batch, driver.step().splits.running) == (0, {0})
    for mini_batch in (0, 1, 2):
        (lease,) = driver.held("n1")
        assert lease.mini_batch == mini_batch and lease.split is not None
        driver.complete("n1", completion(lease.lease_id, items=2, results=1, failed_items=failed_items(0)))
    assert (driver.step().counters.items_ok, driver.step().counters.items_failed) == (3, 3)


def test_lost_rows_of_a_split_mini_batch_take_no_short_return_of_another_back() -> None:
    driver = CoreDriver()
    step = driver.running([4, 4], max_retries=0, split=1)
    driver.join()
    first, second = driver.held()
    driver.complete("n1", completion(second.lease_id, items=4, results=3))
    driver.fail("n1", first, Cause.EXCEPTION, items=4, phase=Phase.RUNNING)
    driver.complete("n1", completion(driver.held()[0].lease_id, items=4, results=3, failed_items=failed_items(1)))
    driver.do(commands.RequeueLostRows(step.step_id, 1, (driver.tables.lost_rows(1, 0),)))
    (short,) = (kind for kind in step.counters.kinds.values() if not kind["cause"])
    assert (short["mini_batches"], short["items"]) == (1, 1)


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
    # A script can write it. Neither the node nor other jobs pay for that.
    assert driver.step().counters.failed_attempts == {str(int(Cause.OUTPUT_FAILED)): 1}
    assert driver.node("n1").faults == 0


def test_every_item_is_told_once() -> None:
    named = [FailedItems(1, 2, Cause.CRASH, "died")]
    whole = with_rest(named, 5, Cause.TIMEOUT, "late")
    assert [(one.first, one.count, one.cause) for one in whole] == [(0, 1, 2), (1, 2, 4), (3, 2, 2)]
    split = begin(5)
    assert split.cuts == [3]
    note_death(split, 3, 2, Cause.OOM, "died")
    assert split.cuts == [3, 4]


def test_the_halves_of_what_ended_a_worker_run_first() -> None:
    split = begin(8)
    note_death(split, 4, 4, Cause.CRASH, "died")
    assert (split.cuts, split.suspects) == ([4, 6], [4, 6])
    note_death(split, 6, 2, Cause.CRASH, "died")
    assert (split.cuts, split.suspects) == ([4, 6, 7], [6, 7])
    note_death(split, 7, 1, Cause.CRASH, "died")
    assert split.suspects == [7]
    note_death(split, 7, 1, Cause.CRASH, "died")
    assert split.suspects == [] and [one.first for one in split.given_up] == [7]
    # Where nothing runs before them, they need no run of their own.
    note_death(split, 0, 4, Cause.CRASH, "died")
    assert split.suspects == []


def test_an_item_that_takes_too_long_alone_is_not_tried_again() -> None:
    split = begin(2)
    note_death(split, 1, 1, Cause.TIMEOUT, "no end")
    assert [one.first for one in split.given_up] == [1]
    note_death(split, 0, 1, Cause.CRASH, "died")
    assert len(split.given_up) == 1
