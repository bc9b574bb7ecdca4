"""The private TMPDIR of each worker: below its scratch folder, or in a short path where that is too long for sockets.

The address of a Unix socket has at most 107 bytes, and libraries make sockets in TMPDIR with long names of their own
(`multiprocessing`: 36 bytes).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windrow_agent.workers.noted_folder import PRIVATE, NotedFolder

PATH_MAX = 70


class TemporaryFolders:
    """Folders for the workers of one agent."""

    def __init__(self, folder: Path, environment: Mapping[str, str], mode: int = PRIVATE) -> None:
        """`folder`: the agent's; `environment`: its own, too. `mode`: of the folder that holds them."""
        self._short = NotedFolder(folder, "temporary", "windrow-tmp-", environment, mode)

    def make(self, name: str, scratch: Path) -> Path:
        """Makes the folder of a worker; `name` is its alone. Raises OSError."""
        place = scratch / "tmp"
        if len(os.fsencode(place)) > PATH_MAX:
            place = self._short.path() / name
        place.mkdir()
        return place

    def close(self) -> None:
        """Removes what is in short paths."""
        self._short.close()
