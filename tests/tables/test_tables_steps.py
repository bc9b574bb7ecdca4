"""Every step of an MLTable file: planned, cut and read, against pandas doing the same with the whole table."""

from __future__ import annotations

import datetime
import decimal
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_table import Table, read_table
from windrow_master.planning.errors import PlanningError
from windrow_worker.tables.columns import FALSE_WORDS, TRUE_WORDS, Column
from windrow_worker.tables.delimited_text import Text
from windrow_worker.tables.positions import record_positions
from windrow_worker.tables.steps.conversion import convert_series


def write(folder: Path, files: dict[str, str | bytes], *steps: Any) -> Path:
    """A folder of files with an MLTable file that reads them all, in the order of their names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    table = {"paths": [{"pattern": "./f*"}], "transformations": list(steps)}
    (folder / "MLTable").write_text(json.dumps(table))
    return folder


READ = {"read_delimited": {"infer_column_types": {"sample_size": 1000}}}

Rows = list[tuple[int, int, str | None, float | None]]
Step = tuple[Any, Callable[[pandas.DataFrame], pandas.DataFrame]]

CELLS = st.tuples(
    st.integers(-9, 9), st.none() | st.sampled_from(["a", "b", "x y", "é"]), st.none() | st.sampled_from([0.5, 1.5, -2])
)


def stepped(kind: str, number: int) -> Step:
    """A step and what pandas does for it. Columns: id, n, s, f."""
    if kind == "take":
        return {"take": number}, lambda rows: rows.iloc[:number]
    if kind == "skip":
        return {"skip": number}, lambda rows: rows.iloc[number:]
    if kind == "filter n":
        return {"filter": f"n >= {number} or n == -1"}, lambda rows: rows[(rows.n >= number) | (rows.n == -1)]
    if kind == "filter s":
        return {"filter": 'not col("s") == "a"'}, lambda rows: rows[rows.s.notna() & (rows.s != "a")]
    if kind == "filter f":
        return {"filter": "f * 2 <= 3"}, lambda rows: rows[(rows.f * 2 <= 3).fillna(False).astype(bool)]
    if kind == "reverse":
        return {"keep_columns": ["f", "s", "n", "id"]}, lambda rows: rows
    return (
        {"convert_column_types": [{"columns": {"pattern": "^id$"}, "column_type": "string"}]},
        lambda rows: rows.assign(id=rows.id.astype(str)),
    )


KINDS = ("take", "skip", "filter n", "filter s", "filter f", "reverse", "text id")


@settings(max_examples=120, deadline=None)
@given(
    files=st.lists(st.lists(CELLS, max_size=12), min_size=1, max_size=3),
    steps=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 14)), max_size=4),
    form=st.sampled_from(["csv", "jsonl", "parquet"]),
    size=st.sampled_from([1, 20, 50, None]),
)
def test_agrees_with_pandas(
    tmp_path_factory: pytest.TempPathFactory, files: list[Any], steps: list[tuple[str, int]], form: str, size: int
) -> None:
    names = ["id", "n", "s", "f"]
    # The first row keeps types the same, however the rest comes out.
    at = 1000
    tables = []
    for file, cells in enumerate(files):
        rows = [] if file else [(1000, 9, "first", 0.25)]
        for cell in cells:
            at += 1
            rows.append((at, *cell))
        tables.append(rows)
    made = [stepped(kind, number) for kind, number in steps]
    contents = {f"f{at}.{form}": content(rows, form) for at, rows in enumerate(tables)}
    read = {"csv": READ, "jsonl": {"read_json_lines": {}}, "parquet": {"read_parquet": {}}}[form]
    folder = write(tmp_path_factory.getbasetemp() / "agree", contents, read, *(step for step, _ in made))
    expected = pandas.DataFrame([row for rows in tables for row in rows], columns=names)
    for _, change in made:
        expected = change(expected)
    try:
        found = read_table(folder, None if form == "parquet" else size)
    except PlanningError as error:
        assert "leave no rows" in str(error) and expected.empty
        return
    assert all(list(frame.columns) == names for frame in found.frames)
    assert found.rows == Table([expected], [], []).rows


def content(rows: Rows, form: str) -> str | bytes:
    """A file of rows."""
    if form == "csv":
        lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
        return "\n".join(["id,n,s,f", *lines]) + "\n"
    if form == "jsonl":
        # In a column of decimals a whole number would be null.
        rows = [(*row[:3], None if row[3] is None else float(row[3])) for row in rows]
        return "".join(json.dumps(dict(zip(["id", "n", "s", "f"], row, strict=True))) + "\n" for row in rows)
    types = [("id", pyarrow.int64()), ("n", pyarrow.int64()), ("s", pyarrow.string()), ("f", pyarrow.float64())]
    table = pyarrow.table(
        {name: pyarrow.array([row[at] for row in rows], kind) for at, (name, kind) in enumerate(types)}
    )
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, row_group_size=4)
    return bytes(sink.getvalue())


LINES = "".join(f"{at},v{at % 7}\n" for at in range(300))


@pytest.mark.parametrize(
    ("steps", "expected", "exact"),
    [
        ([{"take": 17}], range(17), True),
        ([{"skip": 290}], range(290, 300), False),
        ([{"skip": 5}, {"take": 3}], range(5, 8), True),
        ([{"take": 20}, {"skip": 18}, {"take": 1}], range(18, 19), True),
        ([{"filter": "a % 10 == 0"}, {"skip": 2}, {"take": 3}], [20, 30, 40], True),
        ([{"take": 40}, {"filter": "a % 10 == 0"}], [0, 10, 20, 30], False),
        ([{"skip": 1}], range(1, 300), False),
    ],
)
@pytest.mark.parametrize("size", [10, 400, 100_000])
def test_take_and_skip_count_exactly_and_stay_cut(
    tmp_path: Path, steps: list[Any], expected: Any, exact: bool, size: int
) -> None:
    folder = write(tmp_path / "t", {"f.csv": "a,b\n" + LINES}, READ, *steps)
    found = read_table(folder, size)
    assert [row[0] for row in found.rows] == list(expected)
    if exact:
        assert found.planned == [len(frame) for frame in found.frames] and all(found.planned)
    if size == 10:
        assert max(map(len, found.frames)) <= 3


@pytest.mark.parametrize("settings", [{}, {"support_multi_line": True}, {"encoding": "utf16"}, {"encoding": "latin1"}])
def test_a_sample_does_not_depend_on_the_cut(tmp_path: Path, settings: dict[str, Any]) -> None:
    text = 'a,"b\nc"\n' if "support_multi_line" in settings else "a,b\n"
    text += "".join(f'{at},"é{at}"\r\n' + "\r\n" * (at % 9 == 0 and bool(settings)) for at in range(2000))
    encoding = {"utf16": "utf-16-le", "latin1": "cp1252"}.get(settings.get("encoding", ""), "utf-8")
    files: dict[str, str | bytes] = {"f1.csv": text.encode(encoding), "f2.csv": text.encode(encoding)}

    def sampled(folder: str, seed: int, size: int | None) -> list[int]:
        sample = {"take_random_sample": {"probability": 0.25, "seed": seed}}
        read = {"read_delimited": settings}
        return [row[0] for row in read_table(write(tmp_path / folder, files, read, sample), size).rows]

    once = sampled("t", 7, None)
    assert once == sampled("elsewhere", 7, 500) == sampled("t", 7, 50_000) != sampled("t", 8, None)
    assert 850 < len(once) < 1150 and once[: len(once) // 2] != once[-(len(once) // 2) :]


def test_a_sample_has_a_lower_bound_and_a_place_among_steps(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"f.csv": "a,b\n" + LINES * 5}

    def kept(low: float, high: float, *more: Any) -> int:
        arguments = {"probability": high, "probability_lower_bound": low, "seed": 1}
        sample = {"sample": {"sampler": "random_percent", "sampler_arguments": arguments}}
        return len(read_table(write(tmp_path / "t", files, READ, sample, *more)).rows)

    whole = kept(0, 0.5)
    assert whole == kept(0, 0.2) + kept(0.2, 0.5) and 600 < whole < 900
    # A second sample draws anew.
    assert 0.3 * whole < kept(0, 0.5, {"take_random_sample": {"probability": 0.5, "seed": 1}}) < 0.7 * whole


@pytest.mark.parametrize(
    ("data", "text", "expected"),
    [
        (b"a\n\nb\n", Text(), [0, 3]),
        (b"\n\na", Text(), [2]),
        (b"a\r\n\r\nb", Text(), [0, 3, 5]),
        (b"a\r\n\r\nb", Text(skip_returns=True), [0, 5]),
        (b"a\r\n\r\nb", Text(multi_line=True), [0, 5]),
        ('"é\n",x\n\nb\n"c"'.encode(), Text(multi_line=True), [0, 9, 11]),
        (b"", Text(), []),
    ],
)
def test_positions_of_records(data: bytes, text: Text, expected: list[int]) -> None:
    assert record_positions(data, 100, "utf-8", text).tolist() == [100 + at for at in expected]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1], range(10, 20)),
        ([2, 0], [*range(10), *range(20, 30)]),
        ([0, 1, 2], range(30)),
        ([9, 10, 11], [*range(90, 100), *range(10)]),
        ([9], range(90, 100)),
    ],
)
@pytest.mark.parametrize("size", [10, 25, 1000])
def test_partitions_as_the_vendor_cuts_them(tmp_path: Path, numbers: list[int], expected: Any, size: int) -> None:
    lines = "x\n" + "".join(f"{at:05}\n" for at in range(100))
    read = {"read_delimited": {"partition_size": 60}}
    folder = write(tmp_path / "t", {"f1.csv": lines, "f2.csv": lines}, read, {"select_partitions": numbers})
    # 602 bytes are 11 partitions: the header's bytes count in the first, and no record begins in the last.
    assert [row[0] for row in read_table(folder, size).rows] == list(expected)


def test_partitions_of_what_is_never_cut_and_of_row_groups(tmp_path: Path) -> None:
    lines = "x\n" + "".join(f"{at}\n" for at in range(100))
    read = {"read_delimited": {"partition_size": 60, "encoding": "latin1"}}
    folder = write(tmp_path / "t", {"f1.csv": lines, "f2.csv": "x\n7\n", "f3.csv": ""}, read, {"select_partitions": 1})
    assert read_table(folder, 1).rows == [[7]]
    rows: Rows = [(at, at, "s", 0.5) for at in range(10)]
    files = {"f1.parquet": content(rows, "parquet"), "f2.parquet": content(rows, "parquet")}
    picked = [{"select_partitions": [1, 2, 3]}, {"select_partitions": [0, 2]}]
    found = read_table(write(tmp_path / "p", files, {"read_parquet": {}}, *picked))
    assert [row[0] for row in found.rows] == [4, 5, 6, 7, 0, 1, 2, 3] and found.planned == [4, 4]
    with pytest.raises(PlanningError, match=r"MLTable:1: select_partitions names partition 6, but the input has 6"):
        read_table(write(tmp_path / "p", files, {"read_parquet": {}}, {"select_partitions": [0, 6]}))


NANOSECONDS = {"2020-01-02": 1577923200 * 10**9}


@pytest.mark.parametrize(
    ("given", "column", "expected", "misfits"),
    [
        ([1, -2, None, 2**62 + 1], Column("x"), ["1", "-2", None, str(2**62 + 1)], 0),
        ([1.5, 3.0, None, 1e22, float("inf"), -0.25], Column("x"),
         ["1.5", "3", None, "10000000000000000000000", "inf", "-0.25"], 0),
        ([True, None, False], Column("x"), ["True", None, "False"], 0),
        ([pandas.Timestamp("2020-01-02 03:04:05.5"), None, pandas.Timestamp("2020-01-02")], Column("x"),
         ["2020-01-02T03:04:05.500+00:00", None, "2020-01-02T00:00:00+00:00"], 0),
        ([1.9, -1.9, 2.0, 1e300], Column("x", "int"), [1, -1, 2, 2**63 - 1], 3),
        ([True, False], Column("x", "int"), [None, None], 2),
        ([pandas.Timestamp(0)], Column("x", "int"), [None], 1),
        (["12", " 7 ", "1.9", "1e3", "x", "", None, "99999999999999999999"], Column("x", "int"),
         [12, 7, 1, 1000, None, None, None, 2**63 - 1], 4),
        ([3, 0, None], Column("x", "bool"), [True, False, None], 0),
        ([0.5, 0.0], Column("x", "bool"), [True, False], 0),
        (["1", "y", "", None, " 1 "], Column("x", "bool", true_words=("1",), false_words=("0",), mismatch=False),
         [True, False, False, None, True], 0),
        (["T", "no", "N", "TrUe"], Column("x", "bool", true_words=TRUE_WORDS, false_words=FALSE_WORDS),
         [True, None, False, None], 2),
        ([1, 2], Column("x", "float"), [1.0, 2.0], 0),
        ([-1, 2**62 + 1], Column("x"), ["-1", str(2**62 + 1)], 0),
        (["1.5", "x"], Column("x", "float"), [1.5, None], 1),
        ([10**400, 5, None], Column("x", "float"), [None, 5.0, None], 1),
        ([True], Column("x", "float"), [None], 1),
        ([5], Column("x", "datetime", formats=("%Y",)), [None], 1),
        (["10:20", " 1:2 ", "x"], Column("x", "datetime", formats=("%Y-%m-%d %H:%M",), date_constant="2021-03-04 "),
         [pandas.Timestamp("2021-03-04 10:20"), pandas.Timestamp("2021-03-04 01:02"), None], 1),
        ([datetime.date(1, 1, 1), datetime.date(2020, 1, 2)], Column("x"),
         ["0001-01-01T00:00:00+00:00", "2020-01-02T00:00:00+00:00"], 0),
        ([datetime.datetime(9999, 1, 1, 2, 3, 4), None], Column("x"), ["9999-01-01T02:03:04+00:00", None], 0),
        (["2020-01-02 000000123"], Column("x", "datetime", formats=("%Y-%m-%d %f",)),
         [pandas.Timestamp("2020-01-02 00:00:00.000000123")], 0),
    ],
)  # fmt: skip
def test_conversions(given: list[Any], column: Column, expected: list[Any], misfits: int) -> None:
    exact = isinstance(given[0], int) and not isinstance(given[0], bool) and None in given
    series = pandas.Series(given, dtype=object if exact else None)
    made, count, first, _ = convert_series(series, column)
    found = [None if value is None or value is pandas.NaT or value != value else value for value in made.tolist()]
    assert found == expected and count == misfits
    assert (first >= 0) == bool(misfits)


def test_misfits_of_a_conversion_are_counted_with_an_example(tmp_path: Path) -> None:
    step = {"convert_column_types": [{"columns": "b", "column_type": "int"}, {"columns": ["a"], "column_type": "int"}]}
    found = read_table(write(tmp_path / "t", {"f.csv": "a,b\n1.5,x\n2,3\n3,y\n"}, READ, step))
    assert found.rows == [[1, None], [2, 3], [3, None]]
    file = tmp_path / "t/f.csv"
    assert sorted(found.misfits) == [
        ("a", 1, f"{file}, after byte 4: row 1: 1.5 is not of type int"),
        ("b", 2, f"{file}, after byte 4: row 1: 'x' is not of type int"),
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("int", [1, 2, 2, None, None, None]),
        ("float", [1.0, 2.0, 2.5, None, None, None]),
        ("string", ["1", "2", "2.5", "True", None, "q"]),
        ("boolean", [True, None, True, True, None, None]),
    ],
)
def test_json_values_of_mixed_kinds_are_converted_one_by_one(tmp_path: Path, kind: str, expected: list[Any]) -> None:
    """As the vendor's reader does it."""
    table = {"f.jsonl": "".join(f'{{"x": {value}}}\n' for value in ("1", '"2"', "2.5", "true", "null", '"q"'))}
    convert = {"convert_column_types": [{"columns": "x", "column_type": kind}]}
    read: dict[str, Any] = {"read_json_lines": {}}
    assert [row[0] for row in read_table(write(tmp_path / "t", table, read, convert)).rows] == expected
    # A filter in front needs one kind for all values.
    filtered = read_table(write(tmp_path / "t", table, read, {"filter": "x == 1"}, convert))
    assert filtered.rows[0][0] == expected[0]


