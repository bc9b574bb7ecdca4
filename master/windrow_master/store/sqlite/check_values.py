"""Check values: each row that decides what runs or what is written holds one over its other columns.

SQLite finds a damaged page only if the damage breaks its structure. A bit flipped inside a cell is just another value.
Two kinds of check values find that:

- `Tally`, for the large tables (mini-batches, attempts, failed items): a weighted sum of the columns, large ones modulo
  a prime, which SQL computes and compares on its own. It is linear, so a statement that changes some columns adds the
  weighted difference: a row that was damaged before stays recognisable, and Python never touches a row. Any change of a
  single column shows unless it is a multiple of the prime, which no flipped bit is. Other damage passes once in 2^31.
- `row_crc`, for the small tables: a crc32 over all columns, computed when a row is bound.

Texts of the large tables have a crc32 beside them, which is one of the columns of their tally.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from windrow.common.state_mark import STATE_MARK

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.records import AllocationRow, FleetRow, JobRow, LedgerRow, StepRow
from windrow_master.files.errors import StateDamaged

DATABASE = STATE_MARK
"""The name of the database in messages."""
PRIME = 2_147_483_647
CHECK = "check_value"

_INT_MAX = (1 << 63) - 1


class Tally:
    """The check value of one table: Σ weight x column. A column that may be NULL counts as -1 when it is.

    A column that may hold more than 32 bits counts modulo PRIME, so that the sum stays below 2^63. Append new columns
    at the end, because weights go by position.
    """

    def __init__(self, table: str, columns: Sequence[str]) -> None:
        """`columns`: names, with `%` appended to those that may hold more than 32 bits, and `?` to those that may
        be NULL.
        """
        self.table = table
        self.columns = tuple(column.rstrip("%?") for column in columns)
        self._wide = {column.rstrip("%?") for column in columns if "%" in column}
        self._nullable = {column.rstrip("%?") for column in columns if "?" in column}

    def sum_of(self, values: Mapping[str, str]) -> str:
        """The SQL expression of the check value of a row with these expressions as columns. A missing column is
        NULL."""
        return " + ".join(self._term(name, values.get(name, "NULL")) for name in self.columns)

    def holds(self, alias: str = "") -> str:
        """The SQL condition that a stored row is what was written: 1 or 0, never NULL."""
        place = f"{alias}." if alias else ""
        return f"({place}{CHECK} IS ({self.sum_of({name: place + name for name in self.columns})}))"

    def set_to(self, changes: Mapping[str, str], others: Mapping[str, str] | None = None) -> str:
        """The SET clause of an UPDATE that gives columns of the tally new values, and the check value its difference.
        `others`: columns outside the tally."""
        difference = " + ".join(
            f"({self._term(name, new)} - {self._term(name, f'{self.table}.{name}')})" for name, new in changes.items()
        )
        sets = [f"{name} = {new}" for name, new in {**changes, **(others or {})}.items()]
        return ", ".join([*sets, f"{CHECK} = {self.table}.{CHECK} + {difference}"])

    def _term(self, name: str, expression: str) -> str:
        value = f"coalesce({expression}, -1)" if name in self._nullable else expression
        if name in self._wide:
            value = f"{value} % {PRIME}"
        return f"{value} * {_weight(self.columns.index(name))}"


def _weight(at: int) -> int:
    """Odd, below 2^24, and unlike its neighbours, so that values that change places do not cancel out."""
    return (2_654_435_761 * (at + 1)) % (1 << 24) | 1


MINI_BATCHES = Tally(
    "mini_batch",
    ["key%", "item_first%", "item_count", "recipe_offset%", "recipe_length", "recipe_crc32", "generation", "state",
     "lease_id%", "items_counted%", "ok_count%", "segment_id%?", "segment_offset%?", "rows_length%?", "rows_crc32?",
     "row_count%", "queue_rank%?", "tries_since"],
)  # fmt: skip
ATTEMPTS = Tally(
    "attempt",
    ["lease_id%", "step_id", "mini_batch", "generation", "process_number%", "state", "cause", "phase",
     "start_unix_us%", "elapsed_us%", "run_us%", "cpu_us%", "item_count%", "result_count%", "peak_rss_kib%",
     "message_crc32", "texts_crc32"],
)  # fmt: skip
ITEM_OUTCOMES = Tally("item_outcome", ["step_id", "mini_batch", "item_first%", "item_count%", "cause", "message_crc32"])
TALLIES = (MINI_BATCHES, ATTEMPTS, ITEM_OUTCOMES)

JOB = (
    "job_key, job_id, request_id, state, generation, seq, queue, priority, weight, run_digest, message, "
    "warnings, create_time, end_time, submitter, deadline"
)
JOB_DOCUMENT = "job_key, document"
STEP = "step_id, job_key, ordinal, name, state, message, checkpoint, counters, start_time, end_time, error_category"
STEP_DOCUMENT = "step_id, paths, reader, header"
SEGMENT = "segment_id, step_id, name, incarnation, state, length"
OUTPUT = "path, job_key, step_id, generation, incarnation, length, digest, mtime_ns, rows"
NODE = "node_id, node_incarnation, state, message, resources, labels, register_time, cordoned, secret_digest"
TOKEN = "digest, name, kind, role, project, create_time, expire_time, uses_left, last_use, revoke_time"
QUEUE = "name, settings, revision, change_time, changed_by"
LEDGER = ", ".join(LedgerRow._fields)
FLEET = ", ".join(FleetRow._fields)
ALLOCATION = ", ".join(AllocationRow._fields)
ASSET = (
    "kind, name, version, type, path, is_file, description, tags, create_time, step_id, job_id, step_name, "
    "output_name, project"
)
COUNTED = "name, value"
MASTER = "incarnation, lease_prefix"
# Lease ids rise within one incarnation of the master. Start times do not show which attempt came first: they are by the
# clocks of several machines, which may be set.
LEASED_BY = "(SELECT incarnation FROM master WHERE lease_prefix = {0}.lease_id >> 32)"
"""The incarnation of the master that gave the lease of an attempt (a table of that name)."""
WHOLE_ROWS = {
    "job": JOB, "job_document": JOB_DOCUMENT, "step": STEP, "step_document": STEP_DOCUMENT, "segment": SEGMENT,
    "output": OUTPUT, "node": NODE, "token": TOKEN, "queue": QUEUE, "ledger": LEDGER, "asset": ASSET,
    "fleet": FLEET, "allocation": ALLOCATION, "counted": COUNTED, "master": MASTER,
}  # fmt: skip
"""The columns that `row_crc` covers, in its order. Not `event`: events only inform people of what happened."""


def job_values(row: JobRow) -> tuple[Any, ...]:
    """The columns of `JOB`: all but the document."""
    return tuple(value for name, value in zip(row._fields, row, strict=True) if name != "document")


def step_values(row: StepRow) -> tuple[Any, ...]:
    """The columns of `STEP`: all but those of `STEP_DOCUMENT`."""
    return tuple(
        value for name, value in zip(row._fields, row, strict=True) if name not in ("paths", "reader", "header")
    )


def row_crc(values: Iterable[Any]) -> int:
    """The crc32 of the columns of a row. It is the same for values to be written and for values read back."""
    crc = 0
    for value in values:
        if value is None:
            part = b"-"
        elif isinstance(value, bytes):
            part = b"b" + value
        elif isinstance(value, str):
            part = b"s" + _encoded(value)
        elif isinstance(value, float) and not value.is_integer():
            part = b"f%a" % value
        else:
            part = b"i%d" % max(-_INT_MAX - 1, min(_INT_MAX, int(value)))
        crc = zlib.crc32(part, zlib.crc32(b"%d:" % len(part), crc))
    return crc


def with_crc(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row as it is bound, its check value at the end."""
    return (*row, row_crc(row))


