"""Delimited text: the exact rule case by case, and the fast way against it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from planned_table import read_table
from windrow_worker.loaded import InputChanged
from windrow_worker.tables.columns import (
    FALSE_WORDS,
    PLAIN_FALSE_WORDS,
    PLAIN_TRUE_WORDS,
    TRUE_WORDS,
    Column,
)
from windrow_worker.tables.delimited import DelimitedLoader
from windrow_worker.tables.delimited_text import Text, header_names, records, widened
from windrow_worker.tables.null_columns import NullColumnsLoader

INT, FLOAT, TEXT = Column("i", "int"), Column("f", "float"), Column("t")
BOOL = Column("b", "bool", true_words=TRUE_WORDS, false_words=FALSE_WORDS)
PLAIN_BOOL = Column("p", "bool", true_words=PLAIN_TRUE_WORDS, false_words=PLAIN_FALSE_WORDS)
LISTED_BOOL = Column("l", "bool", true_words=("1", "T"), false_words=("0",), mismatch=False)
DATE = Column("d", "datetime", dates=("yyyy-M-d", "yyyy-M-d HH:mm:ss.f", "yyyy-M-dTHH:mm:ssz"))


DEFAULT = Text()


def loader(
    columns: Sequence[Column],
    text: Text = DEFAULT,
    encoding: str = "utf-8",
    fast: bool = True,
    fields: int | None = None,
) -> DelimitedLoader:
    """A loader of one layout: the columns in the order of the file."""
    return DelimitedLoader(
        {
            "columns": [column.to_json() for column in columns],
            "layouts": [list(range(len(columns)))],
            "fields": [fields],
            "text": text._asdict(),
            "encoding": encoding,
            "path_column": False,
        },
        fast,
    )


def recipe(file: Path, begin: int = 0, end: int | None = None) -> bytes:
    """All of a file, or a part of it."""
    now = file.stat()
    end = now.st_size if end is None else end
    where = {
        "file": str(file),
        "size": now.st_size,
        "mtime_ns": now.st_mtime_ns,
        "begin": begin,
        "end": end,
        "layout": 0,
    }
    return json.dumps(where).encode()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a,b\nc,d\n", [["a", "b"], ["c", "d"]]),
        ("a,b", [["a", "b"]]),
        ("", []),
        ("\n\na\n\n", [["a"]]),
        ("a\r\n\r\nb\r\n", [["a"], [None], ["b"]]),
        (" \nx\n", [[" "], ["x"]]),
        ("a\rb,c\n", [["a\rb", "c"]]),
        ("a,b\r", [["a", "b"]]),
        ('"a,b",c\n', [["a,b", "c"]]),
        ('"a""b",c\n', [['a"b', "c"]]),
        ('"x"y,b\n', [["xy", "b"]]),
        ('x"y,"z"\n', [['x"y', "z"]]),
        (' "q",r\n', [[' "q"', "r"]]),
        ('"x\nb,c\n', [['"x'], ["b", "c"]]),
        ('a,"b,c\nd\n', [["a", '"b', "c"], ["d"]]),
        ('"a""b,"c"\n', [['a"b,c"']]),
        # Two quotes at the end are one, and close the field.
        ('1,"a""\n', [["1", 'a"']]),
        ('"""\n2\n', [['"'], ["2"]]),
        ('1,"a""b\n', [["1", '"a""b']]),
        ('"a,b""c,,1\n', [['"a', 'b""c', None, "1"]]),
        ("'a,b'\n", [["'a", "b'"]]),
        ('a\\"b,c\n', [['a\\"b', "c"]]),
        (',""\n', [[None, ""]]),
        ("a,\n", [["a", None]]),
        ("\x0b\x85\u2028,\x00\n", [["\x0b\x85\u2028", "\x00"]]),
    ],
)
def test_single_line_records(data: str, expected: list[list[str | None]]) -> None:
    assert list(records(data, Text())) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('"a\nb",c\n', [["a\nb", "c"]]),
        ('"a\r\nb",c\r\n', [["a\r\nb", "c"]]),
        ('a\r\n\r\n"b"\r\n', [["a"], ["b"]]),
        ("a\r\n\r\nb\r\n", [["a"], ["b"]]),
        ('a,"b\nc,,d\n', [["a", '"b\nc', None, "d\n"]]),
        ('a,"b""', [["a", 'b"']]),
        ('a,"b""\n', [["a", '"b""\n']]),
        ("a,b\r", [["a", "b\r"]]),
        ('"a"\nb\r', [["a"], ["b\r"]]),
        ('""\n"x"\n', [[""], ["x"]]),
        ('"a",\n', [["a", None]]),
        ('"a",', [["a", None]]),
        ('"a"x\r\ny\n', [["ax"], ["y"]]),
        ('a"b\n"c"\n', [['a"b'], ["c"]]),
    ],
)
def test_multi_line_records(data: str, expected: list[list[str | None]]) -> None:
    assert list(records(data, Text(multi_line=True))) == expected


