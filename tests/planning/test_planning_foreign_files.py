"""Tables as other tools write them, cut at every awkward place: each record in one mini-batch, in order, as it is."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from planner_process import plan
from test_planning_tables import load, mltable, rows

EXPECTED = [[1, "Ärger; viel", 1.5], [2, "plain", None], [3, 'say "hi"', -2.0], [4, "", 0.25]]
"""The rows of most files here."""


class Foreign(NamedTuple):
    """A file as a tool writes it, and how an MLTable file has it read."""

    content: bytes
    read: str = "read_delimited"
    expected: list[list[Any]] = EXPECTED


EXCEL_TEXT = 'id;text;x\r\n1;"Ärger; viel";1.5\r\n2;plain;\r\n3;"say ""hi""";-2.0\r\n4;"";0.25\r\n'
LINES = "id,text,x\n" + "".join(f"{at},text {at},{at / 4}\n" for at in range(40))
LINE_ROWS = [[at, f"text {at}", at / 4] for at in range(40)]
RECORDS = [{"id": at, "text": f"Ü {at}", "x": at / 4} for at in range(20)]
RECORD_ROWS = [list(record.values()) for record in RECORDS]
JSON_LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS)

FILES = {
    "excel_utf8_bom_crlf_semicolons": Foreign(
        codecs.BOM_UTF8 + EXCEL_TEXT.encode(), "read_delimited: {delimiter: ';'}"
    ),
    "excel_unicode_text": Foreign(
        codecs.BOM_UTF16_LE + EXCEL_TEXT.replace(";", "\t").replace("Ärger\t", "Ärger;").encode("utf-16-le"),
        'read_delimited: {delimiter: "\\t", encoding: utf16}',
    ),
    "excel_ansi": Foreign(EXCEL_TEXT.encode("cp1252"), "read_delimited: {delimiter: ';', encoding: windows1252}"),
    "excel_line_breaks_in_cells": Foreign(
        b'\xef\xbb\xbfid,text\r\n1,"two\nlines"\r\n2,"two\r\nlines ""quoted"""\r\n3,\r\n',
        "read_delimited: {support_multi_line: true}",
        [[1, "two\nlines"], [2, 'two\r\nlines "quoted"'], [3, None]],
    ),
    "unix": Foreign(LINES.encode(), expected=LINE_ROWS),
    "crlf": Foreign(LINES.replace("\n", "\r\n").encode(), expected=LINE_ROWS),
    "no_final_newline": Foreign(LINES.encode()[:-1], expected=LINE_ROWS),
    "crlf_no_final_newline": Foreign(LINES.replace("\n", "\r\n").encode()[:-2], expected=LINE_ROWS),
    "bom_no_final_newline": Foreign(codecs.BOM_UTF8 + LINES.encode()[:-1], expected=LINE_ROWS),
    "utf16_no_bom": Foreign(LINES.encode("utf-16-le"), "read_delimited: {encoding: utf16}", LINE_ROWS),
    "long_header": Foreign(("c" * 5000 + ",b\n1,2\n3,4\n").encode(), expected=[[1, 2], [3, 4]]),
    "long_record": Foreign(
        ("a,b\n1,x\n2," + "y" * 5000 + "\n3,z\n").encode(), expected=[[1, "x"], [2, "y" * 5000], [3, "z"]]
    ),
    "json_lines": Foreign(JSON_LINES.encode(), "read_json_lines", RECORD_ROWS),
    "json_lines_crlf": Foreign(JSON_LINES.replace("\n", "\r\n").encode(), "read_json_lines", RECORD_ROWS),
    "json_lines_bom": Foreign(codecs.BOM_UTF8 + JSON_LINES.encode(), "read_json_lines", RECORD_ROWS),
    "json_lines_no_final_newline": Foreign(JSON_LINES.encode()[:-1], "read_json_lines", RECORD_ROWS),
}


def cuts(content: bytes) -> list[int]:
    """Sizes whose cuts fall on, just before and just behind line ends, inside of everything, and nowhere."""
    second = content.find(b"\n", content.find(b"\n") + 1) + 1 or len(content)
    return sorted({7, second - 1, second, len(content) - 1})


def plain(found: list[list[Any]]) -> list[list[Any]]:
    """With "" for null text: whether an empty cell is one or the other is the reader's matter, tested in its own."""
    return [["" if value is None else value for value in row] for row in found]


@pytest.mark.parametrize("name", FILES)
def test_a_text_file_is_cut_right_at_every_size(tmp_path: Path, name: str) -> None:
    content, read, expected = FILES[name]
    table = mltable(tmp_path / "table", "file: data.txt", read)
    (table / "data.txt").write_bytes(content)
    for size in cuts(content):
        found = plan(tmp_path / f"step{size}", table, "mltable", size)
        assert plain(rows(found)) == plain(expected), size
        assert found.warnings == [], size


FRAME = pandas.DataFrame(
    {
        "id": range(100),
        "text": [f'a "b", {at}' if at % 3 else None for at in range(100)],
        "x": [at / 8 if at % 5 else None for at in range(100)],
        "flag": [at % 2 == 0 for at in range(100)],
        "when": pandas.date_range("2024-01-30", periods=100, freq="h"),
    }
)


