"""Columns from paths: what a format captures, where it is anchored, and how its errors are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from windrow.spec.tables.linear_patterns import SHORT_MAX
from windrow.spec.tables.partition_format import compile_format as compile_for_master
from windrow_worker.tables.partition_format import FormatError, compile_format, date_of


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("/{store}/{brand}.csv", "/data/1000/dominicks.csv", {"store": "1000", "brand": "dominicks"}),
        # Dots are part of a name; the last dot ends it, since the format reaches to the end.
        ("{store}_{brand}.{extension}", "/d/1.5_x.y.csv", {"store": "1.5", "brand": "x.y", "extension": "csv"}),
        ("{a}/*.csv", "/x/y/any.csv", {"a": "y"}),
        ("{a}/*/z.csv", "/x/y/any/z.csv", {"a": "y"}),
        ("{a}/*.csv", "/x/y/sub/any.parquet", {"a": None}),
        # The end of the format is the end of the path; its beginning is the first that fits.
        ("{a}/{b}", "/x/y/z", {"a": "y", "b": "z"}),
        ("store={s}/", "/store=1/x.csv", {"s": None}),
        ("store={s}/*", "/mystore=1/x.csv", {"s": "1"}),
        ("{a}\\\\{b}", "/x/y\\z", {"a": "y", "b": "z"}),
        ("{a}/{b}", "/x\\y\\z", {"a": "y", "b": "z"}),
        ("/{a}/{b}/{a}/{c}", "/1/2/3/4", {"a": "1", "b": "2", "c": "4"}),
        ("{{{a}}}/{b}", "/{x}/y", {"a": "x", "b": "y"}),
        (r"/\d+-{a}", "/12-x", {"a": "x"}),
        ("{a}", "/x/sub\nline", {"a": "sub\nline"}),
        ("{a}", "/x/\udcff", {"a": "\\xff"}),
    ],
)
def test_texts_of_paths(text: str, path: str, expected: dict[str, str | None]) -> None:
    found = compile_format(text)
    assert dict(zip(found.names, found.values(path), strict=True)) == expected
    assert found.matches(path) == any(value is not None for value in expected.values())
    # The same for the planner, also with more of a regular expression, and in a long path.
    long = "/" + "d" * SHORT_MAX + path
    for form, at in ((text, path), (text + "()", path), (text, long), (text + "(?:)", long)):
        assert compile_for_master(form).values(at) == found.values(path)


def test_a_part_that_may_be_missing_has_no_value() -> None:
    for compiled in (compile_format, compile_for_master):
        assert compiled("/data(/{a})?/{b}.csv").values("/data/y.csv") == (None, "y")


def test_no_format_takes_for_ever() -> None:
    """Each has more ways to fail than there is time for, where they are tried one after the other."""
    for text in ("x".join(f"{{c{number}}}" for number in range(20)) + "!", "/(x+)+{a}!", "*x" * 20 + "{a}!"):
        assert not compile_for_master(text).matches("/data/" + "x" * 200)
    for text in (r"/(x)\1{a}", "(?=x){a}", "(?P=t0){a}"):
        with pytest.raises(FormatError, match="regular expression"):
            compile_for_master(text)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("{d:yyyy/MM/dd}/{s}.csv", "/data/2020/02/29/x.csv", "2020-02-29T00:00:00"),
        ("{s}/{d: yyyy-MM-ddTHH.mm.ss}", "/x/2020-02-03T04.05.06", "2020-02-03T04:05:06"),
        ("{s}-{d:yyyy}", "/x-1999", "1999-01-01T00:00:00"),
        ("{s}-{d:yyyyMMdd}.csv", "/x-20211231.csv", "2021-12-31T00:00:00"),
        ("{s}/{d:yyyy/MM/dd}", "/x/2021/02/30", None),
        ("{s}/{d:yyyy}", "/x/0001", None),
        ("{s}/{d:yyyy}", "/x/99", None),
    ],
)
def test_dates_of_paths_come_last(text: str, path: str, expected: str | None) -> None:
    found = compile_format(text)
    assert found.names == ("s", "d") and found.has_date
    value = found.values(path)[1]
    assert (None if value is None else date_of(value).isoformat()) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no column"),
        ("/data/*.csv", "names no column"),
        ("/{a", '"{" at character 2 is not closed'),
        ("{a{b}", '"{" at character 1 is not closed'),
        ("{a}}", '"}" at character 4 closes nothing'),
        ("{}/x", "{} has no column name"),
        ("{ }/x", "has no column name"),
        ("{:yyyy}/x", "has no column name"),
        ("{d:}", "has no date format"),
        ("{a:yyyy}/{b:yyyy}", "{a:…} and {b:yyyy} are both dates"),
        ("{d:MM/dd}", "has no year"),
        ("{d:YYYY}", "has no year"),
        ("{d}/{d:yyyy}", "both text and a date"),
        ("(x/{a}", "regular expression"),
    ],
)
def test_formats_that_cannot_be_used(text: str, words: str) -> None:
    with pytest.raises(FormatError) as caught:
        compile_format(text)
    assert words in str(caught.value)


PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\\\0"), min_size=1, max_size=8)


@given(st.lists(PARTS, min_size=1, max_size=5), st.lists(PARTS, max_size=3))
def test_every_part_of_a_path_comes_back(parts: list[str], above: list[str]) -> None:
    names = [f"c{at}" for at in range(len(parts))]
    found = compile_format("/" + "/".join(f"{{{name}}}" for name in names))
    values: tuple[Any, ...] = found.values("/" + "/".join([*above, *parts]))
    assert (found.names, values) == (tuple(names), tuple(parts))
