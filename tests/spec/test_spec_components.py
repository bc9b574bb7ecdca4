"""Components: by file and inline, beside the step's own settings, and as a dumped pipeline writes them."""

from __future__ import annotations

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.common.registries import Registries
from windrow.errors import UsageError
from windrow.spec import DataInput, LiteralInput, PipelineOutput, StepOutput

COMPONENT = """
type: parallel
name: score
version: '1'
inputs:
  images: {type: uri_folder}
  count: {type: integer, default: '3'}
  flag: {type: boolean, default: 'False'}
  extra: {type: string, optional: true}
outputs:
  scores: {type: uri_file}
input_data: ${{inputs.images}}
mini_batch_size: 4
retry_settings: {max_retries: 9, timeout: 90}
environment_variables: {A: component}
task:
  type: run_function
  code: ../src
  entry_script: score.py
  append_row_to: ${{outputs.scores}}
  program_arguments: --count ${{inputs.count}} --flag ${{inputs.flag}} $[[--extra ${{inputs.extra}}]]
"""
USE = """
component: ./parts/score.yml
inputs:
  images: {path: ./images}
"""


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write("parts/score.yml", COMPONENT)
    return workspace


@pytest.mark.parametrize(
    ("own", "pipeline", "made"),
    [
        ("{type: uri_folder}", "", "uri_folder"),
        ("{type: mltable}", "", "mltable"),
        ("{mode: upload}", "", "uri_file"),
        ("{type: mltable, path: '${{parent.outputs.all}}'}", "{type: uri_file}", "mltable"),
        ("'${{parent.outputs.all}}'", "{type: uri_file}", "uri_file"),
        # The vendor's command line takes this for a folder.
        ("'${{parent.outputs.all}}'", "{mode: upload}", "uri_folder"),
        ("{type: uri_file, path: '${{parent.outputs.all}}'}", "{mode: upload}", "uri_file"),
        # As a dump writes it: component and pipeline know better.
        ("{type: uri_folder, path: '${{parent.outputs.all}}'}", "{type: uri_file}", "uri_file"),
        ("{path: '${{parent.outputs.all}}'}", "{type: uri_folder}", "uri_file"),
    ],
)
def test_the_type_that_a_step_gives_its_output_wins(workspace: Workspace, own: str, pipeline: str, made: str) -> None:
    more = f"outputs: {{all: {pipeline}}}\n" if pipeline else ""
    (step,) = workspace.job(workspace.job_of(f"{USE}outputs: {{scores: {own}}}\n", more)).job.steps
    assert step.outputs["scores"].type == made


def test_a_component_file_gives_what_the_step_does_not_say(workspace: Workspace) -> None:
    loaded = workspace.job(workspace.job_of(USE))
    (step,) = loaded.job.steps
    assert step.inputs == {
        "images": DataInput("uri_folder", "ro_mount", str(workspace.folder / "images")),
        "count": LiteralInput("3"),
        "flag": LiteralInput("False"),
    }
    assert step.outputs == {"scores": StepOutput("uri_file", "rw_mount")}
    assert step.arguments == ("--count", "${{inputs.count}}", "--flag", "${{inputs.flag}}")
    assert (step.mini_batch_size, step.max_retries, step.append_row_to) == (4, 9, "scores")
    # Paths are relative to the file that holds them.
    assert loaded.code_folders == {"score": str(workspace.folder / "src")}
    origin = loaded.origins["jobs.score.mini_batch_size"]
    assert (origin.kind, origin.where.rpartition("/")[2]) == ("component", "score.yml:13")


@pytest.mark.parametrize("both", [False, True])
def test_the_code_of_a_component_may_stand_beside_its_task(workspace: Workspace, both: bool) -> None:
    """As in older component files; in the task it wins."""
    without = COMPONENT.replace("  code: ../src\n", "")
    workspace.write("parts/score.yml", COMPONENT + "code: ../nowhere\n" if both else without + "code: ../src\n")
    assert workspace.job(workspace.job_of(USE)).code_folders == {"score": str(workspace.folder / "src")}


