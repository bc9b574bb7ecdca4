"""Results of mini-batches wait until what their scripts have written is on disk."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from windrow_agent.node.disks import sync_places
from windrow_agent.outgoing import files_first
from windrow_agent.outgoing.files_first import FilesFirst


async def _until_empty(first: FilesFirst) -> None:
    async with asyncio.timeout(20):
        while len(first):  # noqa: ASYNC110  # there is nothing else to wait for
            await asyncio.sleep(0.001)


def test_results_that_arrive_during_a_sync_share_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    synced: list[list[str]] = []

    def sync(places: Iterable[str]) -> None:
        synced.append(list(places))
        began.set()
        assert go_on.wait(20)

    monkeypatch.setattr(files_first, "sync_places", sync)

    async def run() -> list[str]:
        first, handed_in = FilesFirst(), list[str]()
        first.hold(["/a"], lambda why: handed_in.append(f"1{why}"))
        await asyncio.to_thread(began.wait, 20)
        for number in (2, 3, 4):
            first.hold(["/a", "/b"], lambda why, number=number: handed_in.append(f"{number}{why}"))  # type: ignore[misc]
        assert not handed_in and len(first) == 4, "nothing counts before it is on disk"
        go_on.set()
        await _until_empty(first)
        return handed_in

    assert asyncio.run(run()) == ["1", "2", "3", "4"]
    assert synced == [["/a"], ["/a", "/b"]]


def test_what_cannot_be_brought_to_disk_is_told_and_what_follows_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sync(places: Iterable[str]) -> None:
        if "/bad" in places:
            raise OSError(5, "Input/output error", "/bad")

    monkeypatch.setattr(files_first, "sync_places", sync)

    async def run() -> list[str]:
        first, whys = FilesFirst(), list[str]()
        for place in ("/bad", "/good"):
            first.hold([place], whys.append)
            await _until_empty(first)
        return whys

    bad, good = asyncio.run(run())
    assert "/bad" in bad and "cannot be brought to disk" in bad and not good


def test_places_that_are_not_there_yet_are_synced_by_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sync_places([str(tmp_path / "file"), str(tmp_path / "not" / "yet" / "there"), "/proc/nowhere"])


def test_a_folder_is_synced_on_its_own_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a mount, and the folder above on another disk."""
    opened: list[str] = []
    real = os.open

    def opening(path: str | Path, *arguments: int) -> int:
        opened.append(str(path))
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", opening)
    sync_places(["/proc", "/proc/self"])
    assert opened == ["/proc", "/proc/self"]
