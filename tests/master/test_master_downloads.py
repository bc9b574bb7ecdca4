"""Files of outputs in pieces."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from windrow_master.rpc import downloads
from windrow_master.rpc.downloads import pieces_of


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
