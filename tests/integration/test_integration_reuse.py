"""Steps that are not run again: `is_deterministic`, `force_rerun`, and what makes them run none the less."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from embedded_run import EmbeddedRun, wait_until
from windrow_command import windrow

SCRIPT = """
import os, time

def run(mini_batch):
    with open({ran!r}, "a") as file:
        file.write("x" * len(mini_batch))
    while os.path.exists({gate!r}):
        time.sleep(0.01)
    rows = []
    for path in mini_batch:
        text = open(path).read()
        if text == "bad":
            raise ValueError("bad")
        rows.append(os.path.basename(path) + " " + text)
    return rows
"""

JOB = """\
type: pipeline
settings: {settings}
jobs:
  prepare:
    type: command
    command: cp ${{{{inputs.data}}}}/* ${{{{outputs.made}}}}/ && printf p >> {ran}
    inputs: {{data: {{type: uri_folder, path: ./data}}}}
    outputs: {{made: {{type: uri_folder}}}}
  score:
    type: parallel
    mini_batch_size: "2"
    error_threshold: -1
    retry_settings: {{max_retries: 0}}
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: {{type: uri_folder, path: "${{{{parent.jobs.prepare.outputs.made}}}}"}}}}
    outputs: {{rows: {{type: uri_file, path: ./out.txt}}}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      append_row_to: ${{{{outputs.rows}}}}
"""


class ReuseRun(EmbeddedRun):
    """A pipeline of two steps that note what ran: `p` for the command, `x` for each file that was scored."""

    def __init__(self, folder: Path, settings: str = "{force_rerun: false}") -> None:
        self.ran = folder / "ran"
        self.gate = folder / "gate"
        super().__init__(folder, SCRIPT.format(ran=str(self.ran), gate=str(self.gate)), 4)
        (folder / "job.yml").write_text(JOB.format(settings=settings, ran=self.ran))

    def again(self, *options: str, code: int = 0) -> str:
        """Run to the end; return what ran."""
        found, text = self.run(*options)
        assert found == code, text
        self.text = text
        return self.take_ran()

    def take_ran(self) -> str:
        ran = self.ran.read_text() if self.ran.exists() else ""
        self.ran.unlink(missing_ok=True)
        return "".join(sorted(ran))

    def newest(self) -> dict[str, Any]:
        """The last job."""
        listed = self.windrow("job", "list", "--format", "json")
        return dict(json.loads(self.windrow("job", "show", json.loads(listed)[0]["job_id"], "--format", "json")))

    def windrow(self, *words: str) -> str:
        ended = windrow(*words, cwd=self.folder)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def why(self, step: str) -> str:
        """What the step's `job_result.txt` says of why it ran."""
        result = self.state / "jobs" / self.newest()["job_id"] / "logs" / step / "job_result.txt"
        return next((line for line in result.read_text().splitlines() if line.startswith("Not reused")), "")


@pytest.fixture
def run(tmp_path: Path) -> ReuseRun:
    return ReuseRun(tmp_path / "run")


def test_what_was_made_of_the_same_is_not_made_again(run: ReuseRun) -> None:
    assert run.again() == "pxxxx"
    first = run.newest()["job_id"]
    assert "same settings and code" in run.why("score")
    before = run.output.stat()
    assert run.again() == ""
    assert f"Reused from job {first}: prepare, score" in run.text
    assert "Completed: nothing had to run" in run.text and str(run.output) in run.text
    assert run.output.stat() == before
    second = run.newest()
    assert [step["reused_from"] for step in second["steps"]] == [first, first]
    logs = run.state / "jobs" / second["job_id"] / "logs"
    assert f"score: Completed, reused from job {first}" in (logs / "job_result.txt").read_text()
    assert run.windrow("job", "report", second["job_id"], "--to", "-").count(">reused<") == 4
    # There is nothing of it to retry, or to look at.
    for words, told in (
        (("job", "retry", second["job_id"]), "nothing is left to run"),
        (("mb", "show", second["job_id"], "score/0"), f"it was reused from job {first}"),
    ):
        refused = windrow(*words, cwd=run.folder)
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr
    # Of what a job reused, a later one reuses the same.
    assert run.again() == "" and run.newest()["steps"][0]["reused_from"] == first
    # Where it is told to, all of it runs.
    assert run.again("--set", "settings.force_rerun=true") == "pxxxx"
    assert run.again("--set", "jobs.prepare.is_deterministic=false") == "pxxxx"


def test_an_input_of_another_content_is_run_again(run: ReuseRun) -> None:
    run.again()
    file = run.folder / "data" / "f00001"
    os.utime(file, (1, 1))
    assert run.again() == ""
    file.write_text("0")
    assert run.again() == "pxxxx"
    assert "input 'data' differs from that of job" in run.why("prepare")
    newest = run.newest()["job_id"]
    file.write_text("1")
    # The command's own output stands, of the first time; the rows were written anew, of something else.
    assert run.again() == "xxxx"
    assert sorted(run.output.read_text().splitlines()) == [f"f0000{at} {at}" for at in range(4)]
    # Of several earlier steps, the newest is the one that a person remembers.
    file.write_text("2")
    assert run.again() == "pxxxx"
    assert f"input 'data' differs from that of job {newest}." in run.why("prepare")


def test_steps_whose_outputs_were_touched_are_run_again(run: ReuseRun) -> None:
    run.again()
    run.output.write_text("not what it was\n")
    run.windrow("job", "list")
    found, text = run.run()
    # What stands there is not Windrow's any more, and is not written over.
    assert found == 1 and "out.txt" in text, text
    assert run.take_ran() == ""
    run.output.unlink()
    assert run.again() == "xxxx"
    (made,) = (run.state / "outputs").glob("*/prepare/made")
    (made / "f00000").write_text("other")
    assert run.again() == "pxxxx"
    assert "is not what it was then" in run.why("prepare")


