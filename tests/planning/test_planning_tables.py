"""Tables end to end: a real planner process cuts, the worker's loaders read what its recipes say."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from planner_process import Plan, plan
from windrow.spec.one_line.job_file import make_job_file
from windrow.spec.one_line.request import OneLine
from windrow_master.planning import describe_items
from windrow_worker.loading import make_loader
from windrow_worker.tables.delimited import DelimitedLoader


def mltable(folder: Path, paths: str, read: str = "") -> Path:
    """An MLTable file with one `paths` entry a line, and one step."""
    folder.mkdir(exist_ok=True)
    lines = ["paths:", *(f"  - {line}" for line in paths.splitlines())]
    if read:
        lines += ["transformations:", f"  - {read}"]
    (folder / "MLTable").write_text("\n".join(lines) + "\n")
    return folder


def load(found: Plan) -> tuple[list[pandas.DataFrame], list[Any]]:
    """The frames of all mini-batches, and the misfits."""
    assert found.error is None, found.error
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    assert all(one.item_count == len(one.value) > 0 for one in loaded)
    return [one.value for one in loaded], [misfit for one in loaded for misfit in one.misfits]


def rows(found: Plan) -> list[list[Any]]:
    """All rows, in order; None for nulls."""
    frames, _ = load(found)
    return [
        [None if pandas.isna(value) else value for value in row]
        for frame in frames
        for row in frame.itertuples(index=False)
    ]


def error(found: Plan) -> str:
    """The message of a planning that failed through the user's input."""
    assert found.error is not None and found.error["category"] == "UserError"
    return str(found.error["message"])


def test_slices_of_a_csv_file_give_each_row_once(tmp_path: Path) -> None:
    lines = [f"{at},{at / 4},name {at}" for at in range(500)]
    (tmp_path / "a.csv").write_text("id,x,name\n" + "\n".join(lines) + "\n")
    for size in (1, 100, 4096, None):
        found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", size)
        assert rows(found) == [[at, at / 4, f"name {at}"] for at in range(500)]
        assert all(one.item_count == 0 for one in found.mini_batches)
    assert len(found.mini_batches) == 1
    begin = len("id,x,name\n")
    end = (tmp_path / "a.csv").stat().st_size - 1
    assert describe_items(found.reader, found.recipes[0]) == [f"{tmp_path}/a.csv:bytes {begin}-{end}"]


def test_resume_from_every_checkpoint(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for at in range(5):
        (data / f"f{at}.csv").write_text("a,b\n" + "".join(f"{row},{at}\n" for row in range(300 * at)))
    whole = plan(tmp_path / "whole", data, "mltable", 20)
    assert len(whole.checkpoints) > 3
    for number, checkpoint in enumerate(whole.checkpoints[:-1]):
        step = tmp_path / f"step{number}"
        step.mkdir()
        for file in ("recipes", "listing"):
            stored = (tmp_path / "whole" / file).read_bytes()[: checkpoint[f"{file}_bytes"]]
            (step / file).write_bytes(stored + b"torn")
        rest = plan(step, data, "mltable", 20, checkpoint)
        assert rest.mini_batches == whole.mini_batches[checkpoint["mini_batches"] :]
        assert (step / "recipes").read_bytes() == (tmp_path / "whole/recipes").read_bytes()


def test_a_file_that_changes_during_planning_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n" + "1\n" * 5000)
    whole = plan(tmp_path / "step", file, "mltable", 2)
    with file.open("a") as more:
        more.write("2\n")
    again = plan(tmp_path / "step", file, "mltable", 2, whole.checkpoints[0])
    assert "a.csv was changed" in error(again)


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("no_header", ["Column1", "Column2"], [["a", "b"], ["1", "x"], ["b", "a"], ["2", "y"]]),
        ("from_first_file", ["a", "b"], [["1", "x"], ["b", "a"], ["2", "y"]]),
        ("all_files_same_headers", ["a", "b"], [[1, "x"], [2, "y"]]),
        ("all_files_different_headers", ["a", "b"], [["1", "x"], ["y", "2"]]),
    ],
)
def test_header_modes(tmp_path: Path, header: str, columns: list[str], expected: list[list[Any]]) -> None:
    folder = mltable(tmp_path / "t", "pattern: '*.csv'", f"read_delimited: {{header: {header}}}")
    (folder / "0.csv").write_text("")
    (folder / "1.csv").write_text("a,b\n1,x\n")
    (folder / "2.csv").write_text("b,a\n2,y\n")
    found = plan(tmp_path / "step", folder, "mltable")
    frames, _ = load(found)
    assert all(list(frame.columns) == columns for frame in frames)
    assert rows(found) == expected


