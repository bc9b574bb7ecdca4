"""Several inputs of one step, as real runs: outputs, reports, side inputs, and a master killed while it plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from embedded_run import JOB, EmbeddedRun, check_counts, check_words
from served import Served
from windrow_master.crash_points import VARIABLE

Make = Callable[..., EmbeddedRun]

NAMES = """\
import os

def run(mini_batch, context):
    names = [os.path.basename(path) for path in mini_batch]
    if "g00003" in names:
        raise ValueError("not this one")
    return [f"{context.minibatch_index} {context.global_row_index_lower_bound} {name}" for name in names]
"""
ROWS = """\
def run(table, context):
    first = context.global_row_index_lower_bound
    return [f"{context.minibatch_index} {first} {list(table.columns)} {len(table)}"] * len(table)
"""
KEYS = """\
def run(table, context):
    return [f"{context.partition_key_value['brand']} {name}" for name in table["input"]]
"""


def several(text: str) -> str:
    """The job file with the folder `more` as a second input, and both divided."""
    for old, new in (
        ("input_data: ${{inputs.data}}", "input_data: ['${{inputs.data}}', '${{inputs.more}}']"),
        (
            'inputs: {data: "${{parent.inputs.data}}"}',
            "inputs: {data: '${{parent.inputs.data}}', more: '${{parent.inputs.more}}'}",
        ),
        (
            "  data: {type: uri_folder, path: ./data}\n",
            "  data: {type: KIND, path: ./data}\n  more: {type: KIND, path: ./more}\n",
        ),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def prepare(folder: Path, files: int, more: int, *, size: int = 1, kind: str = "uri_folder") -> None:
    """Both inputs, and a job file."""
    for name, letter, count in (("data", "f", files), ("more", "g", more)):
        (folder / name).mkdir(exist_ok=True)
        for number in range(count):
            (folder / name / f"{letter}{number:05d}").touch()
    (folder / "job.yml").write_text(several(JOB.format(size=size, settings="")).replace("KIND", kind))


def test_rows_indexes_and_failed_items_are_those_of_both_in_turn(make: Make) -> None:
    run = make(NAMES, files=0)
    prepare(run.folder, 5, 5, size=2)
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text().splitlines() == [
        *("0 0 f00000", "0 0 f00001", "1 2 f00002", "1 2 f00003", "2 4 f00004"),
        *("3 5 g00000", "3 5 g00001", "4 7 g00002", "5 9 g00004"),
    ]
    counters = check_counts(run)
    assert (counters["planned"], counters["items_total"], counters["items_failed"]) == (6, 10, 1)
    assert str(run.folder / "more" / "g00003") in (run.folder / "failed_items.csv").read_text()


def test_tables_of_different_columns_are_counted_on(make: Make) -> None:
    run = make(ROWS, files=0)
    prepare(run.folder, 0, 0, size=8, kind="mltable")
    (run.folder / "data" / "x.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    (run.folder / "more" / "y.csv").write_text("c\n1\n2\n")
    code, text = run.run("--exact-row-index")
    assert code == 0, text
    assert run.output.read_text().splitlines() == [
        *("0 0 ['a', 'b'] 2", "0 0 ['a', 'b'] 2", "1 2 ['a', 'b'] 1", "2 3 ['c'] 2", "2 3 ['c'] 2")
    ]


@pytest.mark.parametrize("order", [("paths", "columns"), ("columns", "paths"), ("columns", "paths", "columns")])
def test_keys_in_paths_of_one_input_and_in_columns_of_another(make: Make, order: tuple[str, ...]) -> None:
    """Recipes of rows that are sorted stand before those of groups of files, whatever the order of the inputs."""
    run = make(KEYS, files=0)
    wanted: list[str] = []
    for number, kind in enumerate(order):
        folder = run.folder / f"in{number}"
        folder.mkdir()
        # The first groups by columns are smaller than those by paths, and are handed out right behind them.
        rows = 3 if kind == "columns" else 1
        for brand in ("ape", "bee", "cow"):
            header = "brand,input" if kind == "columns" else "other,input"
            lines = [header, *[f"{brand},in{number}"] * rows, ""]
            (folder / f"{brand}.csv").write_text("\n".join(lines))
            wanted += [f"{brand} in{number}"] * rows
        step = "extract_columns_from_partition_format: '/{brand}.csv'" if kind == "paths" else "skip: 0"
        table = f"paths: [{{pattern: '*.csv'}}]\ntransformations: [read_delimited, {{{step}}}]\n"
        (folder / "MLTable").write_text(table)
    names = [f"in{number}" for number in range(len(order))]
    text = JOB.format(size=1, settings="partition_keys: [brand]")
    for old, new in (
        ("input_data: ${{inputs.data}}", f"input_data: {json.dumps(['${{inputs.' + name + '}}' for name in names])}"),
        (
            'inputs: {data: "${{parent.inputs.data}}"}',
            f"inputs: {json.dumps({name: {'type': 'mltable', 'path': f'./{name}'} for name in names})}",
        ),
    ):
        assert old in text
        text = text.replace(old, new)
    (run.folder / "job.yml").write_text(text)
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text().splitlines() == wanted
    assert check_counts(run)["planned"] == 3 * len(order)


def test_copies_of_both_are_the_scripts_own(make: Make) -> None:
    run = make(
        "import os\n\ndef run(mini_batch):\n    [os.unlink(path) for path in mini_batch]\n    return mini_batch\n", 0
    )
    prepare(run.folder, 3, 3, size=2)
    text = (run.folder / "job.yml").read_text().replace("path: ./", "mode: download, path: ./", 2)
    (run.folder / "job.yml").write_text(text)
    code, text = run.run()
    assert code == 0, text
    assert len(run.output.read_text().splitlines()) == 6
    assert len(list((run.folder / "data").iterdir()) + list((run.folder / "more").iterdir())) == 6


def test_an_input_without_files_is_told_by_its_name(make: Make) -> None:
    run = make(NAMES, files=0)
    prepare(run.folder, 3, 0)
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["Failed: ", "Input more: ", f"{run.folder / 'more'} contains no files"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    processes = Served(tmp_path)
    yield processes
    processes.close()


@pytest.mark.parametrize("kind", ["uri_folder", "mltable"])
def test_a_master_killed_while_it_plans_the_second_input_goes_on_exactly(
    served: Served, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "code").mkdir()
    script = "def run(mini_batch, context):\n    return [context.minibatch_index] * len(mini_batch)\n"
    (tmp_path / "code" / "entry.py").write_text(script)
    prepare(tmp_path, 4, 200, kind=kind)
    if kind == "mltable":
        for name, count in (("data", 4), ("more", 200)):
            for file in (tmp_path / name).iterdir():
                file.unlink()
            (tmp_path / name / "x.csv").write_text("a\n" + "1\n" * count)
    served.start_agent("alpha")
    # The first group reaches into the second input, which has most of the mini-batches.
    served.start_master(**{VARIABLE: "planning.checkpoint_received:2"})
    with served.client() as client, ThreadPoolExecutor(1) as thread:
        submission = thread.submit(client.submit, tmp_path / "job.yml")
        served.wait_master_killed()
        served.start_master()
        ended = client.wait(submission.result(240).job_id, timeout_s=240)
        assert ended.state.succeeded, ended.message
        assert ended.items.ok == ended.items.total == 204
    rows = (tmp_path / "out.txt").read_text().split()
    assert rows == [str(number) for number in range(len(set(rows))) for _ in range(rows.count(str(number)))]
    assert len(rows) == 204
