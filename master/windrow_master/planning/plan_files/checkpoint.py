"""Checkpoints: what a restarted planner needs to continue with exactly the same mini-batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError


class Checkpoint(NamedTuple):
    """A point between two mini-batches. Source: docs/contracts.md, section 3.

    `recipes_bytes` and `listing_bytes` are lengths that are on disk, with their checksums (`block_checksums`);
    `position` belongs to the strategy that made it.
    """

    mini_batches: int = 0
    items: int = 0
    recipes_bytes: int = 0
    listing_bytes: int = 0
    recipes_checksum: int = 0
    listing_checksum: int = 0
    position: Any = None
    done: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as it travels and is stored."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Any) -> Checkpoint:
        """The stored form read back. Raises PlanningError if it is not one."""
        counts = tuple(name for name in cls._fields if name not in ("position", "done"))
        if not isinstance(value, dict) or set(value) != set(cls._fields):
            raise PlanningError(f"The stored planning checkpoint is not valid: {value!r:.200}.", SYSTEM_ERROR)
        if any(type(value[name]) is not int or value[name] < 0 for name in counts):
            raise PlanningError(f"The stored planning checkpoint is damaged: {value!r:.200}.", SYSTEM_ERROR)
        return cls(**value)
