"""What every store keeps of queues: the newest settings of each, with who set them; and the deadlines of jobs."""

from __future__ import annotations

from store_groups import begun
from store_harness import StoreHarness
from windrow_master.core.records import Dirty, QueueRow

VISION = QueueRow("vision", b'{"weight": 2.0}', 1, 5.5, "ann")
WEB = QueueRow("web", b"{}", 2, 6.5, "")


def test_queues_outlive_their_store_and_are_replaced_by_name(harness: StoreHarness) -> None:
    store = harness.open()
    assert store.load().queues == []
    store.commit(Dirty(queues=[WEB, VISION]), [], [])
    assert store.load().queues == [VISION, WEB]
    changed = VISION._replace(settings=b"{}", revision=3, changed_by="bob")
    store.commit(Dirty(queues=[changed]), [], [])
    for snapshot in (store.load(), harness.open().load()):
        assert snapshot.queues == [changed, WEB]


def test_a_job_keeps_its_deadline_and_the_change_of_what_it_is_worth(harness: StoreHarness) -> None:
    store = harness.open()
    group = begun()
    store.commit(group, [], [])
    jobs = [job._replace(queue="vision", priority=7, weight=3, deadline=2e9) for job in group.jobs]
    store.commit(Dirty(jobs=jobs), [], [])
    for snapshot in (store.load(), harness.open().load()):
        assert snapshot.jobs == jobs
