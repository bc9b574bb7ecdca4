"""The wire formats of a worker's two channels (docs/contracts.md, section 4): packets down, frames up."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

MAGIC = 0x57524F57
RUN, SHUTDOWN, SPLIT = 1, 2, 3
RECIPE_IN_FILE = 1
ROWS_IN_FILE = 1

_PACKET = struct.Struct("<BBHIQQQI")
_FRAME = struct.Struct("<IIBBHQIIIIqQQQQ")
_LENGTHS = struct.Struct("<QI")
_LENGTHS_AT = _FRAME.size
_BODY_AT = _FRAME.size + _LENGTHS.size

FRAME_BYTES_MAX = 64 << 20
"""No frame is larger: rows of that size go through a file."""


class FrameType(IntEnum):
    """The type of a frame from a worker."""

    READY = 1
    INIT_FAILED = 2
    DONE = 3
    FAILED = 4
    STOPPED = 5


class Result(NamedTuple):
    """One result frame.

    `flags` & ROWS_IN_FILE: `rows` is the path of the file that holds the `rows_length` bytes.
    """

    type: int
    flags: int
    lease_id: int
    item_count: int
    result_count: int
    row_count: int
    rows_crc32: int
    start_unix_us: int
    elapsed_us: int
    run_us: int
    cpu_us: int
    peak_rss_kib: int
    rows_length: int
    header: bytes
    side: bytes
    rows: bytes


class BadFrame(ValueError):
    """Bytes on the result channel are not a frame: the script has written into it, or the worker is broken.
    `before`: the frames before it in the same bytes.
    """

    def __init__(self, text: str, before: list[Result]) -> None:
        super().__init__(text)
        self.before = before


@dataclass(slots=True)
class FrameReader:
    """Cuts the bytes of the result channel into frames, and keeps the incomplete rest."""

    _rest: bytes = b""
    _parts: list[bytes] | None = None
    _missing: int = 0

    def feed(self, data: bytes) -> list[Result]:
        """Takes more bytes; returns the frames that are now complete. Raises BadFrame."""
        if self._parts is not None:
            # A large frame is arriving: gather its pieces without copying the beginning again and again.
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._parts)
            self._parts = None
        elif self._rest:
            data = self._rest + data
        frames: list[Result] = []
        at = 0
        end = len(data)
        unpack, lengths = _FRAME.unpack_from, _LENGTHS.unpack_from
        while end - at >= _BODY_AT:
            (
                magic,
                header_length,
                kind,
                flags,
                _,
                lease_id,
                items,
                results,
                row_count,
                crc,
                start,
                elapsed,
                run,
                cpu,
                rss,
            ) = unpack(data, at)
            rows_length, side_length = lengths(data, at + _LENGTHS_AT)
            if magic != MAGIC or not FrameType.READY <= kind <= FrameType.STOPPED:
                raise BadFrame(f"no frame begins with {data[at : at + 8]!r}", frames)
            begin = at + _BODY_AT
            if flags & ROWS_IN_FILE:
                stop = begin + header_length + side_length
                close = data.find(b"\0", stop)
                if close < 0:
                    if end - stop > 8192:
                        raise BadFrame("the path of a rows file does not end", frames)
                    break
                rows = data[stop:close]
                following = close + 1
            else:
                following = begin + header_length + side_length + rows_length
                if following - at > FRAME_BYTES_MAX:
                    raise BadFrame(f"a frame of {following - at} bytes", frames)
                if following > end:
                    if following - at > 1 << 16:
                        self._rest = b""
                        self._parts = [data[at:]]
                        self._missing = following - end
                        return frames
                    break
                rows = data[following - rows_length : following] if rows_length else b""
            if header_length or side_length:
                middle = begin + header_length
                header, side = data[begin:middle], data[middle : middle + side_length]
            else:
                header = side = b""
            frames.append(
                Result(
                    kind,
                    flags,
                    lease_id,
                    items,
                    results,
                    row_count,
                    crc,
                    start,
                    elapsed,
                    run,
                    cpu,
                    rss,
                    rows_length,
                    header,
                    side,
                    rows,
                )
            )
            at = following
        self._rest = data[at:] if at else data
        return frames


def run_packet(
    attempt: int, lease_id: int, mini_batch_index: int, item_first: int, item_count: int, recipe: bytes
) -> bytes:
    """The packet of a mini-batch, with its recipe."""
    return _PACKET.pack(RUN, 0, 0, attempt, lease_id, mini_batch_index, item_first, item_count) + recipe


def run_packet_with_file(
    attempt: int,
    lease_id: int,
    mini_batch_index: int,
    item_first: int,
    item_count: int,
    recipe_path: bytes,
    recipe_crc32: int,
) -> bytes:
    """The packet of a mini-batch whose recipe is in a file, which the worker verifies, and deletes after reading."""
    head = _PACKET.pack(RUN, RECIPE_IN_FILE, 0, attempt, lease_id, mini_batch_index, item_first, item_count)
    return head + recipe_crc32.to_bytes(4, "little") + recipe_path


def split_packet(packet: bytes, order: bytes) -> bytes:
    """The packet of a mini-batch that is split, made of the one that gives all items to a `run()`."""
    return b"".join(
        (bytes([SPLIT]), packet[1 : _PACKET.size], len(order).to_bytes(4, "little"), order, packet[_PACKET.size :])
    )


def shutdown_packet() -> bytes:
    """The packet that asks a worker to call `shutdown()` and leave, after all earlier packets."""
    return _PACKET.pack(SHUTDOWN, 0, 0, 0, 0, 0, 0, 0)


def packet_lease(packet: bytes) -> int:
    """The lease of a packet read back from the work channel; 0 if it is not a mini-batch."""
    kind, _, _, _, lease_id, _, _, _ = _PACKET.unpack_from(packet, 0)
    return lease_id if kind in (RUN, SPLIT) else 0
