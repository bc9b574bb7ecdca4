"""What shutdown() does belongs to its step: the next one begins behind it, and a failure is told."""

from __future__ import annotations

import json
from collections.abc import Callable

import windrow
from embedded_run import EmbeddedRun, check_words, wait_until
from windrow.sdk.job import JobState

Make = Callable[..., EmbeddedRun]

LEARN = """\
import os, pathlib, time

def run(mini_batch):
    return mini_batch

def shutdown():
    folder = pathlib.Path(os.environ["MODELS"])
    (folder / "in shutdown").touch()
    while not (folder / "go on").exists():
        time.sleep(0.01)
    (folder / "model").write_text("learned")
"""
USE = """\
import os, pathlib

def run(mini_batch):
    return [pathlib.Path(os.environ["MODELS"], "model").read_text() for _ in mini_batch]
"""


def test_the_next_step_begins_when_shutdown_has_ended(make: Make) -> None:
    run = make(LEARN, files=3)
    (run.folder / "code" / "use.py").write_text(USE)
    (run.folder / "models").mkdir()
    job = (run.folder / "job.yml").read_text()
    head, _, learn = job.partition("  score:\n")
    learn = learn.replace("    task:", f"    environment_variables: {{MODELS: {run.folder / 'models'}}}\n    task:")
    use = learn.replace("entry.py", "use.py").replace(
        'inputs: {data: "${{parent.inputs.data}}"}', 'inputs: {data: "${{parent.jobs.learn.outputs.result}}"}'
    )
    learn = learn.replace('    outputs: {result: "${{parent.outputs.result}}"}\n', "    outputs: {result: }\n")
    (run.folder / "job.yml").write_text(f"{head}  learn:\n{learn}  use:\n{use}")
    run.start("--slots", "1")
    wait_until((run.folder / "models" / "in shutdown").exists, "a worker in shutdown()")
    with windrow.Client(json.loads((run.state / "embedded.json").read_text())["address"]) as client:
        wait_until(lambda: next(client.list_jobs()).steps[0].items.done == 3, "all results are there")
        (seen,) = client.list_jobs()
        _, use_step = seen.steps
        assert seen.state == JobState.RUNNING
        assert use_step.items.done == 0 and use_step.state == "waiting"
        wait_until(
            lambda: "Nodes end their workers" in next(client.list_jobs()).steps[0].message, "why the next step waits"
        )
    (run.folder / "models" / "go on").touch()
    code, text = run.finish()
    assert code == 0, text
    assert run.output.read_text() == "learned\n"


def test_a_shutdown_that_fails_is_a_warning(make: Make) -> None:
    run = make("def run(b):\n    return b\ndef shutdown():\n    raise OSError('the model store is gone')\n")
    code, text = run.run("--slots", "2")
    assert code == 0, text
    check_words(text, ["warning: Step 'score': shutdown() failed in", "OSError: the model store is gone", "Completed"])
    assert len(run.output.read_text().splitlines()) == 4
