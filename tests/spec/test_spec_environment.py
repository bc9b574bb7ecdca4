"""Environments: what a conda or pip list asks for, by the names that PyPI has, and what is told or refused."""

from __future__ import annotations

import json

import pytest
from spec_workspace import Workspace
from windrow.spec import CondaList, EffectiveJob, Environment, JobFileError
from windrow.spec.effective.document import DocumentError, from_json

TASK = """
task:
  type: run_function
  code: ./src
  entry_script: score.py
  append_row_to: ${{outputs.scores}}
  environment: """


def environment_of(workspace: Workspace, written: str) -> tuple[Environment | None, list[str]]:
    """The environment of the step, and what was said of it."""
    loaded = workspace.loaded(TASK + written + "\n")
    told = [str(warning) for warning in loaded.warnings if "task.environment" in warning.key]
    return loaded.job.steps[0].environment, told


def conda(workspace: Workspace, *dependencies: str) -> tuple[Environment | None, list[str]]:
    lines = "".join(f"  - {line}\n" for line in dependencies)
    workspace.write("conda.yml", f"name: e\nchannels: [conda-forge]\ndependencies:\n{lines}")
    return environment_of(workspace, "{conda_file: ./conda.yml}")


def conda_problems(workspace: Workspace, *dependencies: str) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        conda(workspace, *dependencies)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("written", "python", "requirements"),
    [
        ("numpy", None, ["numpy"]),
        ("numpy=1.21", None, ["numpy==1.21.*"]),
        ("numpy=1.21.*", None, ["numpy==1.21.*"]),
        ("numpy=1.21.0=py38_0", None, ["numpy==1.21.0.*"]),
        ("numpy 1.21.0 py38_0", None, ["numpy==1.21.0.*"]),
        ("numpy==1.21.0", None, ["numpy==1.21.0"]),
        ("numpy==1.21.0=py38_0", None, ["numpy==1.21.0"]),
        ('"numpy>=1.2"', None, ["numpy>=1.2"]),
        ('"numpy >=1.2,<2"', None, ["numpy>=1.2,<2"]),
        ('"numpy!=1.3.*"', None, ["numpy!=1.3.*"]),
        ("\"numpy[version='>=1.2,<2',build=py38*]\"", None, ["numpy>=1.2,<2"]),
        ("conda-forge::numpy=1.2", None, ["numpy==1.2.*"]),
        ("Numpy", None, ["numpy"]),
        ("pytorch=2.1", None, ["torch==2.1.*"]),
        ("cudatoolkit=11.8", None, []),
        ("libgcc-ng", None, []),
        ("librosa", None, ["librosa"]),
        ("_openmp_mutex=4.5=1_gnu", None, []),
        ("pip=23.0", None, ["pip==23.0.*"]),
        ("python=3.10", "3.10", []),
        ("python=3.10.*", "3.10", []),
        ("python==3.10.4", "3.10.4", []),
        ("python", None, []),
        ("python=3", None, []),
        ('"python>=3.9,<3.12"', ">=3.9,<3.12", []),
        ('"python>=3.6,<3.12"', ">=3.8,<3.12", []),
        ('"python>=3.6"', None, []),
        ('"python~=3.7"', None, []),
        ('"python=3.10,!=3.10.1"', "==3.10.*,!=3.10.1", []),
        ('"python>=3.6,=3.10"', ">=3.8,==3.10.*", []),
        ('"python<3.12,==3.11.4"', "<3.12,==3.11.4", []),
        ("python=3.12.0rc1", "3.12.0rc1", []),
        ("python=3.13t", "3.13t", []),
    ],
)
def test_a_dependency_of_conda(workspace: Workspace, written: str, python: str | None, requirements: list[str]) -> None:
    environment, _ = conda(workspace, written)
    is_lacking = written.startswith(("cudatoolkit", "libgcc-ng", "_openmp_mutex"))
    kept = CondaList((written,), ("conda-forge",)) if is_lacking else None
    assert environment == Environment(python, tuple(requirements), conda=kept)


def test_entries_for_python_count_together(workspace: Workspace) -> None:
    environment, told = conda(workspace, "python=3.10", '"python!=3.10.1"', "python=3")
    assert environment == Environment("==3.10.*,!=3.10.1")
    assert conda(workspace, "python=3.10", "python=3.10.4")[0] == Environment("3.10.4")
    assert conda(workspace, "python=3.10", '"python~=3.9"')[0] == Environment("==3.10.*,~=3.9")
    assert told == []


