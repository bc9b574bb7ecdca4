"""The log of a process: rotated when it has grown too large, whatever goes wrong with that."""

from __future__ import annotations

import json
import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from windrow.common import journal


@contextmanager
def no_renaming(path: Path) -> Iterator[None]:
    """A folder is where the full file is to go."""
    aside = path.with_name(f"{path.name}.1")
    aside.mkdir()
    yield
    aside.rmdir()


@contextmanager
def no_opening(path: Path) -> Iterator[None]:
    """The process has all files open that it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("hindrance", [no_renaming, no_opening])
def test_a_file_that_cannot_be_rotated_costs_lines_and_closes_nobodys_file(
    hindrance: Callable[[Path], AbstractContextManager[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.Logger("log")
    path = tmp_path / "agent.log"
    monkeypatch.setattr(journal, "FILE_BYTES_MAX", 10)
    own = journal._JsonFile(path)
    log.addHandler(own)
    log.warning("fills the file")
    with open(tmp_path / "strangers", "wb") as made_before:
        with hindrance(path):
            log.warning("lost")
        # The lowest number that is free: that of the log, had it been given back.
        with open(tmp_path / "strangers", "wb") as made_after:
            log.warning("in the new file")
            for file in (made_before, made_after):
                os.fstat(file.fileno())
    own.close()
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["in the new file"]
    assert "fills the file" in (tmp_path / "agent.log.1").read_text()
