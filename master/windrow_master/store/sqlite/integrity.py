"""Finds out whether a database is what was written: from its files, from what it says of itself, and by SQLite's own
check.

There are three looks, each before anything is taken from the database:

- `refuse_damaged_files`, before the database is opened: a database or log that is gone although its folder is not, or a
  bad header.
- `refuse_wrong_schema`, once it is open: its mark, its version, and whether its tables are those of that version.
- `Check`, during the start: SQLite goes through all of it, by `integrity_check` up to CHECKED_WHOLE_BYTES, and beyond
  that by `quick_check` (which does not compare indexes and rows). The start waits WAIT_S for it. The check of a larger
  database continues in the background, and damage that it finds ends the master. `windrow doctor --deep` and `windrow
  state check` do all of it, however long it takes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from windrow_master.store.errors import DatabaseDamaged
from windrow_master.store.protocol import Traces
from windrow_master.store.sqlite.schemas import APPLICATION_ID, SCHEMA, tables_in, tables_of
from windrow_master.store.sqlite.wal import trouble_of

WAIT_S = 2.0
CHECKED_WHOLE_BYTES = 64 << 20
SCHEMAS_EVER = 1000
"""A bound: no version of Windrow will have as many schemas."""
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_DAMAGE_WORDS = ("no such table", "no such column", "no such index", "malformed", "JSON cannot hold", "decode to UTF-8")
"""Words in the errors of SQLite and Python when a statement fails that always works: the schema, or a value, has
changed."""


def says_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite itself reports damage."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and ((code & 0xFF) in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error of a statement that always works says that the database is not what was written."""
    if says_damage(error):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    return code in (None, sqlite3.SQLITE_ERROR) and any(words in str(error) for words in _DAMAGE_WORDS)


def damaged_database(path: Path | str, error: sqlite3.Error) -> DatabaseDamaged:
    """The error to raise for damage that SQLite or Python reported."""
    name = getattr(error, "sqlite_errorname", "")
    return DatabaseDamaged(str(path), f"SQLite says: {error}{f' ({name})' if name else ''}")


def refuse_damaged_files(path: Path, traces: Traces, *, is_live: bool = False) -> None:
    """Raise DatabaseDamaged if the files of a database cannot be what was written.

    `is_live`: a process has the database open, so its log changes. Raises OSError if the files cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        header = None
    if not header:
        left = _log_of(path) or traces.beside
        if not left and traces.incarnation:
            left = f"the lock, which a master of incarnation {traces.incarnation} held"
        if left:
            state = "is missing" if header is None else "is empty"
            raise DatabaseDamaged(str(path), f"it {state}, though there is {left}")
        return
    if not header.startswith(_MAGIC):
        raise DatabaseDamaged(str(path), "it does not begin like a SQLite database")
    trouble = "" if is_live else trouble_of(path)
    if trouble:
        raise DatabaseDamaged(str(path), trouble)


def _log_of(path: Path) -> str:
    """The name of the database's log if it is not empty; else ""."""
    log = Path(f"{path}-wal")
    with contextlib.suppress(OSError):
        if log.stat().st_size:
            return log.name
    return ""


def refuse_wrong_schema(connection: sqlite3.Connection, path: Path, traces: Traces) -> None:
    """Raise DatabaseDamaged if the tables are Windrow's, but its mark or version says otherwise.

    The caller deals with a version beyond the known ones, unless the tables are those of a known version. Raises
    sqlite3.Error.
    """
    present: int = connection.execute("PRAGMA user_version").fetchone()[0]
    found = tables_in(connection)
    if not found:
        if present:
            raise DatabaseDamaged(str(path), f"it is marked as schema {present}, but has no tables")
        if traces.beside or traces.incarnation:
            raise DatabaseDamaged(str(path), "it has no tables, although it was in use")
        return
    owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
    known = range(1, SCHEMA + 1)
    if present in known and found == tables_of(present):
        if owner == APPLICATION_ID:
            return
        raise DatabaseDamaged(str(path), f"its tables are Windrow's, but its mark is {owner:#x}")
    # A number a little beyond belongs to a newer Windrow, which may have changed only rows.
    for version in reversed(known) if present <= SCHEMA or present > SCHEMAS_EVER else ():
        if found == tables_of(version):
            what = f"it is marked as schema {present}, but its tables are those of schema {version}"
            raise DatabaseDamaged(str(path), what)
    if owner == APPLICATION_ID and present in known:
        raise DatabaseDamaged(str(path), f"it is marked as schema {present}, but its tables do not match that schema")


def check(path: Path, *, whole: bool, limit: int = 100) -> list[str]:
    """What SQLite finds wrong with a database, at most `limit` findings. Raises sqlite3.Error if it gives up."""
    with contextlib.closing(_reading(path)) as connection:
        return _found(connection, whole=whole, limit=limit)


def _found(connection: sqlite3.Connection, *, whole: bool, limit: int) -> list[str]:
    kind = "integrity_check" if whole else "quick_check"
    rows = connection.execute(f"PRAGMA {kind}({limit})").fetchall()
    return [] if rows == [("ok",)] else [str(text) for (text,) in rows]


def _reading(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(path))}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


class Check:
    """SQLite's check of a database that this process has open, in a thread of its own."""

    def __init__(self, path: Path) -> None:
        """Starts the check. Raises sqlite3.Error, OSError."""
        self._path = path
        self._connection = _reading(path)
        self._lock = threading.Lock()
        self._error: DatabaseDamaged | None = None
        self._tell: Callable[[DatabaseDamaged], None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="integrity", daemon=True)
        self._thread.start()

    def wait(self, seconds: float = WAIT_S) -> None:
        """Wait at most this long. Raises DatabaseDamaged if damage was found by then."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error

    def tell(self, listener: Callable[[DatabaseDamaged], None]) -> None:
        """Call `listener`, in the thread of the check, with damage that is found later."""
        with self._lock:
            self._tell = listener
            error = self._error
        if error is not None:
            listener(error)

    def stop(self) -> None:
        """Stop the check. May be repeated."""
        self._stopped = True
        if self._thread.is_alive():
            self._connection.interrupt()
            self._thread.join()

    def _run(self) -> None:
        error: DatabaseDamaged | None = None
        try:
            found = _found(self._connection, whole=self._path.stat().st_size <= CHECKED_WHOLE_BYTES, limit=1)
            if found:
                error = DatabaseDamaged(str(self._path), f"SQLite finds: {' '.join(found[0].split())}")
        except sqlite3.Error as raised:
            # Interrupted, or locked by another program: that does not mean damage.
            error = damaged_database(self._path, raised) if is_damage(raised) and not self._stopped else None
        except OSError:
            return
        finally:
            self._connection.close()
        if error is not None:
            with self._lock:
                self._error, listener = error, self._tell
            if listener is not None:
                listener(error)
