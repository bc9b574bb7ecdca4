"""The result of an operation that takes minutes in Azure ML, and is done at once in Windrow."""

from __future__ import annotations

from typing import Any


class Finished:
    """A finished operation, for notebooks that wait for one."""

    def __init__(self, value: Any = None) -> None:
        """`value`: the result of the operation."""
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        """Return the value."""
        return self._value

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""

    def done(self) -> bool:
        """Always True."""
        return True

    def status(self) -> str:
        """Always `Succeeded`."""
        return "Succeeded"
