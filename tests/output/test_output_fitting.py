"""Rows with different columns and types in one file: however the input is cut, whichever mini-batch ends first."""

from __future__ import annotations

import csv
import io
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_master.core.headers import MIXED, HeaderMisfit, join_headers
from windrow_master.output.fitting import ArrowFitting, Fitting, OtherColumns, make_fitting
from windrow_worker.rows.formats import make_format_writer
from windrow_worker.rows.formats.arrow_columns import fit_array

Rows = list[dict[str, Any]]


class Returned:
    """What some mini-batches returned, as their workers wrote it."""

    def __init__(self, row_format: str, values: Sequence[Any], *, missing: str = "", order: Sequence[int] = ()) -> None:
        """`order`: in which they end."""
        writer = make_format_writer(row_format, {"na_rep": missing} if missing else {})
        self.parts: list[tuple[bytes, bool]] = []
        headers = []
        for value in values:
            pieces: list[bytes] = []
            made = writer.write(value, pieces.append)
            self.parts.append((b"".join(pieces), bool(made.rows)))
            headers.append(made.header)
        self.header: bytes | None = None
        for at in order or range(len(headers)):
            if headers[at]:
                self.header = join_headers(row_format, self.header, headers[at])
        self.parts = [part for part in self.parts if part[0]]
        self.fitting: Fitting = make_fitting(row_format, self.header, missing, lambda: iter(self.parts))

    def csv(self, piece_bytes: int = 1 << 20) -> bytes:
        """The file."""
        rows = []
        for part, _ in self.parts:
            rows += self.fitting.fit(part[at : at + piece_bytes] for at in range(0, len(part), piece_bytes))
        return self.fitting.header + b"".join(rows)

    def table(self) -> pa.Table:
        """The file of Parquet."""
        assert isinstance(self.fitting, ArrowFitting)
        tables = [pa.ipc.open_stream(part).read_all() for part, _ in self.parts]
        batches = [self.fitting.fit_batch(batch) for table in tables for batch in table.to_batches()]
        return pa.Table.from_batches(batches, self.fitting.schema)


def joined(row_format: str, values: Sequence[Any]) -> bytes:
    """What a worker makes of a mini-batch that ran in pieces."""
    writer = make_format_writer(row_format, {})
    parts: list[bytes] = []
    for value in values:
        pieces: list[bytes] = []
        writer.write(value, pieces.append)
        if pieces:
            parts.append(b"".join(pieces))
    written: list[bytes] = []
    if parts:
        writer.join(parts, written.append)
    return b"".join(written)


texts = st.text(alphabet='ab ,"\r\n\té\u2028', max_size=4)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**40, 2**63, 2**70]),
    st.sampled_from([0.5, 2.0, -1e300, float("nan")]),
    texts,
    st.sampled_from([Decimal("1.5"), Decimal("1.25"), Decimal(7)]),
    st.sampled_from([date(2020, 1, 2), datetime(2020, 1, 2, 3), pd.Timestamp("2020-01-02 03:04:05")]),
    st.sampled_from([datetime(2020, 1, 2, 3, tzinfo=UTC), b"bytes"]),
)
inside = scalars.filter(lambda value: not isinstance(value, int) or value < 2**63)
dicts = st.dictionaries(st.sampled_from("xyz"), inside, max_size=2)
nested = st.fixed_dictionaries(
    {}, optional={"scalar": scalars, "list": st.lists(inside, max_size=3), "dict": dicts, "dicts": st.lists(dicts)}
)
"""Rows of columns that hold values of any type, and lists and dicts of them."""


def rows_of(column_values: st.SearchStrategy[Any]) -> st.SearchStrategy[Rows]:
    rows = st.dictionaries(st.sampled_from(["a", "b", "c,", 'd"\n']), column_values, max_size=3)
    return st.lists(rows, min_size=1, max_size=6).filter(any)


def cut(rows: Rows, data: st.DataObject) -> list[Rows]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


@given(data=st.data(), rows=rows_of(texts | st.none()), missing=st.sampled_from(["", "NA"]), piece=st.integers(1, 9))
@settings(deadline=None)
def test_csv_does_not_depend_on_the_cut(data: st.DataObject, rows: Rows, missing: str, piece: int) -> None:
    parts = cut(rows, data)
    order = data.draw(st.permutations(range(len(parts))))
    whole = Returned("csv", [rows], missing=missing).csv()
    assert Returned("csv", parts, missing=missing, order=order).csv(piece) == whole
    names = list(dict.fromkeys(name for row in rows for name in row))
    read = list(csv.reader(io.StringIO(whole.decode(), newline=""), strict=True))
    expected = [[missing if row.get(name) is None else row[name] for name in names] for row in rows]
    assert read == [names, *expected]
    if not missing:
        assert joined("csv", parts) == Returned("csv", [rows]).parts[0][0]


