"""Files of outputs in pieces."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from windrow.common.beneath import Folder
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow_master.core.ids import JobKey, StepId
from windrow_master.output.errors import OutputDamaged
from windrow_master.rpc import downloads
from windrow_master.rpc.downloads import OpenOutput, pieces_of
from windrow_master.store.records import OutputRow


def pieces(
    folder: Path, name: str, length: int, offset: int, written: Sequence[OutputRow] = ()
) -> list[pb.DownloadOutputResponse]:
    """The pieces of a file of the output that a folder is."""
    with Folder.open(folder.resolve()) as opened:
        return list(pieces_of(OpenOutput(opened, [], ""), name, folder / name, length, offset, written))


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 30])
@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11, 20, 30])
def test_the_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, offset: int) -> None:
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 10)
    offset = min(offset, length)
    content = bytes(range(length))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rows").write_bytes(content)
    found = pieces(tmp_path, "a/rows", length, offset)
    assert b"".join(piece.content for piece in found) == content[offset:]
    assert [(piece.path, piece.length, piece.offset) for piece in found if piece.begins] == [
        (b"a/rows", length, offset)
    ]
    assert found[0].begins
    assert [piece.crc32 for piece in found if piece.HasField("crc32")] == [zlib.crc32(content)]
    assert found[-1].HasField("crc32")
    assert len(found) <= max(1, -(-(length - offset) // 10) + 1)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pieces(tmp_path, "gone", 1, 0)


def row(content: bytes) -> OutputRow:
    return OutputRow("rows", JobKey(1), StepId(1), 1, 1, len(content), hashlib.sha256(content).hexdigest(), 7, 1)


@pytest.mark.parametrize("offset", [0, 15])
@pytest.mark.parametrize(("there", "words"), [(b"y" * 30, "sha256"), (b"x" * 29, "29 bytes, and 30 were written")])
def test_the_end_of_a_file_that_is_not_what_was_written_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, there: bytes, words: str
) -> None:
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 10)
    (tmp_path / "rows").write_bytes(there)
    found = []
    with Folder.open(tmp_path.resolve()) as folder, pytest.raises(OutputDamaged, match=words):
        output = OpenOutput(folder, [], "")
        found += pieces_of(output, "rows", tmp_path / "rows", len(there), offset, [row(b"x" * 30)])
    assert not any(piece.HasField("crc32") for piece in found)


def test_a_file_that_is_one_of_those_that_were_written_comes(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"older")
    written = [row(b"newer"), row(b"older")]
    (piece,) = pieces(tmp_path, "rows", 5, 0, written)
    assert (piece.content, piece.crc32) == (b"older", zlib.crc32(b"older"))
