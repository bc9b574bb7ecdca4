"""The agent's archives of code: downloaded once, verified whenever they are used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from windrow import code_archive
from windrow_agent.code_cache import CodeCache, CodeUnavailable


class Downloads:
    """Serves one archive; what it appends to a partial file is the rest of it."""

    def __init__(self, folder: Path) -> None:
        source = folder / "code"
        source.mkdir()
        (source / "score.py").write_bytes(b"def run(x): ...\n" * 1000)
        with (folder / "archive").open("w+b") as file:
            self.digest = code_archive.pack(source, file).digest
            file.seek(0)
            self.content = file.read()
        self.count = 0

    async def __call__(self, digest: str, partial: Path) -> None:
        assert digest == self.digest
        self.count += 1
        with partial.open("ab") as file:
            file.write(self.content[file.tell() :])


@pytest.fixture
def downloads(tmp_path: Path) -> Downloads:
    return Downloads(tmp_path)


def unpacked(cache: CodeCache, digest: str, target: Path) -> bytes:
    asyncio.run(cache.unpack(digest, target))
    return (target / "score.py").read_bytes()


def test_an_archive_is_downloaded_once(tmp_path: Path, downloads: Downloads) -> None:
    for name in ("a", "b"):
        cache = CodeCache(tmp_path / "cache", downloads)
        assert unpacked(cache, downloads.digest, tmp_path / name).count(b"\n") == 1000
    assert downloads.count == 1


@pytest.mark.parametrize("damage", ["empty", "content", "gone"])
def test_an_archive_that_was_damaged_on_the_disk_is_downloaded_anew(
    tmp_path: Path, downloads: Downloads, damage: str
) -> None:
    cache = CodeCache(tmp_path / "cache", downloads)
    whole = unpacked(cache, downloads.digest, tmp_path / "a")
    (archive,) = (tmp_path / "cache").iterdir()
    match damage:
        case "empty":
            archive.write_bytes(b"")
        case "content":
            archive.write_bytes(downloads.content.replace(b"run", b"bun"))
        case "gone":
            archive.unlink()
    assert unpacked(cache, downloads.digest, tmp_path / "b") == whole
    assert downloads.count == 2


def test_a_download_is_verified(tmp_path: Path, downloads: Downloads) -> None:
    downloads.content = downloads.content.replace(b"run", b"bun")
    with pytest.raises(CodeUnavailable, match="damaged twice"):
        unpacked(CodeCache(tmp_path / "cache", downloads), downloads.digest, tmp_path / "a")
    assert not list((tmp_path / "cache").iterdir())
