"""Compute: pools are names that agents give themselves, so there is nothing to make."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from windrow.ml.entities import AmlCompute, Compute
from windrow.ml.operations.finished import Finished


class ComputeOperations:
    """`MLClient.compute`."""

    def __init__(self) -> None:
        self._known: dict[str, Compute] = {}

    def get(self, name: str) -> Compute:
        """The pool of that name; every name is one, with or without agents in it."""
        return self._known.get(name) or AmlCompute(name=name)

    def list(self, **more: Any) -> Iterator[Compute]:
        """Those that this client was told of."""
        return iter(self._known.values())

    def begin_create_or_update(self, compute: Compute) -> Finished:
        """Note the pool. Agents join a pool when they start (docs/how-to/run-a-cluster.md)."""
        warnings.warn(
            f"Windrow makes no machines: {compute['name']} is the pool of the agents that say so when they are "
            "started; on this machine, jobs run here.",
            stacklevel=2,
        )
        self._known[str(compute["name"])] = compute
        return Finished(compute)

    def begin_delete(self, name: str, **more: Any) -> Finished:
        """Forget what was noted; agents stay."""
        self._known.pop(name, None)
        return Finished()

    begin_start = begin_stop = begin_restart = begin_delete
