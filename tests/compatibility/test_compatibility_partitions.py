"""Partition keys: models of stores and brands, files by user and genre, and columns of the data, as real runs."""

from __future__ import annotations

import csv
import json

import pytest
from compatibility_job import CompatibilityJob

STORES = range(1000, 1033)
BRANDS = ("dominicks", "minute.maid", "tropicana")
WEEKS = 121

TRAIN = """
    import argparse
    import json
    import os

    def init():
        parser = argparse.ArgumentParser()
        parser.add_argument("--drop_cols", type=str)
        parser.add_argument("--model_folder", type=str)
        parser.add_argument("--partition_keys", type=str)
        global args
        args, _ = parser.parse_known_args()
        assert json.loads(args.partition_keys) == ["Store", "Brand"], args

    def run(input_data, mini_batch_context):
        keys = mini_batch_context.partition_key_value
        assert list(keys) == ["Store", "Brand"], keys
        assert set(input_data["Store"]) == {keys["Store"]} and set(input_data["Brand"]) == {keys["Brand"]}
        assert len(input_data) == 121 and list(input_data.columns)[:2] == ["WeekStarting", "Quantity"]
        assert args.drop_cols not in input_data.columns
        folder = os.path.join(args.model_folder, *keys.values())
        os.makedirs(folder)
        with open(os.path.join(folder, "model.json"), "w") as file:
            json.dump({"mean": float(input_data["Quantity"].mean()), "index": mini_batch_context.minibatch_index}, file)
        return []
"""


def test_a_model_for_each_store_and_brand(job: CompatibilityJob) -> None:
    """The shape of the vendor's sample for orange juice sales: 99 files, 11,979 rows, 99 models, no rows returned."""
    for store in STORES:
        for at, brand in enumerate(BRANDS):
            rows = "".join(f"{week},{store + week * at},7\n" for week in range(WEEKS))
            job.write(f"oj_sales/{store}/{brand}.csv", "WeekStarting,Quantity,Revenue\n" + rows)
    job.write(
        "oj_sales/MLTable",
        """
        $schema: https://azuremlschemas.azureedge.net/latest/MLTable.schema.json
        type: mltable
        paths:
          - pattern: ./**/*.csv
        transformations:
          - read_delimited:
              delimiter: ','
              encoding: utf8
              header: all_files_same_headers
          - drop_columns: Revenue
          - extract_columns_from_partition_format:
              partition_format: '/{Store}/{Brand}.{extension}'
          - drop_columns: extension
        """,
    )
    job.write("code/score.py", TRAIN)
    job.write(
        "job.yml",
        """
        type: pipeline
        jobs:
          parallel_train:
            type: parallel
            inputs:
              oj_sales: {type: mltable, path: ./oj_sales, mode: direct}
              drop_cols: Revenue
            outputs:
              model_folder: {type: uri_folder, mode: rw_mount, path: ./models}
            input_data: ${{inputs.oj_sales}}
            partition_keys: ["Store", "Brand"]
            mini_batch_error_threshold: 5
            error_threshold: -1
            max_concurrency_per_instance: 2
            task:
              type: run_function
              code: ./code
              entry_script: score.py
              program_arguments: >-
                --drop_cols ${{inputs.drop_cols}}
                --model_folder ${{outputs.model_folder}}
        """,
    )
    job.completed()
    assert {name: job.counters()[name] for name in ("planned", "succeeded", "items_total")} == {
        "planned": 99,
        "succeeded": 99,
        "items_total": 11_979,
    }
    models = {path.relative_to(job.folder / "models").parts[:2]: json.loads(path.read_text())
              for path in (job.folder / "models").glob("*/*/model.json")}  # fmt: skip
    assert {key: model["mean"] for key, model in models.items()} == {
        (str(store), brand): store + 60.0 * at for store in STORES for at, brand in enumerate(BRANDS)
    }
    # Mini-batches are numbered in the order of the keys' values, whatever order they ran in.
    assert [key for key, _ in sorted(models.items(), key=lambda item: item[1]["index"])] == sorted(models)


