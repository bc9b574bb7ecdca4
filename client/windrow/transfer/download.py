"""Downloads of outputs and code from a master. A download that broke off continues where it stopped."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import grpc

from windrow.common.archives import CODE_LIMITS
from windrow.errors import TransferFailed
from windrow.rpc.connection import STREAM_TIMEOUT_S, Connection, Patience
from windrow.rpc.v1 import artifact_service_pb2 as artifact_pb
from windrow.rpc.v1 import artifact_service_pb2_grpc, job_service_pb2_grpc
from windrow.rpc.v1 import job_service_pb2 as job_pb

CHUNK_BYTES: Final = 1 << 20
ARTIFACT_TIMEOUT_S: Final = 3600.0
ARCHIVE_BYTES_MAX: Final = CODE_LIMITS.bytes_max + (CODE_LIMITS.files_max << 14)
"""Of a code archive: its content, and for each file headers with a long name, and what fills its last block."""


class OutputFile(NamedTuple):
    """A file whose bytes follow, from `offset` on.

    `path`: below the output; b"" if the output is one file. `length`: of the whole file.
    """

    path: bytes
    length: int
    offset: int


class FileEnd(NamedTuple):
    """The end of a file. `crc32`: of the whole file, as the master read it."""

    crc32: int


Piece = OutputFile | bytes | FileEnd


def stream_output(
    connection: Connection, job_id: str, output: str, *, path: bytes = b"", from_path: bytes = b"", offset: int = 0
) -> Generator[Piece, None, None]:
    """Yield the files of an output: for each an OutputFile, its bytes in chunks, a FileEnd. Does not retry: raises
    grpc.RpcError."""
    stub = job_service_pb2_grpc.JobServiceStub(connection.channel)
    request = job_pb.DownloadOutputRequest(job_id=job_id, output=output, path=path, from_path=from_path, offset=offset)
    with connection.stream(stub.DownloadOutput(request, timeout=STREAM_TIMEOUT_S)) as call:
        for response in call:
            if response.begins:
                yield OutputFile(response.path, response.length, response.offset)
            if response.content:
                yield response.content
            if response.HasField("crc32"):
                yield FileEnd(response.crc32)


def read_output_file(connection: Connection, job_id: str, output: str, path: bytes) -> Iterator[bytes]:
    """Yield the bytes of one file of an output, across breaks of the connection. Raises WindrowError."""
    patience = Patience(connection)
    offset = length = crc32 = 0
    while True:
        try:
            for piece in stream_output(connection, job_id, output, path=path, offset=offset):
                patience.answered()
                if isinstance(piece, OutputFile):
                    if offset and (piece.length != length or piece.offset != offset):
                        raise _changed(job_id, output, path)
                    length = piece.length
                elif isinstance(piece, FileEnd):
                    if piece.crc32 != crc32:
                        raise _changed(job_id, output, path)
                else:
                    offset += len(piece)
                    crc32 = zlib.crc32(piece, crc32)
                    yield piece
            if offset != length:
                raise _changed(job_id, output, path)
            return
        except grpc.RpcError as error:
            patience.wait_or_raise(error)


def safe_parts(path: bytes) -> list[str]:
    """The parts of an output file's path. Raises TransferFailed for one that could leave the target folder."""
    parts = path.split(b"/")
    if b"\0" in path or any(part in (b"", b".", b"..") for part in parts):
        raise TransferFailed(
            f"The master names an output file {os.fsdecode(path)!r}, which could be written outside the target folder. "
            "It was not written; the files before it were."
        )
    return [os.fsdecode(part) for part in parts]


