"""Every key of the pipeline around the steps, with values and values beyond them.

Reference: docs/reference/azure-ml/parallel-job.md#pipelines. Keys of steps are in test_spec_reference_rows.py.
"""

from __future__ import annotations

import pytest
from spec_workspace import Workspace
from windrow.spec import JobFileError
from windrow.spec.settings.schema import PIPELINE, PIPELINE_SETTINGS

TAKEN = ""
Rows = dict[str, list[tuple[str, str]]]
"""By key: its line, and what the error at that key says (empty: it is taken)."""

PIPELINE_ROWS: Rows = {
    "$schema": [("$schema: https://nowhere.invalid/schema.json", TAKEN)],
    "type": [("type: pipeline", TAKEN), ("type: Pipeline", TAKEN), ("type: pipelin", "type: pipeline")],
    "name": [
        ("name: run-1.a_b", TAKEN),
        ("name: " + "a" * 64, TAKEN),
        ("name: " + "a" * 65, "at most 64"),
        ("name: two words", "at most 64"),
        ("name: -run", "starting with"),
        ("name:", TAKEN),
    ],
    "display_name": [("display_name: Two words", TAKEN), ("display_name: [a]", "it must be text")],
    "experiment_name": [("experiment_name: tries", TAKEN), ("experiment_name: {a: b}", "it must be text")],
    "description": [("description: what for", TAKEN), ("description: [a]", "it must be text")],
    "tags": [("tags: {owner: me, n: 3}", TAKEN), ("tags: me", "a mapping"), ("tags: {a: [b]}", "a list")],
    "properties": [("properties: {a: b}", TAKEN)],
    "comment": [("comment: any", TAKEN)],
    "inputs": [
        ("inputs: {n: 7, x: 1.5, b: true, s: text}", TAKEN),
        ("inputs: {d: {type: uri_folder, path: ./images}}", TAKEN),
        ("inputs: [a]", "a mapping"),
        ("inputs: {d: {type: uri_folder, path: ./absent}}", "does not exist"),
        ("inputs: {d: [1]}", "is a list"),
    ],
    "outputs": [
        ("outputs: {unused: }", TAKEN),
        ("outputs: {unused: {type: uri_file, mode: upload}}", TAKEN),
        ("outputs: 3", "a mapping"),
        ("outputs: {unused: {type: folder}}", "uri_folder, uri_file"),
    ],
    "settings": [("settings: {}", TAKEN), ("settings: 3", "a mapping"), ("settings: {unknown_key: 3}", TAKEN)],
    "compute": [("compute: azureml:cpu", TAKEN), ("compute: local", TAKEN)],
    "identity": [("identity: {type: managed}", TAKEN)],
    "services": [("services: {a: {type: jupyter_lab}}", TAKEN)],
    "schedule": [("schedule: {type: cron}", TAKEN)],
}

SETTINGS_ROWS: Rows = {
    "default_compute": [
        ("default_compute: azureml:cpu", TAKEN),
        ("default_compute: serverless", TAKEN),
        ("default_compute: {a: b}", "it must be text"),
    ],
    "default_datastore": [("default_datastore: azureml:workspaceblobstore", TAKEN)],
    "continue_on_step_failure": [
        ("continue_on_step_failure: true", TAKEN),
        ("continue_on_step_failure: 'False'", TAKEN),
        ("continue_on_step_failure: perhaps", "true or false"),
    ],
    "continue_run_on_step_failure": [
        ("continue_run_on_step_failure: false", TAKEN),
        ("continue_run_on_step_failure: perhaps", "true or false"),
    ],
    "force_rerun": [("force_rerun: true", TAKEN), ("force_rerun: perhaps", "true or false")],
}


def check(workspace: Workspace, more: str, key: str, words: str) -> None:
    text = workspace.job_of(more=f"{more}\n")
    if more.startswith("type:"):
        text = text.removeprefix("type: pipeline\n")
    if not words:
        workspace.job(text)
        return
    with pytest.raises(JobFileError) as caught:
        workspace.job(text)
    (problem,) = [one for one in caught.value.problems if one.key.startswith(key)]
    assert words in problem.message
    assert problem.line > 0


def cases(rows: Rows) -> list[object]:
    return [
        pytest.param(name, text, words, id=f"{name}-{number}")
        for name, those in rows.items()
        for number, (text, words) in enumerate(those)
    ]


@pytest.mark.parametrize(("name", "text", "words"), cases(PIPELINE_ROWS))
def test_a_key_of_the_pipeline(workspace: Workspace, name: str, text: str, words: str) -> None:
    check(workspace, text, name, words)


@pytest.mark.parametrize(("name", "text", "words"), cases(SETTINGS_ROWS))
def test_a_key_of_its_settings(workspace: Workspace, name: str, text: str, words: str) -> None:
    check(workspace, f"settings: {{{text}}}", f"settings.{name}", words)


def test_no_key_is_without_a_row() -> None:
    assert set(PIPELINE_ROWS) == set(PIPELINE) - {"jobs"}
    assert set(SETTINGS_ROWS) == set(PIPELINE_SETTINGS)
