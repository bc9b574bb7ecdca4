"""Rows as files of a format, from the job file to what the client reads back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import windrow
from compatibility_job import CompatibilityJob, output_of

SCRIPT = """
    import os
    import pandas

    def run(mini_batch, context):
        rows = [{"file": os.path.basename(path), "n": number if number else None, "t": 'a,"b"\\r\\nc'}
                for number, path in enumerate(mini_batch)]
        return rows if context.minibatch_index % 2 else pandas.DataFrame(rows)
"""

EXPECTED = [{"file": f"f{at}", "n": at % 2 or None, "t": 'a,"b"\r\nc'} for at in range(6)]


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = [
        {name: None if pd.isna(value) else value for name, value in row.items()} for row in frame.to_dict("records")
    ]
    return [{**row, "n": None if row["n"] is None else int(row["n"])} for row in rows]


def write(job: CompatibilityJob, rows: str, script: str = SCRIPT) -> None:
    for at in range(6):
        job.write(f"data/f{at}", "")
    job.write("code/score.py", script)
    job.write_job("uri_folder", "./data", settings="mini_batch_size: 2", rows=rows)


@pytest.mark.parametrize("row_format", ["csv", "jsonl", "parquet"])
def test_files_of_a_format(job: CompatibilityJob, row_format: str) -> None:
    write(job, f"./rows.{row_format}")
    setting = f"jobs.score.task.program_arguments=--append_row_format {row_format}"
    done = windrow.run(job.folder / "job.yml", sets=[setting], state=job.state)
    assert done.succeeded
    assert done.job.steps[0].rows == 6
    path = job.folder / f"rows.{row_format}"
    readers = {"csv": pd.read_csv, "jsonl": lambda path: pd.read_json(path, lines=True), "parquet": pd.read_parquet}
    assert plain(readers[row_format](path)) == EXPECTED
    assert plain(done.to_dataframe()) == EXPECTED
    rows = list(done.results())
    if row_format == "csv":
        assert rows[0] == "file,n,t"
        assert [row["file"] for row in csv.DictReader(rows)] == [row["file"] for row in EXPECTED]
    else:
        assert [json.loads(row) for row in rows] == EXPECTED


def test_text_of_another_encoding_has_one_mark_and_one_header(job: CompatibilityJob) -> None:
    script = """
        import os
        import pandas

        def run(mini_batch, context):
            if context.minibatch_index == 1:
                return pandas.DataFrame()
            return pandas.DataFrame({"file": map(os.path.basename, mini_batch), "t": 'é "x"'})
    """
    write(job, "./rows.txt", script)
    to_csv = {"sep": ",", "header": True, "encoding": "utf-16"}
    job.write("code/parallel_run_step.settings.json", json.dumps({"append_row": {"pandas.DataFrame.to_csv": to_csv}}))
    done = windrow.run(job.folder / "job.yml", state=job.state)
    rows = pd.DataFrame({"file": ["f0", "f1", "f4", "f5"], "t": 'é "x"'})
    assert (job.folder / "rows.txt").read_bytes() == rows.to_csv(index=False).encode("utf-16")
    assert list(done.results()) == rows.to_csv(index=False).splitlines()
    assert done.to_dataframe().equals(rows)


def test_a_name_of_windrow_s_ends_in_the_format(job: CompatibilityJob) -> None:
    write(job, "./out")
    setting = "jobs.score.task.program_arguments=--append_row_format csv"
    text = job.completed("--set", setting, "--set", "jobs.score.outputs.rows.type=uri_folder")
    assert output_of(text) == Path(job.folder, "out", "parallel_run_step.csv")


def test_another_name_is_refused(job: CompatibilityJob) -> None:
    write(job, "./rows.txt")
    code, text = job.run("--set", "jobs.score.task.program_arguments=--append_row_format csv")
    assert code == 2
    assert 'the file of rows is "rows.txt"' in text


def test_rows_with_other_columns_and_types_are_rows_of_one_file(job: CompatibilityJob) -> None:
    returned = "[{'v': 1, 'n': c.minibatch_index}] * 2 if c.minibatch_index % 2 else [{'m': [], 'v': 'x'}] * 2"
    write(job, "./rows.csv", f"def run(b, c):\n    return {returned}\n")
    job.completed("--set", "jobs.score.task.program_arguments=--append_row_format csv")
    assert (job.folder / "rows.csv").read_text() == "m,v,n\n[],x,\n[],x,\n,1,1\n,1,1\n[],x,\n[],x,\n"
    write(job, "./rows.parquet", f"def run(b, c):\n    return {returned}\n")
    text = job.completed("--set", "jobs.score.task.program_arguments=--append_row_format parquet")
    assert "The column 'v' of the rows holds values of several types (int64, string), so it is text in rows" in text
    first, other = {"m": [], "v": "x", "n": None}, {"m": None, "v": "1", "n": 1}
    assert pq.read_table(job.folder / "rows.parquet").to_pylist() == [first, first, other, other, first, first]


def test_dataframes_of_text_with_different_headers_fail_the_job(job: CompatibilityJob) -> None:
    write(
        job, "./rows.txt", "import pandas\ndef run(b, c):\n    return pandas.DataFrame({f'c{c.minibatch_index}': b})\n"
    )
    code, text = job.run("--set", "jobs.score.task.program_arguments=--append_row_dataframe_header True")
    assert code == 1
    assert "run() returned DataFrames with different columns" in text and "set --append_row_format csv" in text


@pytest.mark.parametrize(
    ("row_format", "returned", "said"),
    [
        ("jsonl", "['text'] * len(b)", "Element 0 of what run() returned is of type str"),
        ("parquet", "[{'a': b}] * len(b) if c.minibatch_index else [{'a': run}]", "The values of 'a'"),
    ],
)
def test_what_does_not_fit_is_a_bad_return(job: CompatibilityJob, row_format: str, returned: str, said: str) -> None:
    write(job, f"./rows.{row_format}", f"def run(b, c):\n    return {returned}\n")
    settings = ("mini_batch_error_threshold=0", "retry_settings.max_retries=0")
    arguments = [f"task.program_arguments=--append_row_format {row_format}", *settings]
    code, text = job.run(*(word for one in arguments for word in ("--set", f"jobs.score.{one}")))
    assert code == 1
    assert said in text