@pytest.mark.parametrize("version", ["=3.x", "=abc", "=3.10.x", "=3.1O", "=310", "=3.10.4.5", ">=3.x", "=0"])
def test_what_is_no_version_of_python_is_refused(workspace: Workspace, version: str) -> None:
    (problem,) = conda_problems(workspace, f'"python{version}"')
    assert "which is not a version of Python" in problem


@pytest.mark.parametrize(
    "entries",
    [
        ("python=3.9", "python=3.11"),
        ("python=3.11", '"python<3.11"'),
        ('"python>=3.12"', "python=3.11"),
        ("python=3.11.2", '"python!=3.11.*"'),
        ("python=3.11.2", '"python!=3.11.2"'),
        ("python=3.11", '"python<=3.10"'),
        ("python=3.11", '"python~=3.9.2"'),
        ('"python=3.11,<3.11"',),
    ],
)
def test_versions_of_python_that_exclude_each_other_are_refused(workspace: Workspace, entries: tuple[str, ...]) -> None:
    (problem,) = conda_problems(workspace, *entries)
    assert "no version of Python matches " in problem
    assert all(entry.strip('"') in problem for entry in entries)


@pytest.mark.parametrize("version", ["=3.7", "==3.6.9", "<3.8", "<=3.7", "=2.7", "=2", "~=3.7.2"])
def test_a_python_that_no_worker_runs_on_is_told_and_replaced(workspace: Workspace, version: str) -> None:
    environment, told = conda(workspace, f'"python{version}"')
    assert environment == Environment()
    assert any("conda.yml:4:5" in line and "3.8 or newer" in line for line in told), told


def test_what_is_not_as_the_conda_file_says_is_told(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    workspace.write(
        "conda.yml",
        "channels: [conda-forge, ours]\ndependencies: [pytorch, cudnn, numpy]\nvariables: {A: b}\nprefx: x\n",
    )
    environment, told = environment_of(workspace, "{image: some/image:1, conda_file: ./conda.yml, colour: red}")
    kept = CondaList(("pytorch", "cudnn", "numpy"), ("conda-forge", "ours"))
    assert environment == Environment(None, ("torch", "numpy"), conda=kept)
    for words in ("pytorch as torch", "without cudnn", "'windrow[conda]'", "ours", "variables", '"prefx"', "colour"):
        assert any(words in line for line in told), (words, told)


def test_a_list_that_pypi_does_not_have_all_of_is_kept_as_it_is_written(workspace: Workspace) -> None:
    lines = ("python=3.10", "conda-forge::gdal >=3.8", "pytorch", "pip", 'pip: ["a>1", "-c bounds.txt", "--pre"]')
    workspace.write("bounds.txt", "b<2\n")
    environment, told = conda(workspace, *lines)
    specs = ("python=3.10", "conda-forge::gdal >=3.8", "pytorch", "pip")
    assert environment == Environment(
        "3.10",
        ("gdal>=3.8", "torch", "pip", "a>1"),
        ("b<2",),
        ("--pre",),
        CondaList(specs, ("conda-forge",), ("a>1",)),
    )
    assert told == []
    loaded = workspace.loaded(TASK + "{conda_file: ./conda.yml}\n")
    assert any("PyPI does not have gdal" in str(note) for note in loaded.notes)
    job = workspace.effective(loaded)
    assert EffectiveJob.from_json(job.to_json()) == job
    document = json.loads(job.to_json())
    document["steps"][0]["environment"]["conda"]["specs"] = ["two\nlines"]
    with pytest.raises(DocumentError, match="is not one line of text"):
        from_json(json.dumps(document))


def test_a_python_that_no_worker_runs_on_is_not_asked_of_conda(workspace: Workspace) -> None:
    environment, told = conda(workspace, "python=3.7", "r-base")
    assert environment == Environment(conda=CondaList(("r-base",), ("conda-forge",)))
    assert any("3.8 or newer" in line for line in told)


def test_credentials_of_a_channel_are_told(workspace: Workspace) -> None:
    written = "{conda_file: {channels: [%s], dependencies: [r-base]}}"
    for channel in ("https://me:secret@x.example/ours", "https://x.example/t/secret/ours"):
        assert any("RATTLER_AUTH_FILE" in line for line in environment_of(workspace, written % channel)[1])
    assert environment_of(workspace, written % "'https://x.example/t/${CONDA_TOKEN}/ours'")[1] == []


def test_a_list_that_pypi_has_all_of_is_written_as_it_always_was(workspace: Workspace) -> None:
    loaded = workspace.loaded(TASK + "{conda_file: {channels: [ours], dependencies: [python=3.10, numpy]}}\n")
    document = json.loads(workspace.effective(loaded).to_json())
    assert document["steps"][0]["environment"] == {
        "python": "3.10",
        "requirements": ["numpy"],
        "constraints": [],
        "options": [],
    }


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy>=1.2,<2",
        "numpy == 1.2",
        "numpy[all,more]~=1.2 ; python_version < '3.12' and sys_platform == 'linux'",
        "git+https://example.org/a/b.git@main#egg=b",
        "b @ https://example.org/b.whl",
        "https://example.org/b-1.0.tar.gz",
        "azureml-dataset-runtime[fuse,pandas]",
        "ruamel.yaml===0.17",
    ],
)
def test_a_line_of_pip_is_kept_as_it_is(workspace: Workspace, line: str) -> None:
    environment, told = conda(workspace, "pip", f"pip: [{json.dumps(line)}]")
    assert environment == Environment(None, ("pip", line))
    assert told == []


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        (["--extra-index-url https://example.org/simple"], ["--extra-index-url=https://example.org/simple"]),
        (["-i https://example.org/simple", "--pre"], ["--index-url=https://example.org/simple", "--pre"]),
        (["--find-links=https://example.org/x.html", "--no-index"], ["--find-links=https://example.org/x.html",
                                                                    "--no-index"]),
        (["--trusted-host example.org", "--only-binary :all:"], ["--trusted-host=example.org", "--only-binary=:all:"]),
        (["--index-url ${PIP_HOUSE_INDEX}"], ["--index-url=${PIP_HOUSE_INDEX}"]),
    ],
)  # fmt: skip
def test_options_of_pip_are_kept_by_their_long_names(
    workspace: Workspace, lines: list[str], options: list[str]
) -> None:
    environment, _ = conda(workspace, f"pip: {json.dumps(lines)}")
    assert environment == Environment(options=tuple(options))


