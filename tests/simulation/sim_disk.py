"""What outlives every process: the tables, the segments with their unsynced tails, the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from zlib import crc32

from sim_tables import MemoryTables, SegmentRange


class RowsLost(Exception):
    """A committed range cannot be read."""


@dataclass
class Segment:
    """One file of rows."""

    incarnation: int
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    rotten: set[int] = field(default_factory=set)
    """Where ranges begin that were damaged on purpose."""


@dataclass
class Disk:
    """The master's state folder."""

    tables: MemoryTables = field(default_factory=MemoryTables)
    segments: dict[str, Segment] = field(default_factory=dict)
    outputs: dict[int, bytes] = field(default_factory=dict)

    def create_segment(self, name: str, incarnation: int) -> Segment:
        """Make a segment that does not exist yet (`O_EXCL`)."""
        if name in self.segments:
            raise FileExistsError(f"segment {name} exists")
        segment = self.segments[name] = Segment(incarnation)
        return segment

    def link_segment(self, source: str, name: str) -> None:
        """Give a segment that nobody writes to any more another name."""
        if name in self.segments:
            raise FileExistsError(f"segment {name} exists")
        self.segments[name] = self.segments[source]

    def read(self, at: SegmentRange, *, durable: bool = False) -> bytes:
        """The rows of a range; `durable`: only what a loss of power would leave. Raises RowsLost."""
        segment = self.segments.get(at.segment)
        if segment is None:
            raise RowsLost(f"{at}: no such segment")
        end = at.offset + at.length
        if end > (segment.synced if durable else len(segment.data)):
            raise RowsLost(f"{at}: the segment has {len(segment.data)} bytes, {segment.synced} synced")
        rows = bytes(segment.data[at.offset : end])
        if crc32(rows) != at.crc32:
            raise RowsLost(f"{at}: wrong checksum")
        return rows

    def lose_power(self, rng: Random) -> None:
        """Drop or damage what was not synced."""
        for segment in self.segments.values():
            tail = len(segment.data) - segment.synced
            if tail:
                kept = rng.randint(0, tail)
                del segment.data[segment.synced + kept :]
                for at in range(segment.synced, len(segment.data)):
                    segment.data[at] ^= rng.choice((0, 0, 255))

    def damage(self, at: SegmentRange) -> None:
        """Flip a byte of a committed range."""
        segment = self.segments[at.segment]
        segment.data[at.offset] ^= 255
        segment.rotten.add(at.offset)

    def is_rotten(self, at: SegmentRange) -> bool:
        """Whether it was damaged on purpose, under whatever name."""
        return at.offset in self.segments[at.segment].rotten