def test_steps_without_columns_do_nothing(tmp_path: Path) -> None:
    steps: list[Any] = [READ, {"drop_columns": []}, {"convert_column_types": []}]
    assert read_table(write(tmp_path / "t", {"f.csv": "a,b\n1,x\n2,y\n"}, *steps)).rows == [[1, "x"], [2, "y"]]


def test_large_whole_numbers_beside_nulls_become_their_own_text(tmp_path: Path) -> None:
    table = {"f.csv": "a,b\n9007199254740993,1\n,2\n"}
    convert = {"convert_column_types": [{"columns": "a", "column_type": "string"}]}
    assert read_table(write(tmp_path / "t", table, READ, convert)).rows[0][0] == "9007199254740993"
    kept = read_table(write(tmp_path / "t", table, READ, {"filter": "a == 9007199254740993"}))
    assert kept.rows == [[9007199254740993, 1]] and kept.frames[0].a.dtype == "int64"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_that_a_filter_leaves_are_of_the_same_types_whatever_it_left_out(tmp_path: Path, form: str) -> None:
    table = pandas.DataFrame({"id": [2, 3, 4, 5], "n": [7, None, 8, 9], "b": [True, None, False, None]})
    table = table.astype({"n": "Int64", "b": "boolean"})
    folder = tmp_path / "t"
    name = {"csv": "read_delimited", "jsonl": "read_json_lines", "parquet": "read_parquet"}[form]
    write(folder, {}, {name: {}}, {"filter": "n != 9 and b == b or id == 5"})
    if form == "parquet":
        table = table.astype({"n": "Int8"})
        for at in range(2):
            table[2 * at : 2 * at + 2].to_parquet(folder / f"f{at}")
    for at in range(2) if form != "parquet" else ():
        part = table[2 * at : 2 * at + 2]
        text = part.to_csv(index=False) if form == "csv" else part.to_json(orient="records", lines=True)
        (folder / f"f{at}").write_text(text)
    found = [[str(kind) for kind in frame.dtypes] for frame in read_table(folder).frames]
    assert found == [["int64", "int64", "bool"], ["int64", "int64", "object"]]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([READ, {"filter": "q == 1"}],
         'MLTable:1: filter names the column "q", which the table does not have there. Its columns: a, b.'),
        ([READ, {"keep_columns": "b"}, {"filter": "a == 1"}], "Its columns: b."),
        ([READ, {"filter": "true"}], 'filter names the column "true"'),
        ([READ, {"keep_columns": ["q"]}], "keep_columns leaves no column. The table's columns there: a, b."),
        ([READ, {"drop_columns": {"pattern": "."}}], "drop_columns leaves no column"),
        ([READ, {"take": 0}], "leave no rows"),
        ([READ, {"select_partitions": []}], "leave no rows"),
        ([READ, {"filter": "a > 100"}, {"take": 5}], "leave no rows"),
        ([{"skip": 9}, READ], "leave no files"),
        ([READ, {"filter": "b - 1 > 0"}, {"take": 5}], "the left side of `-` is text, but must be a number"),
    ],
)  # fmt: skip
def test_what_planning_refuses(tmp_path: Path, steps: list[Any], words: str) -> None:
    with pytest.raises(PlanningError) as caught:
        read_table(write(tmp_path / "t", {"f.csv": "a,b\n1,x\n2,y\n"}, *steps))
    assert words in str(caught.value)