def test_different_headers_are_joined_by_name(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "folder: .", "read_delimited: {header: all_files_different_headers}")
    (folder / "1.csv").write_text("a,b\n7,x,extra\n")
    (folder / "2.csv").write_text("c,a\n2.5,8\n")
    found = plan(tmp_path / "step", folder, "mltable")
    frames, misfits = load(found)
    assert list(frames[0].columns) == ["a", "b", "c", "Column3"] == list(frames[1].columns)
    assert rows(found) == [[7, "x", None, "extra"], [8, None, 2.5, None]]
    assert misfits == [("Column3", 1, f"{folder}/1.csv, line 2: has 3 fields, and the header 2")]


@pytest.mark.parametrize("first_rows", [1, 2_100])
@pytest.mark.parametrize("size", [5, None])
def test_plain_files_with_the_same_columns_are_read_by_name(tmp_path: Path, first_rows: int, size: int | None) -> None:
    """Whether types are inferred from such a file as well, or not."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("id,price\n" + "1,0.5\n" * first_rows)
    (data / "b.csv").write_text("price, id\n2.5,20\n3.5,30,wide\n")
    found = plan(tmp_path / "step", data, "mltable", size)
    frames, misfits = load(found)
    assert [row[:2] for row in rows(found)][first_rows:] == [[20, 2.5], [30, 3.5]]
    assert {str(frame.id.dtype) for frame in frames} == {"int64"}
    assert [misfit[0] for misfit in misfits] == ["Column3"]
    if first_rows == 1:
        assert list(frames[0].columns) == ["id", "price", "Column3"] and rows(found)[2][2] == "wide"
    for number, checkpoint in enumerate(found.checkpoints[:-1]):
        step = tmp_path / f"step{number}"
        step.mkdir()
        for file in ("recipes", "listing"):
            (step / file).write_bytes((tmp_path / "step" / file).read_bytes()[: checkpoint[f"{file}_bytes"]])
        rest = plan(step, data, "mltable", size, checkpoint)
        assert rest.recipes == found.recipes[checkpoint["mini_batches"] :]


@pytest.mark.parametrize("first_rows", [1, 2_100])
@pytest.mark.parametrize("other", ["k,v\n2,3\n", "id,price,tax\n2,3,4\n", "id\n2\n", "2,3\n4,5\n"])
def test_plain_files_with_other_columns_are_refused(tmp_path: Path, first_rows: int, other: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("id,price\n" + "1,2\n" * first_rows)
    (data / "b.csv").write_text("other,header,without rows\n")
    (data / "c.csv").write_text(other)
    message = error(plan(tmp_path / "step", data, "mltable", 100))
    header = other.split("\n")[0].replace(",", ", ")
    assert f"{data}/c.csv has the header {header}, but {data}/a.csv has id, price." in message
    assert "header: all_files_different_headers" in message and "no_header" in message


@pytest.mark.parametrize("first_rows", [1, 2_100])
def test_of_an_mltable_file_the_first_header_counts_with_a_warning(tmp_path: Path, first_rows: int) -> None:
    folder = mltable(tmp_path / "t", "pattern: '*.csv'", "read_delimited")
    (folder / "a.csv").write_text("id,price\n" + "5,2\n" * first_rows)
    (folder / "b.csv").write_text("id,price\n3,4\n")
    (folder / "c.csv").write_text("price,id\n20,2\n")
    (folder / "d.csv").write_text("k,v\n30,3\n")
    found = plan(tmp_path / "step", folder, "mltable")
    assert rows(found)[first_rows:] == [[3, 4], [20, 2], [30, 3]]
    (warning,) = found.warnings
    assert f"{folder}/c.csv has the header price, id, but {folder}/a.csv has id, price." in warning
    assert "as in Azure ML" in warning and "all_files_different_headers" in warning
    grouped = mltable(tmp_path / "u", "pattern: ../t/*.csv", "read_delimited: {include_path_column: true}")
    if first_rows == 1:
        keyed = plan(
            tmp_path / "keyed", grouped, "mltable", partition_keys=["Path"], rows_folder=str(tmp_path / "rows")
        )
        assert keyed.error is None and any("c.csv has the header" in warning for warning in keyed.warnings)


def test_types_are_pinned_by_the_first_200_rows(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "file: a.csv", "read_delimited")
    (folder / "a.csv").write_text("n,flag\n" + "5,1\n" * 200 + "6.5,0\nx,2,wide\n")
    frames, misfits = load(plan(tmp_path / "step", folder, "mltable", 100))
    assert {str(frame.n.dtype) for frame in frames[:-1]} == {"int64"}
    assert frames[-1].n.tolist()[-2] == 6 and pandas.isna(frames[-1].n.tolist()[-1])
    file = folder / "a.csv"
    assert misfits == [
        ("n", 2, f"{file}, line 202: '6.5' is not of type int"),
        ("flag", 1, f"{file}, line 203: '2' is not of type bool"),
        ("Column3", 1, f"{file}, line 203: has 3 fields, and the header 2"),
    ]


def test_sample_size_overrides_and_no_inference(tmp_path: Path) -> None:
    settings = "sample_size: 1, column_type_overrides: [{columns: d, column_type: {datetime: {formats: ['%d.%m.%Y']}}}]"
    folder = mltable(tmp_path / "t", "file: a.csv", f"read_delimited: {{infer_column_types: {{{settings}}}}}")
    (folder / "a.csv").write_text("n,d\n5,3.4.2020\nx,4.5.2021\n")
    found = plan(tmp_path / "step", folder, "mltable")
    assert rows(found) == [[5, pandas.Timestamp("2020-04-03")], [None, pandas.Timestamp("2021-05-04")]]
    mltable(folder, "file: a.csv", "read_delimited: {infer_column_types: false}")
    assert rows(plan(tmp_path / "step", folder, "mltable"))[0] == ["5", "3.4.2020"]
    mltable(
        folder,
        "file: a.csv",
        "read_delimited: {infer_column_types: {column_type_overrides: [{columns: q, column_type: int}]}}",
    )
    assert '"q", which the data does not have. Its columns: n, d.' in error(plan(tmp_path / "step", folder, "mltable"))


def test_undecidable_dates_stay_text_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("d\n01/02/2020\n")
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable")
    assert rows(found) == [["01/02/2020"]]
    assert len(found.warnings) == 1 and 'column "d" has dates' in found.warnings[0]


def test_plain_files_keep_0_and_1_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("flag\n0\n1\n")
    assert str(load(plan(tmp_path / "step", tmp_path / "a.csv", "mltable"))[0][0].flag.dtype) == "int64"
    folder = mltable(tmp_path / "t", "file: ../a.csv", "read_delimited")
    assert str(load(plan(tmp_path / "step", folder, "mltable"))[0][0].flag.dtype) == "bool"


@pytest.mark.parametrize(
    "content",
    [
        "flag,name\r\n1,a\r\n\r\n0,b\r\n",
        "flag;name\r\n1;a\r\n\r\n0;b\r\n",
        "flag|name\n1|a\n0|b\n",
        'flag,name\n1,"a\nb"\n0,b\n',
        "flag;name\r\n1;ä\r\n\r\n0;b\r\n".encode("latin-1"),
        "\ufeffflag;name\r\n1;ä\r\n\r\n0;b\r\n".encode("utf-16-le"),
    ],
)
def test_types_and_rows_of_plain_files_do_not_depend_on_their_form(tmp_path: Path, content: str | bytes) -> None:
    """Also where the command line has to write an MLTable file for them."""
    (tmp_path / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "run.py").write_text("def run(df):\n    return df\n")
    for typed in ("a.csv", "*.csv"):
        made = make_job_file(OneLine("run.py", (typed,), "o.jsonl"), str(tmp_path))
        path = tmp_path / "a.csv"
        for name, text in made.files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
            path = (tmp_path / name).parent if name.endswith("/MLTable") else path
        (frame,) = load(plan(tmp_path / "step", path, "mltable"))[0]
        assert str(frame.flag.dtype) == "int64" and frame.flag.tolist() == [1, 0]


def test_multi_line_and_encodings(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "file: a.csv", 'read_delimited: {support_multi_line: true, delimiter: "\\t"}')
    (folder / "a.csv").write_text('a\tb\n1\t"x\ny"\n2\t"z"\n' * 1)
    assert rows(plan(tmp_path / "step", folder, "mltable", 5)) == [[1, "x\ny"], [2, "z"]]
    for encoding, python in (("latin1", "cp1252"), ("utf16", "utf-16"), ("utf8bom", "utf-8-sig"), ("utf32", "utf-32")):
        mltable(folder, "file: a.csv", f"read_delimited: {{encoding: {encoding}}}")
        (folder / "a.csv").write_bytes("ä,b\n1,é\n2,ü\n3,x\n".encode(python))
        found = plan(tmp_path / "step", folder, "mltable", 4)
        assert rows(found) == [[1, "é"], [2, "ü"], [3, "x"]] and len(found.recipes) > 1, encoding
        assert found.reader["columns"][0]["name"] == "ä"
    mltable(folder, "file: a.csv", "read_delimited: {encoding: utf16, support_multi_line: true}")
    (folder / "a.csv").write_bytes('a,b\n1,"é\nè"\n'.encode("utf-16"))
    assert rows(plan(tmp_path / "step", folder, "mltable", 4)) == [[1, "é\nè"]]


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        '{"a": 1, "b": "x"}',
        "",
        '{"b": "y", "c": {"d": [1]}} ignored',
        '{"a": 2.5}',
        '{"a": 9223372036854775808}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    folder = mltable(tmp_path / "t", "file: ../a.jsonl", "read_json_lines")
    for size in (1, None):
        found = plan(tmp_path / "step", folder, "mltable", size)
        frames, misfits = load(found)
        assert all(list(frame.columns) == ["a", "b", "c"] for frame in frames)
        assert rows(found) == [
            [1, "x", None],
            [None, "y", {"d": [1]}],
            [None, None, None],
            [-9223372036854775808, None, None],
        ]
        assert (
            sum(number for _, number, _ in misfits) == 2
            and misfits[0][0] == "a"
            and "2.5 is not of type int" in misfits[0][2]
        )
        assert size is None or misfits[1][2].endswith("of type int of 64 bits, and became -9223372036854775808")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\nnonsense\n{"a": NaN}\n{"a": 3}\n')
    assert plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable").error is None, "two failed items"
    folder = mltable(
        tmp_path / "t", "file: ../a.jsonl", "read_json_lines: {invalid_lines: drop, include_path_column: true}"
    )
    assert rows(plan(tmp_path / "step", folder, "mltable")) == [[str(tmp_path / "a.jsonl"), at] for at in (1, 3)]


@pytest.mark.parametrize("size", [1, None])
@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([0, 1.5, 2, None], [0.0, 1.5, 2.0, None], "float64"),
        ([0.5, 2, 2**53], [0.5, 2.0, 2.0**53], "float64"),
        ([1, "s", None], [1, "s", None], None),
        (["x", [1, 2], {"a": 1}], ["x", [1, 2], {"a": 1}], None),
        ([True, 1, 0.5], [True, 1, 0.5], None),
        ([1, 0.5, "auto"], [1, 0.5, "auto"], None),
        ([12345678901234567890, 1], [12345678901234567890, 1], "object"),
        ([1, -(2**63) - 1], [1, -(2**63) - 1], "object"),
        ([0.5, 2**53 + 1, 10**400], [0.5, 2**53 + 1, 10**400], None),
        ([2**53 + 1, None, 3], [2**53 + 1, None, 3], None),
    ],
)
def test_plain_json_lines_keep_their_values(
    tmp_path: Path, values: list[Any], expected: list[Any], kind: str | None, size: int | None
) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"v": value}) + "\n" for value in values))
    found = plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable", size)
    frames, misfits = load(found)
    got = [row[0] for row in rows(found)] if kind == "float64" else [v for frame in frames for v in frame.v.tolist()]
    got = [None if value is pandas.NA or value != value else value for value in got]
    assert got == expected and [type(value) for value in got] == [type(value) for value in expected] and not misfits
    assert kind is None or {str(frame.v.dtype) for frame in frames} == {kind}


def test_plain_json_lines_after_the_sample_keep_their_values(tmp_path: Path) -> None:
    late = [{"i": 0.5, "f": 2}, {"i": 2**64, "f": 2**53 + 1}, {"i": "x", "f": [1]}]
    lines = [{"i": 1, "f": 0.5}] * 10_000 + late
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for size in (20_000, None):
        frames, misfits = load(plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable", size))
        found = [row for frame in frames for row in zip(frame.i.tolist(), frame.f.tolist(), strict=True)][-3:]
        assert found == [(0.5, 2.0), (2**64, 2**53 + 1), ("x", [1])] and not misfits
        assert [type(f) for _, f in found] == [float, int, list]
    sort: dict[str, Any] = {"partition_keys": ["i"], "rows_folder": str(tmp_path / "rows")}
    sorted_by_key = plan(tmp_path / "sorted", tmp_path / "a.jsonl", "mltable", **sort)
    assert any('In the column "i", values that do not fit' in warning for warning in sorted_by_key.warnings)
    assert [row[0] for row in rows(sorted_by_key)].count(None) == 3


@pytest.mark.parametrize("fast", [True, False])
def test_whole_numbers_of_plain_text_are_never_rounded(tmp_path: Path, fast: bool) -> None:
    accounts = [str(12345678901234567000 + at) for at in range(100)]
    ids = [2**53 + 1 + at for at in range(100)]
    lines = [f"{account},{'' if at == 7 else ids[at]},5" for at, account in enumerate(accounts)]
    lines += ["1,2,5"] * 1_900 + ["1,2,12345678901234567890", "1,2,6.5"]
    (tmp_path / "a.csv").write_text("account,id,n\n" + "\n".join(lines) + "\n")
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable")
    (recipe,) = found.recipes
    loaded = DelimitedLoader(found.reader, fast=fast).load(recipe)
    assert loaded.value.account.tolist()[:100] == accounts
    assert loaded.value.id.tolist()[:100] == [pandas.NA if at == 7 else one for at, one in enumerate(ids)]
    assert loaded.value.n.isna().tolist() == [False] * 2_000 + [True, True]
    assert loaded.misfits[0][:2] == ("n", 2) and "12345678901234567890' is not of type int" in loaded.misfits[0][2]
    assert not found.warnings
    folder = mltable(tmp_path / "t", "file: ../a.csv", "read_delimited")
    (warning,) = plan(tmp_path / "step", folder, "mltable").warnings
    assert '"account" has whole numbers of more than 64 bits' in warning and "string" in warning


@pytest.mark.parametrize(
    "read",
    [
        "read_delimited",
        "read_json_lines",
        "read_json_lines\n  - convert_column_types: [{columns: t, column_type: float}]",
        "",
    ],
)
def test_columns_that_are_null_all_through_a_mini_batch_are_objects(tmp_path: Path, read: str) -> None:
    """As in Azure ML's reader, 2.26.1; not in plain files."""
    data = tmp_path / "t"
    data.mkdir()
    values = {"f": 1.5, "i": 2, "d": "2020-01-02", "b": True, "t": "x"}
    name = "{}.jsonl" if "json" in read else "{}.csv"
    for number, row in enumerate([values, dict.fromkeys(values)]):
        frame = pandas.DataFrame([row, row])
        if "json" in read:
            frame.to_json(data / name.format(number), orient="records", lines=True)
        else:
            frame.to_csv(data / name.format(number), index=False)
    if read:
        mltable(data, f"pattern: ./{name.format('*')}", read)
    (there, nothing), _ = load(plan(tmp_path / "step", data, "mltable"))
    assert str(there.f.dtype) == "float64" and str(there.i.dtype) == ("int64" if read else "float64")
    kinds = {str(nothing[column].dtype) for column in ("fi" if "json" in read else "fid")}
    assert kinds == ({"object"} if read else {"float64", "datetime64[ns]"})
    assert nothing.isna().all().all()
    if "convert" in read:
        assert str(there.t.dtype) == "object"


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("steps", [False, True])
def test_whole_numbers_beside_nulls_do_not_depend_on_the_cut(tmp_path: Path, kind: str, steps: bool) -> None:
    """`early` has a null in the sample, `late` after it (Parquet says of all rows), `large` numbers beyond 2^53."""
    count = 10_100
    late_at, large_at = count - 40, count - 60
    frame = pandas.DataFrame(
        {
            "early": pandas.array([None if at == 3 else at for at in range(count)], dtype="Int64"),
            "late": pandas.array([None if at == late_at else at for at in range(count)], dtype="Int64"),
            "large": pandas.array([None if at in (5, large_at) else 2**60 + at for at in range(count)], dtype="Int64"),
        }
    )
    file = tmp_path / f"a.{kind}"
    if kind == "csv":
        frame.to_csv(file, index=False)
    elif kind == "jsonl":
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_parquet(file, row_group_size=100)
    if steps:
        read = {"csv": "read_delimited", "jsonl": "read_json_lines", "parquet": "read_parquet"}[kind]
        folder = mltable(tmp_path / "t", f"file: ../{file.name}", f"{read}\n  - drop_columns: nothing")
        (folder / "MLTable").write_text((folder / "MLTable").read_text() + "metadata: {windrow: plain_files}\n")
    found = plan(tmp_path / "step", folder if steps else file, "mltable", 5_000)
    ways = [{"fast": True}, {"fast": False}] if kind == "csv" and not steps else [{}]
    for way in ways:
        loader = DelimitedLoader(found.reader, **way) if way else make_loader(found.reader)
        frames = [loader.load(recipe).value for recipe in found.recipes]
        assert len(frames) > 10
        kinds = {name: {str(frame[name].dtype) for frame in frames} for name in frame}
        assert kinds["early"] == {"float64"}
        assert kinds["late"] == ({"float64"} if kind == "parquet" else {"int64", "Int64"})
        assert kinds["large"] == {"int64", "Int64"}
        whole = frame.astype({name: "float64" for name in kinds if kinds[name] == {"float64"}}).to_csv(index=False)
        assert "".join(part.to_csv(index=False, header=not at) for at, part in enumerate(frames)) == whole


