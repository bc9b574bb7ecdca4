"""The shared page: what a worker is doing now, readable even if it hangs or is dead (docs/contracts.md, section 4)."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

PAGE_BYTES = 4096
_PAGE = struct.Struct("<QBxxxIQQQQII")
_VERSION = struct.Struct("<Q")


class Phase(IntEnum):
    """What a worker is doing. NONE: it has not written yet.

    Not the core's `Phase`, which is of attempts that have ended.
    """

    NONE = 0
    STARTING = 1
    INIT = 2
    IDLE = 3
    LOADING = 4
    RUNNING = 5
    RETURNING = 6
    STOPPING = 7


BUSY = frozenset({Phase.LOADING, Phase.RUNNING, Phase.RETURNING})
"""Phases in which the worker works on the lease that the page names."""


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of the page. `items`: of the mini-batch in progress. `phase_start_ns`: CLOCK_MONOTONIC.

    Not the validation's `Look`, which examines a script.
    """

    phase: Phase
    items: int
    lease_id: int
    phase_start_ns: int
    completed: int
    mini_batch_index: int
    piece_first: int = 0
    piece_count: int = 0
    """The number of items in the piece of a split mini-batch that `run()` has; 0 if there is none."""


NOTHING = Look(Phase.NONE, 0, 0, 0, 0, 0)


class Page:
    """The agent's side of one worker's page.

    Not a page of a list (`windrow.rpc`), but memory that agent and worker share.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file with its block allocated; otherwise a full disk could later cause a SIGBUS. Raises OSError."""
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, PAGE_BYTES)
            self._map = mmap.mmap(fd, PAGE_BYTES)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def look(self) -> Look:
        """Reads the page, again while the worker writes. If it died while writing, returns what it had written."""
        fields = _PAGE.unpack_from(self._map, 0)
        for _ in range(100):
            if not fields[0] & 1 and _VERSION.unpack_from(self._map, 0)[0] == fields[0]:
                break
            fields = _PAGE.unpack_from(self._map, 0)
        _, phase, items, lease_id, start, completed, index, first, count = fields
        if phase > Phase.STOPPING:
            # The script has overwritten the page.
            return NOTHING
        return Look(Phase(phase), items, lease_id, start, completed, index, first, count)

    def close(self) -> None:
        """Unmaps and removes it."""
        self._map.close()
        self.path.unlink(missing_ok=True)
