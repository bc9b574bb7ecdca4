"""What is divided: one input or several, how a job file and a document name them, and what cannot go together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import EffectiveJob, JobFileError
from windrow.spec.effective.document import DocumentError

JOB = """\
type: pipeline
jobs:
  score:
    type: parallel
    inputs:
      images: {type: uri_folder, path: ./images}
      more: {type: uri_file, path: ./one.csv}
      rows: {type: mltable, path: ./table}
      plain: {type: mltable, path: ./one.csv}
      note: a text
      nothing: {type: uri_folder, optional: true}
    outputs:
      scores: {type: uri_file}
    input_data: INPUTS
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      append_row_to: ${{outputs.scores}}
      program_arguments: ARGUMENTS
"""


def job(*names: str, arguments: str = "--a b") -> str:
    """A job file that divides these inputs."""
    inputs = "[" + ", ".join("'${{inputs." + name + "}}'" for name in names) + "]"
    return JOB.replace("INPUTS", inputs).replace("ARGUMENTS", arguments)


def document(workspace: Workspace, *names: str) -> dict[str, Any]:
    """The document of such a job."""
    made: dict[str, Any] = json.loads(workspace.effective(workspace.job(job(*names))).to_json())
    return made


@pytest.mark.parametrize("names", [("images", "more"), ("more", "images"), ("plain", "rows")])
def test_a_list_names_several_inputs_in_their_order(workspace: Workspace, names: tuple[str, ...]) -> None:
    step = workspace.job(job(*names)).job.steps[0]
    assert step.input_data == names
    written = document(workspace, *names)
    assert written["steps"][0]["input_data"] == list(names)
    assert EffectiveJob.from_json(json.dumps(written)).steps[0].input_data == names


def test_the_order_of_inputs_decides_the_work(workspace: Workspace) -> None:
    digests = {document(workspace, *names)["run_digest"] for names in (("images", "more"), ("more", "images"))}
    assert len(digests) == 2


def test_a_list_of_one_is_the_document_of_one_name(workspace: Workspace) -> None:
    alone = json.loads(
        workspace.effective(
            workspace.job(job("images").replace("['${{inputs.images}}']", "${{inputs.images}}"))
        ).to_json()
    )
    assert document(workspace, "images") == alone
    assert alone["steps"][0]["input_data"] == "images"


def test_the_libraries_of_all_tables_are_wanted(workspace: Workspace) -> None:
    workspace.write("parquet/MLTable", "paths: [{file: ../one.csv}]\ntransformations: [read_parquet]\n")
    text = job("rows", "plain").replace("path: ./one.csv}\n      note", "path: ./parquet}\n      note")
    assert workspace.job(text).libraries == {"score": ("pandas", "pyarrow")}


@pytest.mark.parametrize(
    ("names", "key", "words"),
    [
        (("images", "images"), "input_data[1]", ["is listed twice", "list each input once"]),
        (("images", "imges"), "input_data[1]", ['"imges"', 'Did you mean "images"']),
        (("images", "note"), "input_data[1]", ['the text "a text"']),
        (("nothing", "images"), "input_data[0]", ["an optional input without a value"]),
        (("images", "rows"), "input_data", ["lists of files (images)", "tables (rows)", "one kind"]),
        ((), "input_data", ["an empty list", "images"]),
    ],
)
def test_what_cannot_be_divided_together_is_refused(
    workspace: Workspace, names: tuple[str, ...], key: str, words: list[str]
) -> None:
    with pytest.raises(JobFileError) as caught:
        workspace.job(job(*names))
    (problem,) = caught.value.problems
    assert problem.key == f"jobs.score.{key}" and problem.line == 14
    assert not [word for word in words if word not in problem.message], problem


def test_an_input_that_lacks_its_value_is_told_once(workspace: Workspace) -> None:
    text = job("images").replace("images: {type: uri_folder, path: ./images}", "images: {type: uri_folder}")
    (problem,) = workspace.problems(text)
    assert (problem.key, problem.message[:12]) == ("jobs.score.inputs.images", "has no value")


def test_expressions_in_one_text_are_no_list(workspace: Workspace) -> None:
    text = JOB.replace("INPUTS", "${{inputs.images}}, ${{inputs.more}}").replace("ARGUMENTS", "")
    with pytest.raises(JobFileError, match="For several inputs, write a list of expressions"):
        workspace.job(text)


def test_copies_are_for_all_lists_of_files_or_none(workspace: Workspace) -> None:
    text = job("images", "more").replace("path: ./images}", "path: ./images, mode: download}")
    with pytest.raises(
        JobFileError, match=r"divides inputs with mode: download \(images\) together with others \(more\)"
    ):
        workspace.job(text)


def test_records_come_of_lists_of_files_only(workspace: Workspace) -> None:
    assert workspace.job(job("images", "more", arguments="--amlbi_file_format jsonl")).job.steps[0].file_format
    with pytest.raises(JobFileError, match=r"divided \(plain\) is of type mltable"):
        workspace.job(job("images", "plain", arguments="--amlbi_file_format jsonl"))


def test_without_input_none_of_them_is_divided(workspace: Workspace) -> None:
    loaded = workspace.job(job("images", "more", arguments="--rank_mini_batch_count 3"))
    assert loaded.job.steps[0].input_data == ()
    assert any("is not divided" in warning.message for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["images", "images"], "names an input twice"),
        (["images", "note"], "'note' names no data input"),
        (["images"], "is a list of 1"),
        ([], "is a list of 0"),
        (["images", 3], "is not text"),
        (3, "is not text"),
        (None, "names no data input"),
    ],
)
def test_a_document_is_checked(workspace: Workspace, value: object, said: str) -> None:
    changed = document(workspace, "images", "more")
    changed["steps"][0]["input_data"] = value
    with pytest.raises(DocumentError, match=said):
        EffectiveJob.from_json(json.dumps(changed))


def test_a_pipeline_input_that_is_wrong_is_told_once(workspace: Workspace) -> None:
    changes = (
        "inputs: {images: {path: ./images}, t: '${{parent.inputs.t}}', u: '${{parent.inputs.t}}-u'}\n"
        "mini_batch_size: ${{inputs.t}}\npartition_keys: '${{inputs.t}}'\nenvironment_variables: {A: '${{inputs.u}}'}\n"
        "task: {type: run_function, code: ./src, entry_script: score.py, program_arguments: "
        "'--error_threshold ${{inputs.t}}'}"
    )
    text = workspace.job_of(changed(STEP, changes), "inputs: {t: '${{name}}'}\n")
    (problem,) = workspace.problems(text)
    assert problem.key == "inputs.t"
    assert "${{name}} cannot be used in the pipeline's own inputs" in problem.message
