"""What can still be read of a damaged store, for `windrow state check` and `windrow state salvage`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from windrow_master.core.states import JobState, StepState
from windrow_master.step_paths import StepPaths
from windrow_master.store.records import CommittedRange


class FoundJob(NamedTuple):
    """A job as found. `document`: b"" if it cannot be read."""

    job_key: int
    job_id: str
    state: int
    generation: int
    message: str
    document: bytes

    @property
    def state_name(self) -> str:
        """The state in small letters; a state without a name stays a number."""
        return _name(JobState, self.state)


class FoundStep(NamedTuple):
    """A step as found."""

    step_id: int
    job_key: int
    ordinal: int
    name: str
    state: int
    message: str
    checkpoint: bytes | None
    counters: bytes | None
    paths: bytes
    reader: bytes | None
    header: bytes | None

    @property
    def state_name(self) -> str:
        """The state in small letters; a state without a name stays a number."""
        return _name(StepState, self.state)

    @property
    def planned(self) -> dict[str, Any]:
        """The checkpoint of its planning; {} if there is none or it cannot be read."""
        try:
            found = json.loads(self.checkpoint or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def append_row(self) -> str | None:
        """The path or address of its rows, as far as that can be read."""
        try:
            return StepPaths.from_json(self.paths).append_row
        except (ValueError, AttributeError):
            return None


class FoundSegment(NamedTuple):
    """A file of rows. Its name may be a guess, because the rows of each mini-batch have a checksum of their own."""

    name: str
    length: int | None
    """Bytes synced; None if unknown, because the row of the segment is damaged."""


class FoundMiniBatch(NamedTuple):
    """A mini-batch as found. `range` has no length if there are no rows."""

    number: int
    """Counted from 0 in its step."""
    state: int
    item_count: int
    items_counted: int
    ok_count: int
    recipe_offset: int
    recipe_length: int
    recipe_crc32: int
    sound: bool
    """Whether the row matches its check value. Use nothing of a row that does not."""
    range: CommittedRange | None


def _name(kind: type[JobState] | type[StepState], number: int) -> str:
    if number < 0:
        return "unknown"
    try:
        return kind(number).name.lower()
    except ValueError:
        return str(number)
