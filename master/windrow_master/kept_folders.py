"""The folders that a master keeps for all jobs: models, data that clients uploaded, and sorted rows. No output is
there: a script would change what other jobs read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

MODELS = ".models"
"""In the default datastore, or among the outputs of a master without one."""
UPLOADS = "uploads"
"""In the default datastore of a served master."""
PARTITIONS = "partitions"
"""Also there, so that all agents can read it: sorted rows, in `<job_id>/<step_id>`."""


class KeptFolders:
    """These folders. They need not exist."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = {str(folder): os.path.realpath(folder) for folder in folders}

    @property
    def paths(self) -> list[str]:
        """As nodes see them."""
        return list(self._folders)

    def refuse(self, path: str | os.PathLike[str], *, below: bool = False) -> str:
        """Why a path is none for an output; "" if it is one. `below`: only its beginning is known."""
        real = os.path.realpath(path)
        for folder, kept in self._folders.items():
            if _is_below(real, kept) or (not below and _is_below(kept, real)):
                how = "is in" if _is_below(real, kept) else "holds"
                return (
                    f"{os.fsdecode(path)} {how} {folder}, which the master keeps for all jobs, and no job writes to. "
                    "Choose another path, such as a folder of its own"
                )
        return ""


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
