"""Compute targets. Windrow does not create machines: a target is the name of a pool, which agents give themselves."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from windrow.ml.attributes import Attributes
from windrow.ml.operations.finished import Finished


class Compute(Attributes):
    """A compute target: the name of a pool."""

    _is_copied = True

    def __init__(self, *, name: str, **more: Any) -> None:
        """`name`: the name of the pool."""
        super().__init__(name=name, **more)

    @property
    def provisioning_state(self) -> str:
        """`Succeeded`: there is nothing to provision."""
        return "Succeeded"


class AmlCompute(Compute):
    """A cluster. Type, size, min_instances and max_instances can be read, and have no effect.

    Not the `AmlCompute` of `windrow.ml.v1`, which version 1 scripts use.
    """

    def __init__(self, *, name: str, type: str = "amlcompute", **more: Any) -> None:
        """`name`: the name of the pool."""
        super().__init__(name=name, type=type, **more)


class ComputeOperations:
    """`MLClient.compute`."""

    def __init__(self) -> None:
        self._known: dict[str, Compute] = {}

    def get(self, name: str) -> Compute:
        """The pool of that name. Every name is a pool, with or without agents in it."""
        return self._known.get(name) or AmlCompute(name=name)

    def list(self, **more: Any) -> Iterator[Compute]:
        """The pools that this client has noted."""
        return iter(self._known.values())

    def begin_create_or_update(self, compute: Compute) -> Finished:
        """Note the pool. Agents join a pool when they start (docs/how-to/run-a-cluster.md)."""
        warnings.warn(
            f"Windrow does not create machines: {compute['name']} is the pool of the agents that are started with that "
            "name. Without a master, jobs run on this machine.",
            stacklevel=2,
        )
        self._known[str(compute["name"])] = compute
        return Finished(compute)

    def begin_delete(self, name: str, **more: Any) -> Finished:
        """Forget the noted pool. Its agents stay."""
        self._known.pop(name, None)
        return Finished()

    def begin_start(self, name: str, **more: Any) -> Finished:
        """Do nothing, and warn: Windrow does not start or stop machines. The noted pool stays."""
        warnings.warn(
            f"Windrow does not start or stop machines: the agents of the pool {name} stay as they are. Start and end "
            "agents where they run (docs/how-to/run-a-cluster.md).",
            stacklevel=2,
        )
        return Finished()

    begin_stop = begin_restart = begin_start
