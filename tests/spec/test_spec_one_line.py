"""A run without a job file: what its command line means, as the job file that says the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from windrow.common.state_mark import STATE_MARK
from windrow.errors import UsageError
from windrow.spec import DataInput, EffectiveStep, load_job
from windrow.spec.one_line.job_file import MadeJob, make_job_file, run_name
from windrow.spec.one_line.request import OneLine
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.mltable import read_mltable

RUN = "def run(mini_batch):\n    return []\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a script, a folder of files, and tables."""
    (tmp_path / "sizes.py").write_text(RUN)
    (tmp_path / "photos").mkdir()
    for number in range(50):
        (tmp_path / "photos" / f"{number:02d}.jpg").write_text(str(number))
    for name in ("a.csv", "b.csv", "c.tsv", "d.jsonl"):
        (tmp_path / name).write_text("x\n" * 20_000)
    (tmp_path / "e.parquet").write_bytes(b"PAR1")
    (tmp_path / "note.txt").write_text("")
    return tmp_path


def one_line(*inputs: str, output: str = "out.csv", **options: Any) -> OneLine:
    return OneLine("sizes.py", inputs, output, **options)


def made_in(folder: Path, one: OneLine, **options: Any) -> MadeJob:
    return make_job_file(one, str(folder), **options)


def step_of(folder: Path, one: OneLine, **options: Any) -> EffectiveStep:
    """The step that the command line means."""
    made = made_in(folder, one, **options)
    for name, text in made.files.items():
        path = folder / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    loaded = load_job(folder / "made" / made.job_name)
    assert not loaded.warnings
    (step,) = loaded.job.steps
    return step


def data_of(step: EffectiveStep) -> list[tuple[str, str]]:
    divided = [step.inputs[name] for name in step.input_data]
    return [(given.type, given.path) for given in divided if isinstance(given, DataInput)]


def test_a_folder_is_a_list_of_files(folder: Path) -> None:
    step = step_of(folder, one_line("photos/", slots=2))
    assert data_of(step) == [("uri_folder", str(folder / "photos"))]
    assert (step.name, step.entry_script, step.mini_batch_size, step.rows.format) == ("sizes", "sizes.py", 6, "csv")
    assert step.outputs["rows"].path == str(folder / "out.csv")
    assert step.arguments == ()  # a script that refuses unknown arguments gets none of Windrow's


@pytest.mark.parametrize(
    ("inputs", "kind", "expected"),
    [
        (["a.csv"], "auto", [("mltable", "a.csv")]),
        (["c.tsv"], "auto", [("mltable", "c.tsv")]),
        (["d.jsonl"], "auto", [("mltable", "d.jsonl")]),
        (["e.parquet"], "auto", [("mltable", "e.parquet")]),
        (["a.csv"], "files", [("uri_file", "a.csv")]),
        (["note.txt"], "auto", [("uri_file", "note.txt")]),
        (["a.csv", "b.csv"], "auto", [("mltable", "made/table")]),
        (["[ab].csv"], "auto", [("mltable", "made/table")]),
        (["a.csv", "d.jsonl"], "auto", [("mltable", "a.csv"), ("mltable", "d.jsonl")]),
        (["photos", "made"], "auto", [("uri_folder", "photos"), ("uri_folder", "made")]),
        (["photos", "note.txt"], "auto", [("mltable", "made/files")]),
        (["photos/1*.jpg"], "auto", [("mltable", "made/files")]),
        (["phot*"], "auto", [("uri_folder", "photos")]),
        (["*.[ct]s*"], "files", [("mltable", "made/files")]),
    ],
)
def test_what_inputs_are(folder: Path, inputs: list[str], kind: str, expected: list[tuple[str, str]]) -> None:
    (folder / "made").mkdir()
    found = data_of(step_of(folder, one_line(*inputs, output="rows.jsonl", kind=kind)))
    assert found == [(data_type, str(folder / path)) for data_type, path in expected]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("s3://bucket/photos", "uri_folder"),
        ("s3://bucket/v1.5/", "uri_folder"),
        ("s3://bucket/a.csv", "mltable"),
        ("s3://bucket/a.txt", "uri_file"),
        ("https://host.example/a.csv", "mltable"),
        ("https://host.example/page", "uri_file"),
    ],
)
def test_addresses_in_a_store(folder: Path, address: str, expected: str) -> None:
    step = step_of(folder, one_line(address))
    assert data_of(step) == [(expected, address.rstrip("/"))] or data_of(step) == [(expected, address)]
    assert step.mini_batch_size is None