def test_files_by_user_and_genre(job: CompatibilityJob) -> None:
    """The example of v1's notebooks: six files, five mini-batches; `partition_keys` comes as JSON text."""
    tracks = ["user1/winter/genre1/a", "user1/spring/genre1/b", "user1/fall/genre2/c"]
    tracks += ["user2/spring/genre1/d", "user2/winter/genre2/e", "user3/winter/genre1/f"]
    for track in tracks:
        job.write(f"music/{track}.txt", track)
    job.write(
        "music/MLTable",
        """
        paths:
          - folder: .
        transformations:
          - extract_columns_from_partition_format: '{user}/{season}/{genre}/{track}.txt'
        """,
    )
    job.write(
        "code/score.py",
        """
        def run(mini_batch, context):
            if context.partition_key_value["user"] == "user3":
                raise RuntimeError("no such user")
            return [f"{context.partition_key_value} {open(name).read()}" for name in mini_batch]
        """,
    )
    settings = """
        partition_keys: '["genre", "user"]'
        mini_batch_error_threshold: 1
        retry_settings: {max_retries: 0}
    """
    job.write_job("mltable", "./music", settings=settings)
    job.completed()
    assert job.counters()["planned"] == 5
    assert (job.folder / "rows.txt").read_text().splitlines() == [
        "{'genre': 'genre1', 'user': 'user1'} user1/spring/genre1/b",
        "{'genre': 'genre1', 'user': 'user1'} user1/winter/genre1/a",
        "{'genre': 'genre1', 'user': 'user2'} user2/spring/genre1/d",
        "{'genre': 'genre2', 'user': 'user1'} user1/fall/genre2/c",
        "{'genre': 'genre2', 'user': 'user2'} user2/winter/genre2/e",
    ]
    with (job.folder / "failed_items.csv").open(newline="") as file:
        (failed,) = csv.DictReader(file)
    assert failed["item"].endswith("user3/winter/genre1/f.txt") and failed["cause"] == "exception"
    assert json.loads(failed["partition"]) == {"genre": "genre1", "user": "user3"}


def test_columns_of_the_data(job: CompatibilityJob) -> None:
    """Beyond v2, as v1's `partition_by`: rows of a key come together from all files, the largest groups first."""
    lines = [f"{'common' if at % 5 else f'rare{at}'},{at % 3},{at}" for at in range(3000)]
    job.write("data/a.csv", "city,kind,n\n" + "\n".join(lines[:1700]) + "\n")
    job.write("data/b.csv", "city,kind,n\n" + "\n".join(lines[1700:]) + "\n")
    job.write(
        "code/score.py",
        """
        def run(rows, context):
            key = context.partition_key_value
            assert set(rows["city"]) == {key["city"]} and set(rows["kind"]) == {key["kind"]}
            assert rows["n"].is_monotonic_increasing
            return [f"{key['city']},{key['kind']},{rows['n'].sum()}"] * len(rows)
        """,
    )
    job.write_job("mltable", "./data")
    text = (job.folder / "job.yml").read_text()
    given = """program_arguments: '--partition_keys "[\\"city\\", \\"kind\\"]"'"""
    text = text.replace("entry_script: score.py", f"entry_script: score.py\n      {given}")
    (job.folder / "job.yml").write_text(text)
    job.completed()
    sums: dict[str, list[int]] = {}
    for line in lines:
        city, kind, n = line.split(",")
        sums.setdefault(f"{city},{kind}", []).append(int(n))
    expected = [f"{key},{sum(ns)}" for key, ns in sorted(sums.items()) for _ in ns]
    assert (job.folder / "rows.txt").read_text().splitlines() == expected
    assert job.counters()["planned"] == len(sums) and job.counters()["items_ok"] == 3000
    # What was sorted for the job goes with its end.
    assert not list(job.state.glob("jobs/*/steps/*/rows"))


@pytest.mark.parametrize("returns", ["", "--returns per_item"], ids=["", "per item"])
def test_one_row_a_group_is_told_as_what_it_is(job: CompatibilityJob, returns: str) -> None:
    """A row a store, not a row an item: the vendor's own sample returns fewer, too (its error_threshold is -1)."""
    job.write("data.csv", "store,sold\na,1\na,2\nb,3\nb,4\nb,5\n")
    job.write("code/score.py", "def run(rows, context):\n    return [int(rows['sold'].sum())]\n")
    job.write_job("mltable", "./data.csv", settings="    partition_keys: [store]\n")
    if returns:
        text = (job.folder / "job.yml").read_text()
        given = f"entry_script: score.py\n      program_arguments: {returns}"
        (job.folder / "job.yml").write_text(text.replace("entry_script: score.py", given))
    text = job.completed()
    assert (job.folder / "rows.txt").read_text() == "3\n12\n"
    if not returns:
        assert (job.counters()["items_ok"], job.counters()["items_failed"]) == (5, 0)
        return
    assert "3 of 5 items failed, because run() returned fewer results than it was given items" in text
    with (job.folder / "failed_items.csv").open(newline="") as file:
        found = [(row["item"], row["cause"], row["tries"]) for row in csv.DictReader(file)]
    assert found == [
        ('1 of the 2 items of the group {"store": "a"}', "no_result", "1"),
        ('2 of the 3 items of the group {"store": "b"}', "no_result", "1"),
    ]
