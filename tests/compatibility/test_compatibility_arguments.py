"""Arguments of the runtime that change what `run()` gets, through the whole command."""

from __future__ import annotations

import json

from compatibility_job import CompatibilityJob

INDEX = """
    def run(mini_batch, context):
        first = context.global_row_index_lower_bound
        return [f"{'?' if first is None else first + at} {value}" for at, value in enumerate(mini_batch["v"])]
"""


def test_the_script_runs_so_many_times_without_input(job: CompatibilityJob) -> None:
    job.write("code/score.py", "def run(mini_batch, c):\n    return [f'{c.minibatch_index} {mini_batch}']\n")
    job.write_job("uri_folder", "./not-there", settings="retry_settings: {max_retries: 0}")
    without = ("--set", "jobs.score.inputs=null", "--set", "jobs.score.input_data=null")
    job.completed("--set", "jobs.score.task.program_arguments=--rank_mini_batch_count 3", *without)
    assert (job.folder / "rows.txt").read_text() == "0 []\n1 []\n2 []\n"
    assert job.counters()["items_total"] == 0


def test_a_script_that_fails_without_input_is_listed(job: CompatibilityJob) -> None:
    job.write(
        "code/score.py",
        """
        def run(mini_batch, context):
            if context.minibatch_index == 1:
                raise ValueError("this one")
            return []
        """,
    )
    job.write("data/f", "")
    job.write_job("uri_folder", "./data", settings="retry_settings: {max_retries: 0}")
    text = job.completed("--set", "jobs.score.task.program_arguments=--rank_mini_batch_count 3")
    assert "input_data" in text  # it is not divided, and that is told
    assert "2 of 3 mini-batches ok" in text
    assert "CompletedWithFailures: 1 of 3 mini-batches failed;" in text
    assert "(no input)" in (job.folder / "failed_items.csv").read_text()


def test_a_job_without_input_that_fails_tells_of_its_mini_batches(job: CompatibilityJob) -> None:
    job.write("code/score.py", "def run(mini_batch):\n    1 / 0\n")
    job.write("data/f", "")
    job.write_job("uri_folder", "./data", settings="retry_settings: {max_retries: 0}")
    code, text = job.run("--set", "jobs.score.task.program_arguments=--rank_mini_batch_count 3")
    assert code == 1
    assert "3 failed mini-batches of step score: windrow job logs" in text
    assert "item of step" not in text


def test_columns_of_json_lines_keep_values_of_several_kinds(job: CompatibilityJob) -> None:
    """As batch scoring asks for it, whose requests are made of such rows."""
    records = [{"prompt": "a", "temperature": 1}, {"prompt": ["b", "c"], "temperature": 0.5}, {"prompt": "d"}]
    job.write("data/prompts.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    job.write("data/MLTable", "paths:\n  - file: ./prompts.jsonl\ntransformations:\n  - read_json_lines\n")
    job.write(
        "code/score.py",
        """
        import json
        import pandas

        def is_there(value):
            return isinstance(value, list) or pandas.notna(value)

        def run(mini_batch):
            rows = [zip(mini_batch, row) for row in mini_batch.values.tolist()]
            return [json.dumps({key: value for key, value in row if is_there(value)}) for row in rows]
        """,
    )
    job.write_job("mltable", "./data")
    job.completed("--set", "jobs.score.task.program_arguments=--amlbi_dataframe_mixed_types true")
    assert [json.loads(line) for line in (job.folder / "rows.txt").read_text().splitlines()] == records


def test_json_lines_come_as_lists_of_dicts(job: CompatibilityJob) -> None:
    job.write("data.jsonl", "".join(json.dumps({"line": at, "deep": {"x": [at]}}) + "\n" for at in range(7)))
    job.write(
        "code/score.py",
        """
        import sys

        def run(mini_batch, context):
            assert "pandas" not in sys.modules
            assert "--amlbi_mini_batch_rows" in sys.argv
            first = context.global_row_index_lower_bound
            return [f"{first + at} {row['line']} {row['deep']['x']}" for at, row in enumerate(mini_batch)]
        """,
    )
    job.write_job("uri_file", "./data.jsonl")
    arguments = (
        "--amlbi_pf_enabled True --amlbi_pf_run_mode component --amlbi_file_format jsonl --amlbi_mini_batch_rows 3"
    )
    job.completed("--set", f"jobs.score.task.program_arguments={arguments}")
    assert (job.folder / "rows.txt").read_text() == "".join(f"{at} {at} [{at}]\n" for at in range(7))
    assert (job.counters()["items_total"], job.counters()["planned"]) == (7, 3)


def test_the_index_of_a_row_is_exact_or_not_there(job: CompatibilityJob) -> None:
    job.write("data/a.csv", "v\n" + "".join(f"{at}\n" for at in range(10, 40)))
    job.write("code/score.py", INDEX)
    job.write_job("mltable", "./data", settings="mini_batch_size: 20")
    job.completed()
    assert (job.folder / "rows.txt").read_text() == "".join(f"? {at + 10}\n" for at in range(30))
    job.completed("--exact-row-index")
    expected = "".join(f"{at} {at + 10}\n" for at in range(30))
    assert (job.folder / "rows.txt").read_text() == expected
    (job.folder / "rows.txt").unlink()
    job.completed("--restart", "--set", "jobs.score.task.program_arguments=--exact_row_index True")
    assert (job.folder / "rows.txt").read_text() == expected
