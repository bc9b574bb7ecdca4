"""What every store keeps of fleets and their allocations: the newest row of each name, until it is removed."""

from __future__ import annotations

from store_harness import StoreHarness
from windrow_master.core.records import AllocationRow, Dirty, FleetRow
from windrow_master.core.states import AllocationState

CLUSTER = FleetRow("cluster", b"[]", "host (pid 7)", "ab12", 5.5, b"[]", 0, "", None, 0)
NIGHT = FleetRow("night", b"[]", "", "cd34", 6.5, b'["ef"]', 1, "ann", 7.5, 3)
ONE = AllocationRow("gpu-1", "cluster", "gpu", "", AllocationState.BEGUN, "", 5.5, None, None, None, None, "", "")
TWO = ONE._replace(name="gpu-2", engine_id="4711", state=AllocationState.STARTED, reason="Priority", start_time=8.5)


def test_fleets_and_allocations_outlive_their_store_and_are_replaced_by_name(harness: StoreHarness) -> None:
    store = harness.open()
    assert (store.load().fleets, store.load().allocations) == ([], [])
    store.commit(Dirty(fleets=[NIGHT, CLUSTER], allocations=[TWO, ONE]), [], [])
    changed = NIGHT._replace(paused=0, pause_time=9.5, revision=4)
    ended = ONE._replace(state=AllocationState.PREEMPTED, end_time=9.5, node_id="n1", node_incarnation="a")
    store.commit(Dirty(fleets=[changed], allocations=[ended]), [], [])
    for snapshot in (store.load(), harness.open().load()):
        assert (snapshot.fleets, snapshot.allocations) == ([CLUSTER, changed], [ended, TWO])


def test_what_is_removed_is_gone_and_the_rest_stays(harness: StoreHarness) -> None:
    store = harness.open()
    store.commit(Dirty(fleets=[NIGHT, CLUSTER], allocations=[TWO, ONE]), [], [])
    store.commit(Dirty(fleets_removed=["cluster", "unknown"], allocations_removed=["gpu-1"]), [], [])
    for snapshot in (store.load(), harness.open().load()):
        assert (snapshot.fleets, snapshot.allocations) == ([NIGHT], [TWO])