class Download:
    """The download of one output into a folder.

    Each file is written under a temporary name, with the job and its generation in it, and renamed when it is complete.
    A download that broke off continues in the middle of the next file; a mark in the folder names that file.
    """

    def __init__(
        self,
        connection: Connection,
        job_id: str,
        generation: int,
        output: str,
        folder: Path,
        *,
        single_name: str,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`single_name`: the name of the file if the output is one file. `on_bytes`: called with received bytes."""
        self._connection = connection
        self._job_id = job_id
        self._output = output
        self._folder = folder
        self._single_name = single_name
        self._on_bytes = on_bytes
        self._suffix = f".{job_id}.{generation}.partial"
        self._mark = folder / f".windrow-{output}{self._suffix}"
        self._written: dict[Path, None] = {}

    def run(self) -> list[Path]:
        """Download the output; return the files received now. Raises WindrowError."""
        patience = Patience(self._connection)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            while True:
                try:
                    self._receive(patience)
                except grpc.RpcError as error:
                    patience.wait_or_raise(error)
                else:
                    self._mark.unlink(missing_ok=True)
                    return list(self._written)
        except OSError as error:
            raise TransferFailed(
                f"The output {self._output} of job {self._job_id} cannot be written to {self._folder}: "
                f"{error.strerror}. Fix the problem and repeat the command, which continues where it stopped."
            ) from error

    def _receive(self, patience: Patience) -> None:
        try:
            from_path = self._mark.read_bytes()
            partial = self._partial(self._place(from_path))
            offset = partial.stat().st_size if partial.exists() else 0
        except FileNotFoundError:
            from_path, offset = b"", 0
        pieces = stream_output(self._connection, self._job_id, self._output, from_path=from_path, offset=offset)
        with contextlib.closing(pieces):
            piece = next(pieces, None)
            while isinstance(piece, OutputFile):
                patience.answered()
                piece = self._receive_file(piece, pieces)

    def _receive_file(self, wanted: OutputFile, pieces: Iterator[Piece]) -> OutputFile | None:
        """Write one file; return the one that follows."""
        place = self._place(wanted.path)
        partial = self._partial(place)
        self._make_parents(place)
        self._mark.write_bytes(wanted.path)
        following: OutputFile | None = None
        # O_NOFOLLOW: never follow a link at the place of the partial file.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(partial, flags, 0o666), "r+b") as file:
            if wanted.offset > os.fstat(file.fileno()).st_size:
                raise _changed(self._job_id, self._output, wanted.path)
            file.truncate(wanted.offset)
            crc32, whole = _crc32_of(file), False
            for piece in pieces:
                if isinstance(piece, OutputFile):
                    following = piece
                    break
                if isinstance(piece, FileEnd):
                    whole = piece.crc32 == crc32
                    continue
                file.write(piece)
                crc32 = zlib.crc32(piece, crc32)
                self._on_bytes(len(piece))
            received = file.tell()
        if received != wanted.length or not whole:
            partial.unlink()
            raise _changed(self._job_id, self._output, wanted.path)
        partial.replace(place)
        self._written[place] = None
        return following

    def _place(self, path: bytes) -> Path:
        return self._folder.joinpath(*safe_parts(path)) if path else self._folder / self._single_name

    def _partial(self, place: Path) -> Path:
        return place.with_name(f".{place.name[:100]}{self._suffix}")

    def _make_parents(self, place: Path) -> None:
        """Make the parent folders of a file. Refuses links, which could point outside the target folder."""
        folder = self._folder
        for part in place.relative_to(self._folder).parts[:-1]:
            folder = folder / part
            if folder.is_symlink():
                raise TransferFailed(
                    f"{folder} is a link; a download does not write through links. "
                    "Move it away, or choose another folder."
                )
            folder.mkdir(exist_ok=True)


def download_artifact(connection: Connection, digest: str, target: Path) -> None:
    """Download a code archive into a file. Continues where it broke off. Raises NotFound, TransferFailed, OSError."""
    stub = artifact_service_pb2_grpc.ArtifactServiceStub(connection.channel)
    patience = Patience(connection)
    with target.open("wb") as file:
        while True:
            request = artifact_pb.DownloadArtifactRequest(digest=digest, offset=file.tell())
            call = stub.DownloadArtifact(request, timeout=ARTIFACT_TIMEOUT_S)
            try:
                with connection.stream(call) as pieces:
                    for piece in pieces:
                        patience.answered()
                        file.write(piece.chunk)
                        if file.tell() > ARCHIVE_BYTES_MAX:
                            raise TransferFailed(
                                f"The master sends a code archive of more than {ARCHIVE_BYTES_MAX >> 20:,} MiB, which "
                                "none can have. It was not kept. Do not trust this master; ask whoever runs it."
                            )
                return
            except grpc.RpcError as error:
                patience.wait_or_raise(error)


def _crc32_of(file: BinaryIO) -> int:
    """The crc32 of an open file, which is read to its end."""
    crc32 = 0
    while chunk := file.read(CHUNK_BYTES):
        crc32 = zlib.crc32(chunk, crc32)
    return crc32


def _changed(job_id: str, output: str, path: bytes) -> TransferFailed:
    name = os.fsdecode(path) if path else "its file"
    return TransferFailed(
        f"The output {output} of job {job_id} changed while it was read, or was damaged on the way ({name}): its "
        f"length or its checksum does not match the master's. Repeat the command to read it again."
    )
