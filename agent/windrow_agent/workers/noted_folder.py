"""A folder of the agent's outside of its own, for what has to have a short path, or must not lie there.

It is noted in the agent's folder, so that a later agent removes what a killed one has left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windrow.common.removal import discard_tree

PRIVATE, PASSABLE = 0o700, 0o711
"""Modes: for the agent's user alone; for users of jobs, too, who have something of theirs in it."""


class NotedFolder:
    """One such folder, made when it is needed."""

    def __init__(
        self,
        folder: Path,
        note: str,
        prefix: str,
        environment: Mapping[str, str],
        mode: int = PRIVATE,
        *,
        inside: bool = False,
    ) -> None:
        """`folder`: the agent's; `note`: the name of the note in it. `prefix`: how the name of the noted folder begins;
        `mode`: of that folder. It lies in TMPDIR of the `environment`, or where else there is room for it; `inside`: in
        the agent's.
        """
        self._note = folder / note
        self._mode = mode
        self._prefix = prefix
        told = environment.get("TMPDIR", "")
        outside = [*([Path(told)] if told.startswith("/") else []), Path("/tmp")]
        self._places = [folder] if inside else [*outside, folder]
        self._made: Path | None = None
        self._remove_noted()

    def path(self) -> Path:
        """Where it is. Raises OSError if it cannot be made."""
        if self._made is None or not self._made.is_dir():
            self._made = self._make()
            self._note.write_text(str(self._made))
        return self._made

    def close(self) -> None:
        """Removes it."""
        if self._made is not None:
            discard_tree(self._made)
            self._note.unlink(missing_ok=True)

    def _make(self) -> Path:
        name = f"{self._prefix}{os.urandom(6).hex()}"
        *others, last = self._places
        for place in others:
            try:
                (place / name).mkdir(self._mode)
            except OSError:
                continue
            return place / name
        (last / name).mkdir(self._mode)
        return last / name

    def _remove_noted(self) -> None:
        try:
            noted = Path(self._note.read_text())
            if noted.name.startswith(self._prefix) and not noted.is_symlink() and noted.stat().st_uid == os.getuid():
                discard_tree(noted)
        except OSError:
            pass
