"""No process collects garbage while it imports; master, agent and `windrow run` do again before the first `run()`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, wait_until

IMPORTED = {
    "windrow_master.planning": "windrow_master.planning.emitter",
    "windrow_master": "windrow_master.service",
    "windrow_agent": "windrow_agent.agent",
    "run": "windrow.sdk.client",
}
"""By a word of its command line: a module that the process imports in its start."""
RECORDER = """\
import gc, os, sys, threading, time

def note(line):
    with open(f"{os.environ['RECORDS']}/{os.getpid()}", "a") as file:
        file.write(line + "\\n")

def answer():
    while not os.path.exists(os.environ["ASK"]):
        time.sleep(0.01)
    note(f"now {gc.isenabled()} {gc.get_freeze_count() > 0}")

def hook(event, arguments):
    if event == "import" and arguments[0] in os.environ["IMPORTED"].split():
        note(f"{arguments[0]} {gc.isenabled()}")

note(" ".join(sys.orig_argv).replace("\\n", " "))
sys.addaudithook(hook)
threading.Thread(target=answer, daemon=True).start()
"""
SCRIPT = """\
import os, time

def run(mini_batch):
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    return mini_batch
"""


def test_no_garbage_is_collected_during_imports_and_it_is_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, hooks, ask, go = (tmp_path / name for name in ("records", "hooks", "ask", "go"))
    records.mkdir()
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(RECORDER)
    run = EmbeddedRun(tmp_path / "job", SCRIPT, 2, settings=f"environment_variables: {{GO: {go}}}")
    given = {"PYTHONPATH": hooks, "RECORDS": records, "ASK": ask, "IMPORTED": " ".join(IMPORTED.values())}
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))

    def noted() -> dict[str, list[str]]:
        """The lines of each process, by the word of its command line."""
        found: dict[str, list[str]] = {}
        for path in records.iterdir():
            command, *lines = path.read_text().splitlines()
            word = next((word for word in IMPORTED if f" {word} " in f"{command} "), None)
            if word is not None:
                found[word] = lines
        return found

    process = run.start("--slots", "1")
    try:
        wait_until(lambda: run.pids("worker") or process.poll() is not None, "a worker, which waits")
        ask.touch()
        lasting = ("windrow_master", "windrow_agent", "run")
        wait_until(lambda: all("now" in " ".join(noted()[word]) for word in lasting), "the answers of all processes")
        go.touch()
        code, text = run.finish()
        assert code == 0, text
    finally:
        go.touch()
        if process.poll() is None:
            process.kill()
            process.communicate()
    found = noted()
    for word, module in IMPORTED.items():
        assert f"{module} False" in found[word], (word, os.linesep.join(found[word]))
    for word in lasting:
        assert "now True True" in found[word], (word, found[word])


def test_it_is_collected_again_after_a_run_that_could_not_begin(tmp_path: Path) -> None:
    script = """
import gc, sys
from windrow.cli.options import run_options
from windrow.cli.running import run_start
open("broken.yml", "w").write("type: no_such_type\\n")
for file in ("missing.yml", "broken.yml"):
    assert run_start.run(run_options.parse([file])) not in (0, None)
    assert gc.isenabled(), file
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_a_notebook_that_runs_a_job_keeps_its_collector(tmp_path: Path) -> None:
    run = EmbeddedRun(tmp_path / "job", "def run(mini_batch):\n    return mini_batch\n", 2)
    script = """
import gc, windrow
seen = []
run = windrow.run("job.yml", on_progress=lambda job: seen.append(gc.isenabled()))
assert run.succeeded and seen and all(seen) and gc.isenabled() and not gc.get_freeze_count()
"""
    subprocess.run([sys.executable, "-c", script], cwd=run.folder, check=True)


def test_the_planner_changes_nothing_where_it_is_only_imported() -> None:
    script = "import gc, windrow_master.planning.__main__; assert gc.isenabled()"
    subprocess.run([sys.executable, "-c", script], check=True)
