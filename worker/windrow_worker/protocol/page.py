"""The page shared with the agent: what this process is doing now (docs/contracts.md, section 4).

Phases: 1 starting -> 2 init -> 3 idle <-> (4 loading -> 5 running -> 6 returning) -> 7 stopping.

1. The version is odd while the page is being written, and even otherwise.
2. From "loading" until the attempt's frame is written, the page names the attempt's lease: a worker that dies in
   between has started exactly that one.
3. `items` is known from "running" on, also when `run()` never returns.
4. While a mini-batch is split, the page names the piece that `run()` has; otherwise it has no items.
5. The phase's start is in CLOCK_MONOTONIC, so that the agent can compare it with its own clock.
"""

from __future__ import annotations

import mmap
import os
import struct
from time import monotonic_ns

STARTING = 1
INIT = 2
IDLE = 3
LOADING = 4
RUNNING = 5
RETURNING = 6
STOPPING = 7

PAGE = struct.Struct("<QBxxxIQQQQII")
"""version, phase, items, lease_id, phase_start_ns, completed, mini_batch_index, piece_first, piece_count."""

PAGE_BYTES = 4096

_VERSION = struct.Struct("<Q")


class Page:
    """This process's view of the page, which survives whatever the script does to descriptors.

    Not the agent's `Page`, which is the other side of the same memory.
    """

    def __init__(self, path: str) -> None:
        """Maps the file at `path`, which the agent has made. Raises OSError, or ValueError if it is too short."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(fd, PAGE_BYTES)
        finally:
            os.close(fd)
        self._version = 0
        self.completed = 0

    def enter(
        self,
        phase: int,
        lease_id: int = 0,
        mini_batch_index: int = 0,
        items: int = 0,
        piece_first: int = 0,
        piece_count: int = 0,
    ) -> int:
        """Shows a new phase. Returns its start, in ns of CLOCK_MONOTONIC."""
        now = monotonic_ns()
        version = self._version + 2
        self._version = version
        # Two writes, in this order: the bytes of one pack_into are written from the first field to the last.
        PAGE.pack_into(
            self._map, 0, version - 1, phase, items, lease_id, now, self.completed, mini_batch_index, piece_first,
            piece_count,
        )  # fmt: skip
        _VERSION.pack_into(self._map, 0, version)
        return now
