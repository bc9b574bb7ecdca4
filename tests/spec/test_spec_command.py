"""Steps of type `command`: what is read, what is refused, and what they become."""

from __future__ import annotations

import json
from textwrap import indent

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import DataInput, EffectiveJob, EffectiveStep, JobFileError, LiteralInput, OutputInput, StepOutput
from windrow.spec.effective.document import DocumentError

COMMAND = """\
type: command
command: python prepare.py --to ${{outputs.data}} --count ${{inputs.count}}
code: ./src
inputs:
  count: 3
outputs:
  data: {type: uri_folder}
"""


def of(workspace: Workspace, changes: str = "", *sets: str, more: str = "") -> EffectiveStep:
    return workspace.job(workspace.job_of(changed(COMMAND, changes), more), *sets).job.steps[0]


def test_a_command_is_one_mini_batch_without_input_that_is_tried_once(workspace: Workspace) -> None:
    loaded = workspace.job(workspace.job_of(COMMAND))
    step = loaded.job.steps[0]
    assert step.command == "python prepare.py --to ${{outputs.data}} --count ${{inputs.count}}"
    assert (step.entry_script, step.arguments, step.input_data) == ("", (), ())
    assert (step.rank_mini_batch_count, step.max_retries, step.mini_batch_error_threshold) == (1, 0, 0)
    assert (step.instance_count, step.max_concurrency_per_instance, step.may_shut_down) == (1, 1, False)
    assert step.inputs == {"count": LiteralInput("3")}
    assert step.outputs == {"data": StepOutput("uri_folder", "rw_mount")}
    assert loaded.code_folders == {"score": str(workspace.folder / "src")}
    assert not loaded.warnings


@pytest.mark.parametrize("step", [COMMAND, STEP])
def test_a_step_without_a_type_is_told_by_what_it_has(workspace: Workspace, step: str) -> None:
    untyped = "".join(line for line in step.splitlines(keepends=True) if not line.startswith("type: "))
    assert untyped != step
    assert workspace.job(workspace.job_of(untyped)).job.steps == workspace.job(workspace.job_of(step)).job.steps


def test_its_time_is_bounded_only_by_limits(workspace: Workspace) -> None:
    assert of(workspace).run_invocation_timeout_s == 2**31 - 1
    assert of(workspace, "limits: {timeout: 3600}").run_invocation_timeout_s == 3600


def test_its_settings_may_be_inputs(workspace: Workspace) -> None:
    step = of(workspace, "inputs: {count: 1, s: 7, n: 1, c: gpu}\nlimits: {timeout: '${{inputs.s}}'}\n"
              "resources: {instance_count: '${{inputs.n}}'}\ncompute: ${{inputs.c}}")  # fmt: skip
    assert (step.run_invocation_timeout_s, step.compute) == (7, "gpu")


def test_a_command_needs_no_code(workspace: Workspace) -> None:
    loaded = workspace.job(workspace.job_of(changed(COMMAND, "code:")))
    assert loaded.code_folders == {"score": ""}


def test_steps_of_both_types_read_outputs_of_each_other(workspace: Workspace) -> None:
    scores = changed(
        STEP,
        "inputs:\n  images: {type: uri_folder, path: '${{parent.jobs.prepare.outputs.data}}'}",
    )
    shown = "type: command\ncommand: cat ${{inputs.rows}}\ninputs: {rows: '${{parent.jobs.score.outputs.scores}}'}\n"
    text = workspace.job_of(COMMAND, name="prepare")
    for name, step in (("score", scores), ("show", shown)):
        text += workspace.job_of(step, name=name).partition("jobs:\n")[2]
    prepare, score, show = workspace.job(text).job.steps
    assert (prepare.depends_on, score.depends_on, show.depends_on) == ((), ("prepare",), ("score",))
    assert show.inputs == {"rows": OutputInput("score", "scores", "uri_file", "ro_mount")}


