"""The fast way of writing DataFrames against pandas itself: the same bytes, or it must decline."""

from __future__ import annotations

import contextlib
import csv
import decimal
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from windrow_worker.rows.arrow_csv import FastCsv
from windrow_worker.rows.dataframe import DataFrameWriter, check_settings
from windrow_worker.rows.return_values import BadReturn

SEPARATORS = [" ", ",", ";", "\t", "|"]

RNG = np.random.default_rng(7)


def written(frame: pd.DataFrame, settings: dict[str, Any], header: bool = False) -> tuple[bytes, bytes]:
    """Header and rows as the worker writes them."""
    pieces: list[bytes] = []
    writer = DataFrameWriter(settings, header)
    head = writer.header_of(frame)
    writer.write(frame, pieces.append)
    return head, b"".join(pieces)


def by_pandas(frame: pd.DataFrame, settings: dict[str, Any], header: bool = False) -> bytes:
    arguments = {"sep": " ", "index": False, "header": header, **settings}
    return frame.to_csv(None, **arguments).encode("utf-8", "surrogateescape")


def fast(frame: pd.DataFrame, **arguments: Any) -> bytes | None:
    writer = FastCsv.for_arguments({"sep": " ", "index": False, **arguments})
    assert writer is not None
    return writer.render(frame)


floats = st.one_of(
    st.floats(width=64),
    st.integers(-(2**60), 2**60).map(float),
    st.tuples(st.integers(-(10**9), 10**9), st.integers(-15, 15)).map(lambda t: t[0] * 10.0 ** t[1]),
    st.sampled_from([0.0, -0.0, 1e-4, 9.999e-5, 1e10, 9999999999.5, 1e15, 1e16, 1e22, 5e-324, 0.1 + 0.2, 1e10 - 1]),
)
texts = st.one_of(
    st.none(),
    st.text(max_size=6),
    st.text(alphabet=" ,;|\t\"\r\n'\\a\0é", max_size=5),
)


def months(ordinals: list[int]) -> pd.Series:
    """Months of a calendar."""
    return pd.Series(pd.arrays.PeriodArray(np.array(ordinals, "int64"), pd.PeriodDtype("M")))


