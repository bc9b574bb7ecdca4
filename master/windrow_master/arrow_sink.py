"""A file for Arrow to write to, which is none: its bytes go wherever its owner wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ArrowSink:
    """Takes bytes in order, and knows how many it has taken."""

    closed = False

    def __init__(self, put: Callable[[memoryview], object]) -> None:
        """`put` takes the bytes, and keeps no view of them."""
        self.put = put
        self.length = 0

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self.put(piece)
        self.length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self.length

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed = True
