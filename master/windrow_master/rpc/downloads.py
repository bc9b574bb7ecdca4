"""The files of an output, and the pieces in which a client downloads one."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow.common.beneath import Folder
from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.output.target import OutputCheck
from windrow_master.output_places import OutputPlaces
from windrow_master.step_paths import StepPaths
from windrow_master.store.records import OutputRow

CHUNK_BYTES = 1 << 20


class OpenOutput(NamedTuple):
    """An output that is downloaded. `folder`: is it, or holds it; close it. `files`: names in it, and bytes.

    `single`: the name if the output is one file, else "".
    """

    folder: Folder
    files: list[tuple[str, int]]
    single: str

    def path_of(self, name: str) -> bytes:
        """The path of a file below the output: b"" if the output is that file."""
        return b"" if self.single else os.fsencode(name)


def open_output(places: OutputPlaces, place: Path, paths: StepPaths) -> OpenOutput | None:
    """Open an output and list its files; None if it does not exist yet.

    The output may be on a share that does not answer, so this is not for the event loop's thread. Raises OSError.
    """
    try:
        folder, single = places.output(place, paths)
    except FileNotFoundError:
        return None
    try:
        # A file is opened where it is listed: what is not a file is told before anything is sent.
        if single:
            descriptor = folder.read(single)
            try:
                files = [(single, os.fstat(descriptor).st_size)]
            finally:
                os.close(descriptor)
        else:
            files = folder.files()
        return OpenOutput(folder, files, single)
    except FileNotFoundError:
        folder.close()
        return None
    except BaseException:
        folder.close()
        raise


def pieces_of(
    output: OpenOutput, name: str, place: Path, length: int, offset: int, written: Sequence[OutputRow] = ()
) -> Iterator[pb.DownloadOutputResponse]:
    """Yield a file of an output from `offset` to its current end. `place`: for messages. `length`: for the first piece.
    `written`: what Windrow has written there; empty if nothing.

    Blocks on the disk, and reads what is before `offset` as well, for the checksums. Raises OSError, and
    OutputDamaged in place of the last piece.
    """
    sent = OutputCheck(place, written)
    crc32 = at = 0
    begins = True
    with os.fdopen(output.folder.read(name), "rb") as file:
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
                    piece.path, piece.begins, piece.length, piece.offset = output.path_of(name), True, length, offset
                    begins = False
                if not following:
                    sent.end()
                    piece.crc32 = crc32
                yield piece
            if not following:
                return
            chunk = following
