"""Which mini-batches took far longer than others in the last job of the same name: they begin first in the next one.

Only a hint: a mini-batch is known again by the length and the checksum of its recipe.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from windrow_master.core.bounds import DURATION_US_MAX
from windrow_master.core.counters import Counters
from windrow_master.core.states import StepState

if TYPE_CHECKING:
    from windrow_master.core.records import StepRow
    from windrow_master.store.protocol import StoreReader

JOBS_LOOKED_AT = 20
MINI_BATCHES_MAX = 100_000
"""In a larger step, finding them takes too long for what waits for it."""
SLOW_MAX = 1_000
SLOW_FACTOR = 2
"""A mini-batch that took longer than so many times the mean is slow."""
SLOW_FROM_US = 1_000_000
"""A shorter one does not matter."""
RANK = 1 << 40
"""More than any size: what is known to be slow begins before what is only large."""


def completed_before(reader: StoreReader, job_id: str, display_name: str, project: str) -> dict[str, StepRow]:
    """The newest completed step of each name in other jobs of this display name and project. Raises StateError."""
    found: dict[str, StepRow] = {}
    for job in reader.jobs_newest_first(JOBS_LOOKED_AT, project=project):
        if job.job_id != job_id and json.loads(job.document).get("display_name") == display_name:
            for step in reader.steps_of(job.job_key):
                if step.state == StepState.COMPLETED:
                    found.setdefault(step.name, step)
    return found


def slow_in(reader: StoreReader, step: StepRow) -> list[tuple[int, int, int]]:
    """Return (length of the recipe, its crc32, rank) of mini-batches that were slow in a step; empty if none was.
    Raises StateError.
    """
    counters = Counters.from_json(step.counters)
    ran = counters.succeeded - counters.taken_over
    if ran < 2 or counters.planned > MINI_BATCHES_MAX:
        return []
    from_us = min(max(SLOW_FROM_US, SLOW_FACTOR * counters.elapsed_us // ran), DURATION_US_MAX)
    found = reader.longest_of(step.step_id, from_us, SLOW_MAX)
    return [(length, crc32, RANK + elapsed_us // 1000) for length, crc32, elapsed_us in found]
