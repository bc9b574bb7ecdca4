"""`job_result.txt` of jobs that fail in ways of their own: what it says once, and commands that work as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from reported_job import ReportedJob


def result_of(job: ReportedJob) -> str:
    """`job_result.txt` of the job, after all commands that it names but the retry were run."""
    code, _ = job.run()
    assert code == 1
    text = (job.logs / "job_result.txt").read_text()
    for line in text.splitlines():
        command = line.partition("windrow ")[2]
        if command and not command.startswith(("job retry", "mb replay")):
            code, told = job.windrow(*shlex.split(command))
            assert (code, told != "") == (0, True), (command, told)
    return text


def page_of(job: ReportedJob) -> str:
    """What `windrow job report` writes."""
    job.windrow("job", "report", job.job_id, "--to", "report.html")
    return (job.folder / "report.html").read_text()


def with_run(job: ReportedJob, body: str) -> ReportedJob:
    (job.folder / "code" / "entry.py").write_text(f"def run(mini_batch):\n    {body}\n")
    return job


def test_missing_results_are_counted_and_their_mini_batch_is_named(tmp_path: Path) -> None:
    job = with_run(ReportedJob(tmp_path / "job", threshold=0), "return mini_batch[1:]")
    text = (job.folder / "job.yml").read_text()
    (job.folder / "job.yml").write_text(text.replace("mini_batch_error_threshold", "error_threshold"))
    told = result_of(job)
    assert "windrow mb show" in told and "windrow mb replay" in told
    said = re.compile(r"\d items? in \d mini-batch(es)? got no result")
    assert said.search(told) and said.search(page_of(job))


def test_the_page_tells_missing_results_beside_other_failures(tmp_path: Path) -> None:
    body = "if any(str(path).endswith('f1') for path in mini_batch): 1 / 0\n    return mini_batch[1:]"
    job = with_run(ReportedJob(tmp_path / "job", threshold=-1), body)
    job.run()
    page = page_of(job)
    assert "ZeroDivisionError" in page
    assert "4 items in 4 mini-batches got no result" in page


def test_a_list_that_leaves_some_out_says_so(tmp_path: Path) -> None:
    job = with_run(ReportedJob(tmp_path / "job", threshold=-1), "return []")
    text = (job.folder / "job.yml").read_text()
    (job.folder / "job.yml").write_text(text.replace('mini_batch_size: "2"', 'mini_batch_size: "1"'))
    assert "What failed (the first 5 mini-batches):" in result_of(job)


def test_a_failed_init_is_no_mini_batchs_in_the_page(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job")
    (job.folder / "code" / "entry.py").write_text("def init():\n    1 / 0\ndef run(mini_batch): ...\n")
    result_of(job)
    page = page_of(job)
    assert "first: mini-batch" not in page and "windrow mb list" not in page
    assert f"windrow job logs {job.job_id} --failed --step score" in page
    assert "No worker ran a mini-batch." in page
    assert "1e-09" not in page and "Over time" not in page and "How long attempts took" not in page


def test_a_message_without_a_traceback_is_told_once(tmp_path: Path) -> None:
    told = result_of(with_run(ReportedJob(tmp_path / "job", threshold=0), "return {'a': 1}"))
    assert told.count("The actual type of output is dict") == 1


def test_a_command_has_no_thresholds_and_no_items(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job")
    steps = "first: {type: command, command: 'true'}\n  second: {type: command, command: 'exit 3'}"
    (job.folder / "job.yml").write_text(
        f"type: pipeline\nsettings: {{continue_on_step_failure: true}}\njobs:\n  {steps}\n"
    )
    told = result_of(job)
    assert "ended with exit code 3" in told and "windrow mb show" in told
    assert "hreshold" not in told and "failed_items" not in told
    _, shown = job.windrow("mb", "show", job.job_id, "second/0")
    page = page_of(job)
    assert "second/0" in shown and "second/0" in page
    assert "--pdb" not in shown + page, "which a command's replay refuses"
    assert ">mini-batches<" not in page and ">commands<" in page
    _, explained = job.windrow("job", "explain", job.job_id)
    assert "first: COMPLETED\n  It is done.\n" in explained


def test_a_job_without_items_is_told_by_its_mini_batches(tmp_path: Path) -> None:
    job = ReportedJob(tmp_path / "job", arguments="--rank_mini_batch_count 2000")
    (job.folder / "code" / "entry.py").write_text(
        "def run(mini_batch, context):\n"
        "    if context.minibatch_index < 1500:\n        raise ValueError('no')\n    return [1]\n"
    )
    text = (job.folder / "job.yml").read_text().replace("max_retries: 1", "max_retries: 0")
    (job.folder / "job.yml").write_text(text.replace("mini_batch_error_threshold: 5", "error_threshold: -1"))
    code, _ = job.run()
    assert code == 0
    assert "\n1,500 mini-batches failed; the job tolerates any number.\n" in (job.logs / "job_result.txt").read_text()
    errors = (job.logs / "score" / "user" / "error.txt").read_text()
    assert errors.startswith("1,500 attempts failed in 1 way; what failed for good first.\n")
    page = page_of(job)
    assert "mini-batches failed" in page and "75.0 %" in page and "items ok" not in page