def test_optional_groups_of_a_command_are_dropped_without_a_value(workspace: Workspace) -> None:
    given = "command: run $[[--seed ${{inputs.seed}}]] end\ninputs: {seed: {type: integer, optional: true}}"
    assert of(workspace, given).command == "run  end"
    assert of(workspace, given, "jobs.score.inputs.seed=7").command == "run  --seed ${{inputs.seed}}  end"


@pytest.mark.parametrize(
    ("written", "command", "joined"),
    [
        (">-\n  python a.py\n    --rows 1\n    --to x", "python a.py --rows 1 --to x", "--rows"),
        (">-\n  ls &&\n  python a.py\n    -v", "ls && python a.py -v", "-v"),
        ("|-\n  python a.py\n  --rows 1", "python a.py --rows 1", "--rows"),
        # What a shell joins, or takes as it is, stays.
        ("|-\n  python a.py \\\n    --rows 1", "python a.py \\\n  --rows 1", ""),
        ("|-\n  cat <<END\n  --rows\n  END", "cat <<END\n--rows\nEND", ""),
        ("|-\n  echo 'a\n  --b'", "echo 'a\n--b'", ""),
        ("|-\n  # all rows\n  --rows", "# all rows\n--rows", ""),
        ("|-\n  python a.py\n  python b.py", "python a.py\npython b.py", ""),
    ],
)
def test_a_line_that_begins_with_an_option_belongs_to_the_line_before(
    workspace: Workspace, written: str, command: str, joined: str
) -> None:
    loaded = workspace.job(workspace.job_of(changed(COMMAND, f"command: {written}")))
    assert loaded.job.steps[0].command == command
    told = [(warning.key, joined in warning.message) for warning in loaded.warnings]
    assert told == ([("jobs.score.command", True)] if joined else [])


def test_a_component_of_type_command_is_read_like_one_of_type_parallel(workspace: Workspace) -> None:
    workspace.write("parts/part.py", "")
    workspace.write(
        "parts/part.yml",
        """\
        type: command
        name: part
        inputs: {count: {type: integer, default: 5}, data: {type: uri_folder}}
        outputs: {made: {type: uri_folder}}
        code: .
        environment: azureml:e:1
        command: python part.py ${{inputs.count}} ${{inputs.data}} ${{outputs.made}}
        """,
    )
    use = "component: ./parts/part.yml\ninputs: {data: {type: uri_folder, path: ./images}}\n"
    for text in (use, "type: command\n" + use):
        loaded = workspace.job(workspace.job_of(text))
        step = loaded.job.steps[0]
        assert step.command == "python part.py ${{inputs.count}} ${{inputs.data}} ${{outputs.made}}"
        assert step.inputs["count"] == LiteralInput("5")
        assert step.inputs["data"] == DataInput("uri_folder", "ro_mount", str(workspace.folder / "images"))
        assert loaded.code_folders == {"score": str(workspace.folder / "parts")}
    assert [problem.key for problem in workspace.problems(workspace.job_of("type: parallel\n" + use))] == [
        "jobs.score.type"
    ]


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ("command:", "command", "is missing"),
        ("command: '  '", "command", "is missing"),
        ("command: [a, b]", "command", "a list"),
        ("command: cat ${{inputs.cuont}}", "command", "an input that the step does not have"),
        ("command: cat ${{outputs.dta}}", "command", 'Did you mean "data"?'),
        ("command: cat ${{parent.inputs.x}}", "command", "of the step itself"),
        ("command: cat ${{inputs.count}", "command", "well-formed"),
        ("command: cat $[[a", "command", "is not closed"),
        ("code: ./nowhere", "code", "does not exist"),
        ("code: azureml:code:1", "code", "registered asset"),
        ("limits: {timeout: 0}", "limits.timeout", "of seconds"),
        ("limits: 5", "limits", "a mapping"),
        ("resources: {instance_count: many}", "resources.instance_count", "many"),
    ],
)
def test_what_cannot_run_is_an_error_at_its_key(workspace: Workspace, changes: str, key: str, said: str) -> None:
    (problem,) = workspace.problems(workspace.job_of(changed(COMMAND, changes)))
    assert problem.key == f"jobs.score.{key}"
    assert said in problem.message


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ("resources: {instance_count: 4}", "resources.instance_count", "runs once, on one node"),
        ("distribution: {type: pytorch, process_count_per_instance: 4}", "distribution", "runs once"),
        ("mini_batch_size: 5", "mini_batch_size", "unknown here"),
        ("environment: azureml:e:1", "environment", "--python"),
        ("comand: x", "comand", 'Did you mean "command"?'),
    ],
)
def test_what_has_no_effect_on_a_command_is_told(workspace: Workspace, changes: str, key: str, said: str) -> None:
    (warning,) = workspace.job(workspace.job_of(changed(COMMAND, changes))).warnings
    assert warning.key == f"jobs.score.{key}"
    assert said in warning.message