def instants(unit: str) -> st.SearchStrategy[int]:
    """Ticks of a datetime64 column: NaT, midnights, and times of every fineness, most of them between 1680 and 2260."""
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    return st.one_of(
        st.just(np.iinfo("int64").min),
        *(
            st.integers(-(9 * 10**9) // step, 9 * 10**9 // step).map(lambda n, s=step: n * s * scale)
            for step in (86400, 3600, 1)
        ),
        *(
            st.integers(0, 10**10).map(lambda n, f=fineness: n * (scale // f))
            for fineness in (10**3, 10**6, 10**9)
            if scale >= fineness
        ),
        st.just(-(2**40) * 86400 * scale if unit == "s" else 0),
    )


def mixed(values: list[Any]) -> pd.Series:
    return pd.Series(values, dtype=object)


def zoned(ticks: list[int]) -> pd.Series:
    return pd.Series(np.array(ticks, dtype="int64").view("datetime64[us]")).dt.tz_localize("UTC")


def columns(rows: int) -> st.SearchStrategy[Any]:
    """One column of `rows` values, of any type that people have in DataFrames."""

    def of(values: st.SearchStrategy[Any], build: Any) -> st.SearchStrategy[Any]:
        return st.lists(values, min_size=rows, max_size=rows).map(build)

    return st.one_of(
        of(floats, lambda v: pd.Series(v, dtype="float64")),
        of(st.floats(width=32), lambda v: pd.Series(v, dtype="float32")),
        of(st.floats(width=16), lambda v: pd.Series(v, dtype="float16")),
        of(st.integers(-(2**63), 2**63 - 1), lambda v: pd.Series(v, dtype="int64")),
        of(st.integers(0, 2**64 - 1), lambda v: pd.Series(v, dtype="uint64")),
        of(st.integers(-128, 127), lambda v: pd.Series(v, dtype="int8")),
        of(st.booleans(), lambda v: pd.Series(v, dtype="bool")),
        of(texts, lambda v: pd.Series(v, dtype="object")),
        of(texts, lambda v: pd.Series(v, dtype="str")),
        of(texts, lambda v: pd.Series(v, dtype="string")),
        of(texts, lambda v: pd.Series(v, dtype="category")),
        of(st.sampled_from([None, 1, 2]), lambda v: pd.Series(v, dtype="category")),
        of(st.one_of(texts, floats, st.integers(), st.booleans(), st.binary(max_size=3)), mixed),
        of(st.one_of(st.none(), st.integers(-99, 99)), lambda v: pd.Series(v, dtype="Int64")),
        of(st.one_of(st.none(), st.booleans()), lambda v: pd.Series(v, dtype="boolean")),
        of(st.one_of(st.none(), st.decimals(allow_nan=False, places=2)), lambda v: pd.Series(v, dtype=object)),
        *(
            of(instants(unit), lambda v, u=unit: pd.Series(np.array(v, dtype="int64").view(f"datetime64[{u}]")))
            for unit in ("s", "ms", "us", "ns")
        ),
        of(instants("us"), zoned),
        of(instants("us"), lambda v: zoned(v).dt.tz_convert("Asia/Kathmandu")),
        of(st.integers(-600, 600), months),
        of(st.one_of(st.none(), st.floats(width=32)), lambda v: pd.Series(v, dtype="Float64")),
        of(texts, lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string()))),
        of(st.one_of(st.none(), st.dates()), lambda v: pd.Series(v, dtype=object)),
        of(st.integers(-(2**50), 2**50), lambda v: pd.Series(np.array(v, dtype="int64").view("timedelta64[us]"))),
    )  # fmt: skip


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(0, 6))
    made = draw(st.lists(columns(rows), min_size=0, max_size=4))
    frame = pd.concat(made, axis=1) if made else pd.DataFrame(index=range(rows))
    frame.columns = draw(
        st.sampled_from(
            [
                range(len(made)),
                ["same"] * len(made),
                [f"c {i}" for i in range(len(made))],
                [f'"é\n{i}' for i in range(len(made))],
                pd.MultiIndex.from_tuples([("a", i) for i in range(len(made))] or [("a", "b")]).take(range(len(made))),
            ]
        )
    )
    kind = draw(st.sampled_from(["range", "text", "number", "several"]))
    if kind == "text":
        frame.index = [f"row {number}" for number in range(rows)]
    elif kind == "number":
        frame.index = pd.Index(range(5, 5 + rows), name="id")
    elif kind == "several":
        frame.index = pd.MultiIndex.from_arrays([["x y"] * rows, range(rows)], names=["one", "two"])
    return frame


csv_settings = st.fixed_dictionaries(
    {},
    optional={
        "sep": st.sampled_from([*SEPARATORS, "-", "e", "."]),
        "index": st.booleans(),
        "na_rep": st.sampled_from(["", "NA", "a b", '"', "nan"]),
        "chunksize": st.sampled_from([1, 2, 100]),
        "quoting": st.sampled_from([0, 1, 2]),
        "quotechar": st.sampled_from(["'"]),
        "float_format": st.sampled_from(["%.3f"]),
        "date_format": st.sampled_from(["%d.%m.%Y", "%H:%M"]),
        "decimal": st.sampled_from([","]),
        "lineterminator": st.sampled_from(["\r\n"]),
        "index_label": st.sampled_from(["key"]),
        "doublequote": st.just(True),
    },
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(frame=frames(), settings=csv_settings, header=st.booleans())
def test_writes_what_pandas_writes(frame: pd.DataFrame, settings: dict[str, Any], header: bool) -> None:
    try:
        expected = by_pandas(frame, settings, header)
    except csv.Error:
        # Python before 3.11 writes no NUL as CSV.
        with pytest.raises(BadReturn, match="could not write"):
            written(frame, settings, header)
        return
    head, rows = written(frame, settings, header)
    if frame.shape == (0, 0):
        # As an empty list: no header, which others' headers would have to equal.
        assert (head, rows) == (b"", b"")
        return
    assert head + rows == expected
    assert (head == b"") == (not header)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), rows=st.integers(1, 8), sep=st.sampled_from(SEPARATORS), index=st.booleans())