def test_other_code_and_other_settings_are_run(run: ReuseRun) -> None:
    run.again()
    assert run.again("--set", "jobs.score.mini_batch_size=1") == "xxxx"
    assert run.again("--set", "jobs.score.error_threshold=3", "--set", "jobs.score.mini_batch_size=1") == ""
    (run.folder / "code" / "more.py").write_text("")
    assert run.again() == "xxxx"


def test_what_failed_in_part_is_not_reused(run: ReuseRun) -> None:
    (run.folder / "data" / "f00003").write_text("bad")
    # The last three look for the item that fails.
    assert run.again() == "pxxxx" + "xxx"
    assert run.again() == "xxxx" + "xxx"
    assert run.newest()["steps"][0]["reused_from"] and not run.newest()["steps"][1]["reused_from"]


def test_a_step_whose_inputs_changed_while_it_ran_is_not_reused(run: ReuseRun) -> None:
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace('"${{parent.jobs.prepare.outputs.made}}"', "./data"))
    run.gate.touch()
    run.start()
    wait_until(run.ran.exists, "a mini-batch is at work")
    wait_until(lambda: "x" in run.ran.read_text(), "a file is scored")
    (run.folder / "data" / "f00003").write_text("changed")
    run.gate.unlink()
    assert run.finish()[0] == 0
    run.take_ran()
    assert run.again() == "pxxxx"
    assert "its input 'data' has changed while it ran" in run.why("score")
    assert run.again() == ""


def test_a_step_that_leaves_an_output_out_is_told_why_it_runs_again(run: ReuseRun) -> None:
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("path: ./out.txt}}", "path: ./out.txt}, never: {type: uri_file}}"))
    assert run.again() == "pxxxx" and run.again() == "xxxx"
    assert "outputs.never: " in run.why("score") and "No such file" in run.why("score")


