"""Inputs and outputs: bindings between pipeline and steps, literals, paths, and circles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import DataInput, LiteralInput, OutputInput, PipelineOutput, StepOutput, build_effective


def two(workspace: Workspace, first: str = "", second: str = "", more: str = "") -> str:
    """A job file of the steps `first` and `second`."""
    text = workspace.job_of(changed(STEP, first), more, "first")
    return text + workspace.job_of(changed(STEP, second), "", "second").partition("jobs:\n")[2]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hello", "hello"),
        ("'1.10'", "1.10"),
        ("1.10", "1.10"),
        ("1e-3", "1e-3"),
        ("1_000", "1000"),
        ("true", "True"),
        ("no", "False"),
        ("2020-01-02", "2020-01-02"),
        ("a b", "a b"),
        ("{type: integer, value: 3}", "3"),
        ("{type: boolean, default: 1}", "True"),
        ("{type: string, path: azureml:x:1}", "azureml:x:1"),
        ("${{parent.inputs.text}}", "from above"),
        ("{path: '${{parent.inputs.text}}'}", "from above"),
        ("x-${{parent.inputs.text}}-y", "x-from above-y"),
        ("${{ parent.inputs.text }}", "from above"),
    ],
)
def test_literals_are_text_as_the_script_gets_it(workspace: Workspace, given: str, expected: str) -> None:
    changes = f"inputs:\n  images: {{path: ./images}}\n  x: {given}"
    step = workspace.step(changes, more="inputs: {text: from above}\n")
    assert step.inputs["x"] == LiteralInput(expected)


@pytest.mark.parametrize(
    "spelling", ["./images", "images", "azureml:./images", "azureml:images", "file:./images", "{abs}", "azureml:{abs}",
                 "file://{abs}", "file:{abs}", "azureml:file://{abs}", "./images/", "images/../images",
                 "file://localhost{abs}", "FILE://{abs}"],
)  # fmt: skip
def test_a_local_path_is_read_in_every_spelling(workspace: Workspace, spelling: str) -> None:
    path = str(workspace.folder / "images")
    spelling = spelling.replace("{abs}", path)
    step = workspace.step(f"inputs: {{images: {{type: uri_folder, path: '{spelling}'}}}}")
    assert step.inputs["images"] == DataInput("uri_folder", "ro_mount", path)


def test_a_file_uri_is_percent_decoded(workspace: Workspace) -> None:
    (workspace.folder / "my images").mkdir()
    step = workspace.step(f"inputs: {{images: {{path: 'file://{workspace.folder}/my%20images'}}}}")
    assert step.inputs["images"] == DataInput("uri_folder", "ro_mount", str(workspace.folder / "my images"))


@pytest.mark.parametrize(
    ("given", "key", "said"),
    [
        ("{type: uri_folder, path: ./nope}", ".path", "does not exist"),
        ("{type: uri_folder, path: './*.png'}", ".path", "MLTable"),
        ("{type: uri_folder, path: ./one.csv}", ".path", "is a file"),
        ("{type: uri_file, path: ./images}", ".path", "is a folder"),
        ("{type: mltable, path: ./nope}", ".path", "does not exist"),
        ("{type: uri_folder, path: file://images}", ".path", 'names the host "images"'),
        ("{type: uri_folder, path: file://images/x}", ".path", 'names the host "images"'),
        ("{type: uri_folder, path: azureml:data:1}", ".path", "registry"),
        ("{type: uri_folder, path: azureml:data@latest}", ".path", "registry"),
        ("{type: uri_folder, path: 'azureml://datastores/x/paths/y'}", ".path", "datastores"),
        ("{type: uri_folder, path: 's3://bucket/a//x'}", ".path", "empty part"),
        ("{type: uri_folder, path: 's3:///x'}", ".path", "has no bucket"),
        ("{type: uri_file, path: 's3://bucket/x/'}", ".path", "is a folder"),
        ("{type: uri_folder, path: 'azureml:https://x/y'}", ".path", "cannot be listed"),
        ("{type: uri_file, path: 'https://x/y?sig=abc'}", ".path", "query"),
        ("{type: uri_file, path: 'https://user:secret@x/y'}", ".path", "credentials"),
        ("{type: uri_folder, path: 'abfss://x/y'}", ".path", "container@account"),
        ("{type: uri_folder, path: 'adl://x/y'}", ".path", "cannot reach"),
        ("{type: uri_folder, path: ''}", ".path", "not a path"),
        ("{type: uri_folder, path: [a]}", "", "a list"),
        ("{type: uri_directory, path: ./images}", ".type", "uri_folder"),
        ("{type: uri_folder, path: ./images, mode: upload}", ".mode", "ro_mount"),
        ("{type: uri_folder, path: ./images, mode: eval_mount}", ".mode", "mltable"),
        ("{type: uri_folder, path: 's3://bucket/images', mode: rw_mount}", ".mode", "is in storage"),
        ("[a]", "", "a list"),
        ("", "", "no value"),
        ("{type: uri_folder}", "", "no value"),
        ("${{parent.inputs.imges}}", "", "no pipeline input"),
        ("${{inputs.images}}", "", "${{parent.inputs.images}}"),
        ("${{parent.jobs.nobody.outputs.x}}", "", "no step"),
        ("${{parent.outputs.x}}", "", "is not written by any step"),
        ("${{parent.jobs.score.outputs.nope}}", "", "Available: scores"),
        ("${{parent.jobs.score.inputs.nope}}", "", "Available: images"),
        ("${{parent.jobs.score.inputs.images}}", "", "refers to itself"),
        ("${{whatever}}", "", "not a known expression"),
        ("${{name}}", "", "cannot be used here"),
        ("x${{parent.inputs.data}}", "", "literal inputs"),
        ("${{parent.inputs.data", "", "well-formed"),
    ],
)  # fmt: skip
def test_a_bad_input_is_an_error_at_its_place(workspace: Workspace, given: str, key: str, said: str) -> None:
    more = "inputs: {data: {path: ./images}}\n"
    problems = workspace.step_problems(f"inputs:\n  images: {given}", more=more)
    assert any(problem.key == f"jobs.score.inputs.images{key}" and said in problem.message for problem in problems)
    assert len(problems) == 1 or not given or "type: uri_folder}" in given


def test_what_is_uploaded_cannot_be_written_to(workspace: Workspace) -> None:
    step = changed(STEP, "inputs:\n  images: {type: uri_folder, path: ./images, mode: rw_mount}")
    assert workspace.job(workspace.job_of(step)).job.steps[0].inputs["images"].mode == "rw_mount"  # type: ignore[union-attr]
    (problem,) = workspace.problems(workspace.job_of(step), embedded=False)
    assert problem.key == "jobs.score.inputs.images.mode" and "nodes read a copy of it" in problem.message


def test_an_untyped_path_is_what_lies_there(workspace: Workspace) -> None:
    step = workspace.step("inputs: {images: {path: ./one.csv}, model: {type: mlflow_model, path: ./images}}")
    assert step.inputs["images"] == DataInput("uri_file", "ro_mount", str(workspace.folder / "one.csv"))
    assert step.inputs["model"] == DataInput("uri_folder", "ro_mount", str(workspace.folder / "images"))


@pytest.mark.parametrize("where", ["input", "entry"])
@pytest.mark.parametrize(
    ("name", "said"),
    [("gone", "does not exist"), ("self", "cannot be accessed: Too many levels"), ("pipe", "is neither a file nor")],
)
def test_what_is_wrong_with_a_path_is_told_as_it_is(workspace: Workspace, where: str, name: str, said: str) -> None:
    (workspace.folder / "self").symlink_to("self")
    os.mkfifo(workspace.folder / "pipe")
    workspace.write("t/MLTable", f"paths: [{{file: ../{name}}}]\n")
    given = f"{{path: ./{name}}}" if where == "input" else "{type: mltable, path: ./t}"
    assert said in workspace.only_problem(f"inputs: {{images: {given}}}").message


@pytest.mark.parametrize("path", ["./table", "./one.csv", "./tables"])
def test_a_table_is_a_folder_or_a_plain_file(workspace: Workspace, path: str) -> None:
    workspace.write("tables/sub/one.csv", "a\n1\n")
    step = workspace.step(f"inputs: {{images: {{type: mltable, path: {path}, mode: direct}}}}")
    assert step.inputs["images"] == DataInput("mltable", "direct", str(workspace.folder / path))


@pytest.mark.parametrize("binding", ["${{parent.inputs.d}}", "{path: '${{parent.inputs.d}}'}"])
def test_data_is_bound_with_its_type_and_mode(workspace: Workspace, binding: str) -> None:
    more = "inputs: {d: {type: mltable, path: ./table, mode: eval_mount}}\n"
    step = workspace.step(f"inputs:\n  images: {binding}", more=more)
    assert step.inputs["images"] == DataInput("mltable", "eval_mount", str(workspace.folder / "table"))


def test_the_reader_decides_how_bound_data_is_read_but_a_file_stays_a_file(workspace: Workspace) -> None:
    more = "inputs: {t: {type: mltable, path: ./table}, f: {type: uri_file, path: ./one.csv}}\n"
    changes = """
    inputs:
      images: {type: uri_folder, path: '${{parent.inputs.t}}', mode: download}
      other: {type: uri_folder, path: '${{parent.inputs.f}}'}
    """
    step = workspace.step(changes, more=more)
    assert step.inputs["images"] == DataInput("uri_folder", "download", str(workspace.folder / "table"))
    assert step.inputs["other"] == DataInput("uri_file", "ro_mount", str(workspace.folder / "one.csv"))


def test_a_binding_to_an_output_orders_the_steps(workspace: Workspace) -> None:
    bound = "inputs:\n  images: {path: '${{parent.jobs.first.outputs.made}}', type: uri_folder, mode: direct}"
    first, second = workspace.job(two(workspace, "outputs: {made: {type: mltable}, scores: }", bound)).job.steps
    assert (first.depends_on, second.depends_on) == ((), ("first",))
    assert second.inputs["images"] == OutputInput("first", "made", "uri_folder", "direct")


def test_outputs_are_followed_through_the_pipeline_and_through_inputs_of_other_steps(workspace: Workspace) -> None:
    more = "outputs: {total: }\n"
    through = "inputs:\n  images: ${{parent.outputs.total}}\n  same: ${{parent.jobs.first.inputs.images}}"
    text = two(workspace, "outputs: {scores: '${{parent.outputs.total}}'}", through, more)
    job = workspace.job(text).job
    assert job.steps[1].inputs["images"] == OutputInput("first", "scores", "uri_folder", "ro_mount")
    assert job.steps[1].inputs["same"] == job.steps[0].inputs["images"]
    assert job.outputs == {"total": PipelineOutput("first", "scores")}


def test_a_circle_is_an_error_that_shows_it(workspace: Workspace) -> None:
    (problem,) = workspace.problems(
        two(
            workspace,
            "inputs:\n  images: ${{parent.jobs.second.outputs.scores}}",
            "inputs:\n  images: ${{parent.jobs.first.outputs.scores}}",
        )
    )
    assert "first -> second -> first" in problem.message


def test_inputs_that_refer_to_each_other_are_an_error(workspace: Workspace) -> None:
    problems = workspace.problems(
        two(
            workspace,
            "inputs:\n  images: ${{parent.jobs.second.inputs.images}}",
            "inputs:\n  images: ${{parent.jobs.first.inputs.images}}",
        )
    )
    assert [problem.message for problem in problems] == ["refers to itself; give it a value."]


def test_what_is_bound_to_a_step_that_cannot_be_read_gives_no_further_errors(workspace: Workspace) -> None:
    bound = "inputs:\n  images: ${{parent.jobs.first.outputs.png}}"
    (problem,) = workspace.problems(two(workspace, "type: sweep", bound))
    assert problem.key == "jobs.first.type"


def test_only_data_can_be_divided(workspace: Workspace) -> None:
    assert "cannot be divided" in workspace.only_problem("inputs: {images: ./images}").message
    assert "optional" in workspace.only_problem("inputs: {images: {type: uri_folder, optional: true}}").message


def test_settings_may_refer_to_literals_of_step_and_pipeline(workspace: Workspace) -> None:
    changes = """
    inputs: {images: {path: ./images}, n: 3, flag: '${{parent.inputs.keys}}'}
    mini_batch_size: ${{inputs.n}}
    max_concurrency_per_instance: ${{parent.inputs.many}}
    retry_settings: {timeout: '${{inputs.n}}0', max_retries: '${{ inputs.n }}'}
    environment_variables: {N: 'n=${{inputs.n}}'}
    partition_keys: ${{inputs.flag}}
    """
    step = workspace.step(changes, more="inputs: {many: 4, keys: '[]'}\n")
    assert (step.mini_batch_size, step.max_concurrency_per_instance, step.max_retries) == (3, 4, 3)
    assert step.run_invocation_timeout_s == 30
    assert step.environment_variables == {"N": "n=3"}


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("${{inputs.images}}", "is data"),
        ("${{inputs.images}}", "task.program_arguments"),
        ("${{inputs.nope}}", "no input"),
        ("${{outputs.scores}}", "literal inputs only"),
        ("${{parent.inputs.word}}", 'that is "word"'),
    ],
)
def test_a_setting_that_refers_to_something_else_says_so(workspace: Workspace, expression: str, said: str) -> None:
    problem = workspace.only_problem(f"mini_batch_size: {expression}", more="inputs: {word: word}\n")
    assert expression in problem.message
    assert said in problem.message


class TestOutputs:
    @pytest.mark.parametrize(
        ("given", "more", "expected"),
        [
            ("", "", StepOutput("uri_folder", "rw_mount")),
            ("{type: uri_file}", "", StepOutput("uri_file", "rw_mount")),
            ("{type: uri_file, mode: upload, path: ./out/rows.csv}", "",
             StepOutput("uri_file", "upload", "{}/out/rows.csv")),
            ("./out", "", StepOutput("uri_folder", "rw_mount", "{}/out")),
            ("{path: './${{name}}/x'}", "", StepOutput("uri_folder", "rw_mount", "{}/${{name}}/x")),
            ("{path: './${{name}}/x'}", "name: me\n", StepOutput("uri_folder", "rw_mount", "{}/me/x")),
            ("{type: uri_file, path: 'azureml://datastores/${{default_datastore}}/paths/${{name}}/rows.csv'}", "",
             StepOutput("uri_file", "rw_mount", None, "rows.csv")),
            ("{type: uri_file, path: 'azureml://datastores/${{default_datastore}}/paths/${{name}}.csv'}", "",
             StepOutput("uri_file", "rw_mount", None, "${{name}}.csv")),
            ("{type: uri_folder, path: 'azureml://datastores/${{default_datastore}}/paths/${{name}}/x'}", "",
             StepOutput("uri_folder", "rw_mount")),
            ("${{parent.outputs.o}}", "outputs: {o: {type: uri_file, path: ./o.csv, mode: upload}}\n",
             StepOutput("uri_file", "upload", "{}/o.csv")),
            ("{type: uri_folder, path: '${{parent.outputs.o}}'}", "outputs: {o: {type: uri_file}}\n",
             StepOutput("uri_file", "rw_mount")),
            ("{type: mltable, path: '${{parent.outputs.o}}'}", "outputs: {o: {type: uri_folder}}\n",
             StepOutput("mltable", "rw_mount")),
        ],
    )  # fmt: skip
    def test_where_and_what_an_output_is(
        self, workspace: Workspace, given: str, more: str, expected: StepOutput
    ) -> None:
        step = workspace.step(f"outputs:\n  scores: {given}", more=more)
        if expected.path:
            expected = expected._replace(path=expected.path.replace("{}", str(workspace.folder), 1))
        assert step.outputs["scores"] == expected

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("{type: uri_file, path: ./src}", "is a folder"),
            ("{type: uri_file, path: ./out/}", "is a folder"),
            ("{type: uri_folder, path: ./one.csv}", "is a file"),
            ("{type: uri_file, path: ./one.csv/x/y}", "is a file, not a folder"),
            ("{path: 'https://b/x'}", "web server"),
            ("{path: 'ftp://b/x'}", "cannot write"),
            ("{path: azureml:asset:1}", "asset"),
            ("{path: './${{default_datastore}}/x'}", "not a path of an output"),
            ("{path: './${{inputs.x}}/x'}", "${{name}}"),
            ("{type: csv}", "uri_folder"),
            ("{mode: ro_mount}", "rw_mount"),
            ("${{parent.outputs.nope}}", "no pipeline output"),
            ("${{outputs.nope}}", "${{parent.outputs.x}}"),
            ("${{parent.inputs.nope}}", "${{parent.outputs.x}}"),
            ("[a]", "a list"),
            ("{path: ./images}", "is also read"),
        ],
    )
    def test_a_bad_output_is_an_error(self, workspace: Workspace, given: str, said: str) -> None:
        problem = workspace.only_problem(f"outputs:\n  scores: {given}")
        assert problem.key.startswith("jobs.score.outputs.scores")
        assert said in problem.message

    def test_two_outputs_in_one_place_are_an_error(self, workspace: Workspace) -> None:
        problem = workspace.only_problem("outputs: {scores: ./out, other: {path: out/}}")
        assert "jobs.score.outputs.scores" in problem.message

    def test_two_outputs_bound_to_one_are_an_error(self, workspace: Workspace) -> None:
        problem = workspace.only_problem(
            "outputs: {scores: '${{parent.outputs.o}}', other: '${{parent.outputs.o}}'}", more="outputs: {o: }\n"
        )
        assert "already bound to scores" in problem.message

    def test_an_output_inside_an_input_is_a_warning(self, workspace: Workspace) -> None:
        (warning,) = workspace.loaded("outputs: {scores: ./images/out}").warnings
        assert "inside a folder that is read" in warning.message

    def test_a_pipeline_output_that_nobody_writes_is_a_warning(self, workspace: Workspace) -> None:
        (warning,) = workspace.loaded(more="outputs: {o: }\n").warnings
        assert warning.key == "outputs.o"

    def test_a_named_datastore_is_a_warning(self, workspace: Workspace) -> None:
        (warning,) = workspace.loaded("outputs: {scores: {path: 'azureml://datastores/mine/paths/x'}}").warnings
        assert "default place" in warning.message

    def test_append_row_file_name_names_the_file_in_a_folder(self, workspace: Workspace) -> None:
        changes = """
        outputs: {scores: ./out}
        task:
          type: run_function
          code: ./src
          entry_script: score.py
          append_row_to: ${{outputs.scores}}
          program_arguments: --append_row_file_name rows.jsonl
        """
        assert workspace.step(changes).outputs["scores"].file_name == "rows.jsonl"

    @pytest.mark.parametrize(("path", "warnings"), [("./out/scores.csv", 1), ("./out/rows.jsonl", 0)])
    def test_append_row_file_name_does_not_rename_a_file_of_its_own(
        self, workspace: Workspace, path: str, warnings: int
    ) -> None:
        changes = f"""
        outputs: {{scores: {{type: uri_file, path: {path}}}}}
        task:
          type: run_function
          code: ./src
          entry_script: score.py
          append_row_to: ${{{{outputs.scores}}}}
          program_arguments: --append_row_file_name rows.jsonl
        """
        said = [warning.message for warning in workspace.loaded(changes).warnings]
        assert len(said) == warnings
        assert all('has no effect: the output is the file "scores.csv"' in text for text in said)


def test_a_served_master_checks_absolute_paths_itself(workspace: Workspace) -> None:
    text = workspace.job_of(changed(STEP, "inputs: {images: {type: uri_folder, path: /data/not/here}}"))
    (problem,) = workspace.problems(text)
    assert "does not exist" in problem.message
    job = workspace.job(text, embedded=False).job
    assert job.steps[0].inputs["images"] == DataInput("uri_folder", "ro_mount", "/data/not/here")
    relative = workspace.job_of(changed(STEP, "inputs: {images: {type: uri_folder, path: ./not/here}}"))
    assert workspace.problems(relative, embedded=False)


def test_what_is_at_a_relative_path_is_known_as_this_machines_own(workspace: Workspace) -> None:
    text = workspace.job_of(
        changed(
            STEP,
            """
            inputs:
              images: ${{parent.inputs.pictures}}
              own: {type: uri_file, path: "file:one.csv"}
              masters: {type: uri_folder, path: /data}
              url: {type: uri_folder, path: "file:///data"}
              named: {type: uri_folder, path: "${{parent.inputs.place}}"}
              text: ./images
            outputs: {scores: {type: uri_file, path: out.txt}, other: {path: /data/out}, none: }
            """,
        ),
        "inputs: {pictures: {type: uri_folder, path: ./images}, place: ./images}\n",
    )
    loaded = workspace.job(text, embedded=False)
    assert loaded.own_inputs == {
        ("score", "images"): "inputs.pictures",
        ("score", "own"): "jobs.score.inputs.own",
        ("score", "named"): "jobs.score.inputs.named",
    }
    assert loaded.own_outputs == {("score", "scores"): "jobs.score.outputs.scores"}
    digests = dict.fromkeys(loaded.code_folders.values(), "a" * 64)
    (step,) = build_effective(loaded, digests, data_paths={("score", "own"): "/store/uploads/x/one.csv"}).steps
    assert step.inputs["own"] == DataInput("uri_file", "ro_mount", "/store/uploads/x/one.csv")
    assert step.inputs["images"] == loaded.job.steps[0].inputs["images"]


def test_paths_with_dots_are_resolved_as_the_file_system_does(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    step = workspace.step("inputs: {images: {path: link/../data}}")
    assert step.inputs["images"] == DataInput("uri_folder", "ro_mount", str(tmp_path / "elsewhere" / "data"))
