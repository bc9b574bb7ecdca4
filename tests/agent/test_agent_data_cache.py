"""What the data cache keeps, hands out and gives up, over files in a folder and a store in memory."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.store import MemoryStore
from windrow.storage.urls import StorageUrl, parse_url
from windrow_agent.fetch_process import cache_folder, data_cache, transfers
from windrow_agent.fetch_process.data_cache import CacheUse, DataCache, key_of
from windrow_agent.fetch_process.messages import Part
from windrow_agent.fetch_process.transfers import PART_BYTES, Transfers

SIZE = 3 * PART_BYTES // 2
"""Of objects: two pieces."""


class Store:
    """Objects in memory; `gets` counts what is asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._memory = MemoryStore()
        self.gets = 0
        self.on_get: Callable[[], None] = lambda: None
        monkeypatch.setattr(transfers, "open_store", lambda root: self)

    def put(self, name: str, content: bytes) -> Part:
        """Store an object; return the part for all of it, under its own name."""
        self._memory.put(name, content)
        version = self._memory.head(name)["e_tag"]
        # A store's etags are in quotes.
        return Part(f"s3://b/{name}", len(content), f'"{version}"', name)

    async def get_async(self, name: str, options: dict[str, Any]) -> Any:
        """As a store does; without the condition, which this one only knows for its own form of etags."""
        self.gets += 1
        self.on_get()
        found = await self._memory.get_async(name, options={"range": options["range"]})
        meta = {**found.meta, "e_tag": f'"{found.meta["e_tag"]}"'}
        return SimpleNamespace(meta=meta, bytes_async=found.bytes_async)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


def content(seed: int, size: int = SIZE) -> bytes:
    return bytes([seed]) * (size - 1) + b"!"


def run(
    folder: Path,
    *batches: list[Part],
    bytes_max: int = 1 << 30,
    keep: bool = True,
    user: int | None = None,
) -> tuple[list[CacheUse], DataCache]:
    """Fetch mini-batches one after the other, by one process; what each had of the cache."""

    there = len(list(folder.glob("batch-*")))

    async def fetch_all() -> tuple[list[CacheUse], DataCache]:
        cache = DataCache(folder / "cache", bytes_max, keep=keep)
        uses = []
        for number, parts in enumerate(batches, there):
            uses.append(CacheUse())
            target = folder / f"batch-{number}"
            await Transfers(cache).fetch(target, parts, writable=False, user=user, use=uses[-1])
        return uses, cache

    return asyncio.run(fetch_all())


def entries(folder: Path) -> list[Path]:
    return [path for path in (folder / "cache" / "objects").rglob("*") if path.is_file()]


def test_what_was_kept_is_copied_whole_and_in_parts(store: Store, tmp_path: Path) -> None:
    whole = store.put("x", content(1))
    ranges = [[10, 20], [PART_BYTES - 5, PART_BYTES + 5]]
    part = whole._replace(ranges=ranges, place="some")
    spread = part._replace(keep_offsets=True, place="spread")
    first, _ = run(tmp_path, [whole, part])
    assert (first[0].hits, first[0].misses) == (0, 2)
    store.gets = 0
    uses, _ = run(tmp_path, [whole, part, spread])
    assert (uses[0], store.gets) == (CacheUse(3, 0, SIZE + 40), 0)
    made = tmp_path / "batch-1"
    assert (made / "x").read_bytes() == content(1)
    assert (made / "some").read_bytes() == content(1)[10:20] + content(1)[PART_BYTES - 5 : PART_BYTES + 5]
    found = (made / "spread").read_bytes()
    assert len(found) == SIZE
    assert all(found[begin:end] == content(1)[begin:end] for begin, end in ranges) and found[20:30] == bytes(10)


