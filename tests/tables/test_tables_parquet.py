"""Row groups of Parquet files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from windrow_worker.loaded import InputChanged
from windrow_worker.tables.parquet import ParquetLoader, pack_schema


def write(path: Path, values: list[int], row_group_size: int, **more: list[Any]) -> pyarrow.Schema:
    table = pyarrow.table({"n": values, **more})
    pyarrow.parquet.write_table(table, path, row_group_size=row_group_size)
    return table.schema


def recipe(path: Path, row_group: int) -> bytes:
    status = path.stat()
    where = {"file": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns, "row_group": row_group}
    return json.dumps(where).encode()


@pytest.fixture
def loader(tmp_path: Path) -> ParquetLoader:
    schema = write(tmp_path / "a", list(range(10)), 3)
    write(tmp_path / "b", list(range(100, 110)), 4, other=["x"] * 10)
    return ParquetLoader({"schema": pack_schema(schema), "mixed": [], "path_column": False})


def loaded(loader: ParquetLoader, path: Path, row_group: int) -> list[int]:
    return list(loader.load(recipe(path, row_group)).value["n"])


def test_row_groups_of_files_in_turn(tmp_path: Path, loader: ParquetLoader) -> None:
    for _ in range(2):
        assert loaded(loader, tmp_path / "a", 0) == [0, 1, 2]
        assert loaded(loader, tmp_path / "a", 3) == [9]
        assert loaded(loader, tmp_path / "b", 1) == [104, 105, 106, 107]


def test_a_file_that_changed_is_not_read_by_what_was_known_of_it(tmp_path: Path, loader: ParquetLoader) -> None:
    known = recipe(tmp_path / "a", 1)
    assert list(loader.load(known).value["n"]) == [3, 4, 5]
    write(tmp_path / "a", list(range(50, 70)), 7)
    with pytest.raises(InputChanged):
        loader.load(known)
    assert loaded(loader, tmp_path / "a", 1) == list(range(57, 64))


def test_a_file_that_is_gone_is_named(tmp_path: Path, loader: ParquetLoader) -> None:
    known = recipe(tmp_path / "a", 1)
    (tmp_path / "a").unlink()
    with pytest.raises(OSError, match=r"/a was there when .* cannot be read on this node: No such file"):
        loader.load(known)


def test_the_footer_of_a_file_is_read_once(
    tmp_path: Path, loader: ParquetLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    real = pyarrow.parquet.ParquetFile

    def opened(file: Any, metadata: Any = None) -> Any:
        given.append(metadata is not None)
        return real(file, metadata=metadata)

    monkeypatch.setattr(pyarrow.parquet, "ParquetFile", opened)
    for path, row_group in [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2)]:
        loaded(loader, tmp_path / path, row_group)
    assert given == [False, True, False, True, False]
