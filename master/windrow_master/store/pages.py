"""Rows of the store by the page.

A page of many rows comes out of SQLite as one JSON text: Python's sqlite3 gives and takes the GIL for every row it
fetches, and beside a busy event loop each would wait for the interpreter's switch interval.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, TypeVar

from windrow_master.core.ids import StepId, mini_batch_key
from windrow_master.store.connections import Database
from windrow_master.store.errors import StoreBroken, StoreError
from windrow_master.store.statements import bindable

Page = list[list[Any]]
R = TypeVar("R", bound=tuple[Any, ...])


class Pages:
    """Asks the database. `classified`: what is raised for an error of SQLite's."""

    def __init__(self, database: Database, classified: Callable[[sqlite3.Error], StoreError]) -> None:
        self._database = database
        self._classified = classified

    def _mini_batch_pages(
        self, columns: Sequence[str], condition: str, step_id: StepId, page_rows: int
    ) -> Iterator[Page]:
        after, stop = mini_batch_key(step_id, 0) - 1, mini_batch_key(StepId(step_id + 1), 0)
        query = paged(columns, f"FROM mini_batch WHERE key > ? AND key < ? {condition} ORDER BY key LIMIT ?")
        while page := self._page(query, (after, stop, page_rows)):
            yield page
            if len(page) < page_rows:
                return
            after = mini_batch_key(step_id, page[-1][0])

    def _attempt_pages(self, columns: Sequence[str], step_id: StepId, page_rows: int) -> Iterator[Page]:
        """`columns` begin with lease_id."""
        after = -1
        query = paged(
            columns,
            "FROM attempt INDEXED BY attempt_by_step WHERE step_id = ? AND lease_id > ? ORDER BY lease_id LIMIT ?",
        )
        while page := self._page(query, (step_id, after, page_rows)):
            yield page
            if len(page) < page_rows:
                return
            after = page[-1][0]

    def _item_outcome_pages(
        self, columns: Sequence[str], source: str, step_id: StepId, page_rows: int
    ) -> Iterator[Page]:
        mini_batch, after = -1, -1
        query = paged(
            (*columns, "o.mini_batch", "o.id"),
            f"FROM {source} WHERE o.step_id = ? AND (o.mini_batch, o.id) > (?, ?) ORDER BY o.mini_batch, o.id LIMIT ?",
        )
        while page := self._page(query, (step_id, mini_batch, after, page_rows)):
            yield [row[:-2] for row in page]
            if len(page) < page_rows:
                return
            mini_batch, after = page[-1][-2:]

    def _page(self, query: str, values: Sequence[object]) -> Page:
        page: Page = json.loads(self._rows(query, values)[0][0])
        return page

    def _rows(self, query: str, values: Any = ()) -> list[Any]:
        try:
            with self._database.reader() as connection:
                try:
                    return connection.execute(query, values).fetchall()
                except UnicodeEncodeError:
                    # A path that is no valid Unicode: looked up as it was stored.
                    return connection.execute(query, bindable([values])[0]).fetchall()
        except sqlite3.ProgrammingError as error:
            raise StoreBroken(f"the store is closed: {error}") from error
        except sqlite3.Error as error:
            raise self._classified(error) from error


def typed(row_type: type[R], page: Page) -> list[R]:
    """The rows of a page as named tuples: what `_make` does, for all of them at once."""
    return list(map(tuple.__new__, repeat(row_type), page))


def paged(columns: Sequence[str], rest: str) -> str:
    """A query whose one row is a JSON array of rows."""
    names = [f"c{number}" for number in range(len(columns))]
    aliased = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    return f"SELECT json_group_array(json_array({', '.join(names)})) FROM (SELECT {aliased} {rest})"
