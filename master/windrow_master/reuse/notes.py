"""What steps have made that later jobs may reuse: for each key of settings, the last few.

The state folder keeps one note for each key. A note that is lost or damaged only means that steps run again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

KEPT = 10
FORGOTTEN_AT_ONCE = 50


class ReuseNote(NamedTuple):
    """What one step has made. `inputs` and `outputs`: digests by name; `paths`: `StepPaths.to_json` as text.

    `why_not`: why it cannot be reused although nothing in it failed; then there are no `outputs`.
    """

    job_id: str
    step_id: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    paths: str
    why_not: str = ""


class ReuseNotes:
    """The folder of notes. Methods block on the disk; any thread may call them."""

    def __init__(self, folder: Path) -> None:
        """`folder`: `StateFiles.made`."""
        self._folder = folder
        self._adding = threading.Lock()
        """Steps that end at the same time may have the same key."""

    def find(self, key: str) -> list[ReuseNote]:
        """Return the notes for a key, the newest first; none if they cannot be read."""
        try:
            found = read_note(self._folder / f"{key}.json") or {"made": []}
            return [ReuseNote(**entry) for entry in found["made"]]
        except (NoteDamaged, OSError, LookupError, TypeError) as error:
            say(logging.WARNING, "a note of what steps have made is ignored: they run again", reason=str(error))
            return []

    def forget(self, is_stored: Callable[[str], bool]) -> Iterator[None]:
        """Drop what jobs have made that are not there any more; FORGOTTEN_AT_ONCE notes a `next`. Raises OSError."""
        if not self._folder.is_dir():
            return
        for number, path in enumerate(sorted(self._folder.glob("*.json")), 1):
            with self._adding:
                known = self.find(path.stem)
                left = [one for one in known if is_stored(one.job_id)]
                if not left:
                    path.unlink(missing_ok=True)
                elif len(left) < len(known):
                    write_note(path, {"made": [one._asdict() for one in left]}, durable=True)
            if number % FORGOTTEN_AT_ONCE == 0:
                yield

    def add(self, key: str, made: ReuseNote) -> None:
        """Keep what a step has made. Raises OSError."""
        with self._adding:
            # Of those that cannot be reused, only the last one is kept.
            others = [known for known in self.find(key) if known.step_id != made.step_id and not known.why_not]
            entries = [one._asdict() for one in (made, *others[: KEPT - 1])]
            self._folder.mkdir(parents=True, exist_ok=True)
            write_note(self._folder / f"{key}.json", {"made": entries}, durable=True)