def _append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def _change(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(PART_BYTES)
        file.write(b"other")


@pytest.mark.parametrize(
    "damage",
    [_append, _change, lambda path: os.truncate(path, 5), lambda path: path.unlink()],
    ids=["longer", "changed", "shorter", "gone"],
)
@pytest.mark.parametrize("user", [None, 1234])
def test_a_file_that_was_damaged_is_fetched_anew(
    store: Store, tmp_path: Path, damage: Callable[[Path], None], user: int | None
) -> None:
    """By a disk that lost what was not synced, or a script that nothing keeps out. With a user, files are links."""
    part = store.put("x", content(1))
    run(tmp_path, [part], user=user)
    (path,) = entries(tmp_path)
    path.chmod(0o644)
    damage(path)
    if path.exists():
        path.chmod(0o444)
    uses, _ = run(tmp_path, [part], [part], user=user)
    assert [use.hits for use in uses] == [0, 1]
    assert all((tmp_path / f"batch-{at}" / "x").read_bytes() == content(1) for at in (1, 2))


def test_only_users_of_jobs_get_links(store: Store, tmp_path: Path) -> None:
    """And none to a file that is to be written."""
    part = store.put("x", content(1))
    run(tmp_path, [part], user=None)
    assert entries(tmp_path)[0].stat().st_nlink == 1
    run(tmp_path, [part], user=1234)
    (path,) = entries(tmp_path)
    assert path.samefile(tmp_path / "batch-1" / "x") and path.stat().st_mode & 0o777 == 0o444

    async def fetch() -> None:
        cache = DataCache(tmp_path / "cache", 1 << 30, keep=True)
        await Transfers(cache).fetch(tmp_path / "own", [part], writable=True, user=None)

    asyncio.run(fetch())
    own = tmp_path / "own" / "x"
    assert own.stat().st_nlink == 1 and own.stat().st_mode & 0o200


def test_what_a_mini_batch_uses_by_a_link_is_not_evicted(store: Store, tmp_path: Path) -> None:
    """It would free nothing. Nor does the cache grow beyond its bound instead."""
    used, other = store.put("x", content(1)), store.put("y", content(2))
    bound = cache_folder.occupied(SIZE)
    uses, cache = run(tmp_path, [used], [other], [used], bytes_max=bound, user=1234)
    assert [use.hits for use in uses] == [0, 0, 1] and not cache.evictions
    # When the mini-batch is done, it goes.
    for at in (0, 2):
        (tmp_path / f"batch-{at}" / "x").unlink()
    uses, cache = run(tmp_path, [other], bytes_max=bound, user=1234)
    assert cache.evictions == 1 and len(entries(tmp_path)) == 1


def test_the_bound_holds_while_data_arrives(store: Store, tmp_path: Path) -> None:
    """Whatever is fetched at a time."""
    parts = [store.put(f"{at}", content(at)) for at in range(8)]
    bound, most = 3 * cache_folder.occupied(SIZE), [0]

    def look() -> None:
        here = (path.stat().st_blocks * 512 for path in (tmp_path / "cache").rglob("*") if path.is_file())
        most[0] = max(most[0], sum(here))

    store.on_get = look
    _, cache = run(tmp_path, parts, parts, bytes_max=bound)
    assert 0 < most[0] <= bound and len(entries(tmp_path)) <= 3
    assert all((tmp_path / f"batch-1/{at}").read_bytes() == content(at) for at in range(8))
    assert cache.held()["held_bytes"] == sum(cache_folder.occupied(path.stat().st_size) for path in entries(tmp_path))


def test_those_that_were_used_least_recently_go_first_also_after_a_restart(store: Store, tmp_path: Path) -> None:
    parts = {name: store.put(name, content(at)) for at, name in enumerate("abcd")}
    bound = 3 * cache_folder.occupied(SIZE)
    run(tmp_path, *([parts[name]] for name in "abca"), bytes_max=bound)
    run(tmp_path, [parts["d"]], bytes_max=bound)
    uses, _ = run(tmp_path, [parts["a"]], [parts["c"]], [parts["d"]], [parts["b"]], bytes_max=bound)
    assert [use.hits for use in uses] == [1, 1, 1, 0]


def test_what_arrived_when_the_process_ended_is_removed_and_never_used(store: Store, tmp_path: Path) -> None:
    part = store.put("x", content(1))
    run(tmp_path, [part])
    half = tmp_path / "cache" / "partial" / "7"
    half.write_bytes(b"half")
    odd = tmp_path / "cache" / "objects" / "ab" / "not an entry"
    odd.parent.mkdir(exist_ok=True)
    odd.write_bytes(b"?")
    uses, cache = run(tmp_path, [part])
    assert uses[0].hits == 1 and not half.exists() and cache.held()["held_files"] == 1


def test_where_scripts_could_write_a_process_begins_with_an_empty_cache(store: Store, tmp_path: Path) -> None:
    part = store.put("x", content(1))
    run(tmp_path, [part], keep=False)
    uses, _ = run(tmp_path, [part], [part], keep=False)
    assert [use.hits for use in uses] == [0, 1]


@pytest.mark.parametrize("name", ["cache", "cache/objects", "cache/partial"])
@pytest.mark.parametrize("keep", [True, False])
def test_a_link_in_the_place_of_a_folder_leads_nowhere(store: Store, tmp_path: Path, name: str, keep: bool) -> None:
    """A script may have laid it, under an agent that confined none."""
    elsewhere = tmp_path / "elsewhere"
    for folder in ("", "objects", "partial"):
        (elsewhere / folder).mkdir()
    (elsewhere / "partial" / "mine").write_text("mine")
    elsewhere.chmod(0o755)
    place = tmp_path / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    part = store.put("x", content(1))
    uses, _ = run(tmp_path, [part], [part], keep=keep)
    assert uses[1].hits == 1 and not place.is_symlink()
    assert (elsewhere / "partial" / "mine").read_text() == "mine" and elsewhere.stat().st_mode & 0o777 == 0o755
    assert not list((elsewhere / "objects").iterdir())


def test_a_full_disk_takes_the_cache_and_not_the_mini_batch(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [store.put(f"{at}", content(at)) for at in range(3)]
    run(tmp_path, parts[:2])
    real, full = cache_folder.write_at, [True]

    def write(descriptor: int, data: memoryview, at: int) -> None:
        # Full until something of the cache is gone.
        if full[0] and len(entries(tmp_path)) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        full[0] = False
        real(descriptor, data, at)

    for module in (transfers, data_cache):
        monkeypatch.setattr(module, "write_at", write)
    _, cache = run(tmp_path, [parts[2]])
    assert (tmp_path / "batch-1" / "2").read_bytes() == content(2)
    assert cache.evictions == 2


def test_the_cache_leaves_free_what_others_need(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [store.put(f"{at}", content(at)) for at in range(3)]
    run(tmp_path, parts)
    total = data_cache.FREE_BYTES_MIN + 3 * SIZE

    def free(_: DataCache) -> int:
        return total - sum(path.stat().st_size for path in entries(tmp_path)) - 2 * SIZE

    monkeypatch.setattr(DataCache, "_free", free)

    async def look() -> int:
        cache = DataCache(tmp_path / "cache", 1 << 30, keep=True)
        await cache.open()
        assert await cache.leave_free(data_cache.FREE_BYTES_MIN)
        return len(entries(tmp_path))

    assert asyncio.run(look()) == 1


def test_a_folder_that_cannot_be_used_stops_no_fetch(store: Store, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    uses, cache = run(tmp_path, [store.put("x", content(1))])
    assert (tmp_path / "batch-0" / "x").read_bytes() == content(1)
    assert "cannot be used" in cache.trouble and uses == [CacheUse()]


@pytest.mark.parametrize("version", ["", 'W/"weak"', "2026-12-01 02:00:00+00:00"])
def test_only_a_strong_etag_says_that_content_is_the_same(version: str) -> None:
    assert key_of(parse_url("s3://b/x"), Part("s3://b/x", 3, version, "x")) is None


def test_what_is_known_by_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another object, version, size or part; another store under the same name, or other credentials for it."""

    def key(url: StorageUrl, part: Part, **variables: str) -> str | None:
        data_cache.store_identity.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            return key_of(url, part)

    url, part = parse_url("s3://b/x"), Part("s3://b/x", 3, '"e"', "0/x")
    keys = [
        key(url, part),
        key(parse_url("s3://b/y"), part),
        key(parse_url("s3://c/x"), part),
        key(url, part._replace(version='"f"')),
        key(url, part._replace(size=4)),
        key(url, part._replace(ranges=[[0, 2]])),
        key(url, part, AWS_ENDPOINT_URL="http://elsewhere"),
        key(url, part, AWS_ACCESS_KEY_ID="another"),
    ]
    assert len(set(keys)) == len(keys) and None not in keys
    assert key(url, part._replace(place="elsewhere")) == keys[0]
    assert key(url, part, GOOGLE_APPLICATION_CREDENTIALS="/x") == keys[0]
    data_cache.store_identity.cache_clear()
