"""Files of outputs in pieces."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest
from windrow_master.core.ids import JobKey, StepId
from windrow_master.output.errors import OutputDamaged
from windrow_master.rpc import downloads
from windrow_master.rpc.downloads import pieces_of
from windrow_master.store.records import OutputRow


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 30])
@pytest.mark.parametrize("offset", [0, 1, 9, 10, 11, 20, 30])
def test_the_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, offset: int) -> None:
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 10)
    offset = min(offset, length)
    content = bytes(range(length))
    (tmp_path / "rows").write_bytes(content)
    pieces = list(pieces_of(tmp_path / "rows", b"a/rows", length, offset))
    assert b"".join(piece.content for piece in pieces) == content[offset:]
    assert [(piece.path, piece.length, piece.offset) for piece in pieces if piece.begins] == [
        (b"a/rows", length, offset)
    ]
    assert pieces[0].begins
    assert [piece.crc32 for piece in pieces if piece.HasField("crc32")] == [zlib.crc32(content)]
    assert pieces[-1].HasField("crc32")
    assert len(pieces) <= max(1, -(-(length - offset) // 10) + 1)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(pieces_of(tmp_path / "gone", b"", 1, 0))


def row(content: bytes) -> OutputRow:
    return OutputRow("rows", JobKey(1), StepId(1), 1, 1, len(content), hashlib.sha256(content).hexdigest(), 7, 1)


@pytest.mark.parametrize("offset", [0, 15])
@pytest.mark.parametrize(("there", "words"), [(b"y" * 30, "sha256"), (b"x" * 29, "29 bytes, and 30 were written")])
def test_the_end_of_a_file_that_is_not_what_was_written_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, there: bytes, words: str
) -> None:
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 10)
    (tmp_path / "rows").write_bytes(there)
    pieces = []
    with pytest.raises(OutputDamaged, match=words):
        pieces += pieces_of(tmp_path / "rows", b"rows", len(there), offset, [row(b"x" * 30)])
    assert not any(piece.HasField("crc32") for piece in pieces)


def test_a_file_that_is_one_of_those_that_were_written_comes(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"older")
    written = [row(b"newer"), row(b"older")]
    (piece,) = pieces_of(tmp_path / "rows", b"rows", 5, 0, written)
    assert (piece.content, piece.crc32) == (b"older", zlib.crc32(b"older"))