def duckdb_copy(path: Path, options: str) -> None:
    """The frame, written by DuckDB."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("frame", FRAME)
    connection.sql(f"COPY frame TO '{path}' ({options})")
    connection.close()


def arrow_csv(path: Path) -> None:
    import pyarrow.csv

    pyarrow.csv.write_csv(pyarrow.Table.from_pandas(FRAME), path)


WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "pandas_csv": ("a.csv", lambda path: FRAME.to_csv(path, index=False)),
    "pandas_csv_crlf": ("a.csv", lambda path: FRAME.to_csv(path, index=False, lineterminator="\r\n")),
    "pandas_csv_bom": ("a.csv", lambda path: FRAME.to_csv(path, index=False, encoding="utf-8-sig")),
    "pandas_parquet": ("a.parquet", lambda path: FRAME.to_parquet(path, row_group_size=30)),
    "pandas_parquet_with_index": ("a.parquet", lambda path: FRAME.to_parquet(path, index=True, row_group_size=30)),
    "pandas_json_lines": (
        "a.jsonl", lambda path: FRAME.to_json(path, orient="records", lines=True, date_format="iso")
    ),
    "arrow_csv": ("a.csv", arrow_csv),
    "arrow_parquet_zstd": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(pyarrow.Table.from_pandas(FRAME), path, compression="zstd"),
    ),
    "arrow_parquet_dictionary_v1": (
        "a.parquet",
        lambda path: pyarrow.parquet.write_table(
            pyarrow.Table.from_pandas(FRAME), path, version="1.0", use_dictionary=True, row_group_size=7
        ),
    ),
    "duckdb_csv": ("a.csv", lambda path: duckdb_copy(path, "FORMAT csv, HEADER")),
    "duckdb_parquet": ("a.parquet", lambda path: duckdb_copy(path, "FORMAT parquet, ROW_GROUP_SIZE 30")),
    "duckdb_json_lines": ("a.jsonl", lambda path: duckdb_copy(path, "FORMAT json")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_what_other_libraries_write_comes_out_as_it_went_in(tmp_path: Path, name: str) -> None:
    file_name, write = WRITERS[name]
    write(tmp_path / file_name)
    for size in (200, 10_000_000):
        frames, misfits = load(plan(tmp_path / f"step{size}", tmp_path / file_name, "mltable", size))
        together = pandas.concat(frames, ignore_index=True)
        assert not misfits
        assert list(together.id) == list(FRAME.id)
        assert list(together.text.fillna("")) == list(FRAME.text.fillna(""))
        assert [None if pandas.isna(x) else x for x in together.x] == [None if pandas.isna(x) else x for x in FRAME.x]
        assert list(together.flag) == list(FRAME.flag)
        when = pandas.to_datetime(together.when, format="ISO8601")
        assert list(when.dt.tz_localize(None) if when.dt.tz else when) == list(FRAME.when)


def spark_folder(folder: Path, extension: str, write: Callable[[Path, int], Any]) -> Path:
    """A folder as Spark leaves it: parts, a sum of each, and a mark of success with a sum of its own."""
    folder.mkdir(parents=True)
    for number in range(3):
        part = f"part-{number:05d}-0f4f8c8e-c000{extension}"
        write(folder / part, number)
        (folder / f".{part}.crc").write_bytes(b"crc\0\0\0\x02\0\xff\xfe\x12\x34")
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\x02\0\0\0\0\0")
    return folder


def write_parquet(path: Path, number: int) -> None:
    table = pyarrow.table({"id": [10 * number + at for at in range(5)], "part": [str(number)] * 5})
    pyarrow.parquet.write_table(table, path, compression="snappy", row_group_size=2)


def write_csv(path: Path, number: int) -> None:
    path.write_text("id,part\n" + "".join(f"{10 * number + at},{number}\n" for at in range(5)))


def write_json(path: Path, number: int) -> None:
    path.write_text("".join(json.dumps({"id": 10 * number + at, "part": str(number)}) + "\n" for at in range(5)))


SPARK = {
    "json": (".json", write_json, "read_json_lines", str),
    "parquet": (".snappy.parquet", write_parquet, "read_parquet", str),
    "csv": (".csv", write_csv, "read_delimited", int),
}


@pytest.mark.parametrize("by", ["", "folder: ./data", "pattern: ./data/part-*", "pattern: ./data/**"])
@pytest.mark.parametrize("kind", SPARK)
def test_a_folder_of_sparks_is_its_parts(tmp_path: Path, kind: str, by: str) -> None:
    extension, write, read, text = SPARK[kind]
    folder = spark_folder(tmp_path / "table" / "data", extension, write)
    table = mltable(tmp_path / "table", by, read) if by else folder
    found = plan(tmp_path / "step", table, "mltable", None if kind == "parquet" else 20)
    assert rows(found) == [[10 * number + at, text(number)] for number in range(3) for at in range(5)]
    assert found.warnings == []


@pytest.mark.parametrize("by", ["", "folder: ./data", "pattern: ./data/**/*.parquet"])
def test_hive_partitions_are_read_in_the_order_of_their_folders(tmp_path: Path, by: str) -> None:
    """The columns in the folders' names are the paths' own: an MLTable file extracts them where they are wanted."""
    folder = tmp_path / "table" / "data"
    for number, place in enumerate(("year=2023/month=12", "year=2024/month=01", "year=2024/month=02")):
        spark_folder(folder / place, ".snappy.parquet", lambda path, part, n=number: write_parquet(path, 3 * n + part))
    (folder / "_SUCCESS").write_bytes(b"")
    table = mltable(tmp_path / "table", by, "read_parquet") if by else folder
    assert rows(plan(tmp_path / "step", table, "mltable")) == [
        [10 * number + at, str(number)] for number in range(9) for at in range(5)
    ]
