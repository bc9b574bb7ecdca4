"""Which columns the rows of a step have.

Rows of CSV and Parquet say themselves which columns they have: the step only knows whether all its mini-batches have
the same. If not, whoever makes a file of the rows looks at each (`output/fitting.py`). Lines of text have no columns
of their own: their header line, if they have one, must be the same everywhere.
"""

from __future__ import annotations

SELF_DESCRIBED = ("csv", "parquet")
"""Formats whose rows say which columns they have."""

MIXED = b"\0"
"""Stands for the columns of a step whose mini-batches have different ones. No header begins with it."""
HEADER_BYTES_MAX = 8 << 20
"""Each step keeps its header in memory and in the database. 30,000 columns of Parquet fit."""
SHOWN_CHARS_MAX = 1_000


class HeaderMisfit(Exception):
    """The rows of a mini-batch do not fit those of another; the message shows the user what differs."""


class HeaderTooLong(Exception):
    """No step keeps a header of this length. The message tells the user."""


def join_headers(row_format: str, known: bytes | None, header: bytes) -> bytes:
    """The header of all mini-batches so far: whichever comes first, the same comes out. Raises HeaderMisfit,
    HeaderTooLong.
    """
    if len(header) > HEADER_BYTES_MAX:
        raise HeaderTooLong(
            f"run() returned rows whose header (the names and types of their columns) has {len(header):,} bytes. At "
            f"most {HEADER_BYTES_MAX:,} are possible. Return fewer columns, or give them shorter names."
        )
    if known is None or header == known:
        return header
    if row_format in SELF_DESCRIBED:
        return MIXED
    raise HeaderMisfit(
        f"run() returned DataFrames with different columns: {_shown(header)}, and in another mini-batch "
        f"{_shown(known)}. Lines of text have one header for all. Return the same columns in the same order from every "
        "mini-batch, or set --append_row_format csv, which gives the file the columns of all."
    )


def _shown(header: bytes) -> str:
    text = header.decode("utf-8", "backslashreplace").rstrip("\r\n")
    return repr(text) if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]!r}…"
