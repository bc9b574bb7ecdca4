"""Tables with columns from paths, and divided by them: a real planner process groups, the worker's loaders read."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet
import pytest
from planner_process import Plan, Planner, plan
from windrow_master.planning import describe_items
from windrow_master.planning.recipes.description import describe_partition
from windrow_worker.loaded import Loaded
from windrow_worker.loading import make_loader

FILES = {"2020/01/07/s1/x.csv": "a,b\n1,q\n2,w\n", "2020/01/08/s2/y.csv": "a,b\n3,e\n"}
BY_DATE = "/{d:yyyy/MM/dd}/{store}/{f}.csv"
BY_PARTS = "/{y}/{m}/{dd}/s{store}/{f}.csv"


def mltable(folder: Path, files: dict[str, str], *steps: str, pattern: str = "./**/*.*") -> Path:
    """A folder of files with an MLTable file of these steps."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    lines = ["paths:", f"  - pattern: {pattern}", "transformations:", *(f"  - {step}" for step in steps)]
    (folder / "MLTable").write_text("\n".join(lines) + "\n")
    return folder


def extract(text: str) -> str:
    """The step."""
    return f"extract_columns_from_partition_format: {json.dumps(text)}"


def load(found: Plan) -> list[Loaded]:
    """All mini-batches."""
    assert found.error is None, found.error
    loader = make_loader(found.reader)
    return [loader.load(recipe) for recipe in found.recipes]


def whole(found: Plan) -> pandas.DataFrame:
    """The rows of all mini-batches."""
    return pandas.concat([one.value for one in load(found)], ignore_index=True)


def kinds(table: pandas.DataFrame) -> dict[str, str]:
    """The kind of each column; text and objects alike."""
    return {str(name): "O" if kind.kind not in "ifbM" else kind.kind for name, kind in table.dtypes.items()}


@pytest.mark.parametrize(
    ("steps", "expected"),
    # What the vendor's reader (mltable 1.7.0) was seen to give for the same files.
    [
        (
            [extract(BY_DATE), "read_delimited: {include_path_column: true}"],
            {"Path": "O", "store": "O", "f": "O", "d": "M", "a": "i", "b": "O"},
        ),
        (
            ["read_delimited: {include_path_column: true}", extract(BY_DATE)],
            {"Path": "O", "a": "i", "b": "O", "store": "O", "f": "O", "d": "M"},
        ),
        # Rule 7: also without include_path_column.
        (["read_delimited", extract(BY_DATE)], {"a": "i", "b": "O", "store": "O", "f": "O", "d": "M"}),
        (
            [extract(BY_PARTS), "read_delimited"],
            {"y": "i", "m": "O", "dd": "i", "store": "i", "f": "O", "a": "i", "b": "O"},
        ),
        (
            [extract(BY_PARTS), "read_delimited: {infer_column_types: false}"],
            {"y": "O", "m": "O", "dd": "O", "store": "O", "f": "O", "a": "O", "b": "O"},
        ),
        (
            [extract(BY_PARTS), extract("/{z}/{w}.csv"), "read_delimited"],
            {"y": "i", "m": "O", "dd": "i", "store": "i", "f": "O", "z": "O", "w": "O", "a": "i", "b": "O"},
        ),
        (
            ["read_delimited", extract(BY_PARTS), extract("/{z}/{w}.csv")],
            {"a": "i", "b": "O", "y": "O", "m": "O", "dd": "O", "store": "O", "f": "O", "z": "O", "w": "O"},
        ),
    ],
)
def test_columns_from_paths_stand_where_the_vendors_do_and_are_of_their_types(
    tmp_path: Path, steps: list[str], expected: dict[str, str]
) -> None:
    table = whole(plan(tmp_path / "step", mltable(tmp_path / "data", FILES, *steps), "mltable"))
    assert kinds(table) == expected
    assert list(table["a"].astype(int)) == [1, 2, 3]
    if "d" in expected:
        assert list(table["d"]) == [pandas.Timestamp("2020-01-07")] * 2 + [pandas.Timestamp("2020-01-08")]
        assert list(table["store"]) == ["s1", "s1", "s2"]
    elif expected["y"] == "i":
        assert list(table["y"]) == [2020] * 3 and list(table["dd"]) == [7, 7, 8] and list(table["store"]) == [1, 1, 2]
    else:
        assert list(table["m"]) == ["01"] * 3 and list(table["dd"]) == ["07", "07", "08"]


