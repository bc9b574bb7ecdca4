"""Pipelines that are steps of others, over real processes: from files, and in one, as a client dumps them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_words

Make = Callable[..., EmbeddedRun]

MARK = "import os\ndef run(mini_batch):\n    return [open(p).read().strip() + os.environ['MARK'] for p in mini_batch]\n"

INNER = """\
type: pipeline
name: inner
inputs:
  texts: {type: uri_folder}
  mark: {type: string, default: '?'}
outputs:
  split: {type: uri_folder}
jobs:
  mark:
    type: parallel
    inputs: {texts: "${{parent.inputs.texts}}"}
    outputs: {rows: {type: uri_file}}
    input_data: ${{inputs.texts}}
    mini_batch_size: 1
    environment_variables: {MARK: "${{parent.inputs.mark}}"}
    task: {type: run_function, code: CODE, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
  split:
    type: command
    inputs: {rows: "${{parent.jobs.mark.outputs.rows}}"}
    outputs: {files: "${{parent.outputs.split}}"}
    command: split -l 1 ${{inputs.rows}} ${{outputs.files}}/
"""
TWICE = """\
type: pipeline
name: twice
inputs:
  texts: {type: uri_folder}
outputs:
  end: {type: uri_folder}
jobs:
  first:
    type: pipeline
    component: INNER
    inputs: {texts: "${{parent.inputs.texts}}"}
  second:
    type: pipeline
    component: INNER
    inputs: {texts: "${{parent.jobs.first.outputs.split}}", mark: "!"}
    outputs: {split: "${{parent.outputs.end}}"}
"""
JOB = """\
type: pipeline
inputs:
  texts: {type: uri_folder, path: ./texts}
outputs:
  end: {type: uri_folder, path: ./end}
jobs:
  twice:
    type: pipeline
    component: TWICE
    inputs: {texts: "${{parent.inputs.texts}}"}
    outputs: {end: "${{parent.outputs.end}}"}
  total:
    type: command
    inputs: {split: "${{parent.jobs.twice.outputs.end}}"}
    outputs: {text: {type: uri_file, path: ./total.txt}}
    command: cat ${{inputs.split}}/* > ${{outputs.text}}
"""


def _dumped(text: str) -> str:
    """A component as it stands in a file that holds it."""
    return "\n" + textwrap.indent(text.rstrip(), "      ")


@pytest.mark.parametrize("kind", ["files", "dumped"])
def test_pipelines_in_pipelines_run_as_one_job(make: Make, kind: str) -> None:
    run = make(MARK)
    texts, parts = run.folder / "texts", run.folder / "parts"
    for folder in (texts, parts):
        folder.mkdir()
    for name in "abc":
        (texts / name).write_text(name)
    if kind == "files":
        (parts / "inner.yml").write_text(INNER.replace("CODE", "../code"))
        (parts / "twice.yml").write_text(TWICE.replace("INNER", "./inner.yml"))
        job = JOB.replace("TWICE", "./parts/twice.yml")
    else:
        job = JOB.replace("TWICE", _dumped(TWICE.replace("INNER", _dumped(INNER.replace("CODE", "./code")))))
    (run.folder / "job.yml").write_text(job)
    code, text = run.run()
    assert code == 0, text
    assert (run.folder / "total.txt").read_text() == "a?!\nb?!\nc?!\n"
    assert sorted(path.read_text() for path in (run.folder / "end").iterdir()) == ["a?!\n", "b?!\n", "c?!\n"]
    names = ["twice__first__mark", "twice__first__split", "twice__second__mark", "twice__second__split", "total"]
    (logs,) = run.state.glob("jobs/*/logs")
    assert set(names) <= {path.name for path in Path(logs).iterdir()}
    check_words(text, ["Completed: 6 items in 6 mini-batches, 3 commands"])


def test_a_step_that_fails_in_a_pipeline_is_named_with_it(make: Make) -> None:
    run = make(MARK)
    (run.folder / "inner.yml").write_text("type: pipeline\njobs:\n  broken: {type: command, command: exit 3}\n")
    (run.folder / "job.yml").write_text("type: pipeline\njobs:\n  sub: {type: pipeline, component: ./inner.yml}\n")
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["Failed: Step 'sub__broken' failed: The command ended with exit code 3"])