def test_empty_as_string_keeps_empties_but_not_padding(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('a,,""\nb\n')
    for fast in (True, False):
        columns = [Column("x"), Column("y"), Column("z")]
        loaded = loader(columns, Text(empty_as_string=True), fast=fast).load(recipe(file))
        assert loaded.value.y[0] == "" and loaded.value.z[0] == ""
        assert loaded.value.y.isna().tolist() == [False, True]


def test_header_names() -> None:
    assert header_names([" a ", "a", None, "a", ""]) == ["a", "a_1", "Column3", "a_2", "Column5"]
    assert header_names(["a", "a_1", "a"]) == ["a", "a_1", "a_2"]
    assert header_names(["a", "a", "a_3", "a_1", "a", "a_1"]) == ["a", "a_2", "a_3", "a_1", "a_4", "a_1_1"]
    assert widened(["x"], 3) == ["x", "Column2", "Column3"]


def same(fast: Any, exact: Any) -> None:
    """The same frame, and the same misfits."""
    pandas.testing.assert_frame_equal(fast.value, exact.value, check_exact=True)
    assert fast.item_count == exact.item_count == len(exact.value)
    assert fast.misfits == exact.misfits


_WORDS = [
    "",
    '""',
    "a",
    '"',
    '"a',
    'a"',
    '"a""b"',
    '"x"y',
    "0",
    "1",
    "+1",
    "007",
    "0x10",
    "9" * 20,
    "-9223372036854775808",
]
_WORDS += [
    "1.9",
    ".5",
    "1.",
    "1e5",
    "1e400",
    "nan",
    "NAN",
    "nan(1)",
    "-nan",
    "inf",
    "-Infinity",
    "1_0",
    " 3 ",
    "\t4",
    "\x0b5",
]
_WORDS += [
    "true",
    "True",
    "T",
    "f",
    "Yes",
    "no",
    " true ",
    "2020-01-02",
    "2020-1-2",
    "2020-02-30",
    "2020-01-02 03:04:05",
]
_WORDS += [
    "2020-01-02T03:04:05.123456789",
    "2020-01-02T03:04:05Z",
    "2020/01/02",
    "1492-01-01",
    "2020-01-02 03:04",
    "é",
    "\ufeff",
]
_SEPARATORS = [",", ",", ",", "\n", "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", ' "', '"']


@st.composite
def delimited(draw: st.DrawFn) -> str:
    """Text made of what matters to one of the two ways."""
    parts = draw(st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_SEPARATORS)), max_size=14))
    return "".join(word + separator for word, separator in parts)


@st.composite
def tidy(draw: st.DrawFn) -> str:
    """Text of full records, which the fast way takes to its end."""
    rows = draw(st.lists(st.lists(st.sampled_from(_WORDS), min_size=1, max_size=4), max_size=8))
    return "".join(",".join(row) + draw(st.sampled_from(["\n", "\r\n"])) for row in rows)


