"""The agent's side of the data cache: where it is, and what it has been good for. The fetch process keeps it
(`windrow_agent.fetch_process.data_cache`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windrow.common.journal import say
from windrow.rpc.v1 import node_pb2 as node

from windrow_agent.leases.lease import CacheUse


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """`bytes_max`: what it may take of the disk. `keep`: no script can write there, so that it outlives the process."""

    folder: Path
    bytes_max: int
    keep: bool

    def to_message(self) -> dict[str, Any]:
        """What the fetch process is told of it."""
        return {"cache": {"folder": str(self.folder), "bytes_max": self.bytes_max, "keep": self.keep}}


class CacheCounts:
    """Adds up what the answers of fetch processes say of the cache."""

    def __init__(self, settings: CacheSettings) -> None:
        self._bytes_max = settings.bytes_max
        self._sum = CacheUse()
        self._held_bytes = self._held_files = 0
        self._evictions = 0
        """Those of the fetch process that runs, as of its last answer."""
        self._trouble = ""
        self.is_known = False
        """What it holds is known: a fetch process has told."""

    @property
    def held_bytes(self) -> int:
        """What the cache takes of the disk, as of the last answer."""
        return self._held_bytes

    def process_died(self) -> None:
        """The next process counts from 0."""
        self._evictions = 0

    def take(self, told: dict[str, Any]) -> CacheUse:
        """Takes what an answer says; returns what its request had of the cache."""
        self.is_known = True
        evictions = told["evictions"] - self._evictions
        self._evictions = told["evictions"]
        self._held_bytes, self._held_files = told["held_bytes"], told["held_files"]
        if told["trouble"] and told["trouble"] != self._trouble:
            say(logging.WARNING, told["trouble"])
        self._trouble = told["trouble"]
        use = CacheUse(told["hits"], told["misses"], told["bytes_saved"], evictions)
        self._sum = self._sum.plus(use)
        return use

    def status(self) -> node.DataCache:
        """What the master is told of it."""
        return node.DataCache(
            bytes_max=self._bytes_max,
            bytes_held=self._held_bytes,
            files=self._held_files,
            trouble=self._trouble,
            **self._sum._asdict(),
        )
