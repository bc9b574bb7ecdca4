"""The private TMPDIR of each worker: below its scratch folder, or in a short path where that is too long for sockets.

The address of a Unix socket has at most 107 bytes, and libraries make sockets in TMPDIR with long names of their own
(`multiprocessing`: 36 bytes). The folder of short paths is noted in the agent's folder, so that a later agent removes
what a killed one has left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PATH_MAX = 70
_PREFIX = "windrow-tmp-"


class TemporaryFolders:
    """Folders for the workers of one agent."""

    def __init__(self, folder: Path) -> None:
        self._note = folder / "temporary"
        self._base: Path | None = None
        self._remove_noted()

    def make(self, name: str, scratch: Path) -> Path:
        """Makes the folder of a worker; `name` is its alone. Raises OSError."""
        place = scratch / "tmp"
        if len(os.fsencode(place)) > PATH_MAX:
            if self._base is None or not self._base.is_dir():
                self._base = Path(tempfile.mkdtemp(prefix=_PREFIX))
                self._note.write_text(str(self._base))
            place = self._base / name
        place.mkdir()
        return place

    def close(self) -> None:
        """Removes what is in short paths."""
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._note.unlink(missing_ok=True)

    def _remove_noted(self) -> None:
        try:
            noted = Path(self._note.read_text())
            if noted.name.startswith(_PREFIX) and not noted.is_symlink() and noted.stat().st_uid == os.getuid():
                shutil.rmtree(noted, ignore_errors=True)
        except OSError:
            pass
