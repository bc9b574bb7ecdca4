"""The wire formats of the two channels (docs/contracts.md, section 4): packets in, frames out."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

PACKET = struct.Struct("<BBHIQQQI")
"""type, flags, 0, attempt, lease_id, mini_batch_index, item_first, item_count; then the recipe."""

RUN = 1
SHUTDOWN = 2
SPLIT = 3
"""Like RUN, but the length of an order (little endian, 4 bytes) and the order follow first: see `splitting`."""
RECIPE_IN_FILE = 1
"""Flag of a packet: the crc32 of the recipe (little endian) follows, then the path of the file that holds it."""

PACKET_BYTES_MAX = 1 << 20
"""A longer packet is a fault of the agent: long recipes go through files."""

FRAME = struct.Struct("<IIBBHQIIIIqQQQQQI")
"""magic, header_length, type, flags, process 0, lease_id, item_count, result_count, row_count, rows_crc32,
start_unix_us, elapsed_us, run_us, cpu_us, peak_rss_kib, rows_length, side_length; then header, side, rows."""

MAGIC = 0x57524F57

READY = 1
INIT_FAILED = 2
DONE = 3
FAILED = 4
STOPPED = 5

ROWS_IN_FILE = 1
"""Flag of a frame: instead of the rows, it has the path of a file in scratch, ended by NUL."""


class Report:
    """Figures of one attempt for its frame: times in µs, memory in KiB. One object serves all attempts."""

    __slots__ = (
        "cpu_us",
        "elapsed_us",
        "item_count",
        "lease_id",
        "peak_rss_kib",
        "result_count",
        "run_us",
        "start_unix_us",
    )

    def __init__(self) -> None:
        self.clear(0, 0)

    def clear(self, lease_id: int, item_count: int) -> None:
        """Begins another attempt."""
        self.lease_id = lease_id
        self.item_count = item_count
        self.result_count = 0
        self.start_unix_us = 0
        self.elapsed_us = 0
        self.run_us = 0
        self.cpu_us = 0
        self.peak_rss_kib = 0


def encode_frame(
    kind: int,
    report: Report,
    header: bytes = b"",
    side: bytes = b"",
    rows: Union[bytes, bytearray] = b"",
    row_count: int = 0,
    rows_crc32: int = 0,
    rows_length: int = -1,
    rows_path: bytes = b"",
) -> bytes:
    """Encodes a frame. With `rows_path`, the rows (`rows_length` bytes) are in that file; otherwise in `rows`."""
    head = FRAME.pack(
        MAGIC,
        len(header),
        kind,
        ROWS_IN_FILE if rows_path else 0,
        0,
        report.lease_id,
        report.item_count & 0xFFFFFFFF,
        min(report.result_count, 0xFFFFFFFF),
        min(row_count, 0xFFFFFFFF),
        rows_crc32,
        report.start_unix_us,
        report.elapsed_us,
        report.run_us,
        report.cpu_us,
        report.peak_rss_kib,
        rows_length if rows_path else len(rows),
        len(side),
    )
    if rows_path:
        return b"".join((head, header, side, rows_path, b"\0"))
    if header or side:
        return b"".join((head, header, side, rows))
    return head + rows