@settings(max_examples=400, deadline=None)
@given(
    data=delimited() | tidy(),
    columns=st.lists(st.sampled_from([INT, FLOAT, TEXT, BOOL, PLAIN_BOOL, LISTED_BOOL, DATE]), min_size=1, max_size=4),
    multi_line=st.booleans(),
    empty_as_string=st.booleans(),
    skip_returns=st.booleans(),
)
# The open quote makes one short record of all that follows; the nulls before it are a record too.
# An empty text is one that is not listed.
@example(data="1,1\n1,\n", columns=[INT, LISTED_BOOL], multi_line=False, empty_as_string=True, skip_returns=False)
@example(data='a,b\n,\n"x,y\n', columns=[TEXT] * 2, multi_line=True, empty_as_string=False, skip_returns=False)
def test_fast_way_agrees_with_exact_way(
    tmp_path_factory: pytest.TempPathFactory,
    data: str,
    columns: list[Column],
    multi_line: bool,
    empty_as_string: bool,
    skip_returns: bool,
) -> None:
    file = tmp_path_factory.getbasetemp() / "agree.csv"
    file.write_bytes(data.encode())
    named = [column._replace(name=f"{column.name}{at}") for at, column in enumerate(columns)]
    text = Text(",", multi_line, empty_as_string, skip_returns)
    fast = loader(named, text)
    exact = loader(named, text, fast=False).load(recipe(file))
    same(fast.load(recipe(file)), exact)
    # Columns known to hold misfits are read another way from then on.
    same(fast.load(recipe(file)), exact)


@pytest.mark.parametrize("encoding", ["windows-1252", "utf-16-le"])
@pytest.mark.parametrize("fast", [True, False])
def test_encodings(tmp_path: Path, encoding: str, fast: bool) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("1,é€\n2,ß\n".encode("cp1252" if encoding == "windows-1252" else encoding))
    loaded = loader([INT, TEXT], encoding=encoding, fast=fast).load(recipe(file))
    assert loaded.value.t.tolist() == ["é€", "ß"]


def test_windows_1252_reads_the_five_undefined_bytes_as_controls(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"a\x81\x8d\x8f\x90\x9d\n")
    loaded = loader([TEXT], encoding="windows-1252").load(recipe(file))
    assert loaded.value.t[0] == "a\x81\x8d\x8f\x90\x9d"


@pytest.mark.parametrize("fast", [True, False])
def test_bytes_that_are_no_text_fail_and_are_named(tmp_path: Path, fast: bool) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"abc,d\nx\xff,y\n")
    with pytest.raises(ValueError, match=r"a\.csv cannot be read: byte 7 \(0xff\) is not valid UTF-8"):
        loader([TEXT, TEXT._replace(name="u")], fast=fast).load(recipe(file))


