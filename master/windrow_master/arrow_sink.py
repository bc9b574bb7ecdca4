"""An object that Arrow writes to like a file, and that passes the bytes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ArrowSink:
    """Passes bytes on in order, and counts them."""

    closed = False

    def __init__(self, put: Callable[[memoryview], object]) -> None:
        """`put` takes the bytes, and does not keep a view of them."""
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
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        self.closed = True