@pytest.mark.parametrize("content", ["a,b\r1,2\r3,4\r", "a,b\r1,2", '"a",b\r1,2\r'])
@pytest.mark.parametrize("read", ["", "read_delimited", "read_delimited: {support_multi_line: true}"])
def test_lines_that_end_with_carriage_returns_alone_are_told(tmp_path: Path, content: str, read: str) -> None:
    (tmp_path / "a.csv").write_bytes(content.encode())
    path = mltable(tmp_path / "t", "file: ../a.csv", read) if read else tmp_path / "a.csv"
    message = error(plan(tmp_path / "step", path, "mltable"))
    assert f"The lines of {tmp_path}/a.csv end with carriage returns alone" in message and "tr '\\r' '\\n'" in message


@pytest.mark.parametrize("content", ['{"a": 1}\r{"a": 2}\r', '{"a": 1} {"a": 2}\n'])
def test_a_second_object_in_a_line_of_a_plain_file_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content.encode())
    message = error(plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable"))
    assert "a.jsonl, line 1: the line is not a JSON object (text follows the object)" in message


def test_keys_behind_the_sample_are_left_out_and_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 10_000 + '{"a": 2, "late": 3}\n')
    frames, misfits = load(plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable"))
    assert list(frames[0].columns) == ["a"] and len(frames[0]) == 10_001
    assert misfits[0][:2] == ("late", 1) and "record 10001" in misfits[0][2]


def test_parquet_by_row_group(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    first = pyarrow.table({"n": pyarrow.array(range(5), pyarrow.int32()), "s": ["x"] * 5})
    pyarrow.parquet.write_table(first, data / "1.parquet", row_group_size=2)
    pyarrow.parquet.write_table(first.slice(0, 0), data / "2.parquet")
    second = pyarrow.table({"n": [0.5], "m": pyarrow.array(["k"]).dictionary_encode(), "s": [b"y"]})
    pyarrow.parquet.write_table(second, data / "3.parquet")
    (data / "_SUCCESS").write_text("")
    (data / ".1.parquet.crc").write_bytes(b"crc")
    found = plan(tmp_path / "step", data, "mltable", 1)
    assert [(one.item_first, one.item_count) for one in found.mini_batches] == [(0, 2), (2, 2), (4, 1), (5, 1)]
    frames, _ = load(found)
    assert all(list(frame.columns) == ["n", "s", "m"] for frame in frames)
    assert [value for frame in frames for value in frame.n] == [0, 1, 2, 3, 4, 0.5]
    assert {str(frame.n.dtype) for frame in frames} == {"float64"} and frames[3].m[0] == "k"
    assert describe_items(found.reader, found.recipes[1]) == [f"{data}/1.parquet:row group 1"]
    assert "mini_batch_size has no effect" in found.warnings[0]
    for checkpoint in found.checkpoints[:-1]:
        assert (
            plan(tmp_path / "step", data, "mltable", 1, checkpoint).recipes
            == found.recipes[checkpoint["mini_batches"] :]
        )
    (data / "4.parquet").write_bytes(b"not parquet")
    assert "4.parquet cannot be read as Parquet" in error(plan(tmp_path / "step", data, "mltable"))


def test_a_parquet_file_that_says_that_it_has_fewer_rows_than_none_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    file = data / "1.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": range(5)}), file)
    # The numbers of rows in the footer, of the file and of its row group, as zigzag numbers.
    content = file.read_bytes()
    assert content.count(b"\x16\x0a") >= 2
    file.write_bytes(content.replace(b"\x16\x0a", b"\x16\x09"))
    assert "1.parquet cannot be read as Parquet: it says that a row group has -5 rows" in error(
        plan(tmp_path / "step", data, "mltable")
    )