def test_the_fast_way_itself_writes_what_pandas_writes(data: st.DataObject, rows: int, sep: str, index: bool) -> None:
    # Without the comparison with pandas that it makes on its first chunk.
    frame = pd.concat(data.draw(st.lists(columns(rows), min_size=1, max_size=3)), axis=1)
    writer = FastCsv.for_arguments({"sep": sep, "index": index})
    assert writer is not None
    try:
        rendered = writer._render(frame)
    except Exception:
        return
    with contextlib.suppress(csv.Error):  # of a NUL, as above
        assert rendered == by_pandas(frame, {"sep": sep, "index": index})


def test_random_float_bits_are_written_as_pandas_does() -> None:
    values = RNG.integers(0, 2**64, 50_000, dtype=np.uint64).view(np.float64)
    usual = np.concatenate(
        [RNG.normal(size=50_000) * 10.0 ** RNG.integers(-6, 18, 50_000), RNG.integers(0, 10**9, 50_000) / 1000]
    )
    for column in (values, usual, np.round(usual), usual.astype("float32")):
        frame = pd.DataFrame({"a": column, "b": 1})
        assert fast(frame) == by_pandas(frame, {})


@pytest.mark.parametrize(
    "column",
    [
        [1.5, float("nan"), float("inf")],
        [1, 2, 3],
        [True, False, True],
        ["a", None, "ü,\"x\"\n"],
        pd.to_datetime(["2020-01-01", None, "2021-12-31"]),
        pd.to_datetime(["2020-01-01", None, "2021-12-31 01:02:03.004"], format="ISO8601"),
        pd.Categorical(["b", None, "a b"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sep", SEPARATORS)
@pytest.mark.parametrize("alone", [True, False])
def test_usual_columns_take_the_fast_way(column: Any, sep: str, alone: bool) -> None:
    frame = pd.DataFrame({"x": column}) if alone else pd.DataFrame({"x": column, "n": [7, 8, 9]})
    assert fast(frame, sep=sep) == by_pandas(frame, {"sep": sep})


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": [decimal.Decimal("1.0")]}),
        pd.DataFrame({"a": [b"x"]}),
        pd.DataFrame({"a": ["x", 1]}),
        pd.DataFrame({"a": ["\udcff"]}, dtype=object),
        pd.DataFrame({"a": pd.to_timedelta([1])}),
        pd.DataFrame({"a": [1 + 2j]}),
        pd.DataFrame(index=range(3)),
    ],
)
def test_declines_what_it_does_not_know(frame: pd.DataFrame) -> None:
    assert fast(frame) is None


@pytest.mark.parametrize(
    "arguments",
    [{"float_format": "%.2f"}, {"quoting": 1}, {"sep": "."}, {"sep": "::"}, {"na_rep": " "}, {"columns": ["a"]}],
)  # fmt: skip
def test_declines_settings_it_does_not_know(arguments: dict[str, Any]) -> None:
    assert FastCsv.for_arguments({"sep": " ", "index": False, **arguments}) is None


def test_dates_take_their_form_by_the_chunks_of_pandas() -> None:
    instants = pd.Series(pd.date_range("2020-01-01", periods=120_000, freq="D", unit="s"))
    instants.iloc[-1] += pd.Timedelta("1s")
    frame = pd.DataFrame({"t": instants, "n": range(120_000)})
    _, rows = written(frame, {})
    assert rows == by_pandas(frame, {})
    lines = rows.splitlines()
    assert lines[0] == b"2020-01-01 0"
    assert lines[-2].startswith(b'"')


def test_a_pandas_that_writes_otherwise_is_noticed_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FastCsv.for_arguments({"sep": " ", "index": False})
    assert writer is not None
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    monkeypatch.setattr(pd.DataFrame, "to_csv", lambda self, *a, **k: "1 of another pandas\n")
    assert writer.render(frame) is None
    monkeypatch.undo()
    assert writer.render(frame) is None
    assert writer.render(pd.DataFrame({"a": [1]})) == b"1\n"


@pytest.mark.parametrize(
    ("columns", "settings", "header"),
    [
        (["a", "b"], {}, b"a b\n"),
        (["a b", "c"], {}, b'"a b" c\n'),
        (["a\nb", "c"], {"sep": ","}, b'"a\nb",c\n'),
        (["a", "b"], {"index": True, "sep": ","}, b",a,b\n"),
        (["a", "b"], {"header": ["x", "y"]}, b"x y\n"),
        (["a", "b"], {"header": True}, b"a b\n"),
        (["a", "b"], {"columns": ["b"]}, b"b\n"),
        ([("a", "x"), ("b", "y")], {}, b"a b\nx y\n"),
    ],
)
def test_the_header_travels_apart(columns: list[Any], settings: dict[str, Any], header: bytes) -> None:
    frame = pd.DataFrame([[1, 2], [3, 4]])
    frame.columns = pd.MultiIndex.from_tuples(columns) if isinstance(columns[0], tuple) else pd.Index(columns)
    head, rows = written(frame, settings, True)
    assert head == header
    assert head + rows == by_pandas(frame, {**settings, "header": settings.get("header", True)})
    assert written(frame.iloc[:0], settings, True) == (header, b"")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "UTF_16", "latin-1", "utf-16-le"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 30_000])
