"""Tables divided by columns of their data: rows are sorted out of core, and each group is a run of rows."""

from __future__ import annotations

import datetime
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy
import pandas
import pyarrow
import pyarrow.parquet
import pytest
from file_damage import flip
from planner_process import Plan, Planner, plan
from windrow_master.planning import describe_items
from windrow_master.planning.partitions.row_groups import size_class
from windrow_master.planning.recipes.description import describe_partition
from windrow_worker.loaded import InputChanged, Loaded
from windrow_worker.loading import make_loader


def test_ranks_are_sizes_in_few_classes() -> None:
    assert [size_class(rows) for rows in (1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 1000)] == [1, 2, 3, 4, 4, 6, 6, 8, 8, 12, 768]
    classes = [size_class(rows) for rows in range(1, 5000)]
    assert classes == sorted(classes) and all(rows / 1.5 < at <= rows for rows, at in enumerate(classes, 1))


def load(found: Plan) -> list[Loaded]:
    """All mini-batches."""
    assert found.error is None, found.error
    loader = make_loader(found.reader)
    loaded = [loader.load(recipe) for recipe in found.recipes]
    if "partition" in found.reader:
        assert [len(one.value) for one in loaded] == [one.item_count for one in found.mini_batches]
    return loaded


def mltable(folder: Path, *steps: str, pattern: str = "./*.*") -> Path:
    """An MLTable file in a folder that is there."""
    lines = ["paths:", f"  - pattern: {pattern}", "transformations:", *(f"  - {step}" for step in steps)]
    (folder / "MLTable").write_text("\n".join(lines) + "\n")
    return folder


def cells(rows: pandas.DataFrame) -> list[list[Any]]:
    """Rows as plain values; None for nulls."""
    return [[None if pandas.isna(value) else value for value in row] for row in rows.itertuples(index=False)]


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_those_of_pandas_in_input_order(tmp_path: Path, seed: int) -> None:
    """Keys of every kind, nulls among them, over several files and slices."""
    random = numpy.random.default_rng(seed)
    rows = 3000
    words = numpy.array(["", "a", "B", "Ä", "aa", 'z,"y', "1"], dtype=object)
    table = pandas.DataFrame(
        {
            "at": numpy.arange(rows),
            "word": words[random.integers(0, len(words), rows)],
            "n": pandas.array(random.integers(-3, 3, rows), dtype="Int64"),
            "x": random.integers(-4, 4, rows) / 4,
            "day": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(random.integers(0, 4, rows), "D"),
            "flag": random.integers(0, 2, rows) == 1,
        }
    )
    table.loc[random.integers(0, rows, 40), "n"] = pandas.NA
    table.loc[random.integers(0, rows, 40), "x"] = numpy.nan
    for at in range(3):
        table[at * 1000 : at * 1000 + 1000].to_csv(tmp_path / f"{at}.csv", index=False)
    data = mltable(tmp_path, "read_delimited", pattern="./?.csv")
    whole = pandas.concat([one.value for one in load(plan(tmp_path / "w", data, "mltable"))], ignore_index=True)
    for keys in (["word"], ["n", "flag"], ["x", "word"], ["day"], ["flag"]):
        found = plan(tmp_path / "step", data, "mltable", partition_keys=keys)
        loaded = load(found)
        expected = [group for _, group in whole.groupby(keys, dropna=False, sort=False)]
        assert sorted(cells(one.value) for one in loaded) == sorted(cells(group) for group in expected)
        for one in loaded:
            told = one.partition_key_value
            assert told is not None and list(told) == keys
            assert [told[key] for key in keys] == cells(one.value[keys])[0]
        assert [one.rank for one in found.mini_batches] == [size_class(len(one.value)) for one in loaded]
        # In the order of their values, null last.
        firsts = [[(value is None, value) for value in cells(one.value[keys])[0]] for one in loaded]
        assert firsts == sorted(firsts)