def test_non_ascii_and_other_delimiters(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1§a\n2§b\n")
    assert loader([INT, TEXT], Text("§")).load(recipe(file)).value.t.tolist() == ["a", "b"]
    file.write_text("1\ta\n2\tb\n")
    assert loader([INT, TEXT], Text("\t")).load(recipe(file)).value.t.tolist() == ["a", "b"]


@pytest.mark.parametrize("fast", [True, False])
def test_records_with_more_or_fewer_fields_than_the_header_are_counted(tmp_path: Path, fast: bool) -> None:
    """Values stay: short records are filled with nulls, and the table is as wide as its sample."""
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n3\n4,5,6\n7\n8,9\n0,1,2,3\n")
    columns = [INT, INT._replace(name="j"), INT._replace(name="Column3")]
    loaded = loader(columns, fast=fast, fields=2).load(recipe(file, begin=4))
    assert loaded.value.Column3.fillna(-1).tolist() == [-1, -1, 6, -1, -1, 2]
    assert loaded.misfits == [
        ("j", 2, f"{file}, line 3: has 1 field, and the header 2"),
        ("Column3", 1, f"{file}, line 4: has 3 fields, and the header 2"),
        ("Column4", 1, f"{file}, line 7: has 4 fields, and the header 2"),
    ]
    assert not loader(columns[:2], fast=fast, fields=2).load(recipe(file, begin=4, end=8)).misfits
    whole = loader(columns, fast=fast, fields=2)
    file.write_text("1,2,3\n4,5,6\n")
    assert whole.load(recipe(file)).misfits == [("Column3", 2, f"{file}, line 1: has 3 fields, and the header 2")]


@pytest.mark.parametrize("fast", [True, False])
def test_misfits_are_counted_with_line_and_value(tmp_path: Path, fast: bool) -> None:
    file = tmp_path / "a.csv"
    file.write_text("i,f\n1,2\n1.9,x\n3,4,extra\n,\nfoo,5\n")
    loaded = loader([INT, FLOAT], fast=fast).load(recipe(file, begin=4))
    assert loaded.value.i.tolist()[:3] == [1, 1, 3] and loaded.value.i.isna().tolist() == [False] * 3 + [True] * 2
    assert loaded.misfits == [
        ("i", 2, f"{file}, line 3: '1.9' is not of type int"),
        ("f", 1, f"{file}, line 3: 'x' is not of type float"),
        ("Column3", 1, f"{file}, line 4: has 3 fields, and the table 2"),
    ]


def test_types_in_pandas(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1,1,t,2020-01-02,x\n,2,f,,\n")
    columns = [Column("n", "int"), INT, BOOL, DATE, TEXT]
    value = loader(columns).load(recipe(file)).value
    # As Arrow gives them: an int column with nulls is float64.
    assert [str(kind) for kind in value.dtypes[:4]] == ["float64", "int64", "bool", "datetime64[ns]"]
    assert value.d[0] == pandas.Timestamp("2020-01-02") and pandas.isna(value.d[1]) and pandas.isna(value.t[1])


def test_a_file_that_changed_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("1\n2\n")
    stored = recipe(file)
    with file.open("a") as more:
        more.write("3\n")
    with pytest.raises(InputChanged, match="had 4 bytes and now has 6"):
        loader([INT]).load(stored)
    file.unlink()
    with pytest.raises(OSError, match=r"/a\.csv was there when .* cannot be read on this node: No such file"):
        loader([INT]).load(stored)


def test_columns_by_layout_and_path_column(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x,1\n")
    reader = {
        "columns": [INT.to_json(), FLOAT.to_json(), TEXT.to_json()],
        "layouts": [[2, 0]],
        "fields": [None],
        "text": Text()._asdict(),
        "encoding": "utf-8",
        "path_column": True,
    }
    for fast in (True, False):
        value = DelimitedLoader(reader, fast).load(recipe(file)).value
        assert list(value.columns) == ["Path", "i", "f", "t"]
        assert value.Path[0] == str(file) and value.i[0] == 1 and value.t[0] == "x" and pandas.isna(value.f[0])


@pytest.mark.parametrize(
    ("data", "multi_line"),
    [
        (b"1,a\n2,b\n", False),
        (b'1,"a,b"\r\n2,"c"\r\n', False),
        (b'1,"a\nb"\n', True),
        (b"x,a\n1.5,b\n", False),
        (b"1\n2,b\n3,c,d\n", False),
        ("1,é\n".encode(), False),
        (b"1,a\n\n2,b\n", False),
    ],
)
def test_common_cases_take_the_fast_way(data: bytes, multi_line: bool) -> None:
    arrow = pytest.importorskip("windrow_worker.tables.arrow_delimited")
    found = arrow.read_fast(data, Text(multi_line=multi_line), [INT, TEXT], set(), None)
    assert found is not None and found.rows == len(list(records(data.decode(), Text(multi_line=multi_line))))


@pytest.mark.parametrize("fast", [True, False])
def test_a_column_without_a_value_holds_objects(tmp_path: Path, fast: bool) -> None:
    """As the vendor's reader says, also where pandas 3 has a type of its own for texts."""
    file = tmp_path / "a.csv"
    file.write_text("1,,a\n2,,\n")
    value = NullColumnsLoader(loader([INT, Column("none"), TEXT], fast=fast)).load(recipe(file)).value
    assert value["none"].dtype == object and value["none"].isna().all()
    assert value["t"].dtype != object or pandas.__version__ < "3"


def test_columns_of_nan_and_of_far_times_keep_their_type(tmp_path: Path) -> None:
    """As in Azure ML's reader, where only what is null all through has no type."""
    (tmp_path / "a.csv").write_text("f,d,y,n,x\nNaN,9999-12-31,1/2/03,,1\nnan,1600-01-01,3/4/05,,\n")
    (tmp_path / "MLTable").write_text(
        "paths: [{file: ./a.csv}]\ntransformations:\n- read_delimited: {header: all_files_same_headers}\n"
        "- convert_column_types: [{columns: x, column_type: {datetime: {formats: ['%Y-%m']}}}]\n"
    )
    table = read_table(tmp_path)
    (value,) = table.frames
    assert value.isna().to_numpy().all()
    kinds = [value[name].dtype.kind for name in value]
    assert kinds == ["f", "M", "M", "O", "O"]
    assert sorted(name for name, _, _ in table.misfits) == ["d", "x", "y"]
