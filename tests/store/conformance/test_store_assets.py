"""What every store keeps of data assets and models: versions that never change, counted, each once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from store_harness import StoreHarness
from windrow_master.store.errors import AssetExists, OwnershipLost, TooManyAssets
from windrow_master.store.records import AssetLimits, AssetRow

DATA, MODEL = 1, 2


def row(version: str = "", path: str = "/data", *, name: str = "flowers", kind: int = DATA, **more: object) -> AssetRow:
    return AssetRow(kind, name, version, "uri_folder", path, False, "", b"{}", 1.0)._replace(**more)  # type: ignore[arg-type]


def test_versions_are_counted_from_the_highest_number(harness: StoreHarness) -> None:
    store = harness.open()
    given = ["", "7", "beta", "", "08", ""]
    made = [store.record_asset(row(version, f"/data/{number}")).version for number, version in enumerate(given)]
    assert made == ["1", "7", "beta", "8", "08", "9"]
    assert store.record_asset(row(kind=MODEL)).version == "1"
    assert store.record_asset(row(name="more")).version == "1"


def test_a_version_never_changes_and_the_same_again_is_harmless(harness: StoreHarness) -> None:
    store = harness.open()
    first = store.record_asset(row("1"))
    assert store.record_asset(row("1", create_time=2.0)) == first
    assert store.record_asset(row()) == first
    for other in (
        row("1", "/other"),
        row("1", type="uri_file"),
        row("1", tags=b'{"a": "b"}'),
        row("1", description="x"),
    ):
        with pytest.raises(AssetExists) as caught:
            store.record_asset(other)
        assert caught.value.found == first
    assert [asset for _, asset in store.reader().assets(DATA, "flowers", 10)] == [first]


def test_the_latest_is_the_one_registered_last(harness: StoreHarness) -> None:
    store = harness.open()
    for version in ("2", "10", "1"):
        store.record_asset(row(version, f"/data/{version}"))
    reader = store.reader()
    latest = reader.asset(DATA, "flowers", None)
    assert latest is not None
    assert latest.version == "1"
    ten = reader.asset(DATA, "flowers", "10")
    assert ten is not None
    assert ten.path == "/data/10"
    assert reader.asset(DATA, "flowers", "3") is None
    assert reader.asset(MODEL, "flowers", None) is None
    # Content equal to an older version is a new one: it is the latest that is compared.
    assert store.record_asset(row("", "/data/2")).version == "11"


def test_they_are_listed_a_page_at_a_time(harness: StoreHarness) -> None:
    store = harness.open()
    for number in range(7):
        store.record_asset(row("", f"/data/{number}", name="abcabca"[number]))
    reader = store.reader()
    listed: list[str] = []
    before = None
    while page := reader.assets(DATA, "", 2, before):
        listed += [f"{asset.name}:{asset.version}" for _, asset in page]
        before = page[-1][0]
    assert listed == ["a:3", "c:2", "b:2"]
    assert [asset.version for _, asset in reader.assets(DATA, "a", 10)] == ["3", "2", "1"]
    assert reader.assets(MODEL, "", 10) == []


def test_an_output_is_registered_once_whatever_restarts(harness: StoreHarness) -> None:
    of_step = {"step_id": 5, "job_id": "job-1", "step_name": "score", "output_name": "result"}
    first = harness.open().record_asset(row("", "/out", **of_step))
    store = harness.open()
    assert store.record_asset(row("", "/out", create_time=9.0, **of_step)) == first
    assert store.record_asset(row("", "/out", **{**of_step, "step_id": 6})).version == "2"
    assert store.record_asset(row("", "/out", **{**of_step, "output_name": "other"})).version == "3"
    with pytest.raises(AssetExists):
        store.record_asset(row("1", "/out", **{**of_step, "step_id": 7}))


def test_only_the_newest_incarnation_registers(harness: StoreHarness) -> None:
    old = harness.open()
    harness.open_beside()
    with pytest.raises(OwnershipLost):
        old.record_asset(row())


def test_registered_at_the_same_time_each_gets_a_number_of_its_own(harness: StoreHarness) -> None:
    store = harness.open()
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: store.record_asset(row("", f"/data/{number}")).version, range(40)))
    assert sorted(map(int, made)) == list(range(1, 41))


def test_no_more_of_a_kind_than_may_be(harness: StoreHarness) -> None:
    store = harness.open()
    most = AssetLimits(of_kind=3, of_project=3)
    for number in range(3):
        store.record_asset(row(path=f"/data/{number}"), most)
    assert store.record_asset(row(path="/data/2"), most).version == "3", "it is there already"
    for version in ("", "9"):
        with pytest.raises(TooManyAssets):
            store.record_asset(row(version, "/data/9", project="other"), most)
    assert store.record_asset(row(kind=MODEL), most).version == "1"
    reader = store.reader()
    assert [reader.has_assets(DATA, count) for count in (3, 4)] == [True, False]
    assert [reader.has_assets(kind, 1) for kind in (MODEL, 3)] == [True, False]


def test_no_project_registers_so_much_that_another_one_cannot(harness: StoreHarness) -> None:
    store = harness.open()
    most = AssetLimits(of_kind=3, of_project=2)
    for number in range(2):
        assert store.record_asset(row(path=f"/data/{number}", project="one"), most).project == "one"
    with pytest.raises(TooManyAssets) as refused:
        store.record_asset(row(path="/data/9", project="one"), most)
    assert refused.value.of_project
    store.record_asset(row(path="/data/9", project="two"), most)
    with pytest.raises(TooManyAssets) as refused:
        store.record_asset(row(path="/data/10", project="two"), most)
    assert not refused.value.of_project
    reader = store.reader()
    assert [reader.has_assets(DATA, count, "one") for count in (2, 3)] == [True, False]
    assert [reader.has_assets(DATA, 1, project) for project in ("two", "three")] == [True, False]