def test_requirements_files_are_read_where_they_are_named(workspace: Workspace) -> None:
    workspace.write("more/all.txt", "# ours\n-r base.txt\nb==1 \\\n  --hash=sha256:aa\n\n-c bounds.txt\n")
    workspace.write("more/base.txt", "a>=1  # first\n--extra-index-url https://example.org/simple\n")
    workspace.write("more/bounds.txt", "c<2\n")
    expected = Environment(
        None, ("a>=1", "b==1 --hash=sha256:aa"), ("c<2",), ("--extra-index-url=https://example.org/simple",)
    )
    assert conda(workspace, "pip: ['-r more/all.txt']")[0] == expected
    assert environment_of(workspace, "./more/all.txt")[0] == expected
    assert environment_of(workspace, "{conda_file: more/all.txt}")[0] == expected


@pytest.mark.parametrize(
    ("dependency", "words"),
    [
        ("pip: ['numpy=1.2']", "write numpy==1.2"),
        ("pip: [./package]", "which agents do not have"),
        ("pip: ['-e .']", "which agents do not have"),
        ("pip: ['b @ file:///tmp/b.whl']", "which agents do not have"),
        ("pip: ['-r gone.txt']", "there is no such file"),
        ("pip: ['--index-url ./here']", "does not name a web address"),
        ("pip: ['two words']", "not a requirement that pip can read"),
        ("pip: [[a]]", "is a list"),
        ("npm: [left-pad]", '"npm" is not a known installer'),
        ("'numpy=1.2|1.3'", "not a valid dependency"),
        ("'>=1.2'", "not a valid dependency"),
        ("[a]", "is a list"),
        ("3", "is 3"),
    ],
)
def test_a_bad_dependency_is_refused_at_its_place(workspace: Workspace, dependency: str, words: str) -> None:
    workspace.write("conda.yml", f"dependencies:\n  - numpy\n  - {dependency}\n")
    (problem,) = workspace.step_problems(TASK + "{conda_file: ./conda.yml}\n")
    assert words in problem.message
    assert (problem.file.rpartition("/")[2], problem.line) == ("conda.yml", 3)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("channels: [a]\n", 'has no "dependencies"'),
        ("dependencies: numpy\n", "it must be a list"),
        ("dependencies: [a\n", "is not valid YAML"),
        ("- a\n", "is a list"),
        ("", "is empty"),
    ],
)
def test_a_bad_conda_file_is_refused(workspace: Workspace, content: str, words: str) -> None:
    workspace.write("conda.yml", content)
    (problem, *_) = workspace.step_problems(TASK + "{conda_file: ./conda.yml}\n")
    assert words in problem.message


def test_requirements_files_that_name_each_other_are_refused(workspace: Workspace) -> None:
    workspace.write("a.txt", "-r b.txt\n")
    workspace.write("b.txt", "-r a.txt\n")
    (problem,) = workspace.step_problems(TASK + "./a.txt\n")
    assert "check whether one of them includes itself" in problem.message
    workspace.write("a.txt", "-e -r a.txt\n")
    (problem,) = workspace.step_problems(TASK + "./a.txt\n")
    assert "check whether one of them includes itself" in problem.message


