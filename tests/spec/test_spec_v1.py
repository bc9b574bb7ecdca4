"""v1 files: each comes to the same effective job as its v2 twin, and its errors name the lines and keys of v1.

Reference: docs/reference/azure-ml/parallel-job.md#version-1, #reserved-arguments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from spec_workspace import Workspace
from windrow.spec import EffectiveJob, JobFileError, LoadedJob, Problem, build_effective, load_job

CONFIG = """\
parallel_run_config:
  entry_script: score.py
  source_directory: src
  error_threshold: 10
  output_action: append_row
"""

PIPELINE = """\
pipeline:
  data_references:
    pictures: {path: ./images}
    model: {path: ./one.csv}
  parameters:
    seconds: {type: int, default: 600}
  steps:
    Score:
      type: ParallelRunStep
      name: score
      parallel_run_config: config.yml
      inputs:
        images: {source: pictures}
      outputs:
        scores: {destination: rows}
"""

TWIN = """\
type: pipeline
inputs:
  pictures: {type: uri_folder, path: ./images}
  model: {path: ./one.csv}
  seconds: {type: integer, value: 600}
jobs:
  score:
    type: parallel
    error_threshold: 10
    inputs:
      images: {path: "${{parent.inputs.pictures}}"}
    outputs:
      scores: {type: uri_folder}
    input_data: ${{inputs.images}}
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      append_row_to: ${{outputs.scores}}
"""


def with_lines(text: str, lines: str, indent: int, behind: str = "") -> str:
    """The text with further lines: at its end, or behind its line that is `behind`."""
    more = textwrap.indent(textwrap.dedent(lines), " " * indent)
    more = f"{more}\n" if more and not more.endswith("\n") else more
    if not behind:
        return text + more
    head, found, tail = text.partition(f"{behind}\n")
    assert found
    return head + found + more + tail


def load_v1(workspace: Workspace, pipeline: str = PIPELINE, config: str = CONFIG, *sets: str) -> LoadedJob:
    workspace.write("config.yml", config)
    return load_job(workspace.write("v1.yml", pipeline), sets)


def problems_of(workspace: Workspace, pipeline: str = PIPELINE, config: str = CONFIG) -> Sequence[Problem]:
    with pytest.raises(JobFileError) as caught:
        load_v1(workspace, pipeline, config)
    return caught.value.problems


def effective(loaded: LoadedJob) -> EffectiveJob:
    return build_effective(loaded, dict.fromkeys(loaded.code_folders.values(), "a" * 64))


# Lines of a ParallelRunConfig, and what the same is in a step of v2.
OPTIONS = {
    "nothing": ("", ""),
    "allowed_failed_count": ("allowed_failed_count: 4", "mini_batch_error_threshold: 4"),
    "mini_batch_size": ("mini_batch_size: 5", "mini_batch_size: 5"),
    "mini_batch_size_in_kb": ("mini_batch_size: '5'", "mini_batch_size: '5'"),
    "process_count_per_node": ("process_count_per_node: 3", "max_concurrency_per_instance: 3"),
    "node_count": ("node_count: 2", "resources: {instance_count: 2}"),
    "run_invocation_timeout": ("run_invocation_timeout: 7", "retry_settings: {timeout: 7}"),
    "run_max_try": ("run_max_try: 4", "retry_settings: {max_retries: 3}"),
    "run_max_try_once": ("run_max_try: 1", "retry_settings: {max_retries: 0}"),
    "logging_level": ("logging_level: debug", "logging_level: DEBUG"),
    "environment_variables": ("environment_variables: {A: b, N: 3}", "environment_variables: {A: b, N: 3}"),
    "compute_target_name": ("compute_target_name: cpu", "compute: cpu"),
    "description": ("description: what for", "description: what for"),
    "nulls": ("mini_batch_size: null\nprocess_count_per_node:\npartition_keys: null", ""),
}

# Lines of a ParallelRunConfig, what the same is in a step of v2, and in its task.
ENVIRONMENTS = {
    "inline": (
        "environment: {name: e, docker: {baseImage: img}, python: {condaDependencies: {dependencies: [pip, six]}},"
        " environmentVariables: {A: b}}",
        "environment_variables: {A: b}",
        "environment: {name: e, image: img, conda_file: {dependencies: [pip, six]}}",
    ),
    "variables": (
        "environment: {name: e, environmentVariables: {A: b, C: d}}\nenvironment_variables: {A: x}",
        "environment_variables: {A: x, C: d}",
        "environment: {name: e}",
    ),
    "file": ("environment: env.yml", "", "environment: {name: e, image: img}"),
    "name": ("environment_name: known", "", "environment: azureml:known@latest"),
    "folder": (
        "environment_dir_path: envdir",
        "",
        "environment: {name: e, conda_file: ./envdir/conda_dependencies.yml}",
    ),
}


@pytest.mark.parametrize(("v1", "v2"), OPTIONS.values(), ids=OPTIONS)
def test_both_spellings_of_an_option_are_the_same_job(workspace: Workspace, v1: str, v2: str) -> None:
    old = effective(load_v1(workspace, config=with_lines(CONFIG, v1, 2)))
    new = effective(workspace.job(with_lines(TWIN, v2, 4)))
    assert old.run_digest == new.run_digest
    assert old.steps == new.steps


@pytest.mark.parametrize(("v1", "v2", "task"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_both_spellings_of_an_environment_are_the_same_job(workspace: Workspace, v1: str, v2: str, task: str) -> None:
    workspace.write("env.yml", "name: e\npython: {userManagedDependencies: true}\ndocker: {baseImage: img}\n")
    workspace.write("envdir/azureml_environment.json", '{"name": "e", "python": {"baseCondaEnvironment": null}}')
    workspace.write("envdir/conda_dependencies.yml", "dependencies: [pip, six]\n")
    old = effective(load_v1(workspace, config=with_lines(CONFIG, v1, 2)))
    new = effective(workspace.job(with_lines(with_lines(TWIN, task, 6), v2, 4)))
    assert old.run_digest == new.run_digest
    assert old.steps == new.steps


ARGUMENTS = {
    "plain": ("['--a', 'b c', 3, 1.5, true]", "--a 'b c' 3 1.5 true", "", ""),
    "parameter": (
        "['--progress_update_timeout', 'parameter:wait']",
        "--progress_update_timeout ${{inputs.wait}}",
        "parameters: {wait: {source: seconds}}",
        "wait: '${{parent.inputs.seconds}}'",
    ),
    "own_parameter": ("['--n', 'parameter:n']", "--n ${{inputs.n}}", "parameters: {n: 7}", "n: 7"),
    "side_input": (
        "['--model=m', '--m', 'side_input:m']",
        "--model=m --m ${{inputs.m}}",
        "side_inputs: {m: {source: model, bind_mode: download}}",
        "m: {path: '${{parent.inputs.model}}', mode: download}",
    ),
    "output": ("['--to', 'output:scores']", "--to ${{outputs.scores}}", "", ""),
    "quotes": ("['--q', \"it's $HOME\"]", '--q "it\'s $HOME"', "", ""),
}


@pytest.mark.parametrize(("v1", "v2", "more", "inputs"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_both_spellings_of_arguments_are_the_same_job(
    workspace: Workspace, v1: str, v2: str, more: str, inputs: str
) -> None:
    pipeline = with_lines(PIPELINE, f"arguments: {v1}\n{more}\n", 6)
    twin = with_lines(TWIN, inputs, 6, '      images: {path: "${{parent.inputs.pictures}}"}')
    twin = with_lines(twin.rstrip() + "\n", f"program_arguments: >-\n  {v2}\n", 6)
    old, new = effective(load_v1(workspace, pipeline)), effective(workspace.job(twin))
    assert old.steps == new.steps


def test_what_v2_has_as_arguments_comes_as_arguments(workspace: Workspace) -> None:
    config = CONFIG + "  allowed_failed_percent: 12.5\n  append_row_file_name: my rows.txt\n"
    step = effective(load_v1(workspace, config=config)).steps[0]
    assert step.allowed_failed_percent == 12.5
    assert step.outputs["scores"].file_name == "my rows.txt"
    assert step.arguments == ("--allowed_failed_percent", "12.5", "--append_row_file_name", "my rows.txt")


def test_several_inputs_are_all_divided(workspace: Workspace) -> None:
    workspace.write("more/b.png", "")
    pipeline = PIPELINE.replace("    model: {path: ./one.csv}\n", "    second: {path: ./more}\n")
    pipeline = with_lines(pipeline, "more: {source: second}", 8, "        images: {source: pictures}").replace(
        "second}", "second}\n"
    )
    assert effective(load_v1(workspace, pipeline)).steps[0].input_data == ("images", "more")


def test_an_output_is_the_next_steps_input_whatever_their_order(workspace: Workspace) -> None:
    second = """\
        After:
          type: ParallelRunStep
          parallel_run_config:
            entry_script: score.py
            source_directory: src
            error_threshold: -1
            output_action: summary_only
          inputs: {lines: rows}
    """
    text = PIPELINE.replace("    Score:\n", textwrap.indent(textwrap.dedent(second), "    ") + "    Score:\n")
    job = effective(load_v1(workspace, text))
    assert [(step.name, step.depends_on, step.append_row_to) for step in job.steps] == [
        ("After", ("score",), None),
        ("score", (), "scores"),
    ]


def test_a_table_is_told_by_its_mltable_file(workspace: Workspace) -> None:
    pipeline = PIPELINE.replace("{path: ./images}", "{path: ./table}")
    config = CONFIG + "  mini_batch_size: 10kb\n"
    step = effective(load_v1(workspace, pipeline, config)).steps[0]
    assert step.inputs["images"].type == "mltable"
    assert step.mini_batch_size == 10240


def in_lake(workspace: Workspace, *outputs: str) -> LoadedJob:
    """A pipeline with a step for each of these outputs, in a run that has the datastore `lake`."""
    steps = [
        f"Score{number}: {{type: ParallelRunStep, name: score{number}, parallel_run_config: config.yml, "
        f"inputs: {{images: pictures}}, outputs: {{scores: {{{output}}}}}}}"
        for number, output in enumerate(outputs, start=1)
    ]
    references = "data_references: {pictures: {datastore: lake, path_on_datastore: raw/2024}}"
    workspace.write("config.yml", CONFIG)
    text = "\n    ".join([f"pipeline:\n  {references}\n  steps:", *steps])
    return load_job(workspace.write("v1.yml", text), datastores=["lake"])


def test_data_in_a_datastore_is_read_and_written_there(workspace: Workspace) -> None:
    outputs = ("destination: s1, datastore: lake, bind_mode: upload", "destination: s2, datastore: lake")
    first, second = effective(in_lake(workspace, *outputs)).steps
    assert first.inputs["images"].path == "azureml://datastores/lake/paths/raw/2024"
    assert first.outputs["scores"].path == "azureml://datastores/lake/paths/azureml/${{name}}/score1/scores"
    assert first.outputs["scores"].mode == "upload"
    assert second.outputs["scores"].path == "azureml://datastores/lake/paths/azureml/${{name}}/score2/scores"


def test_two_outputs_in_one_place_are_told_by_their_keys(workspace: Workspace) -> None:
    place = "datastore: lake, path_on_datastore: out"
    with pytest.raises(JobFileError) as caught:
        in_lake(workspace, f"destination: s1, {place}", f"destination: s2, {place}")
    (problem,) = caught.value.problems
    assert problem.key == "pipeline.steps.Score2.outputs.scores"
    assert "is also the path of pipeline.steps.Score1.outputs.scores;" in problem.message


def test_the_script_gets_what_v1_hands_on_and_it_asks_for(workspace: Workspace) -> None:
    workspace.write(
        "src/score.py", "p.add_argument('--output')\np.add_argument('--input_fds_0')\np.add_argument('--run_max_try')\n"
    )
    step = effective(load_v1(workspace)).steps[0]
    assert step.arguments == ("--output", "${{outputs.scores}}", "--input_fds_0", "images", "--run_max_try=3")


def test_paths_start_at_their_file_or_else_at_the_pipelines(workspace: Workspace) -> None:
    workspace.write("yaml/config.yml", with_lines(CONFIG, "environment: env.yml", 2))
    workspace.write("env.yml", "conda_file: {dependencies: [pip, six]}\n")
    pipeline = PIPELINE.replace("config.yml", "yaml/config.yml")
    loaded = load_v1(workspace, pipeline)
    assert loaded.code_folders == {"score": str(workspace.folder / "src")}
    environment = loaded.job.steps[0].environment
    assert environment is not None
    assert "six" in environment.requirements
    workspace.write("yaml/src/score.py", "")
    assert load_v1(workspace, pipeline).code_folders == {"score": str(workspace.folder / "yaml" / "src")}


def test_a_script_without_a_folder_is_in_its_own(workspace: Workspace) -> None:
    config = CONFIG.replace("  source_directory: src\n", "").replace("score.py", "src/score.py")
    loaded = load_v1(workspace, config=config)
    assert loaded.code_folders == {"score": str(workspace.folder / "src")}
    assert loaded.job.steps[0].entry_script == "score.py"


def test_a_lone_config_is_run_on_data_that_is_named_beside_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = workspace.write("config.yml", CONFIG)
    with pytest.raises(JobFileError, match=r"--set inputs.input.path=PATH"):
        load_job(config)
    step = effective(load_job(config, ["inputs.input.path=./images", "outputs.output.path=./out"])).steps[0]
    assert step.input_data == ("input",)
    assert step.append_row_to == "output"
    assert step.error_threshold == 10
    # As in v1, paths that lead to nothing from the file start at the working folder.
    monkeypatch.chdir(workspace.folder)
    elsewhere = workspace.write("conf/config.yml", CONFIG)
    loaded = load_job(elsewhere, [f"inputs.input.path={workspace.folder / 'images'}"])
    assert loaded.code_folders == {"parallel_run_step": str(workspace.folder / "src")}


def test_set_names_keys_of_v1_or_of_v2(workspace: Workspace) -> None:
    job = load_v1(workspace, PIPELINE, CONFIG, "jobs.score.mini_batch_size=3", "inputs.seconds=5").job
    assert job.steps[0].mini_batch_size == 3
    pipeline = with_lines(PIPELINE, "arguments: ['--n', 'parameter:n']\nparameters: {n: {source: seconds}}", 6)
    step = load_v1(workspace, pipeline, CONFIG, "pipeline.parameters.seconds.default=5").job.steps[0]
    assert getattr(step.inputs["n"], "value", "") == "5"
    lone = load_job(
        workspace.write("lone.yml", CONFIG), ["parallel_run_config.mini_batch_size=4", "inputs.input=images"]
    )
    assert lone.job.steps[0].mini_batch_size == 4
    with pytest.raises(JobFileError, match=r"--set parallel_run_config\.run_max_try=0"):
        load_job(workspace.folder / "lone.yml", ["parallel_run_config.run_max_try=0", "inputs.input=images"])


def test_errors_of_both_readers_name_the_lines_and_keys_of_v1(workspace: Workspace) -> None:
    config = CONFIG.replace("score.py", "absent.py") + "  run_max_try: 0\n"
    found = {problem.key: problem for problem in problems_of(workspace, config=config)}
    assert set(found) == {"parallel_run_config.entry_script", "parallel_run_config.run_max_try"}
    for key, line in (("entry_script", 2), ("run_max_try", 6)):
        problem = found[f"parallel_run_config.{key}"]
        assert problem.line == line
        assert problem.file.endswith("config.yml")


def test_a_key_without_effect_is_checked_as_in_v2(workspace: Workspace) -> None:
    def with_overwrite(value: str) -> str:
        return PIPELINE.replace("{path: ./images}", f"{{path: ./images, overwrite: {value}}}")

    told = [warning for warning in load_v1(workspace, with_overwrite("true")).warnings if "overwrite" in warning.key]
    assert [warning.message for warning in told] == ["true has no effect: data is read in place."]
    assert not any("overwrite" in w.key for w in load_v1(workspace, with_overwrite("false")).warnings)
    (problem,) = problems_of(workspace, with_overwrite("maybe"))
    assert problem.message == 'is "maybe"; it must be true or false.'


def test_where_a_v2_key_belongs_is_not_advice_for_v1(workspace: Workspace) -> None:
    config = with_lines(CONFIG, "retry_settings: {timeout: 5}", 2)
    (told,) = [warning for warning in load_v1(workspace, config=config).warnings if "retry" in warning.key]
    assert told.message == "is unknown here and has no effect."


def test_a_file_that_is_no_config_is_told_as_that_file(workspace: Workspace) -> None:
    (problem,) = problems_of(workspace, config="name: environment\n")
    assert "has its settings below this key" in problem.message
    assert problem.file.endswith("config.yml")


def test_a_file_of_both_spellings_is_refused(workspace: Workspace) -> None:
    (problem,) = problems_of(workspace, "type: ParallelRunStep\n" + PIPELINE)
    assert "Azure ML v1" in problem.message


def test_a_script_step_is_a_command_step(workspace: Workspace, tmp_path: Path) -> None:
    from windrow.spec.reading.context import Context
    from windrow.spec.reading.nodes import Source, to_plain
    from windrow.spec.reading.yaml_files import read_yaml
    from windrow.spec.v1.pipeline import translate

    pipeline = """\
    pipeline:
      steps:
        Prepare:
          type: PythonScriptStep
          name: Prepare data
          script_name: prep.py
          source_directory: src
          runconfig: default.runconfig
          arguments: [--to, 'output:clean', 'a "b"', 'n=parameter:n', 'parameter:n']
          parameters: {n: 3}
          outputs:
            clean: {destination: cleaned}
          allow_reuse: false
    """
    workspace.write(
        "default.runconfig",
        "target: cpu\nenvironmentVariables: {B: 1}\n"
        "environment: {docker: {baseImage: img}, environmentVariables: {A: a, B: b}}\n",
    )
    path = workspace.write("v1.yml", pipeline)
    context = Context(Source("job", "v1.yml", str(tmp_path)), embedded=True)
    root = read_yaml(path, "job", context.problems)
    assert root is not None
    tree = translate(root, (), context)
    assert not context.problems.errors
    assert tree is not None
    plain = to_plain(tree)
    assert isinstance(plain, dict)
    assert plain["jobs"] == {
        "Prepare": {
            "type": "command",
            "code": "src",
            "command": 'python prep.py --to "${{outputs.clean}}" \'a "b"\' n=parameter:n "${{inputs.n}}"',
            "environment": {"image": "img"},
            "environment_variables": {"A": "a", "B": 1, "AML_PARAMETER_n": "${{inputs.n}}"},
            "compute": "cpu",
            "inputs": {"n": 3},
            "outputs": {"clean": {"type": "uri_folder", "make_folder": False}},
            "is_deterministic": False,
        }
    }


@pytest.mark.parametrize("name", ["ab", "a" * 33, "ScoreParallel", "abc-", "1bc", "a b"])
def test_a_name_that_azure_ml_does_not_take_runs_and_is_told(workspace: Workspace, name: str) -> None:
    loaded = load_v1(workspace, PIPELINE.replace("name: score\n", f"name: {name}\n"))
    (told,) = [warning for warning in loaded.warnings if warning.key.endswith(".name")]
    assert f'is "{name}", which runs here; Azure ML takes only 3 to 32 lowercase letters' in told.message
