"""Parts of tables that were cut wrongly: the worker notices by rules of its own, and never reads other rows in
silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_table import Plan, planned
from windrow_master.planning.errors import PlanningError
from windrow_master.planning.tables import cut as cut_module
from windrow_master.planning.tables.cutting import Found, LineCutter, QuotedCutter
from windrow_worker.loaded import InputMisread
from windrow_worker.loading import make_loader

QUOTED = "id,text\n" + "".join(f'{at},"line {at}\nof ""{at}""\n"\n' for at in range(40))
LINES = "id,text\n" + "".join(f"{at},line {at}\n" for at in range(40))
JSON_LINES = "".join(json.dumps({"id": at, "text": f"line {at}"}) + "\n" for at in range(40))
LINE_BY_LINE = "read_delimited: {header: all_files_same_headers}"
JSON_STEP = "read_json_lines: {}"
MULTI_LINE = "read_delimited: {support_multi_line: true, header: all_files_same_headers}"


def table(folder: Path, name: str, content: str | bytes, step: str, size: int | None = 100, **more: Any) -> Plan:
    """A planned table of one file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "MLTable").write_text(f"paths: [{{file: ./{name}}}]\ntransformations:\n  - {step}\n")
    return planned(folder, size, **more)


def rows(plan: Plan, recipe: dict[str, Any], *, fast: bool = True) -> int:
    """How many a worker reads."""
    loader: Any = make_loader(plan.reader)
    if hasattr(loader, "_fast"):
        loader._fast = fast and loader._fast
    return int(loader.load(json.dumps(recipe).encode()).item_count)


def tables(folder: Path) -> dict[str, tuple[Plan, str]]:
    """One of each kind that is cut by bytes, with its text."""
    return {
        "multi_line": (table(folder / "q", "a.csv", QUOTED, MULTI_LINE), QUOTED),
        "lines": (table(folder / "l", "a.csv", LINES, LINE_BY_LINE), LINES),
        "json_lines": (table(folder / "j", "a.jsonl", JSON_LINES, JSON_STEP), JSON_LINES),
        "utf_16": (
            table(folder / "u", "a.csv", LINES.encode("utf-16"), "read_delimited: {encoding: utf16}"),
            LINES,
        ),
    }


KINDS = ("multi_line", "lines", "json_lines", "utf_16")


@pytest.mark.parametrize("kind", KINDS)
def test_parts_that_were_cut_rightly_are_read(tmp_path: Path, kind: str) -> None:
    plan, _ = tables(tmp_path)[kind]
    assert len(plan.recipes) > 3
    assert sum(rows(plan, recipe) for recipe in plan.recipes) == 40


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["begin", "end"])
@pytest.mark.parametrize("by", [-3, -1, 1, 3])
def test_an_end_within_a_line(tmp_path: Path, kind: str, fast: bool, end: str, by: int) -> None:
    plan, _ = tables(tmp_path)[kind]
    recipe = plan.recipes[1]
    with pytest.raises(InputMisread, match="was cut wrongly, and none of it was run"):
        rows(plan, {**recipe, end: recipe[end] + by}, fast=fast)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("counted", [True, False])
def test_an_end_within_quotes(tmp_path: Path, fast: bool, counted: bool) -> None:
    # The kind of wrong cut that an interpreter with a fault once made: at the end of a line, but within a field.
    plan, text = tables(tmp_path)["multi_line"]
    for recipe in plan.recipes[:-1]:
        where = dict(recipe) if counted else {key: value for key, value in recipe.items() if key != "records"}
        for inside in (text.index("\n", where["end"]) + 1, text.rindex("\n", 0, where["end"] - 1) + 1):
            with pytest.raises(InputMisread, match=r"ends within quotes|has \d+ records"):
                rows(plan, {**where, "end": inside}, fast=fast)


@pytest.mark.parametrize("fast", [True, False])
def test_a_beginning_within_quotes_and_another_record(tmp_path: Path, fast: bool) -> None:
    plan, text = tables(tmp_path)["multi_line"]
    recipe = plan.recipes[1]
    line = text.index("\n", recipe["begin"]) + 1
    record = text.index("\n", text.index('\n"', recipe["begin"]) + 1) + 1
    for begin in (line, record):
        with pytest.raises(InputMisread, match="was cut wrongly"):
            rows(plan, {**recipe, "begin": begin}, fast=fast)
    with pytest.raises(InputMisread, match=r"has \d+ records, not the \d+ that were counted"):
        rows(plan, {**recipe, "end": plan.recipes[2]["end"]}, fast=fast)


