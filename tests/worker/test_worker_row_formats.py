"""Rows as CSV, JSON lines and Parquet: what the formats' own readers get back from what the worker writes."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_worker.rows.formats import Written, make_format_writer
from windrow_worker.rows.return_values import BadReturn
from worker_driver import Start

# Python before 3.11 neither writes nor reads a NUL in CSV.
NUL = "\0" if sys.version_info >= (3, 11) else ""
awkward = st.text(alphabet='ab ,"\r\n\té\u2028' + NUL, max_size=5)
names = st.lists(awkward.filter(bool), min_size=1, max_size=4, unique=True)


def written(row_format: str, value: Any, **to_csv: Any) -> tuple[Written, bytes]:
    pieces: list[bytes] = []
    made = make_format_writer(row_format, to_csv).write(value, pieces.append)
    return made, b"".join(pieces)


def texts_of(data: st.DataObject, columns: list[str]) -> list[dict[str, str]]:
    """One to five rows of awkward texts."""
    values = data.draw(st.lists(st.tuples(*(awkward for _ in columns)), min_size=1, max_size=5))
    return [{name: row[at] for at, name in enumerate(columns)} for row in values]


def csv_records(made: tuple[Written, bytes]) -> list[list[str]]:
    """As RFC 4180 reads it."""
    text = made[1].decode()
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def table(made: tuple[Written, bytes]) -> pa.Table:
    return pa.ipc.open_stream(made[1]).read_all()


@given(data=st.data(), columns=names)
@settings(deadline=None)
def test_dicts_of_text_come_back_from_csv_and_json_lines(data: st.DataObject, columns: list[str]) -> None:
    rows = texts_of(data, columns)
    header, *records = csv_records(written("csv", rows))
    assert header == columns
    assert records == [list(row.values()) for row in rows]
    made, lines = written("jsonl", rows)
    assert [json.loads(line) for line in lines.decode().split("\n")[:-1]] == rows
    assert made == Written(b"", len(rows))


@given(data=st.data(), columns=names)
@settings(deadline=None)
def test_dataframes_of_text_come_back_from_all(data: st.DataObject, columns: list[str]) -> None:
    rows = texts_of(data, columns)
    frame = pd.DataFrame(rows)
    header, *records = csv_records(written("csv", frame))
    assert (header, records) == (columns, [list(row.values()) for row in rows])
    _, lines = written("jsonl", frame)
    assert [json.loads(line) for line in lines.decode().split("\n")[:-1]] == rows
    assert table(written("parquet", frame)).to_pylist() == rows


def test_a_chunk_of_arrow_s_quotes_carriage_returns_too() -> None:
    frame = pd.DataFrame({"t": ["a\rb", "c"] * 5000, "n": range(10_000)})
    records = csv_records(written("csv", frame))
    assert len(records) == 10_001
    assert records[1] == ["a\rb", "0"]


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("value", [[], pd.DataFrame()], ids=["list", "DataFrame"])
def test_nothing_says_nothing_about_the_columns(row_format: str, value: Any) -> None:
    assert written(row_format, value) == (Written(b"", 0), b"")


VALUES = {
    "none": None,
    "nan": float("nan"),
    "nat": pd.NaT,
    "na": pd.NA,
    "float32 nan": np.float32("nan"),
    "decimal nan": decimal.Decimal("NaN"),
    "numpy nat": np.datetime64("NaT", "s"),
    "bool": True,
    "int": 7,
    "float": 0.1,
    "numpy int": np.int64(8),
    "numpy float": np.float64(0.5),
    "numpy bool": np.bool_(False),
    "text": 'é,"',
}


def test_what_is_missing_is_empty_or_null() -> None:
    header, record = csv_records(written("csv", [VALUES]))
    assert header == list(VALUES)
    assert record == ["", "", "", "", "", "", "", "True", "7", "0.1", "8", "0.5", "False", 'é,"']
    (line,) = written("jsonl", [VALUES])[1].splitlines()
    assert list(json.loads(line).values()) == [None] * 7 + [True, 7, 0.1, 8, 0.5, False, 'é,"']
    (row,) = table(written("parquet", [VALUES])).to_pylist()
    assert list(row.values()) == [None] * 7 + [True, 7, 0.1, 8, 0.5, False, 'é,"']


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("inf"), None),
        (datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone(datetime.timedelta())), "2020-01-02T03:00:00+00:00"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (pd.Timestamp("2020-01-02 03:04:05.000000006"), "2020-01-02T03:04:05.000000006"),
        (np.datetime64("2020-01-02T03:04:05", "ns"), "2020-01-02T03:04:05.000000000"),
        (decimal.Decimal("1.10"), "1.10"),
        (decimal.Decimal("-Infinity"), None),
        (decimal.Decimal("sNaN"), None),
        (np.longdouble(0.5), 0.5),
        (np.longdouble("inf"), None),
        ([np.float32("nan"), np.datetime64("NaT", "ns")], [None, None]),
        (np.array([1.5, float("nan")]), [1.5, None]),
        ({"deep": [np.int8(1), float("nan")]}, {"deep": [1, None]}),
        ("caf\udce9", "caf\udce9"),
        (OrderedDict(a=1), {"a": 1}),
    ],
)
def test_values_of_json(value: Any, said: Any) -> None:
    (line,) = written("jsonl", [{"v": value}])[1].splitlines()
    assert json.loads(line.decode()) == {"v": said}


def test_dataframes_of_json_keep_their_types() -> None:
    frame = pd.DataFrame(
        {
            "i": [1, 2],
            "f": [1.0, None],
            "b": [True, False],
            "d": pd.to_datetime(["2020-01-01", None]).tz_localize("Europe/Berlin"),
            "c": pd.Categorical(["x", None]),
            "n": pd.array([1, None], dtype="Int64"),
        },
        index=[5, 5],
    )
    assert [json.loads(line) for line in written("jsonl", frame)[1].splitlines()] == [
        {"i": 1, "f": 1.0, "b": True, "d": "2020-01-01T00:00:00+01:00", "c": "x", "n": 1},
        {"i": 2, "f": None, "b": False, "d": None, "c": None, "n": None},
    ]


def test_keys_that_some_rows_lack_are_missing_values() -> None:
    rows = [{"a": 1}, {"b": "x", "a": 2}]
    assert csv_records(written("csv", rows)) == [["a", "b"], ["1", ""], ["2", "x"]]
    assert table(written("parquet", rows)).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert written("csv", [{"a": None}])[1] == b'a\n""\n'  # no blank line, which readers pass over


def test_settings_that_csv_leaves_free() -> None:
    frame = pd.DataFrame({"a": [0.123], "b": [None]})
    assert csv_records(written("csv", frame, float_format="%.1f", na_rep="NA", header=["x", "y"])) == [
        ["x", "y"],
        ["0.1", "NA"],
    ]


def test_settings_that_pandas_refuses_are_told_without_those_of_the_format() -> None:
    with pytest.raises(BadReturn, match=r'was called with \{"header": \["x", "y"\]\} of parallel_run_step'):
        written("csv", pd.DataFrame({"a": [1]}), header=["x", "y"])


def test_types_of_parquet_are_made_plain() -> None:
    frame = pd.DataFrame(
        {
            "c": pd.Categorical(["x", "y"]),
            "d": pd.to_datetime(["2020-01-01", "2021-01-01"]).as_unit("s"),
            "h": np.array([1, 2], dtype="float16"),
            "m": [decimal.Decimal("1.5"), None],
            "e": [None, None],
        }
    )
    types = {field.name: str(field.type) for field in table(written("parquet", frame)).schema}
    assert types == {
        "c": "string", "d": "timestamp[ms]", "h": "float", "m": "decimal128(38, 1)", "e": "null"
    }  # fmt: skip


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["text"], "Element 0 of what run() returned is of type str"),
        ([{"a": 1}, (2,)], "Element 1 of what run() returned is of type tuple"),
        (pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])), "2 levels"),
    ],
)
def test_rows_without_named_columns_are_a_bad_return(row_format: str, value: Any, said: str) -> None:
    with pytest.raises(BadReturn) as caught:
        written(row_format, value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("row_format", "value", "said"),
    [
        ("parquet", [{"a": object()}], "The values of 'a'"),
        ("parquet", pd.DataFrame({"b": [1], "a": [object()]}), "The values of 'a'"),
        ("parquet", pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns named 'a'"),
        ("parquet", pd.DataFrame({"a": pd.period_range("2020", periods=1, freq="M")}), "period"),
        ("parquet", [{1: 2}], "column names must be strings"),
        ("jsonl", pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns named 'a'"),
        ("jsonl", [{"a": object()}], "Row 0"),
        ("jsonl", [{"a": b"x"}], "JSON has no bytes"),
        ("parquet", pd.DataFrame(index=[1, 2]), "has no columns"),
        ("csv", pd.DataFrame(index=[1, 2]), "rows but no columns"),
        ("parquet", [{"a": "x"}, {"a": "\ud800"}], "the lone surrogate U+D800, which no Parquet file can hold"),
        ("parquet", pd.DataFrame({"a": ["\ud800"]}, dtype=object), "which no Parquet file can hold"),
    ],
)
def test_what_a_format_cannot_hold_is_a_bad_return(row_format: str, value: Any, said: str) -> None:
    with pytest.raises(BadReturn) as caught:
        written(row_format, value)
    assert said in str(caught.value)


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
def test_nothing_is_nothing(row_format: str) -> None:
    assert written(row_format, []) == (Written(b"", 0), b"")
    made, rows = written(row_format, pd.DataFrame({"a": []}))
    assert made.rows == 0
    if row_format == "parquet":
        assert table((made, rows)).schema.names == ["a"] and not table((made, rows)).num_rows
    else:
        assert rows == made.header == (b"a\n" if row_format == "csv" else b"")


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
def test_a_worker_counts_rows_and_keeps_large_ones_in_a_file(start: Start, tmp_path: Path, row_format: str) -> None:
    worker = start(
        "def run(b):\n    return [{'n': n, 't': 'two\\nlines'} for n in range(int(b[0][6:]))]\n",
        rows={"format": row_format},
        inline_rows_bytes_max=2000,
    )
    worker.ready()
    small, large = worker.run(["3"], 1), worker.run(["5000"], 2)
    assert [(done.row_count, done.result_count, done.rows_path is None) for done in (small, large)] == [
        (3, 3, True),
        (5000, 5000, False),
    ]
    if row_format == "parquet":
        assert pa.ipc.open_stream(large.rows).read_all().column("n").to_pylist() == list(range(5000))
