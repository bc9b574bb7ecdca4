"""Every cause of failure, made to happen in real processes: told apart from all others, charged to its own budget.

Reference: docs/reference/azure-ml/parallel-job.md#statuses, #retries, #the-end-of-a-job. That a mini-batch is given up
after ten lost nodes (`node_killer`) is left to tests/core: it takes ten nodes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from embedded_run import TYPED, EmbeddedRun, check_counts, children, command_line, stored_attempts, wait_until
from windrow_command import windrow
from windrow_master.core.states import Cause

Make = Callable[..., EmbeddedRun]

SCRIPT = """\
import errno, glob, os, shutil, sys, time
from windrow_worker.loading import FileLoader

STRUCK = os.environ["STRUCK"]

def strikes():
    # The first time only, over all processes, unless it is to happen always.
    if "ALWAYS" in os.environ:
        return True
    try:
        os.close(os.open(STRUCK, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

{at_top}
def run(mini_batch):
    rows = [os.path.basename(path) for path in mini_batch]
    if rows[0].endswith("2"):
{in_run}
    return rows
"""


class Injection(NamedTuple):
    """What makes a cause happen: code at the top of the script, or in `run()` of one of four mini-batches."""

    cause: Cause
    status: str
    words: str
    in_run: str = "pass"
    at_top: str = ""
    tries: int = 2
    """Of a mini-batch to which it always happens, with `max_retries: 1`; 0: it has no limit, and is not tried."""


LOADER = """\
load = FileLoader.load
def spoilt(self, recipe):
    if recipe.endswith(b"2") and strikes():
        {}
    return load(self, recipe)
FileLoader.load = spoilt
"""

INJECTIONS = {
    "exception": Injection(
        Cause.EXCEPTION, "RUN_EXCEPTION", "ValueError: bad item", "if strikes(): raise ValueError('bad item')"
    ),
    "timeout_of_run": Injection(
        Cause.TIMEOUT, "RUN_TIMEOUT", "run() took longer than 1 s", "if strikes(): time.sleep(1000)"
    ),
    "timeout_of_load": Injection(
        Cause.TIMEOUT, "LOAD_TIMEOUT", "--task_overhead_timeout", at_top=LOADER.format("time.sleep(1000)")
    ),
    "bad_return": Injection(
        Cause.BAD_RETURN, "RUN_EXCEPTION", "type of output is NoneType", "if strikes(): return None"
    ),
    "crash": Injection(Cause.CRASH, "RUN_CRASH", "exit code 3 in run()", "if strikes(): os._exit(3)", tries=3),
    "crash_in_load": Injection(
        Cause.CRASH,
        "LOAD_CRASH",
        "exit code 3 while it loaded the mini-batch",
        at_top=LOADER.format("os._exit(3)"),
        tries=3,
    ),
    "load_failed": Injection(
        Cause.LOAD_FAILED,
        "LOAD_EXCEPTION",
        "Input/output error",
        at_top=LOADER.format("raise OSError(errno.EIO, 'Input/output error')"),
    ),
    "input_changed": Injection(
        Cause.INPUT_CHANGED,
        "LOAD_EXCEPTION",
        "is not what it was",
        at_top="from windrow_worker.loaded import InputChanged\n"
        + LOADER.format("raise InputChanged('is not what it was')"),
        tries=1,
    ),
    "node_fault": Injection(
        Cause.NODE_FAULT,
        "NODE_FAULT",
        "The agent cannot write beside that folder either",
        # Large rows go by way of a folder of the agent's, in whose place is a file now.
        "scratch, strike = '../scratch', strikes()\n"
        "if strike: os.rename(scratch, scratch + '-away'); open(scratch, 'w').close()\n"
        "elif os.path.isfile(scratch): os.remove(scratch); os.rename(scratch + '-away', scratch)\n"
        "if strike: return ['x' * (1 << 20)]",
        tries=0,
    ),
}


def injected(make: Make, injection: Injection, *, always: bool = False) -> EmbeddedRun:
    """A job of four files, of which one meets the cause."""
    script = SCRIPT.format(
        at_top=injection.at_top, in_run="\n".join(f"        {line}" for line in injection.in_run.splitlines())
    )
    run = make(
        script,
        settings="retry_settings: {max_retries: 1, timeout: 1}\n    max_concurrency_per_instance: 1\n"
        "    environment_variables: {ONE: 1}",
    )
    job = (run.folder / "job.yml").read_text()
    variables = f"STRUCK: {run.folder / 'struck'}" + (", ALWAYS: 1" if always else "")
    job = job.replace("{ONE: 1}", f"{{{variables}}}")
    (run.folder / "job.yml").write_text(
        job.replace("entry.py\n", "entry.py\n      program_arguments: --task_overhead_timeout 1\n")
    )
    return run


def shown(run: EmbeddedRun) -> dict[str, Any]:
    """The one step of the one job, as `windrow job show --format json` tells it."""

    def told(*command: str) -> Any:
        return json.loads(windrow("job", *command, "--format", "json", cwd=run.folder).stdout)

    (job,) = told("list")
    (step,) = told("show", job["job_id"])["steps"]
    assert isinstance(step, dict)
    return step


@pytest.mark.parametrize("name", [name for name in INJECTIONS if name != "input_changed"])
def test_a_cause_that_strikes_once_moves_its_own_counter_and_costs_no_item(make: Make, name: str) -> None:
    injection = INJECTIONS[name]
    run = injected(make, injection)
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "".join(f"f{number:05d}\n" for number in range(4))
    step, cause = shown(run), injection.cause.name.lower()
    assert step["failed_attempts"] == {cause: 1}
    assert (step["retries"], step["error_category"]) == (1, "")
    (example,) = step["failure_examples"]
    assert (example["cause"], example["status"], example["mini_batch_index"]) == (cause, injection.status, 2)
    assert example["error_category"] == ("SystemError" if injection.cause == Cause.NODE_FAULT else "UserError")
    assert injection.words in example["message"]
    assert stored_attempts(run.state) == [(injection.status, cause)]
    assert check_counts(run)["failed"] == 0


@pytest.mark.parametrize("name", [name for name, injection in INJECTIONS.items() if injection.tries])
def test_a_cause_that_strikes_always_uses_up_its_own_budget(make: Make, name: str) -> None:
    injection = INJECTIONS[name]
    run = injected(make, injection, always=True)
    code, text = run.run("--strict")
    assert code == 3, text
    cause = injection.cause.name.lower()
    assert injection.words in text
    assert cause in text
    assert shown(run)["failed_attempts"] == {cause: injection.tries}
    assert stored_attempts(run.state) == [(injection.status, cause)] * injection.tries
    counters = check_counts(run)
    assert (counters["failed"], counters["items_ok"], counters["retries"]) == (1, 3, injection.tries - 1)
    assert f",{cause},{injection.tries}," in (run.folder / "failed_items.csv").read_text()


def test_an_init_that_fails_in_one_process_costs_no_mini_batch_a_try(make: Make) -> None:
    run = injected(
        make,
        Injection(Cause.INIT_FAILED, "", "", at_top="def init():\n    if strikes(): raise RuntimeError('no model')\n"),
    )
    code, text = run.run()
    assert code == 0, text
    step = shown(run)
    assert (step["failed_attempts"], step["retries"]) == ({"init_failed": 1}, 0)
    (example,) = step["failure_examples"]
    assert (example["status"], example["error_category"]) == ("INIT_FAILED", "UserError")
    assert stored_attempts(run.state) == []


def test_a_file_of_a_table_that_changes_fails_its_mini_batches_at_once_and_no_other(make: Make) -> None:
    run = make(
        "import os\n"
        "def run(table):\n"
        "    if table.a.iloc[0] == 0:\n"
        "        with open(os.environ['SECOND'], 'a') as file: file.write('9,9\\n')\n"
        "    return table\n",
        files=0,
        settings="max_concurrency_per_instance: 1\n    environment_variables: {ONE: 1}",
    )
    for number in range(2):
        (run.folder / "data" / f"{number}.csv").write_text("a,b\n" + f"{number},5\n" * 10)
    job = (run.folder / "job.yml").read_text().replace("uri_folder", "mltable").replace('"1"', '"1kb"')
    (run.folder / "job.yml").write_text(job.replace("{ONE: 1}", f"{{SECOND: {run.folder / 'data' / '1.csv'}}}"))
    code, text = run.run("--strict")
    assert code == 3, text
    step = shown(run)
    assert (step["failed_attempts"], step["retries"]) == ({"input_changed": 1}, 0)
    assert "1.csv" in step["failure_examples"][0]["message"]
    assert run.output.read_text() == "0 5\n" * 10


def test_a_part_that_is_not_read_as_it_was_divided_fails_the_job_whatever_it_allows(make: Make) -> None:
    raised = "from windrow_worker.loaded import InputMisread\n" + LOADER.format("raise InputMisread('was cut wrongly')")
    run = injected(make, Injection(Cause.INPUT_MISREAD, "LOAD_EXCEPTION", "was cut wrongly", at_top=raised))
    code, text = run.run()
    assert code == 1, text
    assert "1 mini-batch could not be read as the input was divided" in text and "was cut wrongly" in text
    step = shown(run)
    assert (step["state"], step["error_category"]) == ("failed", "SystemError")
    assert (step["failed_attempts"], step["retries"]) == ({"input_misread": 1}, 0)
    assert not run.output.exists()


def test_rows_that_are_lost_before_they_are_gathered_run_again(make: Make) -> None:
    run = make(
        "import glob, os, time\n"
        "def run(mini_batch):\n"
        "    if mini_batch[0].endswith('3') and not os.path.exists(os.environ['STRUCK']):\n"
        "        open(os.environ['STRUCK'], 'w').close()\n"
        "        while not any(os.path.getsize(path) for path in glob.glob(os.environ['SEGMENTS'])): time.sleep(0.01)\n"
        "        (path,) = [path for path in glob.glob(os.environ['SEGMENTS']) if os.path.getsize(path)]\n"
        "        with open(path, 'r+b') as file: file.write(b'X')\n"
        "    return [os.path.basename(path) for path in mini_batch]\n",
        settings="max_concurrency_per_instance: 1\n    environment_variables: {ONE: 1}",
    )
    segments = run.state / "jobs" / "*" / "steps" / "*" / "segments" / "*.rows"
    job = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(
        job.replace("{ONE: 1}", f"{{STRUCK: {run.folder / 'struck'}, SEGMENTS: '{segments}'}}")
    )
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "".join(f"f{number:05d}\n" for number in range(4))
    step = shown(run)
    assert (step["failed_attempts"], step["retries"]) == ({"rows_lost": 1}, 1)
    assert stored_attempts(run.state) == [("ROWS_LOST", "rows_lost")]


def test_no_progress_ends_the_job_though_each_mini_batch_had_time_left(make: Make) -> None:
    run = make("import time\ndef run(mini_batch):\n    time.sleep(600)\n")
    job = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(
        job.replace("entry.py\n", "entry.py\n      program_arguments: --progress_update_timeout 2\n")
    )
    code, text = run.run()
    assert code == 1, text
    assert "No progress update in 2 seconds, more than progress_update_timeout allows (2 s)" in text
    step = shown(run)
    assert (step["state"], step["error_category"], step["failed_attempts"]) == ("failed", "SystemError", {})
    assert check_counts(run)["cancelled"] == 4


def test_no_first_mini_batch_in_time_ends_the_job(make: Make) -> None:
    run = make("def run(mini_batch):\n    return mini_batch\n")
    job = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(
        job.replace("entry.py\n", "entry.py\n      program_arguments: --first_task_creation_timeout 1\n")
    )
    run.start()
    planners: list[int] = []

    def planner_stands() -> bool:
        for master in run.pids("master"):
            planners[:] = [pid for pid in children(master) if "windrow_master.planning" in command_line(pid)]
        for pid in planners:
            os.kill(pid, signal.SIGSTOP)  # before its interpreter has come so far as to list anything
        return bool(planners)

    wait_until(planner_stands, "the planner has begun, and stands still")
    code, text = run.finish()
    assert code == 1, text
    assert "No mini-batch was created within first_task_creation_timeout (1 s). Raise it" in text
    assert shown(run)["error_category"] == "DependencyError"
    wait_until(lambda: not any(map(command_line, planners)), "the planner is gone")


def test_a_fault_that_the_only_node_does_not_get_over_ends_the_job_and_blames_no_mini_batch(make: Make) -> None:
    run = make(
        "import os\n"
        "def run(mini_batch):\n"
        "    scratch = '../scratch'\n"
        "    if os.path.isdir(scratch): os.rename(scratch, scratch + '-away'); open(scratch, 'w').close()\n"
        "    return ['x' * (1 << 20)]\n",
        settings="max_concurrency_per_instance: 1",
    )
    job = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(
        job.replace("entry.py\n", "entry.py\n      program_arguments: --progress_update_timeout 5\n")
    )
    code, text = run.run()
    assert code == 1, text
    assert "every attempt since then has failed because of its node, the last on" in text
    step = shown(run)
    assert set(step["failed_attempts"]) == {"node_fault"}
    assert step["failed_attempts"]["node_fault"] >= 4, "it was tried again"
    assert (step["mini_batches"]["failed"], step["mini_batches"]["cancelled"]) == (0, 4)
    assert step["error_category"] == "SystemError"


def test_a_failed_job_tells_what_kind_of_error_it_was(make: Make) -> None:
    run = make("def run(mini_batch):\n    return mini_batch\n", files=0)
    code, text = run.run()
    assert code == 1, text
    assert shown(run)["error_category"] == "UserError", "an empty input"


# Memory


def test_a_worker_killed_for_lack_of_memory_is_told_from_a_crash(make: Make, memory_group: Path) -> None:
    run = injected(
        make, Injection(Cause.OOM, "", "", "if strikes(): hoard = [bytearray(b'x' * (16 << 20)) for _ in range(64)]")
    )
    job = run.folder / "job.yml"
    # A busy machine takes more than a second to fill the memory.
    job.write_text(job.read_text().replace("max_retries: 1, timeout: 1}", "max_retries: 1, timeout: 60}"))
    run.process = subprocess.Popen(
        ["/bin/sh", "-c", f'echo $$ > {memory_group}/cgroup.procs && exec {TYPED} run job.yml --no-progress'],
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    code, text = run.finish()
    assert code == 0, text
    step = shown(run)
    assert (step["failed_attempts"], step["retries"]) == ({"oom": 1}, 1)
    (example,) = step["failure_examples"]
    assert (example["status"], example["error_category"]) == ("RUN_OOM", "UserError")
    assert "for lack of memory in run()" in example["message"]
