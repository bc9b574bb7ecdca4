"""The kept counters of a step: never computed by scanning, stored as JSON with the step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from windrow.common.failure_kinds import SHORT_RETURN, FailureKind, key_of, ordered, within

from windrow_master.core.causes import USER_ERROR
from windrow_master.core.log_bins import bin_of, quantile_of
from windrow_master.core.states import AttemptState, Cause
from windrow_master.core.statuses import category_of, status_of
from windrow_master.core.transitions import InvariantBroken

if TYPE_CHECKING:
    from windrow_master.core.attempt_result import CacheReport, StartReport

EXAMPLE_DETAIL_MAX = 8192
KINDS_MAX = 50
"""How many kinds of failures a step distinguishes: the most frequent; those that cost mini-batches before others."""
KIND_MESSAGE_MAX = 1000
KIND_DETAIL_MAX = 4096
KIND_DETAILS_MAX = 10
"""How many kinds keep a traceback: the counters are written with every commit."""
MISFIT_COLUMNS_MAX = 200
MISFIT_CHARS_MAX = 512
MISFIT_LINES_MAX = 20
NOTES_MAX = 20


GPUS_STORED_EVERY = 60
"""So many measurements of GPUs make it worth to store a step for them alone."""


@dataclass(slots=True)
class Counters:
    """The numbers of one step.

    Invariants, whenever no handler is running:
    1. queued + leased + succeeded + failed + cancelled = planned (queued is derived).
    2. items_ok + items_failed + items_cancelled <= items_total, and equal once the step has ended.
    3. failed_uncounted <= failed: failed mini-batches whose items were never counted.
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
    elapsed_us: int = 0
    """The sum of the durations, on workers, of the attempts that succeeded."""
    durations: dict[int, int] = field(default_factory=dict)
    """Bin (`log_bins`) of such a duration in µs -> how many there were."""
    starts: dict[str, int] = field(default_factory=dict)
    """Workers that have told how they came to be ready: their number (`workers`), the sums of `prepare_us`, `start_us`
    and `init_us`, and the longest `init()` (`init_max_us`)."""
    gpus: dict[str, int] = field(default_factory=dict)
    """What workers used of the GPUs that they held, by what nodes have measured: the most memory of one (`peak_bytes`),
    and the sum of how busy they were, in percent (`busy_percent`), of so many measurements (`measured`)."""
    data_cache: dict[str, int] = field(default_factory=dict)
    """What its data had of the data caches of nodes: `hits`, `misses`, `bytes_saved` and `evictions`; empty if no node
    that has one has fetched any."""
    speculated: int = 0
    """Second attempts that were begun because the first one took too long."""
    speculated_won: int = 0
    """Those of them that succeeded first."""
    retries: int = 0
    failed_attempts: dict[str, int] = field(default_factory=dict)
    """Cause number (as text: it is a JSON key) -> failed attempts."""
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Cause number -> the first failure: mini_batch, message, detail, node_id, process_number, phase."""
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Cause, type and place -> how often, what that cost, and the first failure (`FailureKind`)."""
    kinds_left_out: list[int] = field(default_factory=lambda: [0, 0])
    """Failed attempts, and given-up mini-batches, of the kinds that exceed `KINDS_MAX`."""
    misfits: dict[str, list[Any]] = field(default_factory=dict)
    """Column -> [count, example]."""
    misfits_planned: int = 0
    """Those that planning met, as it sorted the rows; it has warned of them."""
    notes: list[str] = field(default_factory=list)
    """What planning told of the step that is no warning, such as how much of an earlier job is taken over."""
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

    def note_gpus(self, peak_bytes: int, measured: int, busy_percent: int) -> bool:
        """Add what workers of one node use of their GPUs now. Return whether so much has changed that it is worth
        storing.
        """
        before = self.gpus
        peak, count = before.get("peak_bytes", 0), before.get("measured", 0)
        self.gpus = {
            "peak_bytes": max(peak, peak_bytes),
            "measured": count + measured,
            "busy_percent": before.get("busy_percent", 0) + busy_percent,
        }
        return peak_bytes > peak or (count + measured) // GPUS_STORED_EVERY > count // GPUS_STORED_EVERY

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
    ) -> str:
        """Count a failed attempt. The first one of each cause is kept as its example. `process`: None if no worker
        had the attempt.

        Returns the key of its kind, for `give_up`.
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

        kind = self._kind(cause, mini_batch, message, node_id, process, phase)
        kind["attempts"] += 1
        if not kind["detail"]:
            kind["detail"] = self._detail(detail, is_final=mini_batch < 0)
        return str(kind["key"])

    def take_back_failure(self, cause: int, kind: str) -> None:
        """Undo `add_failure` and the retry that followed. `kind`: what it returned."""
        key = str(cause)
        self.retries = max(0, self.retries - 1)
        if self.failed_attempts.get(key, 0) > 1:
            self.failed_attempts[key] -= 1
        else:
            self.failed_attempts.pop(key, None)
            self.examples.pop(key, None)
        known = self.kinds.get(kind)
        if known is None:
            self.kinds_left_out[0] = max(0, self.kinds_left_out[0] - 1)
        elif known["attempts"] > 1:
            known["attempts"] -= 1
        else:
            del self.kinds[kind]

    def give_up(
        self, key: str, before: list[str], failures: int, mini_batch: int, items: int, message: str, detail: str
    ) -> None:
        """Count a mini-batch that has no tries left.

        `key`: the kind of its last failure. `before`: the kinds of those that are known. `failures`: how many there
        were; a master that has started since does not know the kinds of the earlier ones, and takes them for the last.
        """
        last = self.kinds.get(key)
        if last is None:
            self.kinds_left_out[1] += 1
        else:
            if not last["mini_batches"]:
                last["mini_batch"], last["message"] = mini_batch, within(message, KIND_MESSAGE_MAX)
                last["detail"] = self._detail(detail, is_final=True) or last["detail"]
            last["mini_batches"] += 1
            last["items"] += items
        self._end_tries([*before, *[key] * (failures - len(before))])

    def add_failed_items(
        self, before: list[str], mini_batch: int, items: int, cause: int, message: str, node_id: str
    ) -> None:
        """Count items that failed alone, after their mini-batch was split. `before`: the kinds of its failures."""
        kind = self._kind(cause, mini_batch, message, node_id, None, 0)
        kind["items"] += items
        if kind["last"] != mini_batch:
            kind["last"] = mini_batch
            kind["mini_batches"] += 1
            self._end_tries([key for key in before if key == kind["key"]])

    def add_start(self, start: StartReport) -> None:
        """Count a worker that came to be ready."""
        starts = self.starts
        sums = {"workers": 1, "prepare_us": start.prepare_us, "start_us": start.start_us, "init_us": start.init_us}
        for name, value in sums.items():
            starts[name] = starts.get(name, 0) + value
        starts["init_max_us"] = max(starts.get("init_max_us", 0), start.init_us)

    def add_cache_use(self, use: CacheReport) -> None:
        """Count what the data of an attempt had of the data cache of its node."""
        before = self.data_cache
        told = {"hits": use.hits, "misses": use.misses, "bytes_saved": use.bytes_saved, "evictions": use.evictions}
        self.data_cache = {name: before.get(name, 0) + count for name, count in told.items()}

    def add_duration(self, elapsed_us: int) -> None:
        """Count how long an attempt that succeeded took."""
        self.elapsed_us += elapsed_us
        number = bin_of(elapsed_us)
        self.durations[number] = self.durations.get(number, 0) + 1

    def duration_s(self, share: float) -> float:
        """How long about this share of the attempts that succeeded took at most, in seconds; 0.0 before the first."""
        return quantile_of(self.durations, share) / 1e6

    @property
    def measured(self) -> int:
        """The attempts whose durations are known: not those before a retry of the job, whose results are kept."""
        return sum(self.durations.values())

    def mean_s(self) -> float:
        """How long an attempt that succeeded takes, in seconds; 0.0 before the first."""
        return self.elapsed_us / 1e6 / max(1, self.measured)

    def mean_start_s(self) -> float:
        """How long a worker takes until it is ready, in seconds: its process, what the script imports, and `init()`; as
        far as workers have told, 0.0 before the first has.
        """
        starts = self.starts
        return float(starts.get("start_us", 0) + starts.get("init_us", 0)) / 1e6 / max(1, starts.get("workers", 0))

    def add_short_return(self, mini_batch: int, items: int, message: str, node_id: str, process: int) -> None:
        """Count items that got no result although `run()` returned."""
        kind = self._kind(0, mini_batch, message, node_id, process, 0)
        kind["mini_batches"] += 1
        kind["items"] += items

    def take_back_short_return(self, items: int) -> None:
        """Undo `add_short_return` for a mini-batch whose rows are lost: it runs again."""
        kind = next((kind for kind in self.kinds.values() if not kind["cause"]), None)
        if kind is None:
            return
        kind["mini_batches"] -= 1
        kind["items"] -= items
        if kind["mini_batches"] <= 0:
            del self.kinds[kind["key"]]

    def starts_failed(self) -> None:
        """The step ends because no worker could be made ready: no failed start was followed by one that succeeds."""
        for kind in self.kinds.values():
            if kind["mini_batch"] < 0:
                kind["final_attempts"] = kind["attempts"]

    def failure_kinds(self) -> list[FailureKind]:
        """The kinds of failures, for people: those that cost most first."""
        found = []
        for kind in self.kinds.values():
            cause, phase = kind["cause"], kind["phase"]
            found.append(
                FailureKind(
                    cause=Cause(cause).name.lower() if cause else SHORT_RETURN,
                    error=kind["error"],
                    place=kind["place"],
                    attempts=kind["attempts"],
                    final_attempts=kind["final_attempts"],
                    mini_batches=kind["mini_batches"],
                    items=kind["items"],
                    mini_batch_index=kind["mini_batch"],
                    message=kind["message"],
                    detail=kind["detail"],
                    node_id=kind["node_id"],
                    process_number=kind["process_number"],
                    status=status_of(AttemptState.FAILED, cause, phase) if cause else "",
                    error_category=category_of(cause, phase) if cause else USER_ERROR,
                )
            )
        return ordered(found)

    def hear_worker_failure(self, node_id: str, node_incarnation: str, number: int) -> bool:
        """Note the number of a worker's failure; False if it was heard before."""
        incarnation, last = self.worker_failures.get(node_id, ("", 0))
        if incarnation == node_incarnation and number <= last:
            return False
        self.worker_failures[node_id] = [node_incarnation, number]
        return True

    def main_failure(self) -> str:
        """What failed most with its first message, for people; empty if nothing failed. What failed for good goes
        before what recovered.
        """
        kinds = self.failure_kinds()
        return f"{kinds[0].cause}: {kinds[0].message}" if self.failed_attempts and kinds else ""

    def main_category(self) -> str:
        """The kind of error (core.statuses) of what failed most. Without any failed attempt, it is the script's: it
        returned too few results.
        """
        kinds = self.failure_kinds()
        return kinds[0].error_category if self.failed_attempts and kinds else USER_ERROR

    def _kind(
        self, cause: int, mini_batch: int, message: str, node_id: str, process: int | None, phase: int
    ) -> dict[str, Any]:
        """The entry of a failure's kind, which is new if it is the first."""
        found = key_of(message if cause else "")
        key = "|".join((str(cause), *found))
        kind = self.kinds.get(key)
        if kind is None:
            if len(self.kinds) >= KINDS_MAX:
                self._make_room()
            kind = self.kinds[key] = {
                "key": key, "cause": cause, "phase": phase, "error": found.error, "place": found.place,
                "last": -1, "attempts": 0, "final_attempts": 0, "mini_batches": 0, "items": 0, "mini_batch": mini_batch,
                "message": within(message, KIND_MESSAGE_MAX), "detail": "", "node_id": node_id,
                "process_number": process,
            }  # fmt: skip
        return kind

    def _make_room(self) -> None:
        """Drop the kind that cost least and occurred least."""
        least = min(self.kinds.values(), key=lambda kind: (kind["mini_batches"], kind["attempts"]))
        del self.kinds[least["key"]]
        self.kinds_left_out[0] += least["attempts"]
        self.kinds_left_out[1] += least["mini_batches"]

    def _end_tries(self, keys: list[str]) -> None:
        """Count attempts of these kinds as those of a mini-batch that failed for good."""
        for kind in map(self.kinds.get, keys):
            if kind is not None:
                kind["final_attempts"] = min(kind["attempts"], kind["final_attempts"] + 1)

    def _detail(self, detail: str, *, is_final: bool) -> str:
        """As much of a traceback as there is room for. One of a final failure takes the place of another's."""
        told = [kind for kind in self.kinds.values() if kind["detail"]]
        if len(told) >= KIND_DETAILS_MAX:
            other = next((kind for kind in told if not kind["mini_batches"] and kind["mini_batch"] >= 0), None)
            if not is_final or other is None:
                return ""
            other["detail"] = ""
        return detail[-KIND_DETAIL_MAX:]

    def add_misfits(self, column: str, count: int, example: str) -> None:
        """Count values that did not fit a column's pinned type."""
        column, example = column[:MISFIT_CHARS_MAX], example[:MISFIT_CHARS_MAX]
        entry = self.misfits.get(column)
        if entry is not None:
            entry[0] += count
        elif len(self.misfits) < MISFIT_COLUMNS_MAX:
            self.misfits[column] = [count, example]

    def add_notes(self, notes: Iterable[str]) -> None:
        """Keep notes, each once: they are written with each change of the step."""
        self.notes += [note for note in dict.fromkeys(notes) if note not in self.notes]
        del self.notes[NOTES_MAX:]

    @property
    def misfit_count(self) -> int:
        """How many values did not fit; of more than `MISFIT_COLUMNS_MAX` columns, those of the first ones."""
        counts: list[int] = [count for count, _ in self.misfits.values()]
        return self.misfits_planned + sum(counts)

    def misfit_warnings(self) -> list[str]:
        """A line for each column, for people: how many values did not fit, and the first of them."""
        columns = list(self.misfits.items())
        lines = [
            f'In the column "{column}", values that do not fit (null, cut, beyond the header, or left out): {count:,}. '
            f"For example {example}."
            for column, (count, example) in columns[:MISFIT_LINES_MAX]
        ]
        if more := columns[MISFIT_LINES_MAX:]:
            values = sum(count for _, (count, _) in more)
            lines.append(f"In {len(more):,} more columns, values that do not fit: {values:,}.")
        return lines

    def to_json(self) -> bytes:
        """Return the stored form."""
        return json.dumps({name: getattr(self, name) for name in _NAMES}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Counters:
        """Read the stored form."""
        counters = cls(**json.loads(text)) if text else cls()
        # The keys of JSON are texts.
        counters.durations = {int(number): count for number, count in counters.durations.items()}
        return counters


_NAMES = tuple(one.name for one in fields(Counters))
