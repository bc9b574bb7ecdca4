"""The shared page: what a worker is doing now, readable even if it hangs or is dead (docs/contracts.md, section 4)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

PAGE_BYTES = 4096
_PAGE = struct.Struct("<QBxxxIQQQQII")


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
    spoilt: bool = False
    """The script has cut or overwritten the page: nothing in it is known."""


NOTHING = Look(Phase.NONE, 0, 0, 0, 0, 0)
SPOILT = Look(Phase.NONE, 0, 0, 0, 0, 0, spoilt=True)


class Page:
    """The agent's side of one worker's page: a file that the worker has mapped.

    Not a page of a list (`windrow.rpc`). The agent reads it and maps nothing: a script can cut the file, and a mapping
    would then end the agent by a SIGBUS.
    """

    def __init__(self, path: Path) -> None:
        """Makes the file with its block allocated; otherwise a full disk could later cause a SIGBUS in the worker.
        Raises OSError.
        """
        self.path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, PAGE_BYTES)
        except BaseException:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        self._fd = fd

    def look(self) -> Look:
        """Reads the page, again while the worker writes. If it died while writing, returns what it had written."""
        try:
            data = os.pread(self._fd, _PAGE.size, 0)
            for _ in range(100):
                before, data = data, os.pread(self._fd, _PAGE.size, 0)
                if data == before and data and not data[0] & 1:
                    break
        except OSError:
            return SPOILT
        if len(data) < _PAGE.size:
            return SPOILT
        _, phase, items, lease_id, start, completed, index, first, count = _PAGE.unpack(data)
        if phase > Phase.STOPPING:
            return SPOILT
        return Look(Phase(phase), items, lease_id, start, completed, index, first, count)

    def close(self) -> None:
        """Closes and removes it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.path.unlink(missing_ok=True)
