"""Delta tables: a real table of real versions, cut by the planner and read by the worker's loader."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from planner_process import Plan, plan
from windrow_master.planning.recipes.description import describe_partition
from windrow_worker.loading import is_row_index_exact, make_loader


def mltable(folder: Path, settings: str = "", table: str = "./table") -> Path:
    (folder / "MLTable").write_text(
        f"paths:\n  - folder: {table}\ntransformations:\n  - read_delta_lake:{settings and ' ' + settings}\n"
    )
    return folder


def versions(folder: Path) -> Path:
    """Version 0 holds 1, version 1 also 2, version 2 only 3; written at known times."""
    table = folder / "table"
    for number, mode in ((1, "append"), (2, "append"), (3, "overwrite")):
        write_deltalake(str(table), pa.table({"n": [number]}), mode=mode)
    for number in range(3):
        # The log's own words tell when each version was committed.
        log = table / "_delta_log" / f"{number:020d}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = 1_700_000_000_000 + number * 1000
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return table


def frame(found: Plan) -> pandas.DataFrame:
    assert found.error is None, found.error
    assert is_row_index_exact(found.reader)
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    assert [one.item_count for one in loaded] == [one.item_count for one in found.mini_batches]
    return pandas.concat([one.value for one in loaded], ignore_index=True)


def error(found: Plan) -> str:
    assert found.error is not None
    assert found.error["category"] == "UserError"
    return str(found.error["message"])


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ("", [3]),
        ("{version_as_of: 0}", [1]),
        ("{version_as_of: 1}", [1, 2]),
        ("{timestamp_as_of: '2200-01-01T00:00:00Z'}", [3]),
        ("{timestamp_as_of: '1999-01-01T00:00:00+01:00'}", [1]),
    ],
)
def test_versions(tmp_path: Path, settings: str, rows: list[int]) -> None:
    versions(tmp_path)
    found = plan(tmp_path / "step", mltable(tmp_path, settings), "mltable")
    assert sorted(frame(found)["n"].tolist()) == rows


def test_partitions_give_back_their_columns(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {
        "day": [datetime.date(2020, 1, 2), datetime.date(2021, 1, 1), None],
        "store": ["a b/%é", "c", "c"],
        "n": [1, 2, 3],
        "price": [decimal.Decimal("1.50"), decimal.Decimal("2.25"), None],
        "open": [True, False, None],
        "at": [datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC)] * 3,
    }
    write_deltalake(str(tmp_path / "table"), pa.table(rows), partition_by=["day", "store", "price", "open", "at"])
    found = plan(tmp_path / "step", mltable(tmp_path, "{include_path_column: true}"), "mltable")
    read = frame(found).sort_values("n", ignore_index=True)
    assert list(read.columns) == ["Path", *rows]
    for name, values in rows.items():
        assert [None if pandas.isna(value) else value for value in read[name]] == values
    assert all(Path(path).is_file() for path in read["Path"])


def test_a_planner_goes_on_after_a_checkpoint_whatever_was_committed_since(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"n": range(100), "m": range(100)}), partition_by=["n"])
    whole = plan(tmp_path / "step", mltable(tmp_path), "mltable")
    assert len(whole.mini_batches) == 100
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [1000], "m": [0]}), mode="append")
    rest = plan(tmp_path / "step", tmp_path, "mltable", checkpoint=whole.checkpoints[0])
    assert whole.mini_batches[-len(rest.mini_batches) :] == rest.mini_batches


@pytest.mark.parametrize(
    ("settings", "said"),
    [("{version_as_of: 9}", "has no version 9; the latest is 2")],
)
def test_a_version_that_is_not_there(tmp_path: Path, settings: str, said: str) -> None:
    versions(tmp_path)
    assert said in error(plan(tmp_path / "step", mltable(tmp_path, settings), "mltable"))


@pytest.mark.parametrize("name", ["with blank", "100%", "hash#mark", "é?&"])
def test_names_of_folders_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"n": [1]}))
    (tmp_path / name).mkdir()
    (tmp_path / "table").rename(tmp_path / name / "table")
    found = plan(tmp_path / "step", mltable(tmp_path / name), "mltable")
    assert frame(found)["n"].tolist() == [1]


def test_steps_stand_behind_the_one_that_reads(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"n": range(10), "p": [0, 1] * 5}), partition_by=["p"])
    steps = "paths: [{folder: ./table}]\ntransformations:\n  - read_delta_lake\n"
    (tmp_path / "MLTable").write_text(steps + "  - filter: col('n') > 2 and col('p') == 1\n  - keep_columns: n\n")
    found = plan(tmp_path / "step", tmp_path, "mltable", exact_row_index=True)
    assert frame(found).to_dict("list") == {"n": [3, 5, 7, 9]}
    (tmp_path / "MLTable").write_text(steps.replace("transformations:\n", "transformations:\n  - take: 1\n"))
    assert "put it after read_delta_lake" in error(plan(tmp_path / "other", tmp_path, "mltable"))


def test_a_folder_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "x.parquet").write_bytes(b"")
    assert "is not a Delta table" in error(plan(tmp_path / "step", mltable(tmp_path), "mltable"))
    mltable(tmp_path).joinpath("MLTable").write_text(
        "paths: [{folder: ./table}, {folder: ./table}]\ntransformations: [read_delta_lake]\n"
    )
    assert "one entry" in error(plan(tmp_path / "step", tmp_path, "mltable"))


def rewrite(table: Path, change: Any) -> None:
    """Change the actions of version 0."""
    log = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(change(action)) + "\n" for action in actions))


def with_protocol(features: list[str], **add: Any) -> Any:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}

    def change(action: dict[str, Any]) -> dict[str, Any]:
        if "protocol" in action:
            return {"protocol": protocol}
        if "add" in action:
            return {"add": {**action["add"], **add}}
        return action

    return change


DELETED = {
    # The protocol's own example of one that stands in the log.
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_protocol(["deletionVectors"], deletionVector=DELETED), "has deletion vectors"),
        (with_protocol(["columnMapping"]), "columnMapping"),
        (with_protocol(["somethingNew"]), "somethingNew"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, change: Any, said: str) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"n": range(20)}))
    rewrite(tmp_path / "table", change)
    assert said in error(plan(tmp_path / "step", mltable(tmp_path), "mltable"))


def test_a_table_that_could_have_deletion_vectors_but_has_none_is_read(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"n": range(5)}))
    rewrite(tmp_path / "table", with_protocol(["deletionVectors"]))
    assert DeltaTable(str(tmp_path / "table")).protocol().reader_features == ["deletionVectors"]
    assert frame(plan(tmp_path / "step", mltable(tmp_path), "mltable"))["n"].tolist() == list(range(5))


def test_a_path_that_would_be_read_elsewhere_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "a%2e"
    table.mkdir()
    assert "percent escape" in error(plan(tmp_path / "step", mltable(tmp_path, table="./a%2e"), "mltable"))


def test_a_log_outside_the_roots_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inside" / "table").mkdir(parents=True)
    write_deltalake(str(tmp_path / "other"), pa.table({"n": [1]}))
    (tmp_path / "inside" / "table" / "_delta_log").symlink_to(tmp_path / "other" / "_delta_log")
    found = plan(tmp_path / "step", mltable(tmp_path / "inside"), "mltable", roots=[str(tmp_path / "inside")])
    assert "outside the datastores" in error(found)


def test_files_outside_the_roots_are_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    write_deltalake(str(tmp_path / "other"), pa.table({"n": [1]}))
    write_deltalake(str(inside / "table"), pa.table({"n": [1]}))
    (outside,) = (tmp_path / "other").glob("*.parquet")
    rewrite(
        inside / "table",
        lambda action: {"add": {**action["add"], "path": outside.as_uri()}} if "add" in action else action,
    )
    found = plan(tmp_path / "step", mltable(inside), "mltable", roots=[str(inside)])
    assert "outside the datastores" in error(found)


def groups(found: Plan) -> list[tuple[dict[str, Any] | None, list[int]]]:
    """The partitions, and the numbers `n` of each."""
    assert found.error is None, found.error
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    return [(one.partition_key_value, sorted(one.value["n"].tolist())) for one in loaded]


def keyed(folder: Path) -> Path:
    """A table of three files a commit, in two commits, with partition columns of several types."""
    day, price = datetime.date(2020, 1, 2), decimal.Decimal("2.50")
    for first in (0, 10):
        rows: dict[str, list[Any]] = {
            "day": [day, day, None, datetime.date(1969, 1, 1)],
            "price": pa.array([price, decimal.Decimal("10.00"), None, price], pa.decimal128(10, 2)),
            "open": [True, False, None, True],
            "n": [first + at for at in range(4)],
            "text": ["a", "b", "a", "b"],
        }
        write_deltalake(str(folder / "table"), pa.table(rows), partition_by=["day", "price", "open"], mode="append")
    return mltable(folder)


@pytest.mark.parametrize("rows_folder", [None, "rows"])
def test_partition_columns_of_the_table_divide_it_without_a_sort(tmp_path: Path, rows_folder: str | None) -> None:
    """In the order of their values, null last; a script is told dates and decimals as such."""
    place = None if rows_folder is None else str(tmp_path / rows_folder)
    found = plan(tmp_path / "step", keyed(tmp_path), "mltable", partition_keys=["day", "price"], rows_folder=place)
    day, price = datetime.date(2020, 1, 2), decimal.Decimal("2.50")
    assert groups(found) == [
        ({"day": datetime.date(1969, 1, 1), "price": price}, [3, 13]),
        ({"day": day, "price": price}, [0, 10]),
        ({"day": day, "price": decimal.Decimal("10.00")}, [1, 11]),
        ({"day": None, "price": None}, [2, 12]),
    ]
    assert describe_partition(found.reader, found.recipes[0]) == '{"day": "1969-01-01", "price": "2.50"}'
    assert not (tmp_path / "rows").exists()


def test_other_columns_of_the_table_divide_it_by_a_sort(tmp_path: Path) -> None:
    """Alone, and together with partition columns: their values are the same either way."""
    found = plan(tmp_path / "step", keyed(tmp_path), "mltable", partition_keys=["text", "day"])
    day = datetime.date(2020, 1, 2)
    assert groups(found) == [
        ({"text": "a", "day": day}, [0, 10]),
        ({"text": "a", "day": None}, [2, 12]),
        ({"text": "b", "day": datetime.date(1969, 1, 1)}, [3, 13]),
        ({"text": "b", "day": day}, [1, 11]),
    ]


def test_a_key_that_the_table_does_not_have(tmp_path: Path) -> None:
    found = plan(tmp_path / "step", keyed(tmp_path), "mltable", partition_keys=["day", "nothing"])
    assert "names nothing" in error(found) and "day, price, open" in error(found)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([datetime.datetime(year, 1, 1, tzinfo=datetime.UTC) for year in (1960, 2020)], None),
        ([-3, 20], pa.int32()),
        ([-1.5, 10.25], None),
        ([decimal.Decimal("1.5"), decimal.Decimal("9" * 30)], pa.decimal128(38, 1)),
    ],
)
def test_keys_of_every_type_group_and_sort(tmp_path: Path, values: list[Any], kind: pa.DataType | None) -> None:
    rows = pa.table({"key": pa.array([values[1], values[0], None] * 2, kind), "n": range(6)})
    write_deltalake(str(tmp_path / "table"), rows, partition_by=["key"])
    by_files = groups(plan(tmp_path / "step", mltable(tmp_path), "mltable", partition_keys=["key"]))
    assert by_files == [({"key": values[0]}, [1, 4]), ({"key": values[1]}, [0, 3]), ({"key": None}, [2, 5])]