def test_the_document_of_a_command_is_read_back(workspace: Workspace) -> None:
    job = workspace.effective(workspace.job(workspace.job_of(COMMAND)))
    assert EffectiveJob.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"entry_script": "score.py"}, "cannot be combined with entry_script"),
        ({"arguments": ["--x"]}, "cannot be combined with entry_script, arguments"),
        ({"rank_mini_batch_count": 2}, "rank_mini_batch_count 1"),
        ({"command": None}, "entry_script: is empty"),
        ({"command": "cat ${{inputs.none}}"}, "names what the step does not have"),
    ],
)
def test_a_document_that_is_half_a_command_is_refused(
    workspace: Workspace, changes: dict[str, object], said: str
) -> None:
    document = json.loads(workspace.effective(workspace.job(workspace.job_of(COMMAND))).to_json())
    document["steps"][0].update(changes)
    with pytest.raises(DocumentError, match=said):
        EffectiveJob.from_json(json.dumps(document))


# Settings of the pipeline ---------------------------------------------------------------------------------------------


def test_a_step_without_compute_has_that_of_the_pipeline(workspace: Workspace) -> None:
    assert of(workspace, more="settings: {default_compute: azureml:cpu}\n").compute == "cpu"
    assert of(workspace, more="compute: azureml:cpu\n").compute == "cpu"
    assert of(workspace, "compute: gpu", more="settings: {default_compute: azureml:cpu}\n").compute == "gpu"
    assert of(workspace).compute == ""


@pytest.mark.parametrize("any_node", ["local", "azureml:serverless"])
def test_a_step_that_may_run_on_any_node_is_in_no_pool(workspace: Workspace, any_node: str) -> None:
    assert of(workspace, f"compute: {any_node}", more="settings: {default_compute: azureml:cpu}\n").compute == ""
    more = f"compute: cpu\nsettings: {{default_compute: '{any_node}'}}\n"
    assert of(workspace, more=more).compute == ""


@pytest.mark.parametrize("key", ["continue_on_step_failure", "continue_run_on_step_failure"])
def test_continue_on_step_failure_is_part_of_the_job(workspace: Workspace, key: str) -> None:
    def job(settings: str) -> EffectiveJob:
        return workspace.effective(workspace.job(workspace.job_of(COMMAND, settings)))

    plain, goes_on = job(""), job(f"settings: {{{key}: true}}\n")
    assert (plain.continue_on_step_failure, goes_on.continue_on_step_failure) == (False, True)
    assert "continue_on_step_failure" not in json.loads(plain.to_json())
    assert plain.run_digest != goes_on.run_digest
    assert EffectiveJob.from_json(goes_on.to_json()) == goes_on