@given(data=st.data(), rows=rows_of(scalars) | st.lists(nested, min_size=1, max_size=6).filter(any))
@settings(deadline=None)
def test_parquet_does_not_depend_on_the_cut(data: st.DataObject, rows: Rows) -> None:
    parts = cut(rows, data)
    order = data.draw(st.permutations(range(len(parts))))
    whole, cut_up = Returned("parquet", [rows]), Returned("parquet", parts, order=order)
    assert cut_up.table().schema.equals(whole.table().schema)
    assert cut_up.table().to_pylist() == whole.table().to_pylist()
    streamed = [pa.ipc.open_stream(b"".join(cut_up.fitting.fit([part]))).read_all() for part, _ in cut_up.parts]
    assert pa.concat_tables(streamed, promote_options="permissive").num_rows == len(rows)
    pieces = pa.ipc.open_stream(joined("parquet", parts)).read_all()
    assert pieces.to_pylist() == pa.ipc.open_stream(whole.parts[0][0]).read_all().to_pylist()


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        ([1, 2.5], "double", [1.0, 2.5]),
        ([True, 2], "string", ["True", "2"]),
        ([2.5, True], "string", ["2.5", "True"]),
        ([3.0, "n/a"], "string", ["3", "n/a"]),
        ([2**63, 1], "string", ["9223372036854775808", "1"]),
        ([Decimal("1.5"), Decimal("1.25")], "decimal128(38, 2)", [Decimal("1.50"), Decimal("1.25")]),
        ([1, Decimal("1.5")], "decimal128(38, 1)", [Decimal("1.0"), Decimal("1.5")]),
        ([date(2020, 1, 1), datetime(2020, 1, 1, 5)], "string", ["2020-01-01", "2020-01-01 05:00:00"]),
        ([[], [1]], "list<item: int64>", [[], [1]]),
        ([[None], ["x"]], "list<item: string>", [[None], ["x"]]),
        ([{"n": None}, {"n": 1}], "struct<n: int64>", [{"n": None}, {"n": 1}]),
        ([{"n": 1}, {"m": "x"}], "struct<n: int64, m: string>", [{"n": 1, "m": None}, {"n": None, "m": "x"}]),
        ([{}, None], "string", ["{}", None]),
        ([[1, 2], 3], "string", ['[1, 2]', "3"]),
        ([{"n": 1.0}, "x"], "string", ['{"n": 1}', "x"]),
        ([b"ab\xff", "x"], "string", ["ab\\xff", "x"]),
        ([np.datetime64("2020-01-02"), date(2020, 1, 3)], "date32[day]", [date(2020, 1, 2), date(2020, 1, 3)]),
        ([np.datetime64("2020-01", "M"), date(2020, 2, 3)], "date32[day]", [date(2020, 1, 1), date(2020, 2, 3)]),
        ([None, None], "string", [None, None]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("apart", [True, False])
def test_the_type_of_a_column_holds_the_values_of_all(
    values: list[Any], kind: str, found: list[Any], apart: bool
) -> None:
    rows = [{"v": value} for value in values]
    table = Returned("parquet", [[row] for row in rows] if apart else [rows]).table()
    assert (str(table.schema.field("v").type), table.column("v").to_pylist()) == (kind, found)


def test_dataframes_get_the_columns_of_all() -> None:
    frames = [pd.DataFrame({"a": [1], "n": [1]}), pd.DataFrame({"a": ["x"], "o": [True]}), pd.DataFrame({"n": []})]
    assert Returned("csv", frames).csv() == b"a,n,o\n1,1,\nx,,True\n"
    parquet = Returned("parquet", frames)
    assert parquet.table().to_pylist() == [{"a": "1", "n": 1, "o": None}, {"a": "x", "n": None, "o": True}]
    assert str(parquet.table().schema.field("n").type) == "int64", "an empty DataFrame has no say"
    assert isinstance(parquet.fitting, ArrowFitting) and parquet.fitting.mixed == {"a": ["int64", "string"]}
    same_but_for_the_order = [pd.DataFrame({"a": [1], "b": [2]}), pd.DataFrame({"b": [4], "a": [3]})]
    assert Returned("csv", same_but_for_the_order).csv() == b"a,b\n1,2\n3,4\n"
    twice = [pd.DataFrame([[1, 2]], columns=["a", "a"]), pd.DataFrame([[3, 4, 5]], columns=["b", "a", "a"])]
    assert Returned("csv", twice).csv() == b"a,a,b\n1,2,\n4,5,3\n"


def test_a_file_without_rows_has_the_columns_and_types_of_what_was_returned() -> None:
    empty = pd.DataFrame({"a": pd.array([], dtype="int64"), "t": pd.array([], dtype="string")})
    assert Returned("csv", [empty]).csv() == b"a,t\n"
    assert [str(kind) for kind in Returned("parquet", [empty, []]).table().schema.types] == ["int64", "string"]
    assert Returned("parquet", []).table().num_columns == 0


def test_a_mixed_column_is_told_although_one_mini_batch_has_it_all() -> None:
    mixed = Returned("parquet", [[{"v": 1}, {"v": "x"}], [{"v": "y"}]]).fitting
    assert isinstance(mixed, ArrowFitting) and mixed.mixed == {"v": ["int64", "string"]}
    later = Returned("parquet", [[{"v": "y"}], [{"v": 1}, {"v": "x"}]]).fitting
    assert isinstance(later, ArrowFitting) and later.mixed == {"v": ["int64", "string"]}
    only_text = Returned("parquet", [[{"v": None}], [{"v": "y"}]]).fitting
    assert isinstance(only_text, ArrowFitting) and only_text.mixed == {}


@pytest.mark.parametrize("row_format", ["csv", "parquet"])
def test_empty_dicts_are_rows_of_which_a_file_has_no_other(row_format: str) -> None:
    assert Returned(row_format, [[{}], [{"a": 1}]]).fitting.lacks_columns is False
    assert Returned(row_format, [[{}], [{}, {}]]).fitting.lacks_columns is True
    assert Returned(row_format, []).fitting.lacks_columns is False


def test_columns_that_came_later_are_noticed() -> None:
    for row_format in ("csv", "parquet"):
        early = Returned(row_format, [[{"a": 1}], [{"b": 1}]])
        later = Returned(row_format, [[{"c": 1}]])
        with pytest.raises(OtherColumns):
            list(early.fitting.fit([later.parts[0][0]]))
    of_another_type = Returned("parquet", [[{"a": "x"}]])
    with pytest.raises(OtherColumns):
        list(Returned("parquet", [[{"a": 1}], [{"b": 1}]]).fitting.fit([of_another_type.parts[0][0]]))


def test_headers_are_the_same_or_mixed() -> None:
    assert join_headers("csv", None, b"a\n") == b"a\n"
    assert join_headers("csv", b"a\n", b"a\n") == b"a\n"
    assert join_headers("csv", b"a\n", b"b\n") == join_headers("csv", MIXED, b"a\n") == MIXED


def test_text_has_one_header() -> None:
    assert join_headers("text", b"a\n", b"a\n") == b"a\n"
    with pytest.raises(HeaderMisfit, match=r"'a é', and in another mini-batch 'b'.*--append_row_format csv"):
        join_headers("text", b"b\n", "a é\r\n".encode())


@pytest.mark.parametrize("kind", ["bytes", "structs"])
def test_values_that_become_text_are_objects_of_python_a_few_at_a_time(kind: str) -> None:
    """Otherwise, the rows of one large mini-batch with columns of mixed types take many times their memory."""

    def peak_of(rows: int) -> int:
        values = pa.array([b"x" * 1000] * rows, pa.binary())
        array = values if kind == "bytes" else pa.StructArray.from_arrays([values], ["n"])
        tracemalloc.start()
        try:
            made = fit_array(array, pa.string())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(made) == rows
        assert "x" * 1000 in made[rows - 1].as_py()
        return peak

    assert peak_of(12_000) < 1.5 * peak_of(3_000)


def test_texts_are_the_same_wherever_the_parts_end() -> None:
    values = [None if number % 7 == 0 else number for number in range((1 << 16) + 10)]
    made = fit_array(pa.array(values, pa.int64()), pa.string())
    assert made.to_pylist() == [None if value is None else str(value) for value in values]
    assert fit_array(pa.array([], pa.int64()), pa.string()).type == pa.string()
