"""MLTable files as the master itself reads them: what is opened counts, not what its path led to a moment before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow_master.planning import table_paths
from windrow_master.planning.table_paths import keys_in_paths, places_in, read_definition
from windrow_master.roots import Roots

TABLE = b"paths: [{folder: ./part}]\ntransformations: [read_delimited]\n"


def table_in(folder: Path) -> bytes:
    folder.mkdir()
    (folder / "MLTable").write_bytes(TABLE)
    return os.fsencode(folder)


def test_the_file_that_is_named_or_that_of_a_folder(tmp_path: Path) -> None:
    folder = table_in(tmp_path / "table")
    roots = Roots([tmp_path])
    assert (
        read_definition(folder, roots) == read_definition(folder + b"/MLTable", None) == (folder + b"/MLTable", TABLE)
    )
    assert [*places_in(folder + b"/MLTable", TABLE)] == [("paths[0].folder", folder + b"/part")]
    assert keys_in_paths(folder + b"/MLTable", TABLE) == ()
    assert read_definition(os.fsencode(tmp_path), roots) is None


def test_a_file_that_has_become_a_link_out_of_the_datastores_is_not_read(tmp_path: Path) -> None:
    folder = table_in(tmp_path / "store")
    table_in(tmp_path / "elsewhere")
    (tmp_path / "store" / "MLTable").unlink()
    (tmp_path / "store" / "MLTable").symlink_to(tmp_path / "elsewhere" / "MLTable")
    assert read_definition(folder, Roots([folder])) is None
    assert read_definition(folder, Roots([tmp_path])) is not None


def test_a_pipe_that_takes_the_place_of_the_file_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "MLTable")
    pipe = os.fsencode(tmp_path / "MLTable")
    monkeypatch.setattr(table_paths, "definition_of", lambda path: pipe)
    assert read_definition(os.fsencode(tmp_path), Roots([tmp_path])) in (None, (pipe, b""))
