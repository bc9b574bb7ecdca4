"""What a disk, a copy or a hand does to a file, and to a row of a database."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

WAYS = ("flip", "flip", "flip", "flips", "zero", "cut", "delete", "append")


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of the byte at an offset (negative: from the end)."""
    with path.open("r+b") as file:
        file.seek(at, 0 if at >= 0 else 2)
        place = file.tell()
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


def flip_middle(path: Path) -> None:
    """Change one bit of the byte in the middle."""
    flip(path, path.stat().st_size // 2)


def flip_in(path: Path, text: bytes, at: int = 0, bit: int = 0) -> None:
    """Change one bit of the byte `at` in the one place where a text stands."""
    content = path.read_bytes()
    assert content.count(text) == 1, (path, text, content.count(text))
    flip(path, content.index(text) + at, bit)


def cut(path: Path, bytes_: int = 1) -> None:
    """Take bytes from the end."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - bytes_)


def append(path: Path, more: bytes = b"\0garbage\n") -> None:
    """Add bytes at the end."""
    with path.open("ab") as file:
        file.write(more)


def harm(path: Path, chance: random.Random, ways: Sequence[str] = WAYS) -> str:
    """Damage a file in one of these ways, by chance; return what was done."""
    way = chance.choice(ways)
    size = path.stat().st_size
    if way == "delete":
        path.unlink()
        return "deleted"
    if way == "append" or not size:
        more = chance.randbytes(chance.choice((1, 7, 100, 4096)))
        append(path, more)
        return f"{len(more)} bytes added to {size}"
    if way == "cut":
        left = chance.randrange(size)
        cut(path, size - left)
        return f"cut from {size} to {left} bytes"
    if way == "zero":
        at, length = chance.randrange(size), chance.choice((1, 16, 512, 4096))
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes(min(length, size - at)))
        return f"{length} zero bytes at {at}"
    places = sorted(chance.randrange(size * 8) for _ in range(1 if way == "flip" else chance.randint(2, 20)))
    for place in places:
        flip(path, place // 8, place % 8)
    return f"bits {places} flipped"


def change_rows(database: Path, statement: str, values: tuple[object, ...] = ()) -> None:
    """What a flipped byte in a row does: its check value does not go along. Some row must be changed."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount, statement
        bring_in_the_log(connection)


def bring_in_the_log(connection: sqlite3.Connection) -> None:
    """Bring SQLite's log into the database's one file, as a clean end does."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
