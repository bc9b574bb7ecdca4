"""What a step of a dry run would take over from an earlier job, found as in a run, but only read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windrow_master.files.state_files import StepFiles
from windrow_master.shell.earlier import EarlierJobs, EarlierStep


class EarlierResults:
    """Results of one earlier step, and how many of them would be taken over."""

    def __init__(self, jobs: EarlierJobs, step: EarlierStep, files: StepFiles) -> None:
        """`files`: for what the planner reads. Raises OSError, StateError."""
        self._jobs = jobs
        self._step = step
        self.mini_batches = 0
        self.items = 0
        self._index = jobs.write_index(step, files.earlier)

    def request(self) -> dict[str, Any]:
        """What the planner gets to know about the earlier step."""
        return self._step.request(self._index, None)

    def take(self, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """Count the mini-batches of a group that would be taken over, and return them. `pairs`: a mini-batch, and
        the equal one of the earlier step, whose rows must exist. Raises StateError.
        """
        outcomes = self._jobs.outcomes(self._step, pairs)
        self.mini_batches += len(outcomes)
        self.items += sum(taken.item_count for taken in outcomes)
        return {taken.mini_batch for taken in outcomes}

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"job": self._step.job_id, "mini_batches": self.mini_batches, "items": self.items}