def test_a_pattern_in_a_store(folder: Path) -> None:
    made = made_in(folder, one_line("s3://bucket/2024/*.parquet"))
    assert '"s3://bucket/2024/*.parquet"' in made.files["table/MLTable"]
    assert "read_parquet" in made.files["table/MLTable"]


def test_tables_are_read_as_their_suffix_says(folder: Path) -> None:
    (folder / "f.tsv").write_text("x\n")
    made = made_in(folder, one_line("c.tsv", "f.tsv"))
    assert made.files["table/MLTable"] == (
        f"type: mltable\npaths:\n  - file: {folder}/c.tsv\n  - file: {folder}/f.tsv\n"
        'transformations:\n  - read_delimited: {delimiter: "\\t"}\n'
        "metadata: {windrow: plain_files}  # types and headers as without this file\n"
    )
    problems = Problems()
    (folder / "MLTable").write_text(made.files["table/MLTable"])
    read = read_mltable(folder / "MLTable", problems)
    assert read is not None and read.plain and not problems.warnings


def test_options_are_settings(folder: Path) -> None:
    one = one_line(
        "photos", output="o.txt", mini_batch_size="7", workers=3, timeout=9, max_retries=0, arguments=("--a", "b c"),
        returns="any", split="off", retry_delay="2s", rate_limit="20 items/s", speculate=True,
        cpus_per_worker="0.5", memory_per_worker="8gb", gpus_per_worker="0.25", idle_gpu_timeout=300,
    )  # fmt: skip
    step = step_of(folder, one)
    assert (step.cpus_per_worker, step.memory_per_worker, step.gpus_per_worker) == (0.5, 8 << 30, 0.25)
    assert step.idle_gpu_timeout_s == 300
    assert (step.mini_batch_size, step.max_concurrency_per_instance) == (7, 3)
    assert (step.run_invocation_timeout_s, step.max_retries) == (9, 0)
    assert (step.arguments, step.rows.format) == (("--a", "b c"), "text")
    assert (step.returns, step.split) == ("any", 0)
    assert (step.retry_delay_s, step.rate_limit, step.speculate) == (2.0, (20.0, True), True)


@pytest.mark.parametrize(("workers", "expected"), [(1, "19"), (2, "9"), (8, "2"), (100, "1")])
def test_small_tables_use_all_workers(folder: Path, workers: int, expected: str) -> None:
    assert (
        f'mini_batch_size: "{expected}kb"'
        in made_in(folder, one_line("a.csv", "b.csv", slots=workers)).files["job.yml"]
    )


def test_a_chosen_size_stays_while_it_fits(folder: Path) -> None:
    first = made_in(folder, one_line("photos", slots=2)).files["job.yml"]
    assert 'mini_batch_size: "6"  # chosen by windrow' in first
    for number in range(50, 70):
        (folder / "photos" / f"{number}.jpg").write_text("")
    assert made_in(folder, one_line("photos", slots=2), before=first).files["job.yml"] == first
    assert 'mini_batch_size: "8"' in made_in(folder, one_line("photos", slots=2)).files["job.yml"]
    assert 'mini_batch_size: "1"' in made_in(folder, one_line("photos", slots=50), before=first).files["job.yml"]
    typed = made_in(folder, one_line("photos", mini_batch_size="3")).files["job.yml"]
    assert 'mini_batch_size: "3"\n' in typed


def test_what_is_told(folder: Path) -> None:
    assert made_in(folder, one_line("photos", slots=2)).told == (
        "photos: 50 files, 6 in each mini-batch (chosen; --mini-batch-size sets it); run() gets paths of files; rows "
        "go to out.csv."
    )
    since = made_in(folder, one_line("photos", slots=2, keeps_earlier=True)).told
    assert since.startswith("photos: 50 files, 6 in each mini-batch that runs (chosen;")
    assert "run() gets DataFrames" in made_in(folder, one_line("a.csv")).told


