"""The kept counters of a step: never computed by scanning, stored as JSON with the step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from windrow_master.core.causes import USER_ERROR
from windrow_master.core.states import Cause
from windrow_master.core.statuses import category_of
from windrow_master.core.transitions import InvariantBroken

EXAMPLE_DETAIL_MAX = 8192
MISFIT_COLUMNS_MAX = 200
MISFIT_CHARS_MAX = 512
MISFIT_LINES_MAX = 20


@dataclass(slots=True)
class Counters:
    """The numbers of one step.

    Invariants, whenever no handler is running:
    1. queued + leased + succeeded + failed + cancelled = planned (queued is derived).
    2. items_ok + items_failed + items_cancelled <= items_total, and equal once the step has ended.
    3. failed_uncounted <= failed: failed mini-batches without a number of items, since only loading tells it, and that
    failed.
    4. taken_over (of succeeded) and items_taken_over (of items_ok) come from an earlier job: there was no attempt for
    them.
    """

    planned: int = 0
    leased: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    items_total: int = 0
    items_ok: int = 0
    items_failed: int = 0
    items_cancelled: int = 0
    rows: int = 0
    output_bytes: int = 0
    retries: int = 0
    failed_attempts: dict[str, int] = field(default_factory=dict)
    """Cause number (as text: it is a JSON key) -> failed attempts."""
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Cause number -> the first failure: mini_batch, message, detail, node_id, process_number, phase."""
    misfits: dict[str, list[Any]] = field(default_factory=dict)
    """Column -> [count, example]."""
    failed_uncounted: int = 0
    taken_over: int = 0
    items_taken_over: int = 0
    worker_failures: dict[str, list[Any]] = field(default_factory=dict)
    """Node -> [incarnation, number of the last failure of a worker]. Stored with the counts, so that a failure which is
    sent again after a restart is not counted twice."""

    @property
    def queued(self) -> int:
        """Mini-batches that wait for a lease."""
        return self.planned - self.leased - self.succeeded - self.failed - self.cancelled

    @property
    def ended(self) -> int:
        """Mini-batches with a final outcome."""
        return self.succeeded + self.failed + self.cancelled

    @property
    def ran(self) -> int:
        """Mini-batches whose outcome this job made itself, instead of taking it over."""
        return self.succeeded + self.failed - self.taken_over

    @property
    def items_failed_at_least(self) -> int:
        """The least number of failed items. A failed mini-batch whose items were never counted adds one."""
        return self.items_failed + self.failed_uncounted

    def check(self) -> None:
        """Raise InvariantBroken if a number is below 0, or the numbers do not add up. Cheap enough for every change."""
        if (
            min(self.leased, self.succeeded, self.failed, self.cancelled, self.items_ok, self.items_failed, self.rows)
            < 0
            or self.queued < 0
            or self.items_ok + self.items_failed + self.items_cancelled > self.items_total
        ):
            raise InvariantBroken(f"counters that do not add up: {self}")

    def end_broken(self) -> None:
        """Make the numbers of a step that is cancelled add up, whatever is wrong with them."""
        for name in ("planned", "succeeded", "failed", "items_total", "items_ok", "items_failed", "rows"):
            setattr(self, name, max(0, getattr(self, name)))
        self.leased = 0
        self.planned = max(self.planned, self.succeeded + self.failed)
        self.cancelled = self.planned - self.succeeded - self.failed
        self.items_total = max(self.items_total, self.items_ok + self.items_failed)
        self.items_cancelled = self.items_total - self.items_ok - self.items_failed

    def add_failure(
        self, cause: int, mini_batch: int, message: str, detail: str, node_id: str, process: int | None, phase: int = 0
    ) -> None:
        """Count a failed attempt. The first one of each cause is kept as its example. `process`: None if no worker
        had the attempt.
        """
        key = str(cause)
        self.failed_attempts[key] = self.failed_attempts.get(key, 0) + 1
        if key not in self.examples:
            self.examples[key] = {
                "mini_batch": mini_batch,
                "message": message,
                "detail": detail[-EXAMPLE_DETAIL_MAX:],
                "node_id": node_id,
                "process_number": process,
                "phase": phase,
            }

    def hear_worker_failure(self, node_id: str, node_incarnation: str, number: int) -> bool:
        """Note the number of a worker's failure; False if it was heard before."""
        incarnation, last = self.worker_failures.get(node_id, ("", 0))
        if incarnation == node_incarnation and number <= last:
            return False
        self.worker_failures[node_id] = [node_incarnation, number]
        return True

    def main_failure(self) -> str:
        """The most frequent cause of failure with its first message, for people; empty if nothing failed."""
        if not self.failed_attempts:
            return ""
        key = max(self.failed_attempts, key=lambda cause: self.failed_attempts[cause])
        return f"{Cause(int(key)).name.lower()}: {self.examples.get(key, {}).get('message', '')}"

    def main_category(self) -> str:
        """The kind of error (core.statuses) of the most frequent cause, from its first example. Without any failed
        attempt, it is the script's: it returned too few results.
        """
        if not self.failed_attempts:
            return USER_ERROR
        key = max(self.failed_attempts, key=lambda cause: self.failed_attempts[cause])
        return category_of(int(key), self.examples.get(key, {}).get("phase", 0))

    def add_misfits(self, column: str, count: int, example: str) -> None:
        """Count values that did not fit a column's pinned type."""
        column, example = column[:MISFIT_CHARS_MAX], example[:MISFIT_CHARS_MAX]
        entry = self.misfits.get(column)
        if entry is not None:
            entry[0] += count
        elif len(self.misfits) < MISFIT_COLUMNS_MAX:
            self.misfits[column] = [count, example]

    def misfit_warnings(self) -> list[str]:
        """A line for each column, for people: how many values did not fit, and the first of them."""
        columns = list(self.misfits.items())
        lines = [
            f'In the column "{column}", values that do not fit (they are null, cut or left out): {count:,}. '
            f"For example {example}."
            for column, (count, example) in columns[:MISFIT_LINES_MAX]
        ]
        if more := columns[MISFIT_LINES_MAX:]:
            values = sum(count for _, (count, _) in more)
            lines.append(f"In {len(more):,} more columns, values that do not fit: {values:,}.")
        return lines

    def to_json(self) -> bytes:
        """Return the stored form."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Counters:
        """Read the stored form."""
        return cls(**json.loads(text)) if text else cls()
