"""Completions that the master has not acknowledged: kept in order, and sent again on every new stream.

A completion is kept as the bytes that go over the wire, so that it is encoded only once, even if it is sent again,
joined with others or moved to disk. What exceeds a bound in memory goes to an unnamed file: it survives the master's
absence, but not the agent's death.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from windrow_agent.outgoing.completions import failed_here

_COMPLETIONS_TAG = b"\x1a"
"""Field 3 of WorkRequest, length-delimited."""


class _Spilled(NamedTuple):
    offset: int
    length: int


def varint(value: int) -> bytes:
    """Encodes a length as protobuf does."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_completions(completions: Iterable[bytes]) -> bytes:
    """A WorkRequest, or a part of one, with these completions only, each already encoded."""
    parts: list[bytes] = []
    for completion in completions:
        length = len(completion)
        parts.append(_COMPLETIONS_TAG)
        parts.append(_SHORT[length] if length < len(_SHORT) else varint(length))
        parts.append(completion)
    return b"".join(parts)


_SHORT = [varint(length) for length in range(1024)]


class Outbox:
    """`memory_max`: most bytes in memory; `held_max`: bytes in all from which `full` is true.

    `held`: bytes of all unacknowledged completions, and of staged rows (see `reserve`).
    """

    def __init__(self, folder: Path, *, memory_max: int, held_max: int) -> None:
        self._folder = folder
        self._memory_max = memory_max
        self._held_max = held_max
        self._kept: dict[int, bytes | _Spilled] = {}
        self._unsent: deque[int] = deque()
        self._in_memory = 0
        self._spilled = 0
        self._reserved: dict[int, int] = {}
        self._reserved_bytes = 0
        self._file = -1
        self._file_end = 0
        self._disk_full = False

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def held(self) -> int:
        """Bytes that wait for the master's answer."""
        return self._in_memory + self._spilled + self._reserved_bytes

    @property
    def spilled(self) -> int:
        """Bytes on disk."""
        return self._spilled

    @property
    def full(self) -> bool:
        """Whether nothing new should start, because too much waits for the master's answer."""
        return self._disk_full or self.held >= self._held_max

    @property
    def has_unsent(self) -> bool:
        """Whether something has not been sent on the current stream."""
        return bool(self._unsent)

    def reserve(self, lease_id: int, length: int) -> None:
        """Counts rows that wait on disk for this lease, until it is acknowledged."""
        self._reserved_bytes += length - self._reserved.get(lease_id, 0)
        self._reserved[lease_id] = length

    def add(self, lease_id: int, completion: bytes) -> None:
        """Keeps a completion until it is acknowledged. A second one for the same lease is ignored."""
        if lease_id in self._kept:
            return
        if self._in_memory + len(completion) > self._memory_max and not self._disk_full:
            self._kept[lease_id] = self._spill(completion)
        else:
            self._kept[lease_id] = completion
            self._in_memory += len(completion)
        self._unsent.append(lease_id)

    def take(self, limit: int) -> bytes:
        """The next completions, encoded as part of a WorkRequest: up to `limit` bytes, at least one if there is any."""
        size = 0
        batch: list[bytes] = []
        kept = self._kept
        unsent = self._unsent
        while unsent:
            completion = kept.get(unsent[0])
            if completion is not None:
                length = len(completion) if isinstance(completion, bytes) else completion.length
                if batch and size + length + 5 > limit:
                    break
                batch.append(completion if isinstance(completion, bytes) else self._read(unsent[0], completion))
                size += length + 5
            unsent.popleft()
        return encode_completions(batch)

    def rewind(self) -> None:
        """A new stream begins: everything that is kept is sent again."""
        self._unsent = deque(self._kept)

    def acknowledge(self, lease_ids: Iterable[int]) -> None:
        """The master has answered these completions: drops them."""
        for lease_id in lease_ids:
            completion = self._kept.pop(lease_id, None)
            if lease_id in self._reserved:
                self._reserved_bytes -= self._reserved.pop(lease_id)
            if completion is None:
                continue
            if isinstance(completion, bytes):
                self._in_memory -= len(completion)
                self._disk_full = False
            else:
                self._spilled -= completion.length
        if self._file_end and not self._spilled:
            os.ftruncate(self._file, 0)
            self._file_end = 0

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _spill(self, completion: bytes) -> bytes | _Spilled:
        """Writes to disk. If that fails, it stays in memory, and the outbox is full until something is acknowledged."""
        try:
            if self._file < 0:
                path = self._folder / "unacknowledged"
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                path.unlink()
            written = 0
            while written < len(completion):
                written += os.pwrite(self._file, completion[written:], self._file_end + written)
        except OSError:
            self._disk_full = True
            self._in_memory += len(completion)
            return completion
        spilled = _Spilled(self._file_end, len(completion))
        self._file_end += len(completion)
        self._spilled += len(completion)
        return spilled

    def _read(self, lease_id: int, spilled: _Spilled) -> bytes:
        """Reads a completion from disk. If that fails, it is the node's fault, and the mini-batch runs again."""
        data = b""
        try:
            while len(data) < spilled.length:
                more = os.pread(self._file, spilled.length - len(data), spilled.offset + len(data))
                if not more:
                    raise OSError("the file of unacknowledged rows was cut short")
                data += more
        except OSError as error:
            message = f"The rows of a mini-batch could not be read again on this node: {error}"
            return failed_here(lease_id, message).SerializeToString()
        return data
