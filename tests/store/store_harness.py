"""Opens stores over one durable state, one after the other as restarts of a master would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StoreHarness:
    """Opens them, and closes them. They are typed Any: tests of one store look into it."""

    def __init__(self, open_store: Callable[[], Any], open_beside: Callable[[], Any]) -> None:
        self._open = open_store
        self._open_beside = open_beside
        self._stores: list[Any] = []

    def open(self) -> Any:
        """The next incarnation; the one before is closed first."""
        self.close()
        return self._kept(self._open())

    def open_beside(self) -> Any:
        """The next incarnation, while the one before still believes it is the master."""
        return self._kept(self._open_beside())

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self._stores.clear()

    def _kept(self, store: Any) -> Any:
        self._stores.append(store)
        return store
