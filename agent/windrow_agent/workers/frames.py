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

FRAME_BYTES_MAX = 24 << 20
"""No frame is larger: rows of that size go through a file. A completion made of it is at most twice as long, which a
message of gRPC takes; one that it did not take would break each session of the node.
"""
SIDE_BYTES_MAX = 8 << 20
"""The host writes no longer side document. To read one takes time, in which the agent does nothing else."""
START_UNIX_US_MAX = 1 << 54
"""In the year 2540."""
ALIVE_US_MAX = 1 << 53
_ALIVE_SLACK_US = 1_000_000
_CPUS_MAX = 1 << 12
_RSS_KIB_MAX = 1 << 40
_ROWS_BYTES_MAX = 1 << 50


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


def implausible(
    alive_us: int, start_us: int, elapsed_us: int, run_us: int, cpu_us: int, rss_kib: int, rows_length: int
) -> str:
    """What cannot be true in the figures of a frame, in words; "" if all can be. `alive_us`: how long its process has
    lived. All 64-bit numbers of a frame but its lease are looked at here, and nowhere else: sums of what passes fit
    into what the master stores.
    """
    longest_us = alive_us + _ALIVE_SLACK_US
    if (
        0 <= start_us < START_UNIX_US_MAX
        and elapsed_us <= longest_us
        and run_us <= longest_us
        and cpu_us <= longest_us * _CPUS_MAX
        and rss_kib <= _RSS_KIB_MAX
        and rows_length <= _ROWS_BYTES_MAX
    ):
        return ""
    if not 0 <= start_us < START_UNIX_US_MAX:
        return f"it says that it began {start_us} µs after 1970"
    for what, figure, most, unit in (
        ("took", elapsed_us, longest_us, "µs"),
        ("was in run() for", run_us, longest_us, "µs"),
        ("used the processor for", cpu_us, longest_us * _CPUS_MAX, "µs"),
        ("used", rss_kib, _RSS_KIB_MAX, "KiB of memory"),
        ("returned", rows_length, _ROWS_BYTES_MAX, "bytes of rows"),
    ):
        if figure > most:
            return f"it says that it {what} {figure} {unit}, and at most {most} can be true"
    return ""


@dataclass(slots=True)
class FrameReader:
    """Cuts the bytes of the result channel into frames, and keeps the incomplete rest."""

    _rest: bytes = b""
    _parts: list[bytes] | None = None
    _missing: int = 0

    def feed(self, data: bytes, alive_us: int = ALIVE_US_MAX) -> list[Result]:
        """Takes more bytes; returns the frames that are now complete. `alive_us`: how long the worker has lived.
        Raises BadFrame.
        """
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
            if why := implausible(alive_us, start, elapsed, run, cpu, rss, rows_length):
                raise BadFrame(f"a result that cannot be true: {why}", frames)
            if side_length > SIDE_BYTES_MAX:
                raise BadFrame(f"a side document of {side_length} bytes", frames)
            begin = at + _BODY_AT
            if flags & ROWS_IN_FILE:
                stop = begin + header_length + side_length
                if stop - at > FRAME_BYTES_MAX:
                    raise BadFrame(f"a frame of {stop - at} bytes", frames)
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
