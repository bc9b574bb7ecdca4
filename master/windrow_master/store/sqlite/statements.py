"""Writes the rows of one group: one statement for many rows.

Why not `executemany`: it releases and takes the GIL for every row. With the event loop's thread at work, each row would
wait for the interpreter's switch interval. Measured on two cores, groups of 500, synchronous=FULL, outcome + attempt,
in µs a mini-batch (a second thread idle / busy in Python, switch interval 5 ms / the same at 0.5 ms):

    executemany                 4.8  / 1,925 / 176
    json_each over one value   15.6  /    68 /   –
    multi-row VALUES (this)     4.5  /    55 /  13

What remains under a busy thread is a few switch intervals a *commit*; the master lowers the interval for that reason.

Statements come in sizes that are powers of two, so that SQLite's compiled statements can be cached. A group is cut into
few of them; the last one is filled up with NULL rows, which `WHERE column1 IS NOT NULL` (or the join) drops.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from windrow_master.core.states import MiniBatchState
from windrow_master.store.sqlite import check_values

PARAMETERS_MAX = 32_000
"""SQLite's limit is 32,766."""
ROWS_MAX = 1024

Row = Sequence[Any]


class BulkStatement:
    """One SQL statement over any number of rows of `width` values. `{rows}` in its text becomes the VALUES."""

    def __init__(self, sql: str, width: int) -> None:
        self._sql = sql
        self._width = width
        self._rows_max = ROWS_MAX
        while self._rows_max * width > PARAMETERS_MAX:
            self._rows_max //= 2
        self._by_size: dict[int, str] = {}

    def execute(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """Run it over all rows, in order; return how many rows of the table it changed."""
        values = list(chain.from_iterable(rows))
        width, left, at, changed = self._width, len(rows), 0, 0
        while left:
            size = self._size_for(left)
            taken = min(size, left)
            part = values[at : at + taken * width] if at or taken < left else values
            if taken < size:
                part.extend([None] * ((size - taken) * width))
            changed += connection.execute(self._text(size), part).rowcount
            at += taken * width
            left -= taken
        return changed

    def _size_for(self, rows: int) -> int:
        """How many rows the next statement takes: the next power of two unless over a quarter of it were filling."""
        if rows >= self._rows_max:
            return self._rows_max
        size = 1 << (rows - 1).bit_length()
        return size if size <= 4 or size - rows <= size >> 2 else size >> 1

    def _text(self, size: int) -> str:
        text = self._by_size.get(size)
        if text is None:
            row = "(" + ",".join("?" * self._width) + ")"
            text = self._by_size[size] = self._sql.replace("{rows}", ",".join([row] * size))
        return text


class PlainStatement:
    """One SQL statement, run for each row: for few rows, or where a join would cost more than the statements."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def execute(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> int:
        """Run it for all rows, in order; return how many rows of the table it changed."""
        return sum(connection.execute(self._sql, tuple(row)).rowcount for row in rows)


def _insert(table: str, columns: str, conflict: str = "", check: str = "") -> BulkStatement:
    """`check`: the SQL of a check value over `column1`, `column2` …, if SQL computes it."""
    width = columns.count(",") + 1
    into, values = (f"{columns}, {check_values.CHECK}", f"*, {check}") if check else (columns, "*")
    return BulkStatement(
        f"INSERT INTO {table} ({into}) SELECT {values} FROM (VALUES {{rows}}) WHERE column1 IS NOT NULL {conflict}",
        width,
    )


def _upsert(table: str, key: str, columns: str, updated: str | None = None, check: str = "") -> BulkStatement:
    names = [name.strip() for name in (updated or columns).split(",")]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name != key)
    if check:
        changes += f", {check_values.CHECK} = excluded.{check_values.CHECK}"
    return _insert(table, columns, f"ON CONFLICT ({key}) DO UPDATE SET {changes}", check)


def _whole(table: str, key: str, updated: str | None = None) -> BulkStatement:
    """An upsert of rows that bring their check value (`check_values.with_crc`)."""
    return _upsert(
        table,
        key,
        f"{check_values.WHOLE_ROWS[table]}, {check_values.CHECK}",
        updated and f"{updated}, {check_values.CHECK}",
    )


def _sum(tally: check_values.Tally, columns: str, defaults: Mapping[str, str] | None = None) -> str:
    """The SQL of the check value of inserted rows."""
    names = [name.strip() for name in columns.split(",")]
    return tally.sum_of({**(defaults or {}), **{name: f"column{at}" for at, name in enumerate(names, 1)}})


JOBS = _whole(
    "job",
    "job_key",
    "state, generation, seq, queue, priority, weight, run_digest, message, warnings, end_time, deadline",
)
JOB_DOCUMENTS = _whole("job_document", "job_key")
STEPS = _whole("step", "step_id", "state, message, checkpoint, counters, start_time, end_time, error_category")
STEP_DOCUMENTS = _whole("step_document", "step_id")
_PLANNED = "key, item_first, item_count, recipe_offset, recipe_length, recipe_crc32, generation"
_UNTOUCHED = dict.fromkeys(("state", "lease_id", "items_counted", "ok_count", "row_count", "tries_since"), "0")
PLANNED = _insert("mini_batch", _PLANNED, check=_sum(check_values.MINI_BATCHES, _PLANNED, _UNTOUCHED))
PLANNED_RANKED = _insert(
    "mini_batch",
    f"{_PLANNED}, queue_rank",
    check=_sum(check_values.MINI_BATCHES, f"{_PLANNED}, queue_rank", _UNTOUCHED),
)
_OUTCOME = (
    "state", "generation", "items_counted", "ok_count", "lease_id", "segment_id", "segment_offset", "rows_length",
    "rows_crc32", "row_count",
)  # fmt: skip
_OUTCOME_SET = check_values.MINI_BATCHES.set_to({name: f"new.column{at}" for at, name in enumerate(_OUTCOME, 2)})
OUTCOMES = BulkStatement(
    f"UPDATE mini_batch SET {_OUTCOME_SET} FROM (VALUES {{rows}}) AS new WHERE mini_batch.key = new.column1", 11
)
CANCELLED_STEPS = PlainStatement(
    f"UPDATE mini_batch SET {check_values.MINI_BATCHES.set_to({'state': str(int(MiniBatchState.CANCELLED))})} "
    f"WHERE key >= ? AND key < ? AND state = {int(MiniBatchState.QUEUED)}"
)
_ATTEMPT = (
    "lease_id, step_id, mini_batch, generation, node_id, node_incarnation, process_number, state, cause, "
    "start_unix_us, elapsed_us, run_us, cpu_us, item_count, result_count, peak_rss_kib, message, detail, phase, "
    "message_crc32, texts_crc32"
)
ATTEMPTS = _upsert(
    "attempt",
    "lease_id",
    _ATTEMPT,
    "process_number, state, cause, start_unix_us, elapsed_us, run_us, cpu_us, item_count, result_count, peak_rss_kib, "
    "message, detail, phase, message_crc32, texts_crc32",
    _sum(check_values.ATTEMPTS, _ATTEMPT),
)
_VERDICT = {"state": "new.column2", "cause": "new.column3", "message_crc32": "new.column5"}
VERDICTS = BulkStatement(
    f"UPDATE attempt SET {check_values.ATTEMPTS.set_to(_VERDICT, {'message': 'new.column4'})} "
    "FROM (VALUES {rows}) AS new WHERE attempt.lease_id = new.column1",
    5,
)
ITEM_OUTCOMES_CLEARED = BulkStatement(
    # CROSS JOIN makes SQLite start with the few given rows; otherwise it would read all of the table.
    "DELETE FROM item_outcome WHERE id IN (SELECT id FROM (VALUES {rows}) AS gone CROSS JOIN item_outcome "
    "ON item_outcome.step_id = gone.column1 AND item_outcome.mini_batch = gone.column2)",
    2,
)
_ITEM_OUTCOME = "step_id, mini_batch, item_first, item_count, cause, message, place, message_crc32"
ITEM_OUTCOMES = _insert("item_outcome", _ITEM_OUTCOME, check=_sum(check_values.ITEM_OUTCOMES, _ITEM_OUTCOME))
SEGMENTS = _whole("segment", "segment_id", "state, length")
NODES_REMOVED = BulkStatement("DELETE FROM node WHERE node_id IN (VALUES {rows})", 1)
NODES = _whole("node", "node_id")
QUEUES = _whole("queue", "name")
FLEETS_REMOVED = BulkStatement("DELETE FROM fleet WHERE name IN (VALUES {rows})", 1)
FLEETS = _whole("fleet", "name")
ALLOCATIONS_REMOVED = BulkStatement("DELETE FROM allocation WHERE name IN (VALUES {rows})", 1)
ALLOCATIONS = _whole("allocation", "name")
LEDGER = _whole(
    "ledger",
    "job_key, day, project, pool",
    "useful_us, retried_us, lost_us, preempted_us, cancelled_us, started_us, lived_us",
)
COUNTED = _whole("counted", "name")
TOKENS = _whole("token", "digest")
EVENTS = _insert("event", "time, job_key, kind, message")
OUTPUTS = _insert("output", f"{check_values.OUTPUT}, {check_values.CHECK}")


def bindable(rows: Sequence[Row]) -> list[list[Any]]:
    """Rows in which every value can be stored.

    Text that is not valid Unicode (the bytes of a file name, say) is escaped, and numbers beyond 63 bits are cut to
    them. What a peer or a file system makes up must not stop the master.
    """
    return [[_bindable(value) for value in row] for row in rows]


def _bindable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, int):
        return max(-(1 << 63), min((1 << 63) - 1, value))
    return value