def test_json_lines_and_parquet_have_them_last_as_text(tmp_path: Path) -> None:
    data = mltable(tmp_path / "json", {"1/01.json": '{"a": 1}\n'}, extract("/{x}/{y}.json"), "read_json_lines")
    assert whole(plan(tmp_path / "s1", data, "mltable")).to_dict("list") == {"a": [1], "x": ["1"], "y": ["01"]}
    data = mltable(tmp_path / "parquet", {}, extract("/{x}/{y:yyyy}.pq"), "read_parquet", pattern="./*/*.pq")
    (data / "1").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"a": [5, 6]}), data / "1/2020.pq")
    expected = {"a": [5, 6], "x": ["1", "1"], "y": [pandas.Timestamp("2020-01-01")] * 2}
    assert whole(plan(tmp_path / "s2", data, "mltable")).to_dict("list") == expected


def test_a_value_that_does_not_fit_its_type_is_null_and_told(tmp_path: Path) -> None:
    files = {"1/a.csv": "v\n1\n2\n", "2/b.csv": "v\n3\n", "x/c.csv": "v\n4\n5\n"}
    steps = extract("/{n}/{f}.csv"), "read_delimited: {infer_column_types: {sample_size: 3}}"
    found = plan(tmp_path / "step", mltable(tmp_path / "data", files, *steps), "mltable", partition_keys=["n"])
    loaded = load(found)
    assert [one.partition_key_value for one in loaded] == [{"n": 1}, {"n": 2}, {"n": None}]
    ((column, number, example),) = loaded[2].misfits
    assert (column, number) == ("n", 2) and example.endswith("c.csv: 'x' is not of type int")


def test_a_name_that_is_there_already_is_an_error(tmp_path: Path) -> None:
    for steps in (
        [extract("/{a}/{f}.csv"), "read_delimited"],
        ["read_delimited", extract("/{a}/{f}.csv")],
        ["read_delimited", extract("/{x}/{f}.csv"), extract("/{f}.csv")],
        [extract("/{Path}/{f}.csv"), "read_delimited: {include_path_column: true}"],
    ):
        error = plan(tmp_path / "step", mltable(tmp_path / "data", FILES, *steps), "mltable").error
        assert error is not None and "a column of that name already exists" in error["message"]


SALES = {f"{store}/{brand}.csv": "".join(["Week,Sold\n", *(f"{week},{store + week}\n" for week in range(121))])
         for store in range(1000, 1033) for brand in ("dominicks", "minute.maid", "tropicana")}  # fmt: skip


@pytest.mark.parametrize("first", [True, False])
def test_stores_and_brands_are_ninety_nine_mini_batches(tmp_path: Path, first: bool) -> None:
    """The shape of the vendor's sample: 33 stores and 3 brands with 121 rows each
    (docs/reference/azure-ml/parallel-job.md#division-by-partition)."""
    steps = ["read_delimited", extract("/{Store}/{Brand}.csv")]
    data = mltable(tmp_path / "data", SALES, *(steps[::-1] if first else steps), pattern="./**/*.csv")
    found = plan(tmp_path / "step", data, "mltable", partition_keys=["Store", "Brand"])
    loaded = load(found)
    assert len(loaded) == 99 and all(one.item_count == len(one.value) == 121 for one in loaded)
    store: Any = 1000 if first else "1000"  # before read_delimited, types are inferred; after it, they are text
    assert loaded[1].partition_key_value == {"Store": store, "Brand": "minute.maid"}
    assert list(loaded[1].value.columns) == (["Store", "Brand"] if first else []) + ["Week", "Sold"] + (
        [] if first else ["Store", "Brand"]
    )
    assert set(loaded[1].value["Store"]) == {store} and list(loaded[1].value["Sold"]) == list(range(1000, 1121))
    assert describe_partition(found.reader, found.recipes[1]) == json.dumps({"Store": store, "Brand": "minute.maid"})
    (text,) = describe_items(found.reader, found.recipes[1])
    assert text.startswith(f"{data}/1000/minute.maid.csv:bytes 10-")


