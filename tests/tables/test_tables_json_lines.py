"""Nested values of JSON lines: all objects of a column have the same keys, as the vendor's reader makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planned_table import planned, read_table
from windrow_worker.loading import make_loader
from windrow_worker.tables.json_lines import INVALID_LINES_MAX, KEYS_MAX, filled, merged


def _values(folder: Path, lines: str) -> list[Any]:
    (folder / "f.jsonl").write_text(lines)
    (folder / "MLTable").write_text("paths: [{file: ./f.jsonl}]\ntransformations: [read_json_lines]\n")
    return [row[0] for row in read_table(folder).rows]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"a": 1, "b": 2}, {"a": 3}, {"c": 4}, None],
         [{"a": 1, "b": 2, "c": None}, {"a": 3, "b": None, "c": None}, {"a": None, "b": None, "c": 4}, None]),
        ([{"a": 1}, {"b": {"c": 1}}, {"b": {"d": 2}}],
         [{"a": 1, "b": None}, {"a": None, "b": {"c": 1, "d": None}}, {"a": None, "b": {"c": None, "d": 2}}]),
        ([[{"a": 1}], [{"b": 2}, {"a": 1}], []],
         [[{"a": 1, "b": None}], [{"a": None, "b": 2}, {"a": 1, "b": None}], []]),
        ([{}, {"a": 1}], [{"a": None}, {"a": 1}]),
        ([[1, 2], [None]], [[1, 2], [None]]),
    ],
)  # fmt: skip
def test_missing_inner_keys_are_null(tmp_path: Path, given: list[Any], expected: list[Any]) -> None:
    lines = "".join(json.dumps({"x": value}) + "\n" for value in given)
    rows = _values(tmp_path, lines)
    assert rows == expected


def test_keys_have_the_order_in_which_they_were_first_seen(tmp_path: Path) -> None:
    lines = '{"x": {"b": 1, "a": 2}}\n{"x": {"a": 2, "b": 3}}\n'
    rows = _values(tmp_path, lines)
    assert [list(row) for row in rows] == [["b", "a"], ["b", "a"]]


def test_an_object_whose_keys_are_data_stays_as_it_is(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"x": {f"user{number}": number}}) + "\n" for number in range(KEYS_MAX + 1))
    rows = _values(tmp_path, lines)
    assert rows[:2] == [{"user0": 0}, {"user1": 1}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(JSON, min_size=1, max_size=5))
def test_filling_loses_nothing_and_adds_only_null(values: list[Any]) -> None:
    shape = None
    for value in values:
        shape = merged(shape, value)

    def without_null(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_null(item) for key, item in value.items() if item is not None}
        return [without_null(item) for item in value] if isinstance(value, list) else value

    for value in values:
        made = filled(value, shape)
        assert without_null(made) == without_null(value)
        assert filled(made, shape) == made


def test_lines_that_are_no_objects_come_last(tmp_path: Path) -> None:
    lines = '{"x": 1}\n' * 10_000 + 'nonsense\n\n{"x": 2}\n[3]\n'
    (tmp_path / "f.jsonl").write_text(lines)
    found = planned(tmp_path / "f.jsonl")
    (recipe,) = found.recipes
    loaded = make_loader(found.reader).load(json.dumps(recipe).encode())
    assert (loaded.item_count, loaded.readable_count, len(loaded.value)) == (10_002 + 1, 10_001, 10_001)
    assert [place for place, _ in loaded.unreadable] == [f"{tmp_path}/f.jsonl, line {at}" for at in (10_001, 10_004)]
    assert loaded.positions is not None
    assert loaded.positions()[-2:].tolist() == [9 * 9_999, lines.index('{"x": 2}')]


def test_too_many_of_them_cannot_be_read_at_all(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('{"x": 1}\n' * 10_000 + "no\n" * (INVALID_LINES_MAX + 1))
    found = planned(tmp_path / "f.jsonl")
    with pytest.raises(
        ValueError, match=r"f.jsonl, line 10001: the line is not a JSON object .* \(5000 others as well"
    ):
        make_loader(found.reader).load(json.dumps(found.recipes[0]).encode())


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('m == "a"', [2]),
        ("m == 1", [1]),
        ("m > 1", [2, 4, 6]),
        ("m != 1", [2, 3, 4, 6]),
        ("m == True", [3]),
        ('m < "b"', [1, 2, 3, 4, 6]),
    ],
)
def test_filters_compare_values_of_mixed_kinds_as_they_stand(tmp_path: Path, text: str, left: list[int]) -> None:
    """The rows are those of Azure ML's reader; what is not of the column's kind is null afterwards, and counted."""
    given = [1, "a", True, 2.5, None, 7]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps({"i": at + 1, "m": m}) + "\n" for at, m in enumerate(given)))
    (tmp_path / "MLTable").write_text(
        f"paths: [{{file: ./f.jsonl}}]\ntransformations:\n- read_json_lines\n- filter: {text!r}\n"
    )
    table = read_table(tmp_path)
    assert table.rows == [[at, given[at - 1] if at in (1, 6) else None] for at in left]
    assert sum(count for _, count, _ in table.misfits) == sum(at in (2, 3, 4) for at in left)
    if left == [1]:
        assert table.frames[0]["m"].dtype == "int64"