def test_columns_that_lose_leading_zeros_are_noted(folder: Path) -> None:
    (folder / "ids.csv").write_text('id;zip;number;text\n000;"01";0;007\n001;02;10;x\n')
    (note,) = made_in(folder, one_line("ids.csv")).notes
    assert note.startswith(
        'ids.csv: "id", "zip" are columns of numbers, so leading zeros get lost: 000 becomes 0. To keep the text,'
    )
    assert "{columns: [id, zip], column_type: string}" in note
    assert not made_in(folder, one_line("a.csv")).notes


def test_a_folder_of_nothing_but_tables_is_noted(folder: Path) -> None:
    tables = folder / "tables"
    tables.mkdir()
    for name in ("1.parquet", "2.PARQUET", "_SUCCESS", ".crc"):
        (tables / name).write_bytes(b"PAR1")
    (note,) = made_in(folder, one_line("tables")).notes
    assert note.startswith("tables holds only .parquet files, and run() gets their paths. With --as table")
    for kind in ("files", "table"):
        assert not made_in(folder, one_line("tables", kind=kind)).notes
    assert not made_in(folder, one_line("photos")).notes
    (tables / "3.csv").write_text("")
    assert not made_in(folder, one_line("tables")).notes
    for file in tables.iterdir():
        file.unlink()
    (tables / "1.json").write_text("{}")
    assert not made_in(folder, one_line("tables")).notes, "a document, seldom a table"


def test_no_size_is_chosen_for_parquet(folder: Path) -> None:
    """It is cut at its row groups."""
    tables = folder / "tables"
    tables.mkdir()
    (tables / "1.parquet").write_bytes(b"PAR1")
    for inputs, kind in (("e.parquet", "auto"), ("tables", "table")):
        made = made_in(folder, one_line(inputs, kind=kind))
        assert "mini_batch_size" not in made.files["job.yml"] and "in each mini-batch" not in made.told
    (tables / "1.parquet").rename(tables / "1.csv")
    assert "mini_batch_size" in made_in(folder, one_line("tables", kind="table")).files["job.yml"]


