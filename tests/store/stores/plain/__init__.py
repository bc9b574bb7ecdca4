"""Plain Python: what a store must do, simple enough to be checked by eye, and the proof that one takes one folder."""

from __future__ import annotations

from pathlib import Path

from store_harness import StoreHarness

from stores.plain.store import PlainStore
from stores.plain.tables import Tables


def plain(folder: Path) -> StoreHarness:
    """Tables that outlive the stores over them."""
    tables = Tables()
    return StoreHarness(lambda: PlainStore(tables), lambda: PlainStore(tables))


HARNESSES = {"plain": plain}
