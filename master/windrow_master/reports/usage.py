"""What worker time was spent on: the stored ledger, added up by what is asked for."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from windrow_master.core.records import LedgerRow
from windrow_master.store.protocol import StoreReader

ROWS_MAX = 20_000
"""Of one answer."""


class Key(StrEnum):
    """By what usage is added up: fields of `records.LedgerRow`."""

    PROJECT = "project"
    USER = "submitter"
    JOB = "job_id"
    POOL = "pool"
    DAY = "day"


class TooManyRows(Exception):
    """The answer would have more than ROWS_MAX rows."""


class Usage(NamedTuple):
    """One row. `keys`: the values of those that were asked for. `sums`: those of `records.LedgerRow`."""

    keys: dict[Key, str | int]
    sums: tuple[int, ...]


def usage_of(
    reader: StoreReader, first_day: int, last_day: int, project: str = "", by: Collection[Key] = ()
) -> list[Usage]:
    """What was spent on these days (since 1970, UTC; the last included), by the keys in their order; of a project (if
    empty, of all). Two jobs of one name, of which one is deleted, count as one. Raises TooManyRows, StateError.
    """
    found: dict[tuple[str | int, ...], list[int]] = {}
    places = [LedgerRow._fields.index(key) for key in by]
    for page in reader.ledger(first_day, last_day, project):
        for row in page:
            keys = tuple(row[at] for at in places)
            sums = found.get(keys)
            if sums is None:
                if len(found) >= ROWS_MAX:
                    raise TooManyRows
                found[keys] = list(row.sums)
            else:
                for at, us in enumerate(row.sums):
                    sums[at] += us
    return [Usage(dict(zip(by, keys, strict=True)), tuple(sums)) for keys, sums in sorted(found.items())]
