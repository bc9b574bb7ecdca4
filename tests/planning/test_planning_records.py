"""Records counted while they are cut, lists of dicts from JSON lines, and mini-batches without input."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_process import Plan, Planner, plan
from windrow_master.planning import describe_items
from windrow_master.planning.emitter import GROUP_MAX, RECORD
from windrow_master.planning.no_input import groups_without_input
from windrow_master.planning.tables import cutting
from windrow_master.planning.tables.cutting import slices_of_lines
from windrow_master.planning.tables.delimited_files import Format
from windrow_master.planning.tables.window import Window
from windrow_worker.loading import is_row_index_exact, make_loader
from windrow_worker.tables.delimited_text import Text
from windrow_worker.tables.encodings import ENCODINGS


def loaded(found: Plan) -> list[Any]:
    """What `run()` gets, after the counts and indices of the plan are checked against it."""
    assert found.error is None, found.error
    loader = make_loader(found.reader)
    values = [loader.load(recipe) for recipe in found.recipes]
    if is_row_index_exact(found.reader):
        counts = [one.item_count for one in values]
        assert [one.item_count for one in found.mini_batches] == counts
        assert [one.item_first for one in found.mini_batches] == [0, *itertools.accumulate(counts)][:-1]
    return [one.value for one in values]


def write_lines(path: Path, first: int, count: int, end: str = "\n") -> None:
    path.write_text("".join(json.dumps({"n": first + at, "t": "é" * (at % 5)}) + end for at in range(count)))


class TestRank:
    """`--rank_mini_batch_count`."""

    @pytest.mark.parametrize("count", [1, GROUP_MAX, 2 * GROUP_MAX + 1])
    def test_so_many_mini_batches_of_nothing(self, count: int) -> None:
        groups = list(groups_without_input(count, None))
        assert b"".join(records for _, records in groups) == RECORD.pack(0, 0, 0, 0, 0) * count
        assert [message["count"] * RECORD.size for message, _ in groups] == [len(records) for _, records in groups]
        messages = [message for message, _ in groups]
        assert messages[0]["reader"] == {"kind": "none"} and not any("reader" in one for one in messages[1:])
        assert [one["from"] for one in messages] == [None, *(one["to"] for one in messages[:-1])]
        assert [one["to"]["done"] for one in messages] == [False] * (len(messages) - 1) + [True]
        assert messages[-1]["to"]["mini_batches"] == count
        assert describe_items({"kind": "none"}, b"") == ["(no input)"]

    def test_goes_on_after_a_checkpoint(self) -> None:
        whole = list(groups_without_input(2 * GROUP_MAX + 1, None))
        for number, (message, _) in enumerate(whole):
            assert list(groups_without_input(2 * GROUP_MAX + 1, message["to"])) == whole[number + 1 :]


class TestListsOfDicts:
    """`--amlbi_file_format jsonl`."""

    @pytest.mark.parametrize(
        ("rows", "sizes"),
        [(4, [4, 4, 2, 3]), (1, [1] * 13), (100, [10, 3])],
    )
    def test_are_cut_by_rows_within_files(self, tmp_path: Path, rows: int, sizes: list[int]) -> None:
        data = tmp_path / "data"
        data.mkdir()
        write_lines(data / "a.jsonl", 0, 10)
        write_lines(data / "b.txt", 10, 3)
        found = plan(tmp_path / "step", data, file_format="jsonl", mini_batch_rows=rows)
        assert [len(one) for one in loaded(found)] == sizes
        assert [row["n"] for one in loaded(found) for row in one] == list(range(13))
        assert is_row_index_exact(found.reader)

    def test_have_what_python_writes(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text(json.dumps({"loss": float("nan"), "best": float("-inf")}) + "\n")
        found = plan(tmp_path / "step", tmp_path / "a.jsonl", "uri_file", file_format="jsonl")
        ((row,),) = loaded(found)
        assert row["loss"] != row["loss"] and row["best"] == float("-inf")

    def test_of_invalid_lines_are_told_before_anything_runs(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"a": 1}\nnonsense\n')
        found = plan(tmp_path / "step", tmp_path / "a.jsonl", "uri_file", file_format="jsonl")
        assert found.error is None, "one of two is a failed item"
        (tmp_path / "a.jsonl").write_text('{"a": 1}\nnonsense\nmore\n')
        found = plan(tmp_path / "other", tmp_path / "a.jsonl", "uri_file", file_format="jsonl")
        assert found.error is not None and "line 2" in found.error["message"] and "correct it" in found.error["message"]
        assert "MLTable" not in found.error["message"]

    @pytest.mark.parametrize("exact", [True, False])
    def test_are_cut_by_bytes(self, tmp_path: Path, exact: bool) -> None:
        write_lines(tmp_path / "a.jsonl", 0, 50)
        found = plan(
            tmp_path / "step", tmp_path / "a.jsonl", "uri_file", 100, file_format="jsonl", exact_row_index=exact
        )
        assert len(found.mini_batches) > 5
        assert [row["n"] for one in loaded(found) for row in one] == list(range(50))
        assert is_row_index_exact(found.reader) is exact
        assert all(bool(one.item_count) is exact for one in found.mini_batches)

    def test_a_planner_that_died_goes_on_with_the_same(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "a.jsonl", 0, 300)
        more: dict[str, Any] = {"file_format": "jsonl", "mini_batch_rows": 2}
        whole = plan(tmp_path / "whole", tmp_path / "a.jsonl", "uri_file", **more)
        planner = Planner(tmp_path / "step", tmp_path / "a.jsonl", "uri_file", **more)
        said = planner.message()
        planner.close(kill=True)
        assert said is not None
        message, first = said
        rest = plan(tmp_path / "step", tmp_path / "a.jsonl", "uri_file", checkpoint=message["to"], **more)
        assert [*first, *rest.mini_batches] == whole.mini_batches
        assert (tmp_path / "step" / "recipes").read_bytes() == (tmp_path / "whole" / "recipes").read_bytes()

    def test_lines_that_are_mostly_no_objects_are_told_before_anything_runs(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"n": 1}\n[2]\n[3]\n')
        found = plan(tmp_path / "step", tmp_path / "a.jsonl", "uri_file", file_format="jsonl")
        assert found.error is not None
        assert "a.jsonl, line 2: the line is not a JSON object" in found.error["message"]


MIXED = [{"t": 1, "n": 1}, {"t": None, "n": 2}, {"t": 0.5, "n": 3}, {"t": "auto", "n": 4}, {"t": [1, {"a": 2}], "n": 5}]


class TestMixedTypes:
    """`--amlbi_dataframe_mixed_types`."""

    def make(self, folder: Path, records: list[Any], steps: str = "") -> Path:
        data = folder / "data"
        data.mkdir()
        (data / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        text = f"paths:\n  - file: a.jsonl\ntransformations:\n  - read_json_lines\n{steps}"
        (data / "MLTable").write_text(text)
        return data

    @pytest.mark.parametrize("size", [1, 30, None])
    @pytest.mark.parametrize("steps", ["", "  - filter: col('n') > 0\n"])
    def test_values_of_several_kinds_stay_as_they_are(self, tmp_path: Path, size: int | None, steps: str) -> None:
        found = plan(tmp_path / "step", self.make(tmp_path, MIXED, steps), "mltable", size, mixed_types=True)
        tables = loaded(found)
        assert [value for table in tables for value in table["t"]] == [record["t"] for record in MIXED]
        assert {str(table["n"].dtype) for table in tables} == {"int64"}
        assert {str(table["t"].dtype) for table in tables} == {"object"}

    def test_without_it_the_first_kind_counts(self, tmp_path: Path) -> None:
        found = plan(tmp_path / "step", self.make(tmp_path, MIXED), "mltable")
        assert [value == 1 for table in loaded(found) for value in table["t"]] == [True] + [False] * 4

    @pytest.mark.parametrize("steps", ["", "  - keep_columns: n\n"])
    def test_a_kind_that_comes_after_the_sample(self, tmp_path: Path, steps: str) -> None:
        """Kept where nothing else is done with the rows; else null as without the argument, and told."""
        records = [{"n": at} for at in range(10_000)] + [{"n": 0.5}, {"n": 2**70}]
        found = plan(tmp_path / "step", self.make(tmp_path, records, steps), "mltable", 50_000, mixed_types=True)
        loader = make_loader(found.reader)
        *_, last = [loader.load(recipe) for recipe in found.recipes]
        values, misfits = list(last.value["n"][-2:]), [name for name, *_ in last.misfits]
        if steps:
            assert (values[0] != values[0], misfits) == (True, ["n"])
        else:
            assert (values, misfits) == ([0.5, 2**70], [])

    def test_other_formats_tell_that_it_has_no_effect(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("a\n1\nx\n")
        found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", mixed_types=True)
        assert any("--amlbi_dataframe_mixed_types has no effect" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("transformation", "content", "rows"),
    [
        ("read_delimited", "a,b\n1,2\n\n3,4\n\r\n5,6", 4),
        ("read_delimited: {support_multi_line: true}", 'a,b\n1,"x\ny"\n\r\n2,z\n', 2),
        ("read_delimited: {encoding: utf16}", "a,b\n1,2\n\n3,4\n", 2),
        ("read_json_lines", '{"a": 1}\n\n{"a": 2}\n', 2),
        ("read_json_lines: {invalid_lines: drop}", '{"a": 1}\nnonsense\n{"a": 2}\n', 2),
        ("read_json_lines\n  - filter: col('a') > 1", '{"a": 1}\n{"a": 2}\n{"a": 3}\n', 2),
        ("read_json_lines\n  - skip: 1\n  - filter: col('a') > 1", '{"a": 3}\n{"a": 2}\n{"a": 0}\n', None),
    ],
)
def test_tables_are_counted_where_that_is_asked_for(
    tmp_path: Path, transformation: str, content: str, rows: int | None
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    encoding = "utf-16-le" if "utf16" in transformation else "utf-8"
    for name in ("a", "b"):
        (data / name).write_bytes(content.encode(encoding))
    (data / "MLTable").write_text(f"paths:\n  - file: a\n  - file: b\ntransformations:\n  - {transformation}\n")
    found = plan(tmp_path / "step", data, "mltable", 6, exact_row_index=True)
    assert sum(len(value) for value in loaded(found)) == (3 if rows is None else 2 * rows)
    assert is_row_index_exact(found.reader)
    assert not is_row_index_exact(plan(tmp_path / "other", data, "mltable", 6).reader)


class Bytes(Window):
    """A window on bytes in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__(-1, len(data))
        self._data = data

    def read(self, start: int, length: int) -> bytes:
        return self._data[start : start + length]


lines_of_bytes = st.lists(st.sampled_from([b"", b"a", b"\r", b'"', b"b,c", b"x" * 20]), max_size=12).map(b"\n".join)


@given(data=lines_of_bytes, rows=st.integers(1, 5), block=st.integers(1, 9))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_slices_of_lines_hold_so_many_records_and_every_one_once(
    monkeypatch: pytest.MonkeyPatch, data: bytes, rows: int, block: int
) -> None:
    monkeypatch.setattr(cutting, "BLOCK_MAX", block)
    window = Bytes(data)
    begin = Format(ENCODINGS["utf-8"], Text()).cutter(window).first_record(0)
    found = list(slices_of_lines(window, begin, rows))
    held = [[line for line in data[first:end].split(b"\n") if line] for first, end, _ in found]
    assert list(map(len, held)) == [count for _, _, count in found]
    assert all(len(one) == rows for one in held[:-1])
    assert all(held)
    assert [line for one in held for line in one] == [line for line in data.split(b"\n") if line]
    for (_, end, _), (first, _, _) in itertools.pairwise(found):
        assert end == first
        # What a planner that is started again at a slice finds.
        assert next(iter(slices_of_lines(window, first, rows)))[0] == first