def text_crc(text: str) -> int:
    """crc32 of a text as it is stored."""
    return zlib.crc32(_encoded(text)) if text else 0


def item_crc(message: str, place: str) -> int:
    """crc32 of the texts of a failed item, as they are stored."""
    return text_crc(f"{message}\0{place}" if place else message)


def texts_crc(node_id: str, node_incarnation: str, detail: str) -> int:
    """crc32 of the texts of an attempt that never change."""
    crc = _node_crc(node_id, node_incarnation)
    return zlib.crc32(_encoded(detail), crc) if detail else crc


@lru_cache(4096)
def _node_crc(node_id: str, node_incarnation: str) -> int:
    return row_crc((node_id, node_incarnation))


def _encoded(text: str) -> bytes:
    """The bytes that SQLite stores. Invalid Unicode is replaced as `statements.bindable` does it."""
    return text.encode("utf-8", "backslashreplace")


def checked(table: str, row: Sequence[Any]) -> Sequence[Any]:
    """A row of one of WHOLE_ROWS without its check value, which is its last column. Raises StateDamaged."""
    *values, check = row
    if row_crc(values) != check:
        raise damaged_row(table, f"{WHOLE_ROWS[table].split(',')[0]} {values[0]!r}")
    return values


def damaged_row(table: str, row: str) -> StateDamaged:
    """The error for a row that is not what was written. `row`: which one."""
    return StateDamaged(
        f"{DATABASE}, table {table}, {row}", "the row does not have the check value it was written with"
    )


def damaged_mini_batch(key: int) -> StateDamaged:
    """The error for a damaged row of mini_batch."""
    step_id, index = divmod(key, 1 << MINI_BATCH_SHIFT)
    return damaged_row("mini_batch", f"step {step_id}, mini-batch {index}")


def wrong_row_count(table: str, where: str, expected: int, found: int) -> StateDamaged:
    """The error for rows that have vanished or appeared. `where`: what they belong to."""
    return StateDamaged(
        f"{DATABASE}, table {table}, {where}", f"{expected:,} rows were written there, and {found:,} are found"
    )
