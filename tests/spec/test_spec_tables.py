"""Mistakes in a table that a step divides are told with the job file's own, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_workspace import Workspace

TABLE = "inputs: {images: {type: mltable, path: %s}}"


@pytest.mark.parametrize(
    ("text", "place", "key", "words"),
    [
        (
            "paths: [{file: ./t.csv}]\ntransformations:\n  - read_delimited: {encodng: utf8}\n",
            (3, 22),
            "transformations[0].read_delimited.encodng",
            'is not known here. Did you mean "encoding"?',
        ),
        (
            "paths: [{file: ./t.csv}]\ntransformations:\n  - read_delimited: {encoding: utf9}\n",
            (3, 32),
            "transformations[0].read_delimited.encoding",
            '"utf9" is not allowed',
        ),
        ("paths: [{file: ./gone.csv}]\n", (1, 16), "paths[0].file", '"./gone.csv" does not exist'),
        ("paths:\n  - folder: t.csv\n", (2, 13), "paths[0].folder", "write `file:` instead of `folder:`"),
        (
            "paths: [{folder: ./d}]\ntransformations:\n  - read_delta_lake: {timestamp_as_of: 2024-01-31}\n",
            (3, 40),
            "transformations[0].read_delta_lake.timestamp_as_of",
            "a time with its zone",
        ),
        (
            "paths: [{folder: ./d}]\ntransformations:\n"
            "  - read_delta_lake: {version_as_of: 1, timestamp_as_of: '2024-01-31T00:00:00Z'}\n",
            (3, 58),
            "transformations[0].read_delta_lake.timestamp_as_of",
            "is given together with version_as_of",
        ),
        (
            "paths: [{folder: ./d}]\ntransformations:\n  - read_delta_lake: {version_as_of: -1}\n",
            (3, 38),
            "transformations[0].read_delta_lake.version_as_of",
            "the number of a version",
        ),
        ("", (0, 0), "", "is empty"),
    ],
)
def test_an_mltable_file_is_checked_to_the_value(
    workspace: Workspace, text: str, place: tuple[int, int], key: str, words: str
) -> None:
    workspace.write("t/t.csv", "a\n1\n")
    workspace.write("t/d/_delta_log/x", "")
    file = workspace.write("t/MLTable", text)
    problem = workspace.only_problem(TABLE % "./t")
    assert (problem.file, problem.line, problem.column, problem.key) == (str(file), *place, key)
    assert words in problem.message


def test_all_mistakes_of_all_files_come_at_once(workspace: Workspace) -> None:
    workspace.write("t/MLTable", "")
    problems = workspace.step_problems(f"{TABLE % './t'}\nretry_settings: {{max_retries: -1}}\n")
    assert [Path(problem.file).name for problem in problems] == ["job.yml", "MLTable"]


@pytest.mark.parametrize("path", ["./t", "./t/MLTable"])
def test_a_table_that_is_only_handed_on_is_the_scripts_own_matter(workspace: Workspace, path: str) -> None:
    workspace.write("t/MLTable", "nonsense: 1\n")
    changes = f"inputs:\n  images: {{type: uri_folder, path: ./images}}\n  side: {{type: mltable, path: {path}}}\n"
    assert workspace.loaded(changes).libraries == {"score": ()}
    assert workspace.loaded("inputs: {images: {type: uri_folder, path: ./t}}").libraries == {"score": ()}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "holds no MLTable file and no table files"),
        (["_SUCCESS", ".hidden"], "holds no MLTable file and no table files"),
        (["b/notes.txt"], '"b/notes.txt" in it has a name that tells no format of tables'),
        (["a.csv.gz"], '"a.csv.gz" in it is compressed, which cannot be cut'),
    ],
)
def test_a_folder_without_tables_is_refused(workspace: Workspace, files: list[str], words: str) -> None:
    (workspace.folder / "t").mkdir()
    for name in files:
        workspace.write(f"t/{name}", "")
    problem = workspace.only_problem(TABLE % "./t")
    assert problem.key == "jobs.score.inputs.images"
    assert problem.line > 0
    assert words in problem.message
    assert "CSV (.csv)" in problem.message and "uri_folder" in problem.message


def test_a_plain_file_that_is_no_table_is_refused(workspace: Workspace) -> None:
    workspace.write("notes.txt", "")
    assert "tells no format of tables" in workspace.only_problem(TABLE % "./notes.txt").message


def test_tables_behind_links_are_found(workspace: Workspace) -> None:
    workspace.write("elsewhere/x.csv", "")
    (workspace.folder / "t").mkdir()
    (workspace.folder / "t" / "loop").symlink_to(".")
    (workspace.folder / "t" / "part").symlink_to("../elsewhere")
    assert workspace.loaded(TABLE % "./t").libraries == {"score": ("pandas",)}


@pytest.mark.parametrize(
    ("files", "libraries"),
    [
        ({"x.CSV": ""}, ("pandas",)),
        ({"x.parquet": ""}, ("pandas", "pyarrow")),
        ({"MLTable": "paths: [{pattern: '*.txt'}]\ntransformations: [read_delimited]\n"}, ("pandas",)),
        ({"MLTable": "paths: [{folder: .}]\ntransformations: [read_parquet]\n"}, ("pandas", "pyarrow")),
        ({"MLTable": "paths: [{folder: .}]\n"}, ()),
    ],
)
def test_what_reading_it_needs(workspace: Workspace, files: dict[str, str], libraries: tuple[str, ...]) -> None:
    for name, text in files.items():
        workspace.write(f"t/{name}", text)
    assert workspace.loaded(TABLE % "./t").libraries == {"score": libraries}


def test_on_other_machines_only_what_is_here_is_judged(workspace: Workspace) -> None:
    (workspace.folder / "empty").mkdir()
    for path in ("/not/here", str(workspace.folder / "empty")):
        loaded = workspace.job(workspace.job_of().replace("uri_folder, path: ./images", f"mltable, path: {path}"),
                               embedded=False)  # fmt: skip
        assert loaded.libraries == {"score": ()}
    workspace.write("t/MLTable", "paths: [{file: /only/there.csv}, {file: ./gone.csv}]\n")
    text = workspace.job_of().replace("uri_folder, path: ./images", f"mltable, path: {workspace.folder}/t")
    (problem,) = workspace.problems(text, embedded=False)
    assert problem.key == "paths[1].file"
