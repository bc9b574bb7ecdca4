"""The agent's archives of code: downloaded once, verified whenever they are used."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from windrow.transfer import code_archive
from windrow_agent.steps.code_cache import CodeCache, CodeUnavailable


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


def test_an_archive_is_not_pruned_between_its_check_and_its_use(tmp_path: Path, downloads: Downloads) -> None:
    """Neither by a step that begins with other code meanwhile, where there are as many newer ones as are kept."""
    cache = CodeCache(tmp_path / "cache", downloads)
    unpacked(cache, downloads.digest, tmp_path / "a")
    (tmp_path / "a" / "more.py").touch()
    (archive,) = (tmp_path / "cache").iterdir()
    with (tmp_path / "other").open("w+b") as file:
        other = code_archive.pack(tmp_path / "a", file).digest
    (tmp_path / "other").rename(archive.parent / f"{other}.tar")
    for number in range(40):
        (archive.parent / f"{number}.tar").touch()
    os.utime(archive, (0, 0))

    async def both() -> None:
        # In one thread, one after the other: check, check, unpack and prune, unpack.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.gather(cache.unpack(other, tmp_path / "b"), cache.unpack(downloads.digest, tmp_path / "c"))

    asyncio.run(both())
    assert (tmp_path / "c" / "score.py").exists()
    assert len(list(archive.parent.glob("*.tar"))) < 40


def test_a_download_is_verified(tmp_path: Path, downloads: Downloads) -> None:
    downloads.content = downloads.content.replace(b"run", b"bun")
    with pytest.raises(CodeUnavailable, match="damaged twice"):
        unpacked(CodeCache(tmp_path / "cache", downloads), downloads.digest, tmp_path / "a")
    assert not list((tmp_path / "cache").iterdir())