def test_types_are_those_of_the_whole_input_and_numbers_are_exact(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,id,late\nx,1,2\ny,9007199254740993,3\nx,2,\n")
    found = plan(tmp_path / "step", mltable(tmp_path, "read_delimited"), "mltable", partition_keys=["k"])
    x, y = load(found)
    assert y.value["id"].to_list() == [9007199254740993] and y.value["late"].dtype == "int64"
    assert x.value["late"].dtype == "float64" and x.value["late"].isna().to_list() == [False, True]
    assert describe_partition(found.reader, found.recipes[1]) == '{"k": "y"}'
    assert describe_items(found.reader, found.recipes[1]) == ['the group {"k": "y"}']


@pytest.mark.parametrize("steps", [[], ["filter: col('k') != 'z'"]])
def test_a_whole_number_that_pandas_would_round_beside_a_null_stays_exact(tmp_path: Path, steps: list[str]) -> None:
    (tmp_path / "a.csv").write_text("k,id\nx,9007199254740993\ny,\nz,1\n")
    data = mltable(tmp_path, "read_delimited", *steps)
    x = load(plan(tmp_path / "step", data, "mltable", partition_keys=["k"]))[0]
    assert x.value["id"].to_list() == [9007199254740993] and x.value["id"].dtype == "int64"


def test_every_type_of_parquet_comes_back_as_it_was(tmp_path: Path) -> None:
    utc = datetime.UTC
    columns = {
        "k": pyarrow.array(["b", "a", "b", None]),
        "K": pyarrow.array([1, 2, 3, 4], pyarrow.uint8()),
        "f": pyarrow.array([1.5, None, -0.0, 2.5], pyarrow.float32()),
        "zone": pyarrow.array([datetime.datetime(2020, 1, 1, tzinfo=utc)] * 4, pyarrow.timestamp("ns", "UTC")),
        "ms": pyarrow.array([datetime.datetime(2020, 1, at) for at in range(1, 5)], pyarrow.timestamp("ms")),
        "date": pyarrow.array([datetime.date(2020, 1, at) for at in range(1, 5)]),
        "list": pyarrow.array([[1, 2], [], None, [3]], pyarrow.list_(pyarrow.int32())),
        "struct": pyarrow.array([{"a": 1}, {"a": 2}, {"a": None}, None]),
        "category": pyarrow.array(["u", "v", "u", None]).dictionary_encode(),
        "bytes": pyarrow.array([b"\0", b"\xff", b"", None]),
        "none": pyarrow.nulls(4),
    }  # fmt: skip
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found = plan(tmp_path / "step", tmp_path / "a.parquet", "mltable", partition_keys=["k"])
    loaded = load(found)
    assert [one.partition_key_value for one in loaded] == [{"k": "a"}, {"k": "b"}, {"k": None}]
    for one, rows in zip(loaded, ([1], [0, 2], [3]), strict=True):
        expected = pyarrow.parquet.read_table(tmp_path / "a.parquet").take(rows).to_pandas()
        pandas.testing.assert_frame_equal(one.value, expected, check_categorical=False)
        assert one.value["category"].dtype == "category"


def test_half_floats_are_keys_as_other_numbers_are(tmp_path: Path) -> None:
    halves = pyarrow.array([numpy.float16(2.5), None, numpy.float16(-1), numpy.float16(2.5)], pyarrow.float16())
    pyarrow.parquet.write_table(pyarrow.table({"half": halves, "n": [1, 2, 3, 4]}), tmp_path / "a.parquet")
    loaded = load(plan(tmp_path / "step", tmp_path / "a.parquet", "mltable", partition_keys=["half"]))
    assert [one.partition_key_value for one in loaded] == [{"half": -1}, {"half": 2.5}, {"half": None}]
    assert [one.value["n"].to_list() for one in loaded] == [[3], [1, 4], [2]]


def test_nested_values_of_json_lines_come_back_and_are_no_keys(tmp_path: Path) -> None:
    lines = [{"k": at % 2, "o": {"a": [at, None]}, "late": None} for at in range(4)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    loaded = load(plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable", partition_keys=["k"]))
    assert [one.value["o"].to_list() for one in loaded] == [
        [lines[0]["o"], lines[2]["o"]],
        [lines[1]["o"], lines[3]["o"]],
    ]
    assert loaded[0].value["late"].to_list() == [None, None]
    for key in ("o", "late"):
        error = plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable", partition_keys=[key]).error
        assert error is not None
        for words in ("nested, or null wherever", "a key is text, a number, a boolean or a date"):
            assert words in error["message"]


def test_keys_from_paths_and_from_the_data_go_together_after_all_steps(tmp_path: Path) -> None:
    for store in ("s1", "s2"):
        (tmp_path / store).mkdir()
        (tmp_path / store / "x.csv").write_text("brand,sold\n" + "".join(f"b{at % 2},{at}\n" for at in range(10)))
    data = mltable(
        tmp_path,
        "read_delimited",
        "extract_columns_from_partition_format: '/{store}/{f}.csv'",
        "skip: 1",
        "filter: col('sold') < 4",
        "convert_column_types: [{columns: sold, column_type: string}]",
        "drop_columns: [f]",
        pattern="./*/*.csv",
    )
    loaded = load(plan(tmp_path / "step", data, "mltable", partition_keys=["store", "brand"]))
    assert [(one.partition_key_value, one.value["sold"].to_list()) for one in loaded] == [
        ({"store": "s1", "brand": "b0"}, ["2"]),
        ({"store": "s1", "brand": "b1"}, ["1", "3"]),
        ({"store": "s2", "brand": "b0"}, ["0", "2"]),
        ({"store": "s2", "brand": "b1"}, ["1", "3"]),
    ]
    assert list(loaded[0].value.columns) == ["brand", "sold", "store"]


def test_by_paths_alone_but_with_steps_that_count_rows(tmp_path: Path) -> None:
    for at in range(3):
        (tmp_path / f"{at}.csv").write_text("v\n" + f"{at}\n" * 4)
    data = mltable(tmp_path, "read_delimited", "extract_columns_from_partition_format: '/{f}.csv'", "take: 6")
    loaded = load(plan(tmp_path / "step", data, "mltable", partition_keys=["f"]))
    assert [(one.partition_key_value, len(one.value)) for one in loaded] == [({"f": "0"}, 4), ({"f": "1"}, 2)]


def test_values_that_do_not_fit_are_told_while_planning(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n" + "x,1\n" * 2_000 + "x,oops\n")
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", partition_keys=["k"])
    (warning,) = found.warnings
    assert '"v"' in warning and "out): 1." in warning and "line 2002" in warning


@pytest.mark.parametrize(
    ("keys", "more", "words"),
    [
        (["k", "colour"], {}, "names colour, which the input"),
        (["K"], {}, "The columns and keys that it has: k, v"),
        (["k"], {"rows_folder": None}, "no datastore named default"),
    ],
)
def test_errors_of_users(tmp_path: Path, keys: list[str], more: dict[str, Any], words: str) -> None:
    (tmp_path / "a.csv").write_text("k,v\nx,1\n")
    error = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", partition_keys=keys, **more).error
    assert error is not None and error["category"] == "UserError" and words in error["message"]


def test_bad_input_is_told_by_its_own_message(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"k": 1}\n' * 20_000 + "nonsense\n")
    error = plan(tmp_path / "step", tmp_path / "a.jsonl", "mltable", partition_keys=["k"]).error
    assert error is not None and "is not a JSON object" in error["message"] and "nonsense" in error["message"]


def test_groups_that_span_batches_and_planners_killed_between(tmp_path: Path) -> None:
    """More rows than an Arrow batch holds, groups of one row and of very many."""
    rows = 150_000
    keys = ["big" if at % 3 else f"small{at}" for at in range(rows)]
    (tmp_path / "a.csv").write_text("k,at\n" + "".join(f"{key},{at}\n" for at, key in enumerate(keys)))
    data, by = tmp_path / "a.csv", {"partition_keys": ["k"]}
    step = tmp_path / "step"
    planner = Planner(step, data, "mltable", **by)
    said = planner.message()
    assert said is not None and not said[0]["to"]["done"]
    planner.close(kill=True)
    data.write_text("k,at\n")  # nobody looks again
    rest = plan(step, data, "mltable", checkpoint=said[0]["to"], **by)
    assert rest.error is None
    found = said[1] + rest.mini_batches
    assert len(found) == 50_001 and sum(one.item_count for one in found) == rows
    recipes = (step / "recipes").read_bytes()
    loader = make_loader(said[0]["reader"])
    seen: list[int] = []
    for one in found:
        loaded = loader.load(recipes[one.recipe_offset : one.recipe_offset + one.recipe_length])
        assert loaded.item_count == one.item_count and one.rank == size_class(one.item_count)
        numbers = loaded.value["at"].to_list()
        assert numbers == sorted(numbers)
        assert loaded.partition_key_value == {"k": keys[numbers[0]]}
        seen += numbers
    assert sorted(seen) == list(range(rows))
    assert sorted(path.name for path in (step / "rows").iterdir()) == ["rows.arrow", "rows.arrow.sums"]


def test_sorted_rows_that_were_written_to_are_no_input_any_more(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\nx\n")
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", partition_keys=["k"])
    file = tmp_path / "step/rows/rows.arrow"
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputChanged, match="written to"):
        make_loader(found.reader).load(found.recipes[0])


def test_sorted_rows_are_told_where_their_checksums_were_made_to_fit(tmp_path: Path) -> None:
    """As where both files are those of another run."""
    (tmp_path / "a.csv").write_text("k,v\n" + "x,abcdefgh\ny,ijklmnop\n" * 100)
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", partition_keys=["k"])
    rows, sums = tmp_path / "step/rows/rows.arrow", tmp_path / "step/rows/rows.arrow.sums"
    kept = rows.stat(), sums.stat()
    flip(rows, rows.read_bytes().index(b"ijklmnop"))
    content, begin, fitting = rows.read_bytes(), 0, b""
    for end, _ in struct.iter_unpack("<QI", sums.read_bytes()):
        fitting += struct.pack("<QI", end, zlib.crc32(content[begin:end]))
        begin = end
    sums.write_bytes(fitting)
    for path, times in zip((rows, sums), kept, strict=True):
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(InputChanged, match=r"rows\.arrow\.sums.*is damaged"):
        make_loader(found.reader).load(found.recipes[1])


@pytest.mark.parametrize("place", ["head", "rows", "foot", "sums"])
def test_a_bit_of_sorted_rows_that_flips_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "a.csv").write_text("k,v\n" + "x,abcdefgh\ny,ijklmnop\n" * 100)
    found = plan(tmp_path / "step", tmp_path / "a.csv", "mltable", partition_keys=["k"])
    file = tmp_path / "step/rows/rows.arrow"
    at = {"head": 40, "rows": file.read_bytes().index(b"ijklmnop"), "foot": -40, "sums": 0}[place]
    if place == "sums":
        file = file.with_name("rows.arrow.sums")
    times = file.stat()
    flip(file, at)
    # As where the disk has changed it: nobody has written to it.
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(InputChanged, match=r"rows\.arrow.*is damaged"):
        make_loader(found.reader).load(found.recipes[1])


def test_what_is_cut_from_a_batch_is_what_is_read_alone(tmp_path: Path) -> None:
    """One mini-batch after the other from one batch, columns of every kind; what a script changes is its own."""
    rows = 200
    table = pyarrow.table(
        {
            "k": [f"g{at // 4}" for at in range(rows)],
            "n": [None if at == 7 else at for at in range(rows)],
            "flag": [None if at == 9 else at % 2 == 0 for at in range(rows)],
            "x": [None if at % 3 == 0 else at / 8 for at in range(rows)],
            "whole": list(range(rows)),
            "list": [[at] for at in range(rows)],
            "date": [datetime.date(2020, 1, 1)] * rows,
            "category": pyarrow.array(["u", None] * (rows // 2)).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found = plan(tmp_path / "step", tmp_path / "a.parquet", "mltable", partition_keys=["k"])
    loader = make_loader(found.reader)
    for _ in range(2):
        for recipe in found.recipes:
            alone, cut = make_loader(found.reader).load(recipe), loader.load(recipe)
            pandas.testing.assert_frame_equal(cut.value, alone.value)
            assert cut.partition_key_value == alone.partition_key_value
            cut.value["whole"] = -1
            cut.value.loc[0, "x"] = -1.0


def test_a_table_that_takes_more_memory_than_a_planner_gets_fails_and_says_so(tmp_path: Path) -> None:
    """A small file of many equal values: decoded, they are large."""
    rows = 8_000_000
    word = pyarrow.array(["a word that many rows have " * 8])
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(numpy.zeros(rows, dtype=numpy.int32)), word)
    table = pyarrow.table({"key": column.cast(pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=rows, store_schema=False)
    assert (tmp_path / "a.parquet").stat().st_size < 300_000
    mltable(tmp_path, "read_parquet", pattern="./*.parquet")
    step = tmp_path / "step"
    step.mkdir()
    found = plan(step, tmp_path, "mltable", partition_keys=["key"], memory_bytes_max=700 << 20)
    assert found.error is not None
    assert found.error["category"] == "UserError"
    assert "planner_memory_bytes" in found.error["message"] and "smaller row groups" in found.error["message"]
    assert str(tmp_path / "a.parquet") in found.error["message"]
