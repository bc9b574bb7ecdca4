"""Compute targets. Windrow makes no machines: a target is the name of a pool of agents."""

from __future__ import annotations

from typing import Any

from windrow.ml.attributes import Attributes


class Compute(Attributes):
    """A compute target as notebooks look at it."""

    _is_copied = True

    def __init__(self, *, name: str, **more: Any) -> None:
        """`name`: of the pool."""
        super().__init__(name=name, **more)

    @property
    def provisioning_state(self) -> str:
        """`Succeeded`: there is nothing to provision."""
        return "Succeeded"


class AmlCompute(Compute):
    """A cluster: type, size, min_instances and max_instances are kept for reading, and have no effect."""

    def __init__(self, *, name: str, type: str = "amlcompute", **more: Any) -> None:
        """`name`: of the pool."""
        super().__init__(name=name, type=type, **more)