def test_what_a_master_began_and_the_next_one_ended_is_reused(run: ReuseRun) -> None:
    run.gate.touch()
    run.start()
    wait_until(lambda: run.ran.exists() and "x" in run.ran.read_text(), "a file is scored")
    run.kill("master")
    run.gate.unlink()
    assert run.finish()[0] == 0
    run.take_ran()
    assert run.again() == ""
    assert sorted(run.output.read_text().splitlines()) == [f"f0000{at} {at}" for at in range(4)]


def test_another_python_is_run_in(run: ReuseRun) -> None:
    run.again()
    other = run.folder / "python"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    other.chmod(0o755)
    assert run.again("--python", str(other)) == "pxxxx"
    assert "in the same Python" in run.why("score")
    assert run.again("--python", str(other)) == "" == run.again()


def test_what_was_begun_in_one_python_and_ended_in_another_is_not_reused(run: ReuseRun) -> None:
    other = run.folder / "python"
    other.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    other.chmod(0o755)
    run.gate.touch()
    run.start("--python", str(other))
    wait_until(lambda: run.ran.exists() and "x" in run.ran.read_text(), "a file is scored")
    run.kill("cli")
    run.finish()
    wait_until(lambda: not run.strays(), "all has ended")
    run.gate.unlink()
    run.take_ran()
    assert run.again() == "xxxx"
    # The first step was done before; of the other one no Python has made all.
    assert run.again("--python", str(other)) == "xxxx"


def test_what_changed_since_a_reused_step_alone_is_run(run: ReuseRun) -> None:
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace('"${{parent.jobs.prepare.outputs.made}}"', "./data"))
    newest = max(path.stat().st_ctime for path in (run.folder / "data").iterdir())
    wait_until(lambda: time.time() > newest + 2.1, "the files are older than a clock's tick")
    assert run.again() == "pxxxx" and run.again() == ""
    (run.folder / "data" / "f00009").write_text("9")
    assert run.again("--since", run.newest()["job_id"]) == "px", run.text
    assert len(run.output.read_text().splitlines()) == 5


def test_a_job_that_is_cancelled_reads_nothing_more(run: ReuseRun) -> None:
    """A step whose inputs are being compared, and one whose output is being read to be kept."""
    job = run.folder / "job.yml"
    long = run.folder / "data" / "long"
    run.again()

    def reading() -> list[Path]:
        """The processes that read files; killed ones leave their listings."""
        left = (run.state / "reuse" / "listings").glob(".*")
        return [place for partial in left if (place := Path("/proc", partial.name.rpartition(".")[2])).exists()]

    for when in ("compared", "kept"):
        if when == "compared":
            with long.open("wb") as file:
                file.truncate(1 << 42)
        else:
            long.unlink()
            command = f"truncate -s {1 << 42} ${{{{outputs.made}}}}/long && printf p >>"
            job.write_text(job.read_text().replace("cp ${{inputs.data}}/* ${{outputs.made}}/ && printf p >>", command))
        process = run.start()
        wait_until(lambda: bool(reading()), "files are being read")
        job_id = run.newest()["job_id"]
        # With its end the master's would come, and that of all that it has begun.
        process.send_signal(signal.SIGSTOP)
        try:
            run.windrow("job", "cancel", job_id)
            wait_until(lambda: not reading(), "nothing is being read")
        finally:
            process.send_signal(signal.SIGCONT)
        assert run.finish()[0] == 4
    assert run.take_ran() == "p"


def test_a_job_that_is_retried_keeps_what_it_reused(run: ReuseRun) -> None:
    run.again()
    first = run.newest()["job_id"]
    (run.folder / "code" / "entry.py").write_text("def run(mini_batch):\n    raise ValueError\n")
    run.again("--set", "jobs.score.error_threshold=0", code=1)
    failed = run.newest()
    assert [step["reused_from"] for step in failed["steps"]] == [first, ""]
    (run.folder / "code" / "entry.py").write_text("def run(mini_batch):\n    return list(mini_batch)\n")
    run.windrow("job", "retry", failed["job_id"], "--file", "job.yml")
    assert len(run.output.read_text().splitlines()) == 4
    assert run.newest()["steps"][0]["reused_from"] == first
