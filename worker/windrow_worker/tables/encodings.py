"""Text encodings of delimited and JSON lines files: where lines end in the bytes, and how slices become text.

Windrow's names of encodings: `utf-8`, `windows-1252`, `utf-16-le`, `utf-32-le`.
Reference: docs/reference/azure-ml/mltable.md#encodings.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple


class Encoding(NamedTuple):
    """An encoding. `unit`: the size in bytes of its shortest character; `newline`: a line end, which begins at a
    multiple of `unit`; `mark`: the byte order mark.
    """

    name: str
    unit: int
    newline: bytes
    mark: bytes


ENCODINGS = {
    "utf-8": Encoding("utf-8", 1, b"\n", codecs.BOM_UTF8),
    "windows-1252": Encoding("windows-1252", 1, b"\n", b""),
    "utf-16-le": Encoding("utf-16-le", 2, b"\n\0", codecs.BOM_UTF16_LE),
    "utf-32-le": Encoding("utf-32-le", 4, b"\n\0\0\0", codecs.BOM_UTF32_LE),
}

# Python's cp1252 refuses five bytes, which browsers read as control characters.
_WINDOWS_1252 = bytes(range(256)).decode("cp1252", "replace")
_WINDOWS_1252 = "".join(chr(at) if char == "\ufffd" else char for at, char in enumerate(_WINDOWS_1252))


def to_text(data: bytes, encoding: str, offset: int = 0) -> str:
    """Decodes a slice that begins `offset` bytes into its file. Raises ValueError, which names the invalid byte."""
    if encoding == "windows-1252":
        return codecs.charmap_decode(data, "strict", _WINDOWS_1252)[0]
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            "byte %d (0x%02x) is not valid %s text; give the file's encoding in its MLTable file"
            % (offset + error.start, data[error.start], encoding.upper())
        ) from None


def to_utf8(data: bytes, encoding: str, offset: int = 0) -> bytes:
    """Converts a slice to UTF-8, for the fast reader. Raises ValueError as `to_text` does."""
    if encoding in ("utf-8", "windows-1252") and data.isascii():
        return data
    text = to_text(data, encoding, offset)
    return data if encoding == "utf-8" else text.encode("utf-8")