def test_parquet_files_that_differ_are_read_as_one_type_or_as_objects(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    far, near = datetime.datetime(9999, 12, 31), datetime.datetime(2020, 1, 2)
    for name, columns in {
        "1": {"i": [2**60 + 1] * 2, "d": pyarrow.array([7, 8], pyarrow.int32()),
              "u": pyarrow.array([2**64 - 1, 1], pyarrow.uint64()), "t": pyarrow.array([near, far])},
        "2": {"i": [0.5], "d": pyarrow.array([decimal.Decimal("1.50")]), "u": pyarrow.array([-1]),
              "t": pyarrow.array([near], pyarrow.timestamp("ns"))},
    }.items():  # fmt: skip
        pyarrow.parquet.write_table(pyarrow.table(columns), data / f"{name}.parquet")
    found = plan(tmp_path / "step", data, "mltable")
    assert rows(found) == [
        [float(2**60), 7, 2**64 - 1, near],
        [float(2**60), 8, 1, None],
        [0.5, decimal.Decimal("1.50"), -1, near],
    ]
    frames, misfits = load(found)
    assert [list(map(str, frame.dtypes)) for frame in frames] == [["float64", "object", "object", "datetime64[ns]"]] * 2
    example = f"{data}/1.parquet, row group 0: row 2: 9999-12-31 00:00:00 is not of type timestamp[ns]"
    assert misfits == [("t", 1, example)]


def test_path_entries(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "pattern: 'b/**/*.txt'\nfile: a.txt\nfile: a.txt\nfolder: b\npattern: b/c")
    for name in ("a.txt", "b/x.txt", "b/c/y.txt", "b/c/z.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    found = plan(tmp_path / "step", folder, "mltable", 100)
    assert found.reader == {"kind": "files", "root": ""}
    listed = [Path(name.decode()).relative_to(folder).as_posix() for name in found.recipes[0].split(b"\0")]
    assert listed == [
        "b/c/y.txt",
        "b/x.txt",
        "a.txt",
        "a.txt",
        "b/c/y.txt",
        "b/c/z.bin",
        "b/x.txt",
        "b/c/y.txt",
        "b/c/z.bin",
    ]
    whole = plan(tmp_path / "step", mltable(folder, "folder: ."), "mltable", 100)
    assert b"MLTable" not in whole.recipes[0] and whole.reader["root"] == str(folder)


def test_file_lists_of_several_entries_resume(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "folder: a\nfile: one\nfolder: b\nfolder: a")
    for name in [f"a/{at:03}" for at in range(90)] + ["one"] + [f"b/{at}" for at in range(9)]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    whole = plan(tmp_path / "whole", folder, "mltable", 1)
    assert len(whole.recipes) == 190 and len(whole.checkpoints) > 2
    for number, checkpoint in enumerate(whole.checkpoints[:-1]):
        step = tmp_path / f"step{number}"
        step.mkdir()
        (step / "recipes").write_bytes((tmp_path / "whole/recipes").read_bytes()[: checkpoint["recipes_bytes"]])
        assert plan(step, folder, "mltable", 1, checkpoint).recipes == whole.recipes[checkpoint["mini_batches"] :]


_IN_UTF16 = "paths:\n  - file: a.csv\ntransformations:\n  - read_delimited: {encoding: utf16}\n"
_WITH_PATH = "paths:\n  - file: a.csv\ntransformations:\n  - read_delimited: {include_path_column: true}\n"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.csv": "", "b.csv": ""}, "has no records"),
        ({"a.csv": "x,y\n"}, "has no records"),
        ({"a.csv": "1\n", "b.tsv": "1\n"}, "b.tsv differs from those before it"),
        ({"a.csv.gz": ""}, "is compressed"),
        ({"a.csv": b"\x1f\x8b\x08"}, "is compressed (gzip)"),
        ({"a.txt": "1"}, "does not show a table format"),
        ({"a.csv": b"a\n\xff\n"}, "byte 2 (0xff) is not valid UTF-8"),
        ({"MLTable": "paths:\n  - file: none.csv\n"}, "none.csv does not exist"),
        ({"MLTable": "paths:\n  - pattern: '*.csv'\n"}, 'The pattern "*.csv" names no files below '),
        # Data that is not there is no empty data, also beside data that is there.
        ({"a.csv": "x\n1\n", "MLTable": "paths: [{pattern: 'a*.csv'}, {pattern: 'z*.csv'}]\n"},
         'The pattern "z*.csv" names no files below '),
        ({"MLTable": "paths: []\n"}, "names no files"),
        ({"MLTable": "paths:\n  - fil: a\n"}, 'MLTable:2:5: paths[0].fil: is unknown here. Did you mean "file"?'),
        ({"MLTable": "paths:\n  - file: a\ntransformations:\n  - take: x\n"}, "4:11: transformations[0].take: must be"),
        ({"a.csv": "Path\n1\n", "MLTable": _WITH_PATH}, "one of that name"),
        ({"a.csv": b"\xfe\xff\0a\0\n\0\x31", "MLTable": _IN_UTF16}, "a.csv is UTF-16 with the bytes of each"),
    ],
)  # fmt: skip
def test_errors_of_users(tmp_path: Path, files: dict[str, str | bytes], words: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for name, content in files.items():
        (data / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert words in error(plan(tmp_path / "step", data, "mltable"))


def test_hidden_files_of_a_plain_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("x\n1\n")
    (data / ".DS_Store").write_text("?")
    (data / "_SUCCESS").write_text("")
    found = plan(tmp_path / "step", data, "mltable")
    assert rows(found) == [[1]] and ".DS_Store was left out" in found.warnings[0]


def test_an_mltable_file_may_be_named_itself(tmp_path: Path) -> None:
    folder = mltable(tmp_path / "t", "file: a.csv", "read_delimited: {partition_size: 3}")
    (folder / "a.csv").write_text("x\n1\n2\n3\n4\n")
    assert len(plan(tmp_path / "step", folder / "MLTable", "mltable").recipes) > 1
