"""Finds out whether a database's write-ahead log still holds all that it held.

SQLite reads a log up to its first frame with a wrong checksum, and drops the rest silently. That is right after a torn
write, whose transaction was never acknowledged. It is wrong after damage, which so undoes what was acknowledged. Three
facts distinguish the two:

1. The header is synced before the first frame is written: a log with frames has a valid header.
2. A transaction is synced before the next one is written (`synchronous=FULL`), so no other follows a torn one. Behind
   the first bad frame of a sound log there is at most one end of a transaction: that of the torn one itself.
3. The shared memory beside it (`-shm`), if it has outlived its processes, shows how many frames were committed.

Formats: https://sqlite.org/fileformat2.html#walformat and https://sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
import sys
from functools import cache
from operator import mul
from pathlib import Path
from typing import BinaryIO, NamedTuple

HEADER = struct.Struct(">8I")
"""Magic, version, page size, checkpoint number, two salts, two checksums."""
FRAME = struct.Struct(">6I")
"""Page, pages of the database where it ends a transaction (else 0), two salts, two checksums."""
MASK = 0xFFFFFFFF
MAGIC = 0x377F0682
"""The lowest bit: checksums are over big-endian words."""
_SHARED = struct.Struct("=IIIBBHII2I2I2I")
"""The header of the shared memory, of which there are two copies: version, 0, changes, is it set up, kind of checksum,
page size, frames, pages, checksum of the last frame, salts (bytes as in the log), checksum of all this."""
_COPIED_AT = 2 * _SHARED.size
"""Behind the two copies: how many frames are in the database already."""


class Shared(NamedTuple):
    """What the shared memory says about the log."""

    frames: int
    copied: int
    """How many of the frames are in the database already."""
    salts: bytes


def trouble_of(database: Path) -> str:
    """How damage to a database's log shows, without a full stop; empty if none shows.

    Call it only while nobody has the database open. Raises OSError.
    """
    log = Path(f"{database}-wal")
    shared = _shared_of(Path(f"{database}-shm"))
    try:
        length = log.stat().st_size
    except FileNotFoundError:
        length = -1
    if length <= 0:
        if shared is not None and shared.frames > shared.copied:
            state = "is missing" if length < 0 else "is empty"
            return f"{log.name} {state}, and {shared.frames - shared.copied:,} committed pages were in it alone"
        return ""
    with log.open("rb") as file:
        return _trouble_in(file, log.name, length, shared)


def _trouble_in(file: BinaryIO, name: str, length: int, shared: Shared | None) -> str:
    head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        return f"{name} is cut off in its header" if shared is not None and shared.frames else ""
    magic, _, page, _, _, _, *sums = HEADER.unpack(head)
    order = ">" if magic & 1 else "<"
    sound = magic & ~1 == MAGIC and 512 <= page <= 65536 and page & (page - 1) == 0
    if not sound or _summed(head[:24], (0, 0), order) != tuple(sums):
        return f"{name} has no valid header, and {length - HEADER.size:,} bytes after it"
    salts, running = head[16:24], (sums[0], sums[1])
    number, good, ended, behind = 0, True, 0, 0
    while len(frame := file.read(FRAME.size + page)) == FRAME.size + page:
        if frame[8:16] != salts:
            # This frame is from an earlier round of the log, which SQLite overwrites from the beginning. What it held
            # is in the database.
            if good:
                break
            number += 1
            continue
        number += 1
        ends = frame[4:8] != b"\0\0\0\0"
        if good:
            running = _summed(frame[:8] + frame[FRAME.size :], running, order)
            good = struct.pack(">2I", *running) == frame[16:24]
            if good:
                ended = number if ends else ended
                continue
        behind += ends
    if behind > 1:
        return f"{name} has a frame with a wrong checksum, and {behind} transactions in or after it"
    if shared is not None and shared.salts == salts and shared.frames > ended:
        return f"{name} holds {ended:,} committed pages, where {shared.frames:,} were committed"
    return ""


@cache
def _weights(words: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], tuple[int, int]]]:
    """How much each word, and each of the two sums before, counts in the two sums.

    A pair of words x, y turns the sums a, b into a' = a + b + x, b' = b + y + a'. That is linear, so two scalar
    products replace a Python loop: reading a log of 4,000 pages takes a third of a second instead of one.
    """
    first, second = [0] * words, [0] * words
    (aa, ab), (ba, bb) = (1, 0), (0, 1)
    for at in range(words - 2, -1, -2):
        first[at], first[at + 1] = (aa + ab) & MASK, ab
        second[at], second[at + 1] = (ba + bb) & MASK, bb
        aa, ab = (aa + ab) & MASK, (aa + 2 * ab) & MASK
        ba, bb = (ba + bb) & MASK, (ba + 2 * bb) & MASK
    return tuple(first), tuple(second), ((aa, ab), (ba, bb))


def _summed(content: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's checksum of a content that consists of whole pairs of words."""
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    first, second, (of_first, of_second) = _weights(len(words))
    return (
        (sum(map(mul, first, words)) + of_first[0] * start[0] + of_first[1] * start[1]) & MASK,
        (sum(map(mul, second, words)) + of_second[0] * start[0] + of_second[1] * start[1]) & MASK,
    )


def _shared_of(path: Path) -> Shared | None:
    """Read the shared memory; None if there is none, or it is not consistent."""
    try:
        with path.open("rb") as file:
            content = file.read(_COPIED_AT + 4)
    except OSError:
        return None
    if len(content) < _COPIED_AT + 4 or content[: _SHARED.size] != content[_SHARED.size : _COPIED_AT]:
        return None
    fields = _SHARED.unpack_from(content)
    order = "<" if sys.byteorder == "little" else ">"
    if not fields[3] or _summed(content[: _SHARED.size - 8], (0, 0), order) != (fields[-2], fields[-1]):
        return None
    (copied,) = struct.unpack_from("=I", content, _COPIED_AT)
    return Shared(fields[6], copied, content[32:40])