def test_the_steps_own_keys_win_each_as_a_whole(workspace: Workspace) -> None:
    own = """
    mini_batch_size: 8
    retry_settings: {timeout: 30}
    environment_variables: {B: step}
    inputs:
      images: {path: ./images}
      count: 5
      flag: 1
      extra: more
    """
    step = workspace.job(workspace.job_of(changed(USE, own))).job.steps[0]
    assert step.mini_batch_size == 8
    assert (step.max_retries, step.run_invocation_timeout_s) == (2, 30)
    assert step.environment_variables == {"B": "step"}
    assert step.inputs["count"] == LiteralInput("5")
    assert step.inputs["flag"] == LiteralInput("True")
    assert step.arguments[-2:] == ("--extra", "${{inputs.extra}}")


def test_set_changes_single_keys_of_what_the_component_says(workspace: Workspace) -> None:
    sets = (
        "jobs.score.retry_settings.timeout=30",
        "jobs.score.task.entry_script=other.py",
        "jobs.score.inputs.count=7",
    )
    workspace.write("src/other.py", "")
    step = workspace.job(workspace.job_of(USE), *sets).job.steps[0]
    assert (step.max_retries, step.run_invocation_timeout_s, step.entry_script) == (9, 30, "other.py")
    assert step.inputs["count"] == LiteralInput("7")


@pytest.mark.parametrize("spelling", ["parts/score.yml", "file:./parts/score.yml", "azureml:./parts/score.yml"])
def test_a_component_path_is_read_in_every_spelling(workspace: Workspace, spelling: str) -> None:
    assert workspace.job(workspace.job_of(USE.replace("./parts/score.yml", spelling))).job.steps


def test_a_component_may_be_used_by_several_steps(workspace: Workspace) -> None:
    text = workspace.job_of(USE, name="a") + workspace.job_of(USE, name="b").partition("jobs:\n")[2]
    assert [step.name for step in workspace.job(text).job.steps] == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ("component: ./parts/none.yml", "component", "does not exist"),
        ("component: ./parts", "component", "is a folder"),
        ("component: azureml:score:1", "component", "is not a registered component"),
        ("component: azureml:score@latest", "component", "is not a registered component"),
        ("component: azureml://registries/x/components/y", "component", "windrow registry add x FOLDER"),
        ("component: [a]", "component", "a list"),
        ("type: parallel\ncomponent: {type: command}", "type", 'its component is of type "command"'),
        ("inputs:", "inputs.images", "no value"),
        ("type: command", "type", 'its component is of type "parallel"'),
        ("type:\ncomponent: {type: spark}", "type", "not supported"),
    ],
)
def test_a_component_that_cannot_be_had_is_an_error(workspace: Workspace, changes: str, key: str, said: str) -> None:
    problems = workspace.problems(workspace.job_of(changed(USE, changes)))
    assert any(problem.key == f"jobs.score.{key}" and said in problem.message for problem in problems)


def test_errors_in_a_component_file_name_that_file(workspace: Workspace) -> None:
    workspace.write("parts/score.yml", COMPONENT.replace("mini_batch_size: 4", "mini_batch_size: many"))
    (problem,) = workspace.problems(workspace.job_of(USE))
    assert problem.file.endswith("parts/score.yml")
    assert problem.line == 13
    workspace.write("parts/score.yml", "type: [")
    (problem,) = workspace.problems(workspace.job_of(USE))
    assert problem.file.endswith("parts/score.yml")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{images: {path: ./images}, coutn: 3}", 'Did you mean "count"'),
        ("{images: {path: ./images}, count: many}", "is not of type integer"),
        ("{images: {path: ./images}, flag: perhaps}", "is not of type boolean"),
    ],
)
def test_inputs_that_do_not_fit_the_declaration_are_warnings(workspace: Workspace, given: str, said: str) -> None:
    (warning,) = workspace.job(workspace.job_of(changed(USE, f"inputs: {given}"))).warnings
    assert said in warning.message


def test_values_beyond_enum_and_limits_are_warnings(workspace: Workspace) -> None:
    limits = "count: {type: integer, default: '3', min: 2, max: 4}\n  flag: {type: string, enum: [a, b]}"
    workspace.write(
        "parts/score.yml",
        COMPONENT.replace("count: {type: integer, default: '3'}\n  flag: {type: boolean, default: 'False'}", limits),
    )
    inputs = "inputs: {images: {path: ./images}, count: 9, flag: c}"
    warnings = workspace.job(workspace.job_of(changed(USE, inputs))).warnings
    assert ["max of 4" in warnings[0].message, "enum" in warnings[1].message] == [True, True]


