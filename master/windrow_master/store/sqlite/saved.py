"""Reads the rows of a database that SQLite can only read in part.

All work is done on a copy. If the copy cannot be opened, its header, then its whole first page (the schema), is
replaced by that of a new database, which has its tables in the same places.

A table is read forward by its key. If a page cannot be read, the next readable key after it is searched for: the
distance is doubled, then halved. That costs some hundred lookups a page, however many keys there may have been.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windrow_master.files.durable import is_full
from windrow_master.files.errors import StateError
from windrow_master.store.errors import StoreBroken
from windrow_master.store.protocol import NO_TRACES
from windrow_master.store.sqlite.integrity import refuse_wrong_schema
from windrow_master.store.sqlite.schemas import APPLICATION_ID, migrate

KEY_MAX = (1 << 63) - 1
HEADER_BYTES = 100
PAGE_BYTES = 4096


class Gap(NamedTuple):
    """A range of keys of a table that cannot be read, both ends included, whether or not it held rows."""

    table: str
    first: int
    last: int


class SavedDatabase:
    """A copy of a damaged database. Close it."""

    def __init__(self, database: Path, folder: Path) -> None:
        """`folder`: an empty folder for the copy, which needs as much room as the database; its maker removes it.

        Raises OSError (also if there is no room), StoreBroken if not even the schema can be read.
        """
        self.notes: list[str] = []
        """Descriptions of what had to be replaced."""
        self.gaps: list[Gap] = []
        self._path = folder / database.name
        try:
            self._connection = self._opened(database)
        except sqlite3.Error as error:
            if _says_full(error):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path)) from error
            raise StoreBroken(str(error)) from error

    def rows(
        self, table: str, key: str, columns: Sequence[str], first: int = 0, last: int = KEY_MAX
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a table whose key is in a range, by key. What cannot be read is skipped, and noted in `gaps`."""
        names = ", ".join((key, *columns))
        after = first - 1
        while True:
            cursor = None
            try:
                cursor = self._connection.execute(
                    f"SELECT {names} FROM {table} WHERE {key} > ? AND {key} <= ? ORDER BY {key}", (after, last)
                )
                for row in cursor:
                    after = row[0]
                    yield tuple(row[1:]) if len(row) > 1 else ()
                return
            except (sqlite3.Error, OverflowError, MemoryError):
                found = self._next_readable(table, names, key, after, last)
                if found is None:
                    self.gaps.append(Gap(table, after + 1, last))
                    return
                self.gaps.append(Gap(table, after + 1, found - 1))
                after = found - 1
            finally:
                if cursor is not None:
                    with contextlib.suppress(sqlite3.Error):
                        cursor.close()

    def close(self) -> None:
        """Close the copy."""
        self._connection.close()

    def _next_readable(self, table: str, names: str, key: str, after: int, last: int) -> int | None:
        """The first key after `after` at which a row can be read again; None if there is none up to `last`."""
        query = f"SELECT {names} FROM {table} WHERE {key} >= ? AND {key} <= ? ORDER BY {key} LIMIT 1"

        def found_from(start: int) -> int | None:
            """The key of the first row from `start` on; -1 if there is none, None if it cannot be read."""
            try:
                row = self._connection.execute(query, (start, last)).fetchone()
            except (sqlite3.Error, OverflowError, MemoryError):
                return None
            return -1 if row is None else int(row[0])

        # The row just after `after` cannot be read.
        bad, step = after + 1, 1
        while bad + step <= last:
            found = found_from(bad + step)
            if found is not None:
                break
            step *= 2
        else:
            return None
        low, high, best = bad + step // 2, bad + step, found
        while high - low > 1:
            middle = (low + high) // 2
            found = found_from(middle)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        return None if best is None or best < 0 else max(best, after + 2)

    def _opened(self, database: Path) -> sqlite3.Connection:
        whole = self._template()
        replaced = {
            "": b"",
            "The header of the database was replaced by a new one.": whole[:HEADER_BYTES],
            "The first page of the database, its schema, was replaced by a new one.": whole[:PAGE_BYTES],
        }
        last: sqlite3.Error | None = None
        for note, head in replaced.items():
            for ending in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{database}{ending}", f"{self._path}{ending}")
            if head:
                self._write_head(head)
            connection = sqlite3.connect(self._path, isolation_level=None)
            connection.text_factory = lambda content: content.decode(errors="backslashreplace")
            try:
                for table in ("job", "step", "mini_batch", "segment"):
                    connection.execute(f"SELECT 1 FROM {table} WHERE 0").fetchall()
            except sqlite3.Error as error:
                last = error
                connection.close()
                for ending in ("-wal", "-shm"):
                    Path(f"{self._path}{ending}").unlink(missing_ok=True)
                continue
            if note:
                self.notes.append(note)
            self._bring_forward(connection, database)
            return connection
        assert last is not None
        raise last

    def _bring_forward(self, connection: sqlite3.Connection, database: Path) -> None:
        """Give rows of an older schema the columns, and check values, of this one."""
        try:
            refuse_wrong_schema(connection, database, NO_TRACES)
            migrate(connection, database)
        except (StateError, sqlite3.Error, OSError) as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if is_full(error) or _says_full(error):
                connection.close()
                raise
            # Damaged, which is reported elsewhere. What lacks columns cannot be read: `gaps` will say so.

    def _template(self) -> bytes:
        """A new database's file, whose tables are where they are in every other."""
        path = self._path.parent / "new.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            migrate(connection, path)
            assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        content = path.read_bytes()
        path.unlink()
        return content

    def _write_head(self, head: bytes) -> None:
        with self._path.open("r+b") as file:
            size = file.seek(0, 2)
            content = bytearray(head)
            # How many pages there are, valid for this very count of changes; no list of free pages.
            content[28:32] = (size // PAGE_BYTES).to_bytes(4, "big")
            content[32:40] = bytes(8)
            content[92:96] = content[24:28]
            file.seek(0)
            file.write(content)


def _says_full(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
