"""Filters: what passes, as seen of the vendor's reader, and the vectorised evaluation against one row by row."""

from __future__ import annotations

import operator
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow.spec.tables.filter_expression import parse_filter
from windrow_worker.tables.steps.filtering import FilterFailed, passing

ROWS = pandas.DataFrame(
    {
        "a": range(10),
        "b": [at * 0.5 for at in range(10)],
        "c": [f"t{at % 3}" for at in range(10)],
        "d": [bool(at % 2) for at in range(10)],
        "e": pandas.to_datetime([f"2020-01-{at + 1:02}" for at in range(10)]),
        "n": pandas.Series([None if at % 4 == 0 else at for at in range(10)], dtype=object),
        "z": range(-3, 7),
        "x y": ["q"] * 10,
    }
)


def passed(text: str) -> list[int]:
    """Numbers of the rows that pass."""
    return [int(at) for at in passing(parse_filter(text).tree, ROWS).nonzero()[0]]


ALL = list(range(10))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 7", [8, 9]),
        ("col('a')>7 ", [8, 9]),
        ('((col("a") > 3) and (b<2.5))', [4]),
        ("not not a>7", [8, 9]),
        ("a<3 or a>6 and a<8", [0, 1, 2, 7]),
        ("not a == 3 and a < 5", [0, 1, 2, 4]),
        ("a > 3 and not d", [4, 6, 8]),
        ("d != True", [0, 2, 4, 6, 8]),
        ("True", ALL),
        ("n == 1", [1]),
        ("not n == 1", [2, 3, 5, 6, 7, 9]),
        ("n != n or a == 0", [0]),
        ("n > 0 or a >= 0", ALL),
        ("not (n > 100 and a < 0)", [1, 2, 3, 5, 6, 7, 9]),
        ("not (a < 0 and n > 100)", ALL),
        ("n + 1 > 3", [3, 5, 6, 7, 9]),
        ("a / 2 == 1.5", [3]),
        ("a // 2 == 2", [4, 5]),
        ("z // 2 == -1", [0, 1]),
        ("(0 - b) // 2 == -1", [1, 2, 3, 4]),
        ("z % 3 == 1", [1, 4, 7]),
        ("z % -3 == -1", [2, 5, 8]),
        ("2 ** a == 8", [3]),
        ("2 ** 3 ** 0 == a", [2]),
        ("-2 ** 2 == -4", ALL),
        ("10 - 4 - 3 == a", [3]),
        ("-a // 3 == -1", [3, 4, 5]),
        ("a == 0x3", [3]),
        ("z + 9223372036854775807 < 0", [4, 5, 6, 7, 8, 9]),
        ("3 < a < 6", ALL),
        ("a == 1 == 1", []),
        ("c == 't1'", [1, 4, 7]),
        ("c + 'x' == 't1x'", [1, 4, 7]),
        ("c > 5", ALL),
        ("a < 'x'", ALL),
        ("c == 1", []),
        ("a != '1'", ALL),
        ("d > 0", []),
        ("a > True", ALL),
        ("e > '2020-01-05'", ALL),
        ("e > datetime(2020, 1, 5)", [5, 6, 7, 8, 9]),
        ("e >= datetime(2020)", ALL),
        ("datetime(2020,1,5,12,30,15) < e", [5, 6, 7, 8, 9]),
        ("c.startswith('t1') and d", [1, 7]),
        ('startswith(c, "t1")', [1, 4, 7]),
        ("startswith('t1x', c)", [1, 4, 7]),
        ("col(\"x y\") == 'q'", ALL),
        ("d == (a > 3)", [0, 2, 5, 7, 9]),
        ("not (a > 3) == d", [1, 3, 4, 6, 8]),
        ("a > 5 or a / 0 > 1 and False or True", ALL),
        ("a >= 0 or a / 0 > 1", ALL),
        ("a < 0 and c", []),
        ("c - 1 > 0 or True", ALL),
        ("a / z > 0 or z == 0", [3, 4, 5, 6, 7, 8, 9]),
        ("c - 1 > 0 or a > 3", None),
        ("a + 1", None),
        ("c", None),
        ("d and c", None),
        ("not a", None),
        ("-c == 1", None),
        ("c - c == 1", None),
        ("d + 1 == 2", None),
        ("a % 0 == 1", None),
        ("n.startswith('1')", None),
    ],
)
def test_what_passes(text: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(FilterFailed):
            passed(text)
    else:
        assert passed(text) == expected


def test_nulls_of_every_kind_of_column() -> None:
    rows = pandas.DataFrame(
        {
            "s": ["a", None, "b"],
            "f": [1.0, float("nan"), 3.0],
            "t": pandas.to_datetime(["2020-01-01", None, "2021-01-01"]),
            "o": [True, None, False],
            "all": [None, None, None],
        }
    )
    for text in ("s != 'z'", "f < 9", "t < datetime(2030)", "o == o", "not (s == 'z')"):
        assert passing(parse_filter(text).tree, rows).tolist() == [True, False, True], text
    for text in ("all == 1", "all != 1", "not all", "all and True", "-all < 0", "all + all == 0", "all"):
        assert passing(parse_filter(text).tree, rows).tolist() == [False] * 3, text
    assert passing(parse_filter("all or o").tree, rows).tolist() == [True, False, False]
    with pytest.raises(FilterFailed, match="null in some rows"):
        passing(parse_filter("s.startswith('a')").tree, rows)
    assert passing(parse_filter("s == s and s.startswith('a')").tree, rows).tolist() == [True, False, False]


def test_whole_numbers_beside_nulls_are_compared_exactly() -> None:
    rows = pandas.DataFrame({"id": pandas.Series([2**53, 2**53 + 1, None], dtype=object)})
    assert passing(parse_filter("id == 9007199254740993").tree, rows).tolist() == [False, True, False]
    rows = pandas.DataFrame({"id": pandas.Series([-(2**70), 2**70, None], dtype=object)})
    assert passing(parse_filter("id < 0").tree, rows).tolist() == [True, False, False]


_SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_COMPARISONS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


def judged(tree: list[Any], row: dict[str, Any]) -> Any:
    """The value of a tree for one row, by docs/reference/azure-ml/mltable.md#filters; None for null."""
    head = tree[0]
    if head == "column":
        return row[tree[1]]
    if head == "value":
        return tree[1]
    left = judged(tree[1], row)
    if head == "not":
        return None if left is None else not left
    if head == "and":
        return left if left in (None, False) else judged(tree[2], row)
    if head == "or":
        right = None if left is True else judged(tree[2], row)
        return True if True in (left, right) else None if None in (left, right) else False
    right = judged(tree[2], row)
    if left is None or right is None:
        return None
    if head in _SIGNS:
        return _SIGNS[head](left, right)
    ranks = [0 if isinstance(value, bool) else 2 if isinstance(value, str) else 1 for value in (left, right)]
    return _COMPARISONS[head](*((left, right) if ranks[0] == ranks[1] else ranks))


_NUMBERS = st.recursive(
    st.sampled_from([["column", "i"], ["column", "f"]]) | st.integers(-3, 3).map(lambda value: ["value", value]),
    lambda parts: st.tuples(st.sampled_from(list(_SIGNS)), parts, parts).map(list),
    max_leaves=4,
)
_ANY = _NUMBERS | st.sampled_from([["column", "s"], ["column", "b"], ["value", "m"], ["value", True]])
_TRUTHS = st.recursive(
    st.tuples(st.sampled_from(list(_COMPARISONS)), _ANY, _ANY).map(list) | st.just(["column", "b"]),
    lambda parts: (
        st.tuples(st.just("not"), parts).map(list) | st.tuples(st.sampled_from(["and", "or"]), parts, parts).map(list)
    ),
    max_leaves=6,
)
_CELLS = {
    "i": st.none() | st.integers(-3, 3),
    "f": st.none() | st.sampled_from([-1.5, 0.0, 0.5, 2.0]),
    "s": st.none() | st.sampled_from(["", "a", "m", "z"]),
    "b": st.none() | st.booleans(),
}


@settings(max_examples=300, deadline=None)
@given(tree=_TRUTHS, rows=st.lists(st.fixed_dictionaries(_CELLS), max_size=6))
def test_agrees_with_evaluation_row_by_row(tree: list[Any], rows: list[dict[str, Any]]) -> None:
    frame = pandas.DataFrame({name: pandas.Series([row[name] for row in rows], dtype=object) for name in _CELLS})
    frame["f"] = frame["f"].astype("float64")
    assert passing(tree, frame).tolist() == [judged(tree, row) is True for row in rows]