def test_outputs_without_a_place_go_to_the_default_datastore_of_the_pipeline(workspace: Workspace) -> None:
    settings = "settings: {default_datastore: azureml:lake}\noutputs: {all: {type: uri_folder}}\n"
    changes = "outputs: {data: '${{parent.outputs.all}}', more: {type: uri_file}}"
    text = workspace.job_of(changed(COMMAND, changes), settings)
    loaded = workspace.job(text, embedded=False)
    place = "azureml://datastores/lake/paths/azureml/${{name}}"
    assert {name: output.path for name, output in loaded.job.steps[0].outputs.items()} == {
        "data": f"{place}/all",
        "more": f"{place}/score/more/more",
    }
    named = "outputs: {data: {type: uri_file, name: scores, version: 3}}"
    text = workspace.job_of(changed(COMMAND, named), "settings: {default_datastore: azureml:lake}\n")
    data = workspace.job(text, embedded=False).job.steps[0].outputs["data"]
    assert (data.asset_name, data.asset_version) == ("scores", "3")
    own = "outputs: {data: {path: 'azureml://datastores/${{default_datastore}}/paths/x'}}"
    text = workspace.job_of(changed(COMMAND, own), "settings: {default_datastore: azureml:lake}\n")
    assert workspace.job(text, embedded=False).job.steps[0].outputs["data"].path == "azureml://datastores/lake/paths/x"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("--append_row_file_name rows.tsv", "rows.tsv"),
        ("--append_row_format csv", "parallel_run_step.csv"),
        ("--append_row_format csv --append_row_file_name a.csv", "a.csv"),
    ],
)
def test_rows_in_the_default_datastore_of_the_pipeline_are_named_as_elsewhere(
    workspace: Workspace, arguments: str, name: str
) -> None:
    step = STEP + f"  program_arguments: {arguments}\n"
    loaded = workspace.job(workspace.job_of(step, "settings: {default_datastore: lake}\n"), embedded=False)
    place = "azureml://datastores/lake/paths/azureml/${{name}}/score/scores"
    assert loaded.job.steps[0].outputs["scores"].path == f"{place}/{name}"
    assert not loaded.warnings


def test_a_command_asks_for_paths_by_a_variable(workspace: Workspace) -> None:
    """It has no program_arguments to ask in."""
    asked = "environment_variables: {WINDROW_ALLOW_PATH: '/data/m  /cache:rw'}"
    assert of(workspace, asked).allow_path == ("/data/m", "/cache:rw")
    (problem,) = workspace.problems(
        workspace.job_of(changed(COMMAND, "environment_variables: {WINDROW_ALLOW_PATH: data}"))
    )
    assert problem.key == "jobs.score.environment_variables"
    assert 'has "data"' in problem.message


@pytest.mark.parametrize(
    ("second", "refused"),
    [
        ('inputs: {before: "${{parent.jobs.first.outputs.data}}"}', False),
        ('inputs: {before: "${{parent.jobs.between.outputs.data}}"}', False),
        ("inputs: {}", True),
        (
            'inputs: {before: "${{parent.jobs.first.outputs.data}}"}\noutputs: {data: {type: uri_file, path: ./out}}',
            True,
        ),
    ],
    ids=["reads it", "reads what was made of it", "at the same time", "a file"],
)
def test_a_step_may_go_on_in_the_folder_of_a_step_that_it_waits_for(
    workspace: Workspace, second: str, refused: bool
) -> None:
    command = "type: command\ncommand: 'true'\n"
    between = command + 'inputs: {x: "${{parent.jobs.first.outputs.data}}"}\noutputs: {data: }\n'
    steps = {
        "second": changed(command + "outputs: {data: {type: mltable, path: ./out}}\n", second),
        "between": between,
        "first": command + "outputs: {data: {path: ./out}}\n",
    }
    text = "type: pipeline\njobs:\n" + "".join(f"  {name}:\n{indent(step, '    ')}" for name, step in steps.items())
    if refused:
        with pytest.raises(JobFileError, match=r"out is also the path of jobs\..*\.outputs\.data; give each"):
            workspace.job(text)
    else:
        made = {step.name: step.outputs["data"] for step in workspace.job(text).job.steps}
        assert made["first"].path == made["second"].path == str(workspace.folder / "out")