def test_an_optional_input_outside_of_a_group_is_an_error(workspace: Workspace) -> None:
    text = COMPONENT.replace("$[[--extra ${{inputs.extra}}]]", "--extra ${{inputs.extra}}")
    workspace.write("parts/score.yml", text)
    (problem,) = workspace.problems(workspace.job_of(USE))
    assert "$[[--flag ${{inputs.extra}}]]" in problem.message


DUMPED = """
type: pipeline
experiment_name: e
inputs:
  count: 5
  images:
    mode: ro_mount
    path: azureml:./images
    type: uri_folder
jobs:
  score:
    type: parallel
    component:
      $schema: '{schema}'
      name: azureml_anonymous
      version: '1'
      type: parallel
      is_deterministic: true
      inputs:
        images: {type: uri_folder}
        count: {type: integer, default: '3'}
        flag: {type: boolean, default: 'False'}
      outputs:
        scores: {type: uri_file}
      input_data: ${{inputs.images}}
      mini_batch_size: '1'
      retry_settings: {max_retries: 9, timeout: 90}
      task: &task
        type: run_function
        code: FOLDER/src
        entry_script: score.py
        append_row_to: ${{outputs.scores}}
        program_arguments: --count ${{inputs.count}} --flag ${{inputs.flag}}
        environment:
          name: CliV2AnonymousEnvironment
          version: 0123456789abcdef
          image: some/image
          conda_file: {name: env, dependencies: [python=3.9, {pip: [pandas]}]}
    compute: azureml:cpu
    inputs:
      images: {path: '${{parent.inputs.images}}'}
      count: {path: '${{parent.inputs.count}}'}
      flag: 1
    outputs:
      scores: {mode: upload, type: uri_folder, path: '${{parent.outputs.result}}'}
    input_data: ${{inputs.images}}
    mini_batch_size: '10240'
    logging_level: INFO
    retry_settings: {timeout: 30}
    task: *task
  again:
    type: parallel
    component:
      name: azureml_anonymous
      version: '1'
      type: parallel
      inputs:
        images: {type: uri_folder}
      outputs:
        scores: {type: uri_file}
    inputs:
      images: {path: '${{parent.jobs.score.outputs.scores}}'}
    input_data: ${{inputs.images}}
    mini_batch_size: '0'
    task: *task2
"""


def test_a_dumped_pipeline_means_what_the_original_meant(workspace: Workspace) -> None:
    text = DUMPED.replace("FOLDER", str(workspace.folder))
    text = text.replace(
        "*task2", "{type: run_function, code: ./src, entry_script: score.py, append_row_to: '${{outputs.scores}}'}"
    )
    loaded = workspace.job(text)
    first, second = loaded.job.steps
    assert first.inputs == {
        "images": DataInput("uri_folder", "ro_mount", str(workspace.folder / "images")),
        "count": LiteralInput("5"),
        "flag": LiteralInput("True"),
    }
    assert first.outputs == {"scores": StepOutput("uri_file", "upload")}
    assert (first.mini_batch_size, first.max_retries, first.run_invocation_timeout_s) == (10240, 2, 30)
    # The empty pipeline output vanished from the dump, and so did the second step's.
    assert loaded.job.outputs == {"result": PipelineOutput("score", "scores")}
    assert second.outputs == {"scores": StepOutput("uri_file", "rw_mount")}
    assert (second.mini_batch_size, second.depends_on) == (None, ("score",))
    keys = {warning.key for warning in loaded.warnings}
    assert first.compute == "cpu"
    assert keys == {"jobs.score.outputs.scores"}
    assert [note.key for note in loaded.notes] == ["jobs.score.task.environment.image"]


def test_a_pipeline_output_missing_from_a_hand_written_file_is_an_error(workspace: Workspace) -> None:
    (problem,) = workspace.problems(workspace.job_of(changed(STEP, "outputs: {scores: '${{parent.outputs.result}}'}")))
    assert "no pipeline output" in problem.message


def test_a_prompt_flow_is_refused_as_that(workspace: Workspace) -> None:
    workspace.write("parts/score.yml", "inputs: {images: {type: string}}\nnodes: [{name: one}]\n")
    (problem,) = workspace.problems(workspace.job_of(USE))
    assert problem.key == "jobs.score.component"
    assert "is a prompt flow, which Windrow does not support" in problem.message
    assert "--set jobs.score=null" in problem.message