def test_the_saved_file_has_relative_paths(folder: Path) -> None:
    made = made_in(folder, one_line("photos/*.jpg"), relative_to=str(folder / "jobs"), job_name="nightly.yml")
    assert set(made.files) == {"nightly.yml", "nightly.files/MLTable"}
    assert str(folder) not in "".join(made.files.values())
    for name, text in made.files.items():
        (folder / "jobs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "jobs" / name).write_text(text)
    loaded = load_job(folder / "jobs" / "nightly.yml")
    assert loaded.code_folders == {"sizes": str(folder)}
    assert loaded.job.steps[0].outputs["rows"].path == str(folder / "out.csv")


def test_each_script_and_output_has_a_name(folder: Path) -> None:
    first = run_name(one_line("photos"), str(folder))
    assert first == run_name(one_line("note.txt", output="./out.csv"), str(folder))
    assert first != run_name(one_line("photos", output="other.csv"), str(folder))
    assert first.startswith("out.csv-")


@pytest.mark.parametrize(
    "name", ["yes", "a: b", "x {y}", "it's", 'say "hi"', "# no", "ü 😀", "1", "- a", "null", "a,b", "[z]", "tab\tin"]
)
def test_names_of_any_kind(folder: Path, name: str) -> None:
    data = folder / name
    data.mkdir()
    (data / "x").write_text("")
    (folder / f"{name}.txt").write_text("")
    step = step_of(folder, one_line(name, output=f"{name}.out.csv", arguments=(name, f"--x={name}")))
    assert data_of(step) == [("uri_folder", str(data))]
    assert step.outputs["rows"].path == str(folder / f"{name}.out.csv")
    assert step.arguments == (name, f"--x={name}")
    assert data_of(step_of(folder, one_line(name, f"{name}.txt")))[0][0] == "mltable"


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (one_line("nope"), '"nope" does not exist'),
        (one_line("photos/*.png"), 'No file matches "photos/*.png"'),
        (one_line(), "No input is given."),
        (one_line("photos", output=""), "-o is missing: the file for the rows"),
        (one_line("photos", output="a.xls"), 'the suffix ".xls" is not supported. Use .csv'),
        (one_line("photos", output="a"), 'the suffix "" is not supported. Use .csv'),
        (one_line("note.txt", kind="table"), '"note.txt" does not have the suffix of a table. Tables are CSV (.csv)'),
        (one_line("photos", "a.csv"), "photos is read as files and a.csv as a table"),
        (one_line("*.csv"), '-o out.csv matches the pattern "*.csv"'),
        (one_line("*.csv", output="./out.csv"), '-o ./out.csv matches the pattern "*.csv"'),
        (one_line("**/*.csv", output="photos/new/out.csv"), 'matches the pattern "**/*.csv"'),
        (one_line("a.csv", output="./a.csv"), "is also an input"),
        (one_line("a.csv", "a.csv"), "a.csv is given twice"),
        (one_line("photos", "photos/01.jpg"), "photos and photos/01.jpg have {folder}/photos/01.jpg in common"),
        (one_line("photos/01.jpg", "./link"), "./link and photos/01.jpg have {folder}/photos/01.jpg in common"),
        (one_line("photos", "photos/1*.jpg"), "photos and photos/1*.jpg have {folder}/photos/10.jpg in common"),
        (one_line("photos", "link"), "photos and link have {folder}/photos in common"),
        (one_line(".", "photos", kind="files"), ". and photos have {folder}/photos in common"),
        (one_line("a.csv", "*.csv", output="o.txt"), "a.csv and *.csv have {folder}/a.csv in common"),
        (one_line("[ab].csv", "[bc].?sv", output="o.txt", kind="files"), "have {folder}/b.csv in common"),
        (one_line("z/a.csv.gz"), "is compressed, which cannot be cut"),
        (one_line("ftp://host/x"), "is an address that Windrow cannot reach"),
        (one_line("*.*", kind="table"), "does not have the suffix of a table"),
        (one_line("*s*", "a.csv"), "is read as files and a.csv as a table"),
        (one_line("photos", mini_batch_size="0"), "--mini-batch-size 0: it must be a number of files from 1 on"),
        (one_line("photos", split="some"), "--split some: it must be off"),
        (one_line("photos", split="0"), "--split 0: it must be off"),
        (one_line("photos", rate_limit="20"), "--rate-limit 20: it must be a number of calls of run() per s"),
        (one_line("photos", retry_delay="5"), "--retry-delay 5: it must be a time from 0s to 60s"),
        (one_line("photos", returns="rows"), "--returns rows: it must be one of per_item"),
        (OneLine("nope.py", ("photos",), "a.csv"), "There is no script nope.py"),
        (OneLine("empty.py", ("photos",), "a.csv"), "empty.py has no function run()"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, one: OneLine, expected: str) -> None:
    (folder / "link").symlink_to("photos")
    (folder / "z").mkdir()
    (folder / "z" / "a.csv.gz").write_bytes(b"")
    (folder / "empty.py").write_text("# def run is not here\nrunning = 1\n")
    with pytest.raises(UsageError) as caught:
        made_in(folder, one)
    assert expected.format(folder=folder) in str(caught.value)


def test_a_wildcard_names_no_file_of_another_folder(folder: Path) -> None:
    assert made_in(folder, one_line("*.csv", output="photos/out.csv")).files
    assert made_in(folder, one_line("phot*/*.jpg", "note.txt", output="photos/out.txt")).files


def test_files_are_counted_as_they_will_be_listed(folder: Path) -> None:
    """Links are followed, not to a folder that contains them; a state folder of Windrow, pipes and broken links are no
    data.
    """
    data = folder / "data"
    (data / "state").mkdir(parents=True)
    (data / "state" / STATE_MARK).touch()
    (data / "up").symlink_to("..")
    (data / "here").symlink_to(".")
    (data / "broken").symlink_to("nowhere")
    (data / "photos").symlink_to("../photos")
    (data / "one").write_text("1")
    os.mkfifo(data / "pipe")
    assert "data: 51 files, 6 in each mini-batch" in made_in(folder, one_line("data", slots=2)).told


def test_everything_wrong_is_said_at_once(folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        made_in(folder, one_line("nope", "photos", "*.none"))
    assert "nope" in str(caught.value)
    assert "*.none" in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "def run(mini_batch): ...",
        "async def run(x): ...",
        "run = make()",
        "run: Callable = make()",
        "from score import run",
        "from score import (\n    init,\n    run,\n)",
        "from score import *",
        "from score import go as run",
        "if True:\n    def run(x): ...",
    ],
)
def test_a_run_is_found_in_any_form(folder: Path, source: str) -> None:
    (folder / "sizes.py").write_text(source)
    assert made_in(folder, one_line("photos")).files
