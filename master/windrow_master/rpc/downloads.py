"""Cuts a file of an output into the pieces that a client downloads."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.output.target import OutputCheck
from windrow_master.store.records import OutputRow

CHUNK_BYTES = 1 << 20


def pieces_of(
    place: Path, path: bytes, length: int, offset: int, written: Sequence[OutputRow] = ()
) -> Iterator[pb.DownloadOutputResponse]:
    """Yield the file at `place` from `offset` to its current end. `path` and `length`: for the first piece. `written`:
    what Windrow has written there; empty if nothing.

    Blocks on the disk, and reads what is before `offset` as well, for the checksums. Raises OSError, and
    OutputDamaged in place of the last piece.
    """
    sent = OutputCheck(place, written)
    crc32 = at = 0
    begins = True
    with place.open("rb") as file:
        chunk = file.read(CHUNK_BYTES)
        while True:
            crc32 = zlib.crc32(chunk, crc32)
            sent.add(chunk)
            following = file.read(CHUNK_BYTES) if chunk else b""
            content = chunk[max(0, offset - at) :]
            at += len(chunk)
            if content or not following:
                piece = pb.DownloadOutputResponse(content=content)
                if begins:
                    piece.path, piece.begins, piece.length, piece.offset = path, True, length, offset
                    begins = False
                if not following:
                    sent.end()
                    piece.crc32 = crc32
                yield piece
            if not following:
                return
            chunk = following