def test_a_group_is_its_files_one_after_the_other_and_the_largest_rank_first(tmp_path: Path) -> None:
    files = {
        "d/2020-02-01/b.csv": "n,t,g\n1,x,true\n,y,\n",
        "d/2020-01-01/a.csv": "n,t,g\n3,,false\n",
        "d/2020-02-01/c.csv": "n,t,g\n9007199254740993,z,true\n",
        "d/2020-02-01/empty.csv": "n,t,g\n",
        "e/2020-03-01/none.csv": "",
    }
    data = mltable(tmp_path / "data", files, "read_delimited", extract("/{day:yyyy-MM-dd}/{f}.csv"))
    found = plan(tmp_path / "step", data, "mltable", partition_keys=["day"])
    january, february = load(found)
    assert january.partition_key_value == {"day": datetime.datetime(2020, 1, 1)}
    assert february.partition_key_value == {"day": datetime.datetime(2020, 2, 1)}
    assert february.value["f"].to_list() == ["b", "b", "c"]
    assert february.value["t"].to_list() == ["x", "y", "z"]
    assert february.value["n"].dtype == "float64" and february.value["n"].isna().to_list() == [False, True, False]
    assert february.value["g"].to_list() == [True, None, True]
    ranks = [one.rank for one in found.mini_batches]
    assert ranks == [
        len(files["d/2020-01-01/a.csv"]),
        sum(len(text) for name, text in files.items() if "02-01" in name),
    ]


def test_parquet_groups_have_exact_counts(tmp_path: Path) -> None:
    data = mltable(tmp_path / "data", {}, "read_parquet", extract("k={k}/*.parquet"), pattern="./**/*.parquet")
    for at in range(6):
        (data / f"k={at % 2}").mkdir(exist_ok=True)
        table = pyarrow.table({"at": [at] * 10, "c": pyarrow.array(["x", str(at)] * 5).dictionary_encode()})
        pyarrow.parquet.write_table(table, data / f"k={at % 2}/{at}.parquet", row_group_size=4)
    found = plan(tmp_path / "step", data, "mltable", partition_keys=["k"])
    assert [(one.item_first, one.item_count) for one in found.mini_batches] == [(0, 30), (30, 30)]
    even, odd = load(found)
    assert even.value["at"].to_list() == [0] * 10 + [2] * 10 + [4] * 10 and odd.partition_key_value == {"k": "1"}
    assert even.value["c"].dtype == "category" and even.value["c"].to_list()[-2:] == ["x", "4"]


def test_a_planner_killed_between_groups_goes_on_with_the_same(tmp_path: Path) -> None:
    data = mltable(tmp_path / "data", SALES, "read_delimited", extract("/{Store}/{Brand}.csv"), pattern="./**/*.csv")
    keys = {"partition_keys": ["Brand", "Store"]}
    expected = plan(tmp_path / "whole", data, "mltable", **keys)
    step = tmp_path / "step"
    planner = Planner(step, data, "mltable", **keys)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    (data / "MLTable").unlink()
    rest = plan(step, data, "mltable", checkpoint=said[0]["to"], **keys)
    assert said[1] + rest.mini_batches == expected.mini_batches
    assert rest.recipes == expected.recipes[len(said[1]) :]


def test_rows_of_groups_are_counted_behind_a_filter_where_that_is_asked_for(tmp_path: Path) -> None:
    files = {f"s{at}/{name}.csv": "n\n1\n2\n3\n" for at in range(3) for name in "ab"}
    data = mltable(tmp_path / "data", files, "read_delimited", extract("/s{s}/*.csv"), "filter: s != '1' and n > 1")
    found = plan(tmp_path / "step", data, "mltable", partition_keys=["s"], exact_row_index=True)
    assert [one.value["n"].to_list() for one in load(found)] == [[2, 3, 2, 3], [2, 3, 2, 3]]
    assert [(one.item_first, one.item_count) for one in found.mini_batches] == [(0, 4), (4, 4)]


def test_files_without_records_are_told_as_such(tmp_path: Path) -> None:
    data = mltable(tmp_path / "data", {"s1/a.jsonl": "", "s2/b.jsonl": "\n"}, "read_json_lines", extract("/s{s}/*"))
    error = plan(tmp_path / "step", data, "mltable", partition_keys=["s"]).error
    assert error is not None and "leave no rows, or its files have none" in error["message"]