@pytest.mark.parametrize(
    "written",
    [
        "azureml:e:1",
        "azureml:e@latest",
        "e:1",
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
        "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu:33",
        "{image: some/image}",
        "{build: {path: ./docker}}",
        "{name: e, version: 1}",
        "{python: {userManagedDependencies: true}}",
    ],
)
def test_what_holds_no_list_is_told_and_means_the_nodes_own_python(workspace: Workspace, written: str) -> None:
    environment, told = environment_of(workspace, written)
    assert environment is None
    assert any("--python" in line for line in told), told


@pytest.mark.parametrize(
    "written",
    [
        "{conda_file: {dependencies: [a, {pip: [b]}]}}",
        "{name: CliV2AnonymousEnvironment, version: abc, image: i, conda_file: {name: n, dependencies: [a, pip: [b]]}}",
        "./environment.yml",
        "file:./environment.yml",
        "azureml:./environment.yml",
        "./conda.yml",
        "{python: {conda_dependencies: {dependencies: [a, {pip: [b]}]}}}",
        "{python: {condaDependencies: {project_environment: {dependencies: [a, {pip: [b]}]}}}}",
        "{python: {condaDependenciesFile: conda.yml}, docker: {baseImage: i}}",
    ],
)
def test_all_ways_to_write_it_mean_the_same(workspace: Workspace, written: str) -> None:
    workspace.write("conda.yml", "dependencies: [a, {pip: [b]}]\n")
    workspace.write("environment.yml", "$schema: x\nname: e\nversion: 3\nimage: i\nconda_file: conda.yml\n")
    assert environment_of(workspace, written)[0] == Environment(None, ("a", "b"))


def test_a_path_of_a_component_begins_at_its_file(workspace: Workspace) -> None:
    workspace.write("parts/conda.yml", "dependencies: [a]\n")
    workspace.write("parts/score.py", "")
    workspace.write(
        "parts/component.yml",
        "type: parallel\ninputs: {images: {type: uri_folder}}\noutputs: {scores: {type: uri_file}}\n"
        "input_data: ${{inputs.images}}\n"
        "task: {type: run_function, code: ., entry_script: score.py, environment: {conda_file: ./conda.yml}}\n",
    )
    job = workspace.job(
        "type: pipeline\njobs:\n  score:\n    type: parallel\n    component: ./parts/component.yml\n"
        "    inputs: {images: {type: uri_folder, path: ./images}}\n"
    )
    assert job.job.steps[0].environment == Environment(None, ("a",))


def test_credentials_in_a_list_are_told(workspace: Workspace) -> None:
    _, told = conda(workspace, "pip: ['--extra-index-url https://me:secret@example.org/simple', a]")
    assert any("UV_EXTRA_INDEX_URL" in line for line in told)
    assert not any("secret" in line for line in told)
    _, told = conda(workspace, "pip: ['--extra-index-url https://${PIP_ME}:${PIP_SECRET}@example.org/simple', a]")
    assert told == []


def test_it_is_part_of_what_a_run_is(workspace: Workspace) -> None:
    digests = set()
    for written in ("{dependencies: [a]}", "{dependencies: [a=1]}", "{dependencies: [python=3.10, a]}", "azureml:e:1"):
        job = workspace.effective(workspace.loaded(TASK + written + "\n"))
        assert EffectiveJob.from_json(job.to_json()) == job
        digests.add(job.run_digest)
    assert len(digests) == 4
    # As the documents of earlier versions, which knew of none.
    assert "environment" not in json.loads(job.to_json())["steps"][0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "3.10; rm"}, "environment.python"),
        ({"requirements": ["-r /etc/passwd"]}, "environment.requirements[0]"),
        ({"requirements": ["a\n-r b"]}, "environment.requirements[0]"),
        ({"constraints": [" "]}, "environment.constraints[0]"),
        ({"options": ["--target=/"]}, "environment.options[0]"),
        ({"options": ["--index-url=a b"]}, "environment.options[0]"),
        ({"more": 1}, "environment.more"),
    ],
)
def test_a_document_is_checked(workspace: Workspace, changes: dict[str, object], words: str) -> None:
    job = workspace.effective(workspace.loaded(TASK + "{dependencies: [a]}\n"))
    document = json.loads(job.to_json())
    document["steps"][0]["environment"] |= changes
    with pytest.raises(DocumentError, match=words.replace("[", r"\[").replace(".", r"\.")):
        from_json(json.dumps(document))
