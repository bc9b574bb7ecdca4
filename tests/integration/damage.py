"""What a disk, a copy or a hand does to a file."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Change one bit of the byte at an offset (negative: from the end)."""
    with path.open("r+b") as file:
        file.seek(at, 0 if at >= 0 else 2)
        place = file.tell()
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


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
