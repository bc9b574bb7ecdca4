"""Which steps may be reused: what step, component and pipeline say of it together."""

from __future__ import annotations

import pytest
from spec_workspace import Workspace

STEP = """\
type: pipeline
{settings}
jobs:
  score:
    type: parallel
    {step}
    inputs: {{images: {{type: uri_folder, path: ./images}}}}
    outputs: {outputs}
    input_data: ${{{{inputs.images}}}}
    mini_batch_size: "2"
    task: {{type: run_function, code: ./src, entry_script: score.py}}
"""
YES, NO = "is_deterministic: true", "is_deterministic: false"
FORCED, REUSED = "settings: {force_rerun: true}", "settings: {force_rerun: false}"


@pytest.mark.parametrize(
    ("step", "settings", "reuse"),
    [
        ("", "", False),
        (YES, "", True),
        (NO, "", False),
        ("", REUSED, True),
        (YES, REUSED, True),
        (NO, REUSED, False),
        ("", FORCED, False),
        (YES, FORCED, False),
        ("", "settings: {force_rerun: }", False),
        ("component: ./component.yml", "", True),
        ("component: ./component.yml", FORCED, False),
        (f"component: ./component.yml\n    {NO}", "", False),
        # An inline component with `true` is what the vendor's client dumps for who has said nothing.
        (f"component: {{type: parallel, {YES}}}", "", False),
        (f"component: {{type: parallel, {NO}}}", REUSED, False),
        (f"component: {{type: parallel, {YES}}}", REUSED, True),
    ],
)
def test_what_is_said_of_reuse(workspace: Workspace, step: str, settings: str, reuse: bool) -> None:
    workspace.write("component.yml", f"type: parallel\nname: score\n{YES}\n")
    text = STEP.format(step=step, settings=settings, outputs="{scores: {type: uri_folder}}")
    (found,) = workspace.job(text).job.steps
    assert found.reuse is reuse


def test_a_step_without_outputs_has_nothing_to_reuse(workspace: Workspace) -> None:
    (found,) = workspace.job(STEP.format(step=YES, settings="", outputs="{}")).job.steps
    assert not found.reuse


def test_a_command_is_reused_as_any_step(workspace: Workspace) -> None:
    command = f"type: pipeline\njobs:\n  c:\n    type: command\n    command: x\n    {YES}\n    outputs: {{out: }}\n"
    (found,) = workspace.job(command).job.steps
    assert found.reuse


def test_where_it_was_said(workspace: Workspace) -> None:
    text = STEP.format(step=YES, settings=REUSED, outputs="{out: }")
    assert "job.yml:6" in workspace.job(text).origins["jobs.score.reuse"].where
    text = STEP.format(step="", settings=REUSED, outputs="{out: }")
    assert "job.yml:2" in workspace.job(text).origins["jobs.score.reuse"].where
