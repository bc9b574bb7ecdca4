"""Settings of a step: what is accepted and what it comes to, what is refused and how it is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spec_workspace import Workspace
from windrow.spec.effective.job import Rows

TASK = """
task:
  type: run_function
  code: ./src
  entry_script: score.py
"""


@pytest.mark.parametrize(
    ("changes", "setting", "value"),
    [
        ("mini_batch_size: 5", "mini_batch_size", 5),
        ("mini_batch_size: '5'", "mini_batch_size", 5),
        ("mini_batch_size: 10kb", "mini_batch_size", 10240),
        ("mini_batch_size: 2MB", "mini_batch_size", 2 * 1024**2),
        ("mini_batch_size: 1gB", "mini_batch_size", 1024**3),
        ("mini_batch_size: '0'", "mini_batch_size", None),
        ("mini_batch_size:", "mini_batch_size", None),
        ("logging_level: debug", "logging_level", "DEBUG"),
        ("logging_level: Warning", "logging_level", "WARNING"),
        ("error_threshold: '3'", "error_threshold", 3),
        ("error_threshold: 0", "error_threshold", 0),
        ("error_threshold: -1", "error_threshold", -1),
        ("mini_batch_error_threshold: 0", "mini_batch_error_threshold", 0),
        ("max_concurrency_per_instance: 3", "max_concurrency_per_instance", 3),
        ("resources: {instance_count: -1}", "instance_count", -1),
        ("resources: {max_concurrency_per_instance: 4}", "max_concurrency_per_instance", 4),
        ("retry_settings: {max_retries: 0}", "max_retries", 0),
        ("retry_settings: {timeout: 259200}", "run_invocation_timeout_s", 259200),
        ("environment_variables: {A: 1, B: true, C: '', D: 1.50, E: 2020-01-01, F: text}", "environment_variables",
         {"A": "1", "B": "true", "C": "", "D": "1.50", "E": "2020-01-01", "F": "text"}),
        ("partition_keys: []", "partition_keys", ()),
        ("type: Parallel", "name", "score"),
        ("type:", "name", "score"),
    ],
)  # fmt: skip
def test_a_setting_is_read_in_every_accepted_spelling(
    workspace: Workspace, changes: str, setting: str, value: Any
) -> None:
    assert getattr(workspace.step(changes), setting) == value


def test_defaults_are_those_of_the_reference(workspace: Workspace) -> None:
    step = workspace.step()
    assert step._replace(inputs={}, outputs={}, code_digest="", entry_script="", name="") == step.__class__(
        name="",
        code_digest="",
        entry_script="",
        inputs={},
        input_data=("images",),
        append_row_to="scores",
        mini_batch_size=None,
        instance_count=-1,
        max_concurrency_per_instance=None,
        logging_level="INFO",
        error_threshold=-1,
        mini_batch_error_threshold=-1,
        allowed_failed_percent=100.0,
        max_retries=2,
        run_invocation_timeout_s=60,
        task_overhead_timeout_s=600,
        progress_update_timeout_s=None,
        first_task_creation_timeout_s=600,
    )


@pytest.mark.parametrize(
    ("changes", "key", "said"),
    [
        ("mini_batch_size: 10 kb", "mini_batch_size", ['"10 kb"', "10 or 100kb"]),
        ("mini_batch_size: 10kbmb", "mini_batch_size", ['"10kbmb"']),
        ("mini_batch_size: -5", "mini_batch_size", ["-5"]),
        ("mini_batch_size: 1.5mb", "mini_batch_size", ['"1.5mb"']),
        ("mini_batch_size: 1tb", "mini_batch_size", ['"1tb"']),
        ("mini_batch_size: 10b", "mini_batch_size", ['"10b"']),
        ("mini_batch_size: ''", "mini_batch_size", ['""']),
        ("mini_batch_size: 1.5", "mini_batch_size", ["1.5"]),
        ("mini_batch_size: true", "mini_batch_size", ["true"]),
        ("mini_batch_size: [1]", "mini_batch_size", ["a list"]),
        ("logging_level: ERROR", "logging_level", ["WARNING, INFO, DEBUG"]),
        ("error_threshold: -2", "error_threshold", ["-2", "from -1 to 2147483647"]),
        ("error_threshold: 1.5", "error_threshold", ["1.5"]),
        ("error_threshold: 1099511627776", "error_threshold", ["1099511627776"]),
        ("error_threshold: x", "error_threshold", ['"x"']),
        ("error_threshold:", "error_threshold", ["nothing"]),
        ("mini_batch_error_threshold: -2", "mini_batch_error_threshold", ["-2"]),
        ("max_concurrency_per_instance: 0", "max_concurrency_per_instance", ["from 1"]),
        ("max_concurrency_per_instance: -1", "max_concurrency_per_instance", ["from 1"]),
        ("resources: {instance_count: 0}", "resources.instance_count", ["from 1, or -1"]),
        ("resources: {instance_count: -2}", "resources.instance_count", ["-2"]),
        ("resources: 3", "resources", ["a mapping"]),
        ("retry_settings: {timeout: 0}", "retry_settings.timeout", ["seconds from 1 to 259200"]),
        ("retry_settings: {timeout: 300000}", "retry_settings.timeout", ["300000"]),
        ("retry_settings: {max_retries: -1}", "retry_settings.max_retries", ["-1"]),
        ("environment_variables: {A: [1]}", "environment_variables.A", ["a list"]),
        ("partition_keys: [store]", "partition_keys", ["store", "images is a uri_folder", "type: mltable"]),
        ("partition_keys: [a, b, a]", "partition_keys", ["a is named more than once"]),
        ("partition_keys: ['']", "partition_keys", ["a key must have a name"]),
        ("partition_keys: '{\"store\": 1}'", "partition_keys", ["JSON text"]),
        ("partition_keys: store", "partition_keys", ["JSON text"]),
        ("input_data:", "input_data", ["missing", "${{inputs.x}}", "images"]),
        ("input_data: ${{inputs.imges}}", "input_data", ['"imges"', 'Did you mean "images"']),
        ("input_data: images", "input_data", ["${{inputs.images}}"]),
        ("input_data: ${{parent.inputs.x}}", "input_data", ["own inputs"]),
        ("task:", "task", ["missing"]),
        ("task: {code: ./src, entry_script: score.py}", "task.type", ["run_function"]),
        ("task: {type: run_function, entry_script: score.py}", "task.code", ["missing"]),
        ("task: {type: run_function, code: ./src}", "task.entry_script", ["missing"]),
        ("task: {type: model, code: ./src, entry_script: score.py}", "task.type", ["run_function"]),
        ("task: {type: command, code: ./src, entry_script: score.py}", "task.type", ["one of run_function, function."]),
        ("task: {type: run_function, code: ./srcc, entry_script: score.py}", "task.code", ["srcc", "does not exist"]),
        ("task: {type: run_function, code: ./one.csv, entry_script: score.py}", "task.code", ["is a file"]),
        ("task: {type: run_function, code: azureml:code:1, entry_script: a.py}", "task.code", ["registered asset"]),
        ("task: {type: run_function, code: ./src, entry_script: scor.py}", "task.entry_script",
             ['Did you mean "score.py"']),
        ("task: {type: run_function, code: ./src, entry_script: ../src/score.py}", "task.entry_script", ["inside"]),
        ("task: {type: run_function, code: ./src, entry_script: no.such.module}", "task.entry_script",
             ["does not exist"]),
        (TASK + "  append_row_to: ${{outputs.score}}", "task.append_row_to", ['"score"', 'Did you mean "scores"']),
        (TASK + "  append_row_to: scores", "task.append_row_to", ["${{outputs.x}}"]),
        (TASK + "  program_arguments: --a ${{inputs.nope}}", "task.program_arguments", ["nope"]),
        (TASK + "  program_arguments: --a ${{outputs.nope}}", "task.program_arguments", ["nope", "scores"]),
        (TASK + "  program_arguments: --a ${{parent.inputs.x}}", "task.program_arguments", ["of the step itself"]),
        (TASK + "  program_arguments: --a 'open", "task.program_arguments", ["quote"]),
        (TASK + "  program_arguments: $[[ --a ${{inputs.images}}", "task.program_arguments", ["]]"]),
        (TASK + "  program_arguments: --a ${{inputs.images", "task.program_arguments", ["well-formed"]),
        (TASK + "  program_arguments: [--a]", "task.program_arguments", ["a list"]),
        ("type: sweep", "type", ['"sweep"', "not supported"]),
        ("type: paralel", "type", ['"paralel"', '"parallel"']),
    ],
)  # fmt: skip
def test_a_bad_setting_is_one_error_that_names_place_value_and_what_is_allowed(
    workspace: Workspace, changes: str, key: str, said: list[str]
) -> None:
    problem = workspace.only_problem(changes)
    assert problem.key == f"jobs.score.{key}"
    assert problem.file.endswith("job.yml")
    assert problem.line > 0
    for text in said:
        assert text in problem.message


def test_all_errors_of_a_file_are_told_at_once(workspace: Workspace) -> None:
    changes = (
        "mini_batch_size: x\nerror_threshold: -9\nretry_settings: {timeout: 0, max_retries: -1}\nlogging_level: LOUD"
    )
    problems = workspace.step_problems(changes)
    assert [problem.key.rpartition(".")[2] for problem in problems] == [
        "mini_batch_size",
        "logging_level",
        "error_threshold",
        "max_retries",
        "timeout",
    ]


def test_an_error_points_at_the_value(workspace: Workspace) -> None:
    text = workspace.job_of()
    problem = workspace.problems(text.replace("entry_script: score.py", "entry_script:   other.py"))[0]
    line = text.splitlines().index("      entry_script: score.py") + 1
    assert (problem.line, problem.column) == (line, len("      entry_script:   ") + 1)


@pytest.mark.parametrize(
    ("changes", "more", "key", "said"),
    [
        ("mini_batchsize: 5", "", "jobs.score.mini_batchsize", 'Did you mean "mini_batch_size"?'),
        ("progress_update_timeout: 5", "", "jobs.score.progress_update_timeout", "write --progress_update_timeout in"),
        ("timeout: 5", "", "jobs.score.timeout", "jobs.<step>.retry_settings.timeout"),
        ("instance_count: 5", "", "jobs.score.instance_count", "jobs.<step>.resources.instance_count"),
        ("append_row_to: ${{outputs.scores}}", "", "jobs.score.append_row_to", "jobs.<step>.task.append_row_to"),
        ("retry_settings: {max_retry: 5}", "", "jobs.score.retry_settings.max_retry", 'Did you mean "max_retries"?'),
        ("", "descripton: x\n", "descripton", 'Did you mean "description"?'),
        ("", "settings: {default_compte: x}\n", "settings.default_compte", 'Did you mean "default_compute"?'),
        ("", "settings: {default_datastore: azureml:x}\n", "settings.default_datastore", "no datastore 'x'"),
        ("", "identity: {type: aml_token}\n", "identity", "not supported"),
        ("identity: {type: managed}", "", "jobs.score.identity", "not supported"),
        ("resources: {instance_type: big}", "", "jobs.score.resources.instance_type", "big"),
        (TASK + "  environment: azureml:e:1", "", "jobs.score.task.environment", "--python"),
        (TASK + "  environment: {image: x}", "", "jobs.score.task.environment.image", "--python"),
        ("mini_batch_size: 10kb", "", "jobs.score.mini_batch_size", "10240 files"),
        ("output_data: ${{outputs.scores}}", "", "jobs.score.output_data", "append_row_to"),
        ("tags: {owner: me, preview: ''}", "", "jobs.score.tags", "use the pipeline's tags"),
    ],
)  # fmt: skip
def test_what_is_unknown_or_has_no_effect_is_a_warning_by_name(
    workspace: Workspace, changes: str, more: str, key: str, said: str
) -> None:
    (warning,) = workspace.loaded(changes, more=more).warnings
    assert warning.key == key
    assert said in warning.message
    assert warning.line > 0


def test_an_image_beside_its_libraries_is_a_note(workspace: Workspace) -> None:
    loaded = workspace.loaded(TASK + "  environment: {image: x, conda_file: {dependencies: []}}")
    (note,) = loaded.notes
    assert note.key == "jobs.score.task.environment.image" and "workers do not run in containers" in note.message
    assert not loaded.warnings and not loaded.job.warnings


def test_the_smallest_job_has_no_warning_and_false_settings_are_no_news(workspace: Workspace) -> None:
    assert not workspace.loaded().warnings
    assert not workspace.loaded(more="settings: {continue_on_step_failure: false, force_rerun: true}\n").warnings


def test_warnings_travel_with_the_job(workspace: Workspace) -> None:
    loaded = workspace.loaded("identity: {type: managed}")
    assert loaded.job.warnings == (str(loaded.warnings[0]),)


def test_origins_tell_where_each_setting_comes_from(workspace: Workspace) -> None:
    changes = f"mini_batch_size: 7\n{TASK}  program_arguments: --error_threshold 4"
    loaded = workspace.loaded(changes, "jobs.score.retry_settings.timeout=9")
    kinds = {name.removeprefix("jobs.score."): origin.kind for name, origin in loaded.origins.items()}
    assert kinds["mini_batch_size"] == "job"
    assert kinds["error_threshold"] == "argument"
    assert kinds["run_invocation_timeout_s"] == "--set"
    assert kinds["max_retries"] == "default"
    assert "job.yml:" in loaded.origins["jobs.score.mini_batch_size"].where


def test_origins_tell_where_data_code_and_fallbacks_are_named(workspace: Workspace) -> None:
    loaded = workspace.loaded(more="settings: {default_compute: azureml:pool}\n")
    lines = (workspace.folder / "job.yml").read_text().splitlines()

    def line_of(key: str) -> str:
        return lines[int(loaded.origins[key].where.rpartition(":")[2]) - 1]

    assert "default_compute" in line_of("jobs.score.compute")
    assert "code:" in line_of("jobs.score.code")
    assert "entry_script:" in line_of("jobs.score.entry_script")
    assert loaded.origins["jobs.score.inputs.images"].kind == "job"
    (code,) = loaded.codes
    assert (code.step, code.entry_script) == ("score", "score.py")
    assert "code:" in lines[code.folder_place.line - 1]


@pytest.mark.parametrize("script", ["score.py", "./score.py", "score", "pkg/main.py", "pkg.main", "pkg"])
def test_an_entry_script_is_a_file_or_a_dotted_module(workspace: Workspace, script: str) -> None:
    workspace.write("src/pkg/main.py", "")
    workspace.write("src/pkg/__init__.py", "")
    changes = f"task: {{type: run_function, code: src, entry_script: {script}}}"
    assert workspace.step(changes).entry_script == script.removeprefix("./")


def test_a_file_of_the_same_name_does_not_hide_a_module(workspace: Workspace) -> None:
    workspace.write("src/score", "what the build makes")
    assert workspace.step("task: {type: run_function, code: src, entry_script: score}").entry_script == "score"
    workspace.write("src/other", "#!/bin/sh")
    problem = workspace.only_problem("task: {type: run_function, code: src, entry_script: other}")
    assert "is not Python" in problem.message


class TestSettingsFile:
    """`parallel_run_step.settings.json` in the code folder."""

    @pytest.mark.parametrize(
        ("text", "keywords", "header"),
        [
            ('{"append_row": {"pandas.DataFrame.to_csv": {"sep": ",", "index": true}}}', {"sep": ",", "index": True},
             False),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"header": true}}}', {}, True),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"header": false}}}', {}, False),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"header": ["a"]}}}', {"header": ["a"]}, True),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"compression": "infer", "encoding": "latin-1"}}}',
             {"encoding": "latin-1"}, False),
            ("\ufeff{}", {}, False),
        ],
    )  # fmt: skip
    def test_sets_how_dataframes_are_written(
        self, workspace: Workspace, text: str, keywords: dict[str, Any], header: bool
    ) -> None:
        workspace.write("src/parallel_run_step.settings.json", text)
        assert workspace.step().rows == Rows(keywords, header)

    @pytest.mark.parametrize(
        ("text", "line", "said"),
        [
            ('{"append_row":\n  {]}', 2, "not valid JSON"),
            (b"\xff\xfe\xff", 0, "UTF-8"),
            ("[]", 0, "has to be a mapping"),
            ('{"append_row": {"pandas.DataFrame.to_csv": [1]}}', 0, "has to be a mapping"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"path_or_buf": "x"}}}', 0, "writes the file itself"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"sepp": ","}}}', 0, 'Did you mean "sep"?'),
            pytest.param(b"{}" + b" " * 1024 * 1024, 0, "is larger than 1 MiB", id="too large"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"encoding": "utf-9"}}}', 0, "'utf-9' is not a text encoding"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"encoding": 8}}}', 0, "8 is not a text encoding"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"na_rep": NaN}}}', 0, "NaN or an infinite number"),
            ('{"append_row": {"pandas.DataFrame.to_csv": {"chunksize": 1e400}}}', 0, "NaN or an infinite number"),
            ("[" * 100_000, 0, "JSON"),
        ],
    )
    def test_errors_name_the_file(self, workspace: Workspace, text: str | bytes, line: int, said: str) -> None:
        workspace.write("src/parallel_run_step.settings.json", text)
        problem = workspace.only_problem("")
        assert problem.file.endswith("parallel_run_step.settings.json")
        assert problem.line == line
        assert said in problem.message

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("chunksize", -1, "is -1; it must be a whole number from 1"),
            ("chunksize", "2", 'is "2"; it must be a whole number from 1'),
            ("sep", ",,", 'is ",,"; it must be one character'),
            ("sep", None, "is null; it must be one character"),
            ("quotechar", "", 'is ""; it must be one character'),
            ("escapechar", True, "is true; it must be one character"),
            ("quoting", "all", "0 quotes where necessary"),
            ("quoting", 6, "0 quotes where necessary"),
            ("lineterminator", 10, "is 10; it must be text"),
        ],
    )
    def test_what_no_dataframe_can_be_written_with_is_an_error(
        self, workspace: Workspace, name: str, value: object, said: str
    ) -> None:
        settings = {"append_row": {"pandas.DataFrame.to_csv": {name: value}}}
        workspace.write("src/parallel_run_step.settings.json", json.dumps(settings))
        problem = workspace.only_problem("")
        assert problem.key == f"append_row.pandas.DataFrame.to_csv.{name}"
        assert said in problem.message

    def test_what_pandas_takes_as_unset_is_none(self, workspace: Workspace) -> None:
        unset = {"chunksize": 0, "escapechar": None, "lineterminator": None, "quotechar": None, "quoting": None}
        settings = {"append_row": {"pandas.DataFrame.to_csv": unset}}
        workspace.write("src/parallel_run_step.settings.json", json.dumps(settings))
        del unset["chunksize"]  # by which later ones divide
        assert workspace.step().rows == Rows(unset, False)

    def test_unknown_keys_are_warnings(self, workspace: Workspace) -> None:
        workspace.write("src/parallel_run_step.settings.json", '{"append_rows": {}}')
        (warning,) = workspace.loaded().warnings
        assert 'Did you mean "append_row"?' in warning.message

    def test_the_argument_wins(self, workspace: Workspace) -> None:
        workspace.write(
            "src/parallel_run_step.settings.json", '{"append_row": {"pandas.DataFrame.to_csv": {"header": ["a"]}}}'
        )
        assert workspace.step(TASK + "  program_arguments: --append_row_dataframe_header False").rows == Rows({}, False)