def test_a_mini_batch_without_rows_is_void(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {"f.csv": "a,b\n" + LINES}, READ, {"filter": "a == 150"})
    found = read_table(folder, 200)
    assert found.rows == [[150, "v3"]] and len(found.frames) > 5 and not any(found.planned)


def test_a_mini_batch_of_invalid_lines_alone_is_void(tmp_path: Path) -> None:
    lines = [f'{{"a": {at}}}\n' if at < 3 else "nonsense\n" for at in range(9)]
    read = {"read_json_lines": {"invalid_lines": "drop"}}
    found = read_table(write(tmp_path / "t", {"f.jsonl": "".join(lines)}, read), 9)
    assert found.rows == [[0], [1], [2]] and len(found.frames) > 3


def test_steps_before_the_read_choose_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"f{at:02}.csv": f"a\n{at}\n" for at in range(40)}
    folder = tmp_path / "t"
    picked = [{"skip": 2}, {"filter": f"Path != '{folder}/f03.csv'"}, {"take": 3}, {"keep_columns": "Path"}]
    assert read_table(write(folder, files, *picked, READ)).rows == [[2], [4], [5]]
    sample = {"take_random_sample": {"probability": 0.5, "seed": 3}}
    once = read_table(write(folder, files, sample, READ)).rows
    assert once == read_table(write(tmp_path / "moved", files, sample, READ)).rows and 10 < len(once) < 30