@pytest.mark.parametrize("kind", ["lines", "json_lines"])
def test_another_line_where_lines_were_counted(tmp_path: Path, kind: str) -> None:
    name, text, step = {"lines": ("a.csv", LINES, LINE_BY_LINE), "json_lines": ("a.jsonl", JSON_LINES, JSON_STEP)}[kind]
    plan = table(tmp_path / "counted", name, text, step, exact_row_index=True)
    recipe = plan.recipes[1]
    assert rows(plan, recipe) == recipe["records"]
    for key in ("begin", "end"):
        with pytest.raises(InputMisread, match="records, not the"):
            rows(plan, {**recipe, key: text.index("\n", recipe[key]) + 1})


def test_another_line_where_it_was_cut_by_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(JSON_LINES)
    plan = planned(tmp_path / "a.jsonl", None, kind="uri_file", file_format="jsonl", mini_batch_rows=7)
    assert [recipe["records"] for recipe in plan.recipes] == [7, 7, 7, 7, 7, 5]
    assert plan.reader["kind"] == "records"
    recipe = plan.recipes[1]
    assert rows(plan, recipe) == 7
    for key in ("begin", "end"):
        with pytest.raises(InputMisread, match=r"has [68] records, not the 7"):
            rows(plan, {**recipe, key: JSON_LINES.index("\n", recipe[key]) + 1})


def test_a_row_group_with_another_number_of_rows(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": list(range(10))}), folder / "a.parquet", row_group_size=4)
    plan = planned(folder / "a.parquet", None, kind="mltable")
    assert [recipe["records"] for recipe in plan.recipes] == [4, 4, 2]
    assert rows(plan, plan.recipes[0]) == 4
    with pytest.raises(InputMisread, match=r"Row group 2 of .* has 2 records, not the 4"):
        rows(plan, {**plan.recipes[0], "row_group": 2})


def test_an_open_quote_at_the_end_of_a_file_is_none_of_it(tmp_path: Path) -> None:
    plan = table(tmp_path / "o", "a.csv", QUOTED + '41,"open\nto the\nend\n', MULTI_LINE)
    assert sum(rows(plan, recipe) for recipe in plan.recipes) == 41
    assert sum(plan.items) == 41


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.sampled_from(["", "\r", "a", '"q"', '"x\ny"', 'b,"""\n"",c"', 'l"m', '""']), max_size=20),
    newline=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(1, 30),
)
def test_what_is_planned_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], newline: str, size: int
) -> None:
    plan = table(tmp_path_factory.mktemp("agree"), "a.csv", newline.join(["h", *lines, "end"]), MULTI_LINE, size)
    for items, recipe in zip(plan.items, plan.recipes, strict=True):
        assert items == recipe["records"] == rows(plan, recipe) == rows(plan, recipe, fast=False)


@pytest.mark.parametrize("cutter", [LineCutter, QuotedCutter])
def test_a_cutter_that_stands_still_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cutter: type) -> None:
    monkeypatch.setattr(cutter, "next_record", lambda self, begin, cut: Found(begin, 1))
    with pytest.raises(PlanningError, match="was divided wrongly: after byte 8 of") as caught:
        table(tmp_path / "t", "a.csv", LINES, MULTI_LINE if cutter is QuotedCutter else "read_delimited: {}")
    assert caught.value.category == "SystemError"


def test_bytes_that_no_slice_has_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cut_module.slices

    def with_a_gap(*arguments: Any) -> Any:
        return [part for number, part in enumerate(real(*arguments)) if number != 1]

    monkeypatch.setattr(cut_module, "slices", with_a_gap)
    with pytest.raises(PlanningError, match="so rows would be missing or repeated"):
        table(tmp_path / "t", "a.csv", LINES, "read_delimited: {}")


def test_the_last_bytes_that_no_slice_has_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cut_module.slices
    monkeypatch.setattr(cut_module, "slices", lambda *arguments: list(real(*arguments))[:-1])
    with pytest.raises(PlanningError, match="was divided wrongly"):
        table(tmp_path / "t", "a.csv", LINES, "read_delimited: {}")
