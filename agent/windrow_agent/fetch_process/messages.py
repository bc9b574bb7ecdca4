"""The messages between agent and fetch process (docs/contracts.md, section 4b): JSON after its length, both ways."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 1 << 30


class Part(NamedTuple):
    """One local file to be made. `size` and `version`: of the object, as listed; `place`: the file's path in the folder
    of the request.

    `ranges`: the bytes wanted, or None for all. `keep_offsets`: they have the same offsets in the file as in the
    object, with zeros in between; otherwise one follows the other. `url` may be a local path, which is copied whole.
    """

    url: str
    size: int
    version: str
    place: str
    ranges: Sequence[Sequence[int]] | None = None
    keep_offsets: bool = False

    @property
    def wanted(self) -> int:
        """Number of bytes to fetch."""
        return self.size if self.ranges is None else sum(end - begin for begin, end in self.ranges)


class Piece(NamedTuple):
    """The bytes of an object that one request reads, and their place in the file."""

    begin: int
    end: int
    at: int


class Save(NamedTuple):
    """One local file to be saved to a store. `name`: its path in the folder of the request. `inode`, `size`,
    `ctime_ns`: as it was listed.
    """

    name: str
    address: str
    inode: int
    size: int
    ctime_ns: int


def encode(message: dict[str, Any]) -> bytes:
    """Encodes a message."""
    text = json.dumps(message, separators=(",", ":")).encode()
    return LENGTH.pack(len(text)) + text


class Decoder:
    """Cuts received bytes into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Takes more bytes; returns the messages that are now complete. Raises ValueError for bytes that are not a
        message.
        """
        self._rest += data
        found: list[dict[str, Any]] = []
        at = 0
        while len(self._rest) - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._rest, at)
            if length > MESSAGE_BYTES_MAX:
                raise ValueError(f"a message of {length} bytes")
            end = at + LENGTH.size + length
            if end > len(self._rest):
                break
            found.append(json.loads(self._rest[at + LENGTH.size : end]))
            at = end
        del self._rest[:at]
        return found