def test_the_mark_of_an_encoding_stands_once(encoding: str, header: bool, rows: int) -> None:
    writer = DataFrameWriter({"encoding": encoding, "chunksize": 7_000}, header)
    frame = pd.DataFrame({"name": ["é x"] * rows, "half": [0.5] * rows})
    pieces: list[bytes] = []
    parts = (frame, frame.iloc[:0], frame)
    heads = {writer.header_of(part) for part in parts}
    for part in parts:
        writer.write(part, pieces.append)
    whole = pd.concat([frame, frame]).to_csv(None, sep=" ", index=False, header=header)
    assert heads.pop() + b"".join(pieces) == whole.encode(encoding)
    assert not heads


def test_no_header_unless_asked_for() -> None:
    assert written(pd.DataFrame({"a": [1]}), {}) == (b"", b"1\n")


def test_names_that_are_no_utf8_come_out_as_their_bytes() -> None:
    frame = pd.DataFrame({"name": ["caf\udce9"], "n": [1]}, dtype=object)
    assert written(frame, {}) == (b"", b"caf\xe9 1\n")


@pytest.mark.parametrize(
    ("letter", "settings", "said"),
    [
        ("\ud800", {}, "the lone surrogate U+D800 (column 'b', row 2), which text in utf-8 cannot hold. Clean such"),
        ("\u20ac", {"encoding": "latin-1"}, "the character U+20AC (column 'b', row 2), which text in latin-1"),
        ("\u20ac", {"encoding": "latin-1", "chunksize": 1}, "(column 'b', row 2)"),
        ("\ud800", {"errors": "no such"}, "unknown error handler name 'no such'"),
    ],
)
def test_a_letter_that_cannot_be_written_is_named_with_its_place(
    letter: str, settings: dict[str, Any], said: str
) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "y" + letter]}, dtype=object, index=[7, 8, 9])
    with pytest.raises(BadReturn) as caught:
        written(frame, settings)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["line_terminator", "lineterminator"])
def test_line_ends_have_the_name_of_any_version_of_pandas(name: str) -> None:
    assert written(pd.DataFrame({"a": [1, 2]}), {name: "\r\n"}) == (b"", b"1\r\n2\r\n")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"columns": ["z"]}, "KeyError"), ({"header": ["x", "y"]}, "2 aliases"), ({"float_format": "%z"}, "ValueError")],
)
def test_what_pandas_refuses_is_told_with_the_settings(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadReturn) as caught:
        written(pd.DataFrame({"a": [0.5]}), settings)
    assert said in str(caught.value)
    assert f"was called with {json.dumps(settings)} of parallel_run_step.settings.json" in str(caught.value)


@pytest.mark.parametrize("name", ["path_or_buf", "compression", "mode", "storage_options"])
def test_settings_that_say_where_to_write_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        check_settings({name: "x"})
