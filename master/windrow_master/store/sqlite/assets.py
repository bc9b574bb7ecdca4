"""Assets in SQLite: registering one exactly once, and finding them again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from windrow_master.store.errors import AssetExists, TooManyAssets
from windrow_master.store.records import AssetLimits, AssetRow
from windrow_master.store.sqlite.check_values import ASSET, CHECK, checked, with_crc

Rows = Callable[[str, tuple[object, ...]], list[Any]]
"""A function that runs a query."""


def add_asset(connection: sqlite3.Connection, wanted: AssetRow, most: AssetLimits | None = None) -> AssetRow:
    """Register a version; return what is registered then. Call it in a transaction.

    A step's output that is registered already stays as it is. Without a version, the asset gets the next number, or
    keeps the latest version if that is the same in everything. `most`: how many versions of its kind there may be.
    Raises AssetExists, TooManyAssets.
    """

    def rows(query: str, values: tuple[object, ...]) -> list[Any]:
        return connection.execute(query, values).fetchall()

    def insert(row: AssetRow) -> AssetRow:
        if most is not None:
            if has_assets(rows, row.kind, most.of_project, row.project):
                raise TooManyAssets(of_project=True)
            if has_assets(rows, row.kind, most.of_kind):
                raise TooManyAssets(of_project=False)
        return _insert(connection, row)

    if wanted.step_id is not None:
        known = _one(rows, "step_id = ? AND output_name = ?", (wanted.step_id, wanted.output_name))
        if known is not None:
            return known
    if wanted.version:
        found = find_asset(rows, wanted.kind, wanted.name, wanted.version)
        if found is None:
            return insert(wanted)
        if _content(found) == _content(wanted) and wanted.step_id is None:
            return found
        raise AssetExists(found)
    latest = find_asset(rows, wanted.kind, wanted.name, None)
    if latest is not None and wanted.step_id is None and _content(latest) == _content(wanted):
        return latest
    numbers = rows(
        "SELECT max(CAST(version AS INTEGER)) FROM asset NOT INDEXED WHERE kind = ? AND name = ? "
        "AND version NOT GLOB '*[^0-9]*' AND length(version) < 16",
        (wanted.kind, wanted.name),
    )
    return insert(wanted._replace(version=str((numbers[0][0] or 0) + 1)))


def find_asset(rows: Rows, kind: int, name: str, version: str | None) -> AssetRow | None:
    """One version of an asset; if `version` is None, the one registered last."""
    if version is None:
        return _one(rows, "kind = ? AND name = ? ORDER BY id DESC LIMIT 1", (kind, name))
    return _one(rows, "kind = ? AND name = ? AND version = ?", (kind, name, version))


def list_assets(rows: Rows, kind: int, name: str, size: int, before: int | None) -> list[tuple[int, AssetRow]]:
    """At most `size` versions of a name, newest first, each with its number.

    If `name` is empty, the latest version of each name. `before`: only numbers below it.
    """
    latest = "id IN (SELECT max(id) FROM asset WHERE kind = ? GROUP BY name)"
    which, values = (f"kind = ? AND {latest}", (kind, kind)) if not name else ("kind = ? AND name = ?", (kind, name))
    found = rows(
        f"SELECT id, {ASSET}, {CHECK} FROM asset WHERE {which} AND id < ? ORDER BY id DESC LIMIT ?",
        (*values, (1 << 62) if before is None else before, size),
    )
    return [(number, AssetRow._make(checked("asset", row))) for number, *row in found]


def has_assets(rows: Rows, kind: int, count: int, project: str | None = None) -> bool:
    """Whether there are at least so many versions of assets of a kind, of one project or (None) of all."""
    # To count takes long where there are many; the numbers of all kinds say at once that there are few.
    last = rows("SELECT max(id) FROM asset", ())[0][0] or 0
    if last < count:
        return False
    of, values = ("", (kind,)) if project is None else (" AND project = ?", (kind, project))
    return bool(rows(f"SELECT count(*) FROM asset WHERE kind = ?{of}", values)[0][0] >= count)


def _one(rows: Rows, condition: str, values: tuple[object, ...]) -> AssetRow | None:
    # Without the indexes: a damaged one could hide the latest version, and the one before it would be used silently.
    found = rows(f"SELECT {ASSET}, {CHECK} FROM asset NOT INDEXED WHERE {condition}", values)
    return AssetRow._make(checked("asset", found[0])) if found else None


def _insert(connection: sqlite3.Connection, row: AssetRow) -> AssetRow:
    connection.execute(f"INSERT INTO asset ({ASSET}, {CHECK}) VALUES ({','.join('?' * (len(row) + 1))})", with_crc(row))
    return row


def _content(row: AssetRow) -> tuple[object, ...]:
    """The content of a version: everything that a user says of it."""
    return (row.type, row.path, bool(row.is_file), row.description, row.tags)
