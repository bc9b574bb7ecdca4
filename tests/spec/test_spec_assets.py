"""Names of data assets and models in a job file: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import DataInput, EffectiveJob, JobFileError, LoadedJob, StepOutput, load_job
from windrow.spec.assets.asset_file import load_asset_file
from windrow.spec.naming.assets import AssetLookup, FoundAsset


def registry(workspace: Workspace) -> AssetLookup:
    folder = workspace.folder
    found = [
        FoundAsset("data", "flowers", "1", "uri_folder", str(folder / "images"), False),
        FoundAsset("data", "flowers", "2", "uri_folder", "s3://bucket/flowers", False),
        FoundAsset("data", "one", "1", "uri_file", str(folder / "one.csv"), True),
        FoundAsset("data", "table", "1", "mltable", str(folder / "table"), False),
        FoundAsset("data", "gone", "1", "uri_folder", str(folder / "gone"), False),
        FoundAsset("model", "net", "3", "custom_model", str(folder / "one.csv"), True),
        FoundAsset("model", "flowers", "1", "mlflow_model", str(folder / "src"), False),
    ]

    def find(kind: str, name: str, version: str | None) -> FoundAsset | None:
        fitting = [asset for asset in found if (asset.kind, asset.name) == (kind, name)]
        return next((asset for asset in reversed(fitting) if version in (None, asset.version)), None)

    return AssetLookup(
        find,
        lambda kind: {asset.name for asset in found if asset.kind == kind},
        lambda kind, name: [asset.version for asset in found if (asset.kind, asset.name) == (kind, name)],
        lambda asset: asset.path,
    )


def load(workspace: Workspace, inputs: str, more: str = "", step: str = STEP, *, embedded: bool = True) -> LoadedJob:
    file = workspace.write("job.yml", workspace.job_of(changed(step, f"inputs: {inputs}"), more))
    return load_job(file, embedded=embedded, assets=lambda: registry(workspace))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{path: azureml:flowers:1}", ("uri_folder", "ro_mount", "images", "flowers:1")),
        ("{path: azureml:flowers@latest}", ("uri_folder", "ro_mount", "s3://bucket/flowers", "flowers:2")),
        ("{type: uri_folder, path: azureml:flowers:1, mode: download}", ("uri_folder", "download", "images",
                                                                         "flowers:1")),
        ("{path: azureml:one:1}", ("uri_file", "ro_mount", "one.csv", "one:1")),
        ("{path: azureml:table@latest}", ("mltable", "ro_mount", "table", "table:1")),
        ("{type: mltable, path: azureml:table:1, mode: direct}", ("mltable", "direct", "table", "table:1")),
        ("{type: custom_model, path: azureml:net:3}", ("uri_file", "ro_mount", "one.csv", "net:3")),
        ("{path: azureml:net@latest}", ("uri_file", "ro_mount", "one.csv", "net:3")),
        ("{type: mlflow_model, path: azureml:flowers:1}", ("uri_folder", "ro_mount", "src", "flowers:1")),
    ],
)  # fmt: skip
def test_an_asset_is_what_was_registered(
    workspace: Workspace, written: str, expected: tuple[str, str, str, str]
) -> None:
    job = load(workspace, f"{{images: {{type: uri_folder, path: ./images}}, x: {written}}}").job
    kind, mode, place, asset = expected
    path = place if "://" in place else str(workspace.folder / place)
    assert job.steps[0].inputs["x"] == DataInput(kind, mode, path, f"azureml:{asset}")


def test_an_asset_can_be_divided_and_bound(workspace: Workspace) -> None:
    loaded = load(workspace, "{images: '${{parent.inputs.all}}'}", "inputs: {all: {path: 'azureml:flowers@latest'}}\n")
    assert loaded.job.steps[0].inputs["images"] == DataInput(
        "uri_folder", "ro_mount", "s3://bucket/flowers", "azureml:flowers:2"
    )
    # The master's own data, never this machine's to upload.
    assert loaded.own_inputs == {}


def test_which_version_it_was_is_part_of_the_run(workspace: Workspace) -> None:
    digests = set()
    for path in ("azureml:flowers:1", "./images", "azureml:flowers@latest", "azureml:flowers:2"):
        job = workspace.effective(load(workspace, f"{{images: {{type: uri_folder, path: '{path}'}}}}"))
        assert EffectiveJob.from_json(job.to_json()) == job
        digests.add(job.run_digest)
    assert len(digests) == 3
    assert '"asset":"azureml:flowers:2"' in job.to_json()
    plain = workspace.effective(load(workspace, "{images: {type: uri_folder, path: ./images}}"))
    assert '"asset' not in plain.to_json()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("azureml:flowrs:1", ['"azureml:flowrs:1" is not registered', 'Did you mean "flowers"?',
                              "windrow data create --name flowrs --type uri_folder --path PATH"]),
        ("azureml:flowrs:5", ["--name flowrs --version 5"]),
        ("azureml:flowers:9", ["the versions of flowers are: 1, 2"]),
        ("azureml:flowers@newest", ["flowers@latest"]),
        ("azureml:gone:1", ["does not exist"]),
        ("azureml://registries/azureml/data/x/versions/1", ["windrow data create", "azureml:<name>:<version>"]),
        ("azureml://locations/westeurope/workspaces/w/data/x/versions/1", ["cannot reach"]),
        ("azureml://subscriptions/s/resourcegroups/r/workspaces/w/models/x/versions/1", ["windrow model create"]),
    ],
)  # fmt: skip
def test_what_is_not_there_is_refused_with_what_to_do(workspace: Workspace, path: str, words: list[str]) -> None:
    with pytest.raises(JobFileError) as caught:
        load(workspace, f"{{images: {{type: uri_folder, path: '{path}'}}}}")
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (13, "jobs.score.inputs.images.path")
    for word in words:
        assert word in problem.message


def test_the_type_of_what_is_not_registered_is_that_of_the_input(workspace: Workspace) -> None:
    for data_type, command in (("uri_file", "data"), ("mltable", "data"), ("mlflow_model", "model")):
        with pytest.raises(JobFileError) as caught:
            load(workspace, f"{{images: {{type: {data_type}, path: 'azureml:none:1'}}}}")
        assert f"windrow {command} create --name none --type {data_type} --path PATH" in str(caught.value)


def test_without_a_registry_a_name_is_refused(workspace: Workspace) -> None:
    (problem,) = workspace.step_problems("inputs: {images: {path: 'azureml:flowers:1'}}")
    assert "no registry to look it up in" in problem.message


def test_a_file_without_assets_opens_no_registry(workspace: Workspace) -> None:
    def open_registry() -> AssetLookup:
        raise AssertionError("nobody asked")

    file = workspace.write("job.yml", workspace.job_of())
    load_job(file, assets=open_registry)


@pytest.mark.parametrize(
    ("output", "name", "version"),
    [
        ("{type: uri_file, name: scores}", "scores", None),
        ("{type: uri_file, name: scores, version: 3}", "scores", "3"),
        ("{type: uri_file, name: scores, version: '1.0'}", "scores", "1.0"),
        ("{type: uri_file}", None, None),
    ],
)
def test_outputs_with_a_name_are_registered(
    workspace: Workspace, output: str, name: str | None, version: str | None
) -> None:
    loaded = workspace.loaded(f"outputs: {{scores: {output}}}")
    assert loaded.job.steps[0].outputs == {"scores": StepOutput("uri_file", "rw_mount", None, None, name, version)}
    assert loaded.warnings == ()
    bound = workspace.loaded("outputs: {scores: '${{parent.outputs.all}}'}", more=f"outputs: {{all: {output}}}\n")
    assert bound.job.steps[0].outputs["scores"].asset_name == name
    job = workspace.effective(bound)
    assert EffectiveJob.from_json(job.to_json()) == job


@pytest.mark.parametrize(
    ("output", "key", "words"),
    [
        ("{name: 'a b'}", "name", "it must be at most 255 ASCII letters"),
        ("{name: a, version: latest}", "version", "not the word latest"),
        ("{name: [a]}", "name", "is a list"),
    ],
)
def test_a_bad_name_of_an_output_is_refused(workspace: Workspace, output: str, key: str, words: str) -> None:
    problem = workspace.only_problem(f"outputs: {{scores: {output}}}")
    assert problem.key == f"jobs.score.outputs.scores.{key}"
    assert words in problem.message


def test_a_version_without_a_name_is_told(workspace: Workspace) -> None:
    (warning,) = workspace.loaded("outputs: {scores: {type: uri_file, version: 2}}").warnings
    assert "without a name" in warning.message


def test_the_file_of_an_asset(tmp_path: Path) -> None:
    file = tmp_path / "data.yml"
    file.write_text(
        "$schema: https://azuremlschemas.azureedge.net/latest/data.schema.json\nname: flowers\nversion: 2\n"
        "type: mltable\npath: ./table\ndescription: some\ntags: {a: 1}\n"
    )
    read = load_asset_file(file, "data")
    assert read[:-1] == ("flowers", "2", "mltable", "./table", "some", {"a": "1"}, str(tmp_path))
    assert read.warnings == ()


@pytest.mark.parametrize(
    ("text", "kind", "line", "words"),
    [
        ("name: a\n", "data", 1, "is missing"),
        ("name: a\ntype: custom_model\npath: x\n", "data", 2, "it must be one of uri_folder"),
        ("name: a\ntype: uri_file\npath: x\n", "model", 2, "it must be one of custom_model"),
        ("- a\n", "data", 1, "is a mapping"),
        ("name: [a]\npath: x\n", "data", 1, "is a list"),
    ],
)
def test_a_bad_file_of_an_asset_is_refused(tmp_path: Path, text: str, kind: str, line: int, words: str) -> None:
    file = tmp_path / "data.yml"
    file.write_text(text)
    with pytest.raises(JobFileError) as caught:
        load_asset_file(file, kind)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert words in problem.message
