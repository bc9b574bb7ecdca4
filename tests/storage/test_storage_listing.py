"""The order in which objects are listed, and addresses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow.storage import listing, objects
from windrow.storage.errors import explained
from windrow.storage.listing import component_order, walk_objects
from windrow.storage.stores import open_store
from windrow.storage.urls import BadUrl, StorageUrl, parse_url

PARTS = st.text(alphabet="ab-. ~0", min_size=1, max_size=3).filter(lambda part: part not in (".", ".."))
NAMES = st.lists(st.lists(PARTS, min_size=1, max_size=3).map("/".join), max_size=25, unique=True)


class Keys:
    """What a store has of the library's: keys sorted as whole texts, in pages, and told without the `/` at the end of
    those of `marks`. Of objects `empty` are without content."""

    def __init__(self, names: list[str], marks: list[str] = [], empty: bool = False) -> None:  # noqa: B006
        self._names = names
        self._size = int(not empty)
        self._keys = sorted([*names, *(f"{mark}/" for mark in marks)], key=str.encode)

    def list(self, prefix: str | None, offset: str | None = None, chunk_size: int = 50) -> Iterator[list[Any]]:
        below = f"{prefix}/" if prefix else ""
        items = [
            {"path": key.rstrip("/"), "size": 0 if key.endswith("/") else self._size, "e_tag": "x"}
            for key in self._keys
            if (key.startswith(below) or key == prefix) and (offset is None or key.encode() > offset.encode())
        ]
        for at in range(0, len(items), chunk_size):
            yield items[at : at + chunk_size]

    def head(self, name: str) -> dict[str, Any]:
        if name not in self._names:
            raise FileNotFoundError(name)
        return {"path": name, "size": self._size, "e_tag": "x"}


@given(NAMES, NAMES, st.booleans(), st.sampled_from(["s3://bucket", "az://bucket"]), st.integers(1, 4), st.data())
def test_objects_come_by_path_component_and_can_be_taken_up_after_any(
    names: list[str], marks: list[str], empty: bool, store: str, page: int, data: st.DataObject
) -> None:
    """Whatever a page holds: where it ends decides whether a folder is seen in it, or asked for. Marks of empty
    folders are no objects, wherever they stand."""
    want = sorted(names, key=component_order)
    with pytest.MonkeyPatch.context() as patch:
        for module in (listing, objects):
            patch.setattr(module, "open_store", lambda root: Keys(names, marks, empty))
        patch.setattr(listing._Pages.read, "__defaults__", (page,))
        url = parse_url(store)
        assert [found.name for chunk in walk_objects(url) for found in chunk] == want
        if want:
            at = data.draw(st.integers(0, len(want) - 1))
            assert [found.name for chunk in walk_objects(url, want[at]) for found in chunk] == want[at + 1 :]


def test_a_listing_that_breaks_off_behind_a_mark_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark's name says less than its key about how far the listing has come."""

    class Breaking(Keys):
        broken = False

        def list(self, prefix: str | None, **more: Any) -> Iterator[list[Any]]:
            pages = super().list(prefix, **more)
            yield from itertools.islice(pages, 1)
            if prefix is None and not self.broken:
                self.broken = True
                raise RuntimeError("it broke off")
            yield from pages

    names = ["data-old/x", "data-old/y", "data0"]
    store = Breaking(names, ["data"])
    monkeypatch.setattr(listing, "open_store", lambda root: store)
    monkeypatch.setattr(listing._Pages.read, "__defaults__", (3,))
    assert [found.name for chunk in walk_objects(parse_url("s3://bucket")) for found in chunk] == names
    assert store.broken


@pytest.mark.parametrize(
    ("text", "scheme", "root", "key"),
    [
        ("s3://bucket/a b%20c/d", "s3", "s3://bucket", "a b%20c/d"),
        ("S3A://bucket/", "s3", "s3://bucket", ""),
        ("gs://bucket/x", "gs", "gs://bucket", "x"),
        ("gcs://bucket/x/", "gs", "gs://bucket", "x"),
        ("abfss://c@acc.dfs.core.windows.net/x", "abfss", "abfss://c@acc.dfs.core.windows.net", "x"),
        ("wasbs://c@acc.blob.core.windows.net/x", "abfss", "abfss://c@acc.dfs.core.windows.net", "x"),
        ("az://container/x", "az", "az://container", "x"),
        ("https://host:8443/a%20b.csv", "https", "https://host:8443", "a%20b.csv"),
    ],
)
def test_addresses(text: str, scheme: str, root: str, key: str) -> None:
    url = parse_url(text)
    assert url == StorageUrl(scheme, root, key)
    assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3:///x", "has no bucket"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/../b", "empty part"),
        ("s3://key:secret@bucket/x", "not a valid address of this kind"),
        ("abfss://container/x", "container@account"),
        ("https://user:secret@host/x", "credentials"),
        ("https://host/x?sig=secret", "query"),
        ("adl://account/x", "not a supported storage address"),
    ],
)
def test_addresses_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(BadUrl, match=said):
        parse_url(text)


@pytest.mark.parametrize(
    ("root", "kind"),
    [
        ("gs://bucket", "GCSStore"),
        ("abfss://container@account.dfs.core.windows.net", "AzureStore"),
        ("az://container", "AzureStore"),
        ("https://host", "HTTPStore"),
    ],
)
def test_stores_of_every_kind_can_be_opened(monkeypatch: pytest.MonkeyPatch, root: str, kind: str) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    open_store.cache_clear()
    assert type(open_store(root)).__name__ == kind


def test_errors_tell_no_signature() -> None:
    error = explained(RuntimeError("GET https://h/c/x?sv=1&sig=s3cr3t failed"), "cannot be read", "az://c/x")
    assert "s3cr3t" not in str(error) and "https://h/c/x failed" in str(error)
