"""Reads the mini-batches of a step as columns, without a Python object for each value.

SQLite itself packs a page of rows into one value: of each row, `char()` makes one text of all columns, which are cut
into digits of 16 bits, and `group_concat()` joins the texts. Encoded as UTF-16, a text is the digits, two bytes each;
slices of arrays then gather the digits of a column. Two threads do that: SQLite needs nothing of Python meanwhile.

Read row by row, ten million mini-batches took 19 s of processor time, most of it for tuples and numbers that were
dropped at once. In this way, they take 10 s, on two processors at the same time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from array import array
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from windrow_master.core.ids import MINI_BATCH_SHIFT
from windrow_master.core.records import StepSnapshot
from windrow_master.files.errors import StateDamaged
from windrow_master.store.sqlite.check_values import MINI_BATCHES, damaged_mini_batch

PAGE_ROWS = 1 << 16
THREADS = 2
AHEAD = 4
"""Pages that are read before their turn comes: some 3 MB each."""
DIGIT_BITS = 16
DIGIT_MASK = (1 << DIGIT_BITS) - 1


Reader = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Borrows a connection that reads."""
Page = tuple[int, int]
"""The first key, and the one behind the last."""


class Column(NamedTuple):
    """A column of numbers from 0. `digits`: of 16 bits each."""

    name: str
    digits: int


STATE = Column("state", 1)
PLANNED = (
    Column("item_first", 4),
    Column("item_count", 2),
    Column("recipe_offset", 4),
    Column("recipe_length", 2),
    Column("recipe_crc32", 2),
    Column("lease_id", 4),
)
RANK = Column("queue_rank", 4)


def add_columns(connection: sqlite3.Connection, step: StepSnapshot, reader: Reader) -> int:
    """Read all mini-batches of a step into its columns. Return how many they are by the last of their keys. Raises
    sqlite3.Error, StateDamaged.

    `reader`: for the threads of a large step. Nobody may write meanwhile.
    """
    first = step.step.step_id << MINI_BATCH_SHIFT
    stop = first + (1 << MINI_BATCH_SHIFT)
    end, rank = connection.execute(
        "SELECT max(key), (SELECT queue_rank FROM mini_batch WHERE key = ?) FROM mini_batch WHERE key >= ? AND key < ?",
        (first, first, stop),
    ).fetchone()
    # A step's mini-batches have ranks all, or none has.
    columns = (STATE, *PLANNED) if rank is None else (STATE, *PLANNED, RANK)
    packing = _packing(columns)
    starts = range(first, first if end is None else end + 1, PAGE_ROWS)
    pages = [(at, min(at + PAGE_ROWS, stop)) for at in starts]
    with contextlib.closing(_packed(connection, packing, pages, reader)) as found:
        for page, (packed, held) in zip(pages, found, strict=True):
            if packed is None:
                continue  # a gap, which shows in the number of rows
            if not held:
                raise first_damaged(connection, *page)
            _unpack(packed, columns, step)
    return 0 if end is None else end - first + 1


def _packed(connection: sqlite3.Connection, packing: str, pages: list[Page], reader: Reader) -> Generator[Any]:
    """The packed rows of each page, in order."""
    if len(pages) <= AHEAD:
        yield from (connection.execute(packing, page).fetchone() for page in pages)
        return

    def pack(page: Page) -> Any:
        with reader() as another:
            return another.execute(packing, page).fetchone()

    with ThreadPoolExecutor(THREADS, "load") as threads:
        waiting: deque[Future[Any]] = deque()
        try:
            for page in pages:
                waiting.append(threads.submit(pack, page))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()


def _packing(columns: tuple[Column, ...]) -> str:
    """SQL: the digits of all rows from one key to another, and whether each row is what was written."""
    digits = ", ".join(
        f"{column.name} >> {DIGIT_BITS * at} & {DIGIT_MASK}" for column in columns for at in range(column.digits)
    )
    return (
        f"SELECT CAST(group_concat(char({digits}), '') AS BLOB), min({MINI_BATCHES.holds()}) "
        "FROM (SELECT * FROM mini_batch WHERE key >= ? AND key < ? ORDER BY key)"
    )


def first_damaged(connection: sqlite3.Connection, first: int, stop: int) -> StateDamaged:
    """The error for the first damaged mini-batch from one key to another; there is one."""
    (key,) = connection.execute(
        f"SELECT min(key) FROM mini_batch WHERE key >= ? AND key < ? AND NOT {MINI_BATCHES.holds()}", (first, stop)
    ).fetchone()
    return damaged_mini_batch(key)


def _unpack(packed: bytes, columns: tuple[Column, ...], step: StepSnapshot) -> None:
    # A digit may be one half of a surrogate pair.
    digits = array("H", packed.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass"))
    width = sum(column.digits for column in columns)
    step.states.extend(digits[::width].tobytes()[::2])
    at = STATE.digits
    targets = (
        step.item_firsts, step.item_counts, step.recipe_offsets, step.recipe_lengths, step.recipe_crcs, step.lease_ids,
        step.ranks,
    )  # fmt: skip
    for column, target in zip(columns[1:], targets, strict=False):
        values = array("H", bytes(2 * column.digits * (len(digits) // width)))
        for digit in range(column.digits):
            values[digit :: column.digits] = digits[at + digit :: width]
        at += column.digits
        found = array(target.typecode, values.tobytes())
        if sys.byteorder == "big":
            found.byteswap()
        target.extend(found)