def test_an_input_without_a_value_is_told_once(workspace: Workspace) -> None:
    workspace.write("parts/hello.yml", "inputs: {word: {type: string}}\ncommand: echo ${{inputs.word}}\n")
    (problem,) = workspace.problems("type: pipeline\njobs: {hello: {type: command, component: ./parts/hello.yml}}\n")
    assert (problem.key, problem.message[:12]) == ("jobs.hello.inputs.word", "has no value")


class TestRegistries:
    """Components named by their address in a registry, which a folder mirrors."""

    @pytest.fixture
    def mirror(self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
        monkeypatch.setenv("WINDROW_REGISTRIES", str(workspace.folder / "registries.json"))
        for version in ("1.9.0", "1.10.0"):
            workspace.write(
                f"assets/batch/{version}/spec.yaml",
                f"""
                $schema: https://azuremlschemas.azureedge.net/latest/parallelComponent.schema.json
                name: "batch_score"
                version: {version}  # as published
                type: parallel
                mini_batch_size: "{version[2]}"
                inputs: {{images: {{type: uri_folder}}}}
                outputs: {{scores: {{type: uri_file}}}}
                input_data: ${{{{inputs.images}}}}
                task:
                  {{type: run_function, code: ../src, entry_script: score.py, append_row_to: "${{{{outputs.scores}}}}"}}
                """,
            )
            workspace.write(
                f"assets/batch/{version}/asset.yaml", "name: batch_score\ntype: component\nspec: spec.yaml\n"
            )
        workspace.write("assets/batch/src/score.py", "")
        workspace.write("assets/other.yml", "name: batch_sort\ntype: command\ncommand: ls\n")
        workspace.write("assets/broken.yml", b"\xff\xfe: [")
        Registries().add("azureml", str(workspace.folder / "assets"))
        return workspace

    @pytest.mark.parametrize(
        ("address", "size"),
        [
            ("batch_score/versions/1.9.0", 9),
            ("batch_score/versions/1.10.0", 1),
            ("batch_score/labels/latest", 1),
            ("batch_score", 1),
        ],
    )
    def test_its_file_is_found_by_name_and_version(self, mirror: Workspace, address: str, size: int) -> None:
        text = f"component: azureml://registries/azureml/components/{address}\ninputs: {{images: {{path: ./images}}}}\n"
        loaded = mirror.job(mirror.job_of(text))
        assert loaded.job.steps[0].mini_batch_size == size
        assert loaded.code_folders["score"] == str(mirror.folder / "assets" / "batch" / "src")

    @pytest.mark.parametrize(
        ("address", "said"),
        [
            ("azureml/components/batch_scor/versions/1.9.0", 'Did you mean "batch_score"'),
            ("azureml/components/batch_score/versions/2", "which has the versions 1.10.0, 1.9.0"),
            ("mine/components/batch_score", "windrow registry add mine FOLDER"),
            ("azureml/components/batch_score/labels/newest", "is not a registered component"),
        ],
    )
    def test_what_is_not_there_is_told(self, mirror: Workspace, address: str, said: str) -> None:
        text = f"component: azureml://registries/{address}\ninputs: {{images: {{path: ./images}}}}\n"
        (problem,) = mirror.problems(mirror.job_of(text))
        assert problem.key == "jobs.score.component" and said in problem.message
        assert problem.message[-1] in ".?" and problem.message[-2] not in ".?"

    def test_the_file_of_registries_is_kept_well(self, mirror: Workspace) -> None:
        (mirror.folder / "more").mkdir()
        Registries().add("more", str(mirror.folder / "more"))
        Registries().remove("azureml")
        assert Registries().folders == {"more": str(mirror.folder / "more")}
        with pytest.raises(UsageError, match=r"There is no registry 'azureml'\. Known: more"):
            Registries().remove("azureml")
        with pytest.raises(UsageError, match="is not a folder"):
            Registries().add("none", str(mirror.folder / "none"))
        mirror.write("registries.json", "[1]")
        with pytest.raises(UsageError, match="is damaged"):
            Registries()
        (problem,) = mirror.problems(mirror.job_of("component: azureml://registries/azureml/components/x"))
        assert "is damaged" in problem.message