def test_a_filter_before_the_read_may_use_columns_from_the_paths(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", {})
    for day in ("2024-01-02", "2024-02-03"):
        for store in ("a", "b"):
            place = folder / store / day
            place.mkdir(parents=True)
            (place / "f.csv").write_text(f"n\n{store}{day}\n")
    extract = {"extract_columns_from_partition_format": {"partition_format": "/{store}/{day:yyyy-MM-dd}/f.csv"}}
    steps = [extract, {"filter": "store == 'b' and day > datetime(2024, 1, 15)"}, READ]
    (folder / "MLTable").write_text(json.dumps({"paths": [{"pattern": "./**/*.csv"}], "transformations": steps}))
    rows = read_table(folder).rows
    assert [row[-1] for row in rows] == ["b2024-02-03"]


def test_a_conversion_of_no_columns_converts_none(tmp_path: Path) -> None:
    step = {"convert_column_types": [{"columns": [], "column_type": "int"}]}
    table = read_table(write(tmp_path / "t", {"f.csv": "a\nx\n"}, READ, step))
    assert table.rows == [["x"]]


def parquet(values: dict[str, Any]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(values), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    "step",
    [
        {"filter": "n > 0"},
        {"take": 9},
        {"take_random_sample": {"probability": 1.0, "seed": 1}},
        {"convert_column_types": [{"columns": "other", "column_type": "int"}]},
        {"extract_columns_from_partition_format": {"partition_format": "/{file}"}},
    ],
    ids=lambda step: next(iter(step)),
)
def test_where_a_step_takes_rows_of_parquet_its_values_have_few_types(tmp_path: Path, step: dict[str, Any]) -> None:
    # Each with the type and the value that Azure ML's reader was seen to give.
    day = datetime.datetime(2020, 1, 2)
    columns: dict[str, tuple[Any, str, Any]] = {
        "n": (pyarrow.array([7], "int8"), "int64", 7),
        "unsigned": (pyarrow.array([7], "uint64"), "int64", 7),
        "single": (pyarrow.array([0.1], "float32"), "float64", 0.10000000149011612),
        "exact": (pyarrow.array([decimal.Decimal("1.10")], pyarrow.decimal128(10, 2)), "float64", 1.1),
        "day": (pyarrow.array([day.date()]), "datetime64[ns]", day),
        "millisecond": (pyarrow.array([day], pyarrow.timestamp("ms")), "datetime64[ns]", day),
        "zoned": (pyarrow.array([day], pyarrow.timestamp("us", tz="UTC")), "datetime64[ns]", day),
        "beyond": (pyarrow.array([datetime.datetime(1, 1, 1)], pyarrow.timestamp("us")), "datetime64[ns]", None),
        "nan": (pyarrow.array([float("nan")]), "float64", None),
        "no_number": (pyarrow.nulls(1, "int64"), "object", None),
        "no_time": (pyarrow.nulls(1, pyarrow.timestamp("us")), "object", None),
    }
    content = parquet({name: array for name, (array, _, _) in columns.items()})
    found = read_table(write(tmp_path / "t", {"f": content}, "read_parquet", step))
    (value,) = found.frames
    assert {name: str(value[name].dtype) for name in columns} == {name: kind for name, (_, kind, _) in columns.items()}
    assert found.rows[0][: len(columns)] == [wanted for _, _, wanted in columns.values()]
    ((column, number, example),) = found.misfits
    assert (column, number) == ("beyond", 1) and "0001-01-01" in example and "row 1" in example


@pytest.mark.parametrize("step", [{"keep_columns": ["n", "nulls"]}, {"select_partitions": [0]}, {"skip": 0}])
def test_steps_that_take_no_rows_of_parquet_keep_its_types(tmp_path: Path, step: dict[str, Any]) -> None:
    content = parquet({"n": pyarrow.array([7], "int8"), "nulls": pyarrow.nulls(1, "int64")})
    (value,) = read_table(write(tmp_path / "t", {"f": content}, "read_parquet", step)).frames
    assert [str(kind) for kind in value.dtypes] == ["int8", "float64"]


def test_a_whole_number_of_parquet_that_64_bits_have_only_without_a_sign_wraps_around_with_a_warning(
    tmp_path: Path,
) -> None:
    content = parquet({"n": pyarrow.array([1, 2**64 - 1], "uint64")})
    kept = read_table(write(tmp_path / "t", {"f": content}, "read_parquet", {"filter": "n != 0"}))
    assert kept.rows == [[1], [-1]] and kept.misfits[0][:2] == ("n", 1)


def test_what_a_conversion_leaves_null_in_parquet_is_an_object(tmp_path: Path) -> None:
    content = parquet({"a": ["x", None], "b": pyarrow.array([None, None], "int64")})
    step = {"convert_column_types": [{"columns": "a", "column_type": "float"}]}
    (value,) = read_table(write(tmp_path / "t", {"f": content}, "read_parquet", step)).frames
    assert value["a"].dtype == value["b"].dtype == object and value.isna().all(axis=None)


@pytest.mark.parametrize("values", [[datetime.datetime(1, 1, 1)], [datetime.date(1, 1, 1)], ["0001-01-01"]])
def test_times_out_of_range_that_a_conversion_leaves_alone_are_times(tmp_path: Path, values: list[Any]) -> None:
    kind = pyarrow.timestamp("us") if isinstance(values[0], datetime.datetime) else None
    content = parquet({"a": pyarrow.array([*values, None], kind)})
    step = {"convert_column_types": [{"columns": "a", "column_type": {"datetime": {"formats": ["%Y-%m-%d"]}}}]}
    found = read_table(write(tmp_path / "t", {"f": content}, "read_parquet", step))
    assert str(found.frames[0]["a"].dtype) == "datetime64[ns]" and found.rows == [[None], [None]]
    assert found.misfits[0][:2] == ("a", 1)


def test_the_text_of_objects_and_arrays(tmp_path: Path) -> None:
    line = {"a": {"b": "x y", "c": None, "d": [1, "t", None, 2.0], "e": True}, "l": [{"k": None}, False]}
    step = {"convert_column_types": [{"columns": ["a", "l"], "column_type": "string"}]}
    found = read_table(write(tmp_path / "t", {"f": json.dumps(line) + "\n"}, {"read_json_lines": {}}, step))
    assert found.rows == [['{b: x y, c: Null, d: [1, "t", null, 2], e: True}', '[{"k": null}, false]']]
    content = parquet({"a": [{"b": 1.0, "c": None}], "l": [[1.5, 2.0]]})
    assert read_table(write(tmp_path / "p", {"f": content}, "read_parquet", step)).rows == [
        ["{b: 1, c: Null}", "[1.5, 2]"]
    ]


@pytest.mark.parametrize("empty", ["no_bytes", "no_rows"])
def test_a_parquet_file_without_rows_adds_neither_rows_nor_columns(tmp_path: Path, empty: str) -> None:
    # Such as the empty part of a writer that does not know the types of nothing.
    nothing = {
        "n": pyarrow.array([], "string"),
        "Path": pyarrow.array([], "string"),
        "more": pyarrow.array([], "int64"),
    }
    files: dict[str, str | bytes] = {
        "f1": b"" if empty == "no_bytes" else parquet(nothing),
        "f2": parquet({"n": pyarrow.array([7], "int8")}),
    }
    found = read_table(write(tmp_path / "t", files, {"read_parquet": {"include_path_column": True}}))
    assert found.rows == [[str(tmp_path / "t" / "f2"), 7]] and found.frames[0]["n"].dtype == "int8"
    with pytest.raises(PlanningError, match="has no records"):
        read_table(write(tmp_path / "u", {"f1": files["f1"]}, "read_parquet"))
