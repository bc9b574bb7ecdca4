"""Reads rows of the store by the page.

A page of many rows comes out of SQLite as one JSON text. Python's sqlite3 releases and takes the GIL for every row that
it fetches, and beside a busy event loop each row would wait for the interpreter's switch interval.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar

from windrow_master.core.ids import MINI_BATCH_SHIFT, StepId, mini_batch_key
from windrow_master.core.states import StepState
from windrow_master.files.errors import StateDamaged, StateError
from windrow_master.store.errors import StoreBroken
from windrow_master.store.sqlite.check_values import (
    ATTEMPTS,
    DATABASE,
    ITEM_OUTCOMES,
    MINI_BATCHES,
    damaged_mini_batch,
    damaged_row,
    item_crc,
    text_crc,
    texts_crc,
)
from windrow_master.store.sqlite.connections import Database
from windrow_master.store.sqlite.loading import check_number, damaged_attempt, number_in
from windrow_master.store.sqlite.statements import bindable

Page = list[list[Any]]
R = TypeVar("R", bound=tuple[Any, ...])


class Pages:
    """Queries the database by the page. `classified`: turns an error of SQLite's into the one to raise."""

    def __init__(self, database: Database, classified: Callable[[sqlite3.Error], StateError]) -> None:
        self._database = database
        self._classified = classified

    def _mini_batch_pages(
        self, columns: Sequence[str], kept: str, step_id: StepId, page_rows: int, begin: int = 0
    ) -> Iterator[Page]:
        """`kept`: the condition for wanted rows. From mini-batch `begin` on, all rows are read and verified, so that
        none can be missing.
        """
        first, stop = mini_batch_key(step_id, 0), mini_batch_key(StepId(step_id + 1), 0)
        after, count = first + begin - 1, page_rows
        query = (
            f"SELECT json_group_array(json_array({_names(columns)})) FILTER (WHERE kept), count(*), max(k), "
            f"min(CASE WHEN held THEN NULL ELSE k END), (SELECT counters FROM step WHERE step_id = ?) FROM ("
            f"SELECT {_aliased(columns)}, key AS k, {kept} AS kept, {MINI_BATCHES.holds()} AS held FROM mini_batch "
            "WHERE key > ? AND key < ? ORDER BY key LIMIT ?)"
        )
        while count == page_rows:
            text, count, last, broken, counters = self._rows(query, (step_id, after, stop, page_rows))[0]
            if broken is not None:
                raise damaged_mini_batch(broken)
            if count:
                check_number(step_id, last - first + 1, after - first + 1 + count)
                after = last
            if count < page_rows:
                check_number(step_id, number_in(counters, "planned"), after - first + 1)
            if page := _parsed("mini_batch", text):
                yield page

    def _attempt_pages(self, columns: Sequence[str], step_id: StepId, page_rows: int) -> Iterator[Page]:
        """`columns` must begin with lease_id."""
        after = -1
        query = paged(
            columns,
            "FROM attempt INDEXED BY attempt_by_step WHERE step_id = ? AND lease_id > ? ORDER BY lease_id LIMIT ?",
            ATTEMPTS.holds(),
            "lease_id",
        )
        while page := self._page("attempt", query, (step_id, after, page_rows)):
            self._check_texts(step_id, after, page[-1][0])
            yield page
            if len(page) < page_rows:
                return
            after = page[-1][0]

    def _check_texts(self, step_id: StepId, after: int, last: int) -> None:
        """Verify the texts of a page of attempts; only a few differ. Raises StateDamaged."""
        texts = "node_id, node_incarnation, message, detail, message_crc32, texts_crc32"
        part = "FROM attempt INDEXED BY attempt_by_step WHERE step_id = ? AND lease_id > ? AND lease_id <= ?"
        # DISTINCT, not GROUP BY: that would sort all rows, and takes four times as long.
        for row in self._rows(f"SELECT DISTINCT {texts} {part}", (step_id, after, last)):
            node_id, incarnation, message, detail, message_crc32, crc32 = row
            if text_crc(message) != message_crc32 or texts_crc(node_id, incarnation, detail) != crc32:
                ((lease_id,),) = self._rows(
                    f"SELECT min(lease_id) {part} AND ({texts}) IS (?, ?, ?, ?, ?, ?)", (step_id, after, last, *row)
                )
                raise damaged_attempt((lease_id,))

    def _item_outcome_pages(
        self,
        columns: Sequence[str],
        source: str,
        step_id: StepId,
        page_rows: int,
        held: str = "1",
        only: int | None = None,
    ) -> Iterator[Page]:
        """`held`: a condition beyond the check values of the rows of item_outcome. `only`: of this mini-batch.

        Once the step has ended, there must be as many items as it has counted, because a damaged index hides rows
        silently.
        """
        last = (1 << MINI_BATCH_SHIFT) - 1 if only is None else only
        mini_batch, after, items, count = (-1 if only is None else only), -1, 0, page_rows
        query = paged(
            (*columns, "o.item_count", "o.message", "o.place", "o.message_crc32", "o.mini_batch", "o.id"),
            f"FROM {source} WHERE o.step_id = ? AND (o.mini_batch, o.id) > (?, ?) AND o.mini_batch <= ? "
            "ORDER BY o.mini_batch, o.id LIMIT ?",
            f"({ITEM_OUTCOMES.holds('o')} AND {held})",
            "o.id",
        )
        while count == page_rows:
            page = self._page("item_outcome", query, (step_id, mini_batch, after, last, page_rows))
            for *_, item_count, message, place, crc32, _, number in page:
                if item_crc(message, place) != crc32:
                    raise damaged_row("item_outcome", f"id {number}")
                items += item_count
            if (count := len(page)) < page_rows and only is None:
                self._check_items_failed(step_id, items)
            if page:
                yield [row[:-6] for row in page]
                mini_batch, after = page[-1][-2:]

    def _check_items_failed(self, step_id: StepId, found: int) -> None:
        for state, counters in self._rows("SELECT state, counters FROM step WHERE step_id = ?", (step_id,)):
            counted = number_in(counters, "items_failed") if state >= StepState.CONCATENATING else None
            if counted not in (None, found):
                what = f"{counted:,} failed items were counted, but {found:,} are stored"
                raise StateDamaged(f"{DATABASE}, table item_outcome, step {step_id}", what)

    def _page(self, table: str, query: str, values: Sequence[object]) -> Page:
        """The rows of a query made by `paged`. Raises StateDamaged."""
        text, broken = self._rows(query, values)[0]
        if broken is not None:
            raise damaged_row(table, f"row {broken}")
        return _parsed(table, text)

    def _rows(self, query: str, values: Any = ()) -> list[Any]:
        try:
            with self._database.reader() as connection:
                try:
                    return connection.execute(query, values).fetchall()
                except UnicodeEncodeError:
                    # A path that is not valid Unicode is looked up as it was stored.
                    return connection.execute(query, bindable([values])[0]).fetchall()
        except sqlite3.ProgrammingError as error:
            raise StoreBroken(f"the store is closed: {error}") from error
        except sqlite3.Error as error:
            raise self._classified(error) from error


def _parsed(table: str, text: str) -> Page:
    try:
        page: Page = json.loads(text)
    except ValueError as error:
        raise StateDamaged(f"{DATABASE}, table {table}", f"a text in it cannot be read ({error})") from error
    return page


def typed(row_type: type[R], page: Page) -> list[R]:
    """The rows of a page as named tuples: like `_make`, but for all rows at once."""
    return list(map(tuple.__new__, repeat(row_type), page))


def paged(columns: Sequence[str], rest: str, held: str, key: str) -> str:
    """A query with one row: a JSON array of rows, and the lowest `key` of the rows for which `held` is not true."""
    return (
        f"SELECT json_group_array(json_array({_names(columns)})), min(CASE WHEN held THEN NULL ELSE k END) "
        f"FROM (SELECT {_aliased(columns)}, {key} AS k, {held} AS held {rest})"
    )


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f"c{number}" for number in range(len(columns)))


def _aliased(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} AS c{number}" for number, column in enumerate(columns))
