"""The answer to what elsewhere takes minutes of waiting, and here is done at once."""

from __future__ import annotations

from typing import Any


class Finished:
    """Stands where notebooks wait for an operation."""

    def __init__(self, value: Any = None) -> None:
        """`value`: what came of it."""
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        """What came of it."""
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Nothing is left to wait for."""

    def done(self) -> bool:
        """It is."""
        return True

    def status(self) -> str:
        """`Succeeded`."""
        return "Succeeded"
