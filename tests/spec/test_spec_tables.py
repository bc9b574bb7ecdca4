"""Mistakes in a table that a step divides are told with the job file's own, before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_workspace import Workspace
from windrow.spec.reading.problems import Problems
from windrow.spec.tables.mltable import read_mltable
from windrow.spec.tables.partition_format import columns_of

TABLE = "inputs: {images: {type: mltable, path: %s}}"


@pytest.mark.parametrize(
    ("text", "place", "key", "words"),
    [
        (
            "paths: [{file: ./t.csv}]\ntransformations:\n  - read_delimited: {encodng: utf8}\n",
            (3, 22),
            "transformations[0].read_delimited.encodng",
            'is unknown here. Did you mean "encoding"?',
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
        ([], "contains neither an MLTable file nor table files"),
        (["_SUCCESS", ".hidden"], "contains neither an MLTable file nor table files"),
        (["b/notes.txt"], '"b/notes.txt" in it has a name without a known table format'),
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
    assert "has a name without a known table format" in workspace.only_problem(TABLE % "./notes.txt").message


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


FILES = "paths: [{folder: .}]\ntransformations:\n"
EXTRACT = "  - extract_columns_from_partition_format: "


@pytest.mark.parametrize(
    ("step", "names"),
    [
        ("{partition_format: '/{store}/{day:yyyy-MM-dd}/{brand}.csv'}", ("store", "brand", "day")),
        ("'/{store}/{brand}.csv'", ("store", "brand")),
        # The form of the vendor's page: without quotes, braces make a mapping.
        ("{day: yyyy/MM/dd}", ("day",)),
        ("{day:yyyy/MM/dd}", ("day",)),
        ("{store}", ("store",)),
    ],
)
def test_every_spelling_of_a_partition_format_is_read(tmp_path: Path, step: str, names: tuple[str, ...]) -> None:
    problems = Problems()
    (tmp_path / "MLTable").write_text(FILES + EXTRACT + step + "\n  - read_parquet\n" + EXTRACT + step + "\n")
    table = read_mltable(tmp_path / "MLTable", problems)
    assert table is not None, problems.errors
    assert [one.format.names for one in (*table.before, *table.after)] == [names, names]
    assert columns_of(table.before) == names


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("", "has no value"),
        ("[a]", "takes a format such as"),
        ("{partition_fromat: '/{a}/{b}'}", "takes a format such as"),
        ("{partition_format: }", "takes a format such as"),
        ("{partition_format: /data/x.csv}", '"/data/x.csv" is not a valid partition format: it names no column'),
        ("{partition_format: '/{a'}", "is not closed"),
        ("{partition_format: '/{d:MM}'}", "has no year"),
    ],
)
def test_a_bad_partition_format_is_told_with_its_line(workspace: Workspace, step: str, words: str) -> None:
    file = workspace.write("t/MLTable", FILES + EXTRACT + step + "\n")
    problem = workspace.only_problem(TABLE % "./t")
    assert (problem.file, problem.line) == (str(file), 3)
    assert words in problem.message


def test_keys_that_a_list_of_files_does_not_have_are_told_with_those_it_has(workspace: Workspace) -> None:
    workspace.write("t/a/b", "")
    workspace.write("t/MLTable", FILES + EXTRACT + "'/{user}/{season}'\n")
    keys = "\npartition_keys: [user, sesaon]"
    problem = workspace.only_problem(TABLE % "./t" + keys)
    assert problem.key == "jobs.score.partition_keys"
    assert (
        "names sesaon" in problem.message
        and "Its keys are those that" in problem.message
        and "MLTable: user, season." in problem.message
    )
    workspace.write("t/MLTable", FILES.removesuffix("transformations:\n"))
    assert "MLTable: none." in workspace.only_problem(TABLE % "./t" + keys).message


def test_dividing_by_columns_needs_duckdb_here_and_pyarrow_there(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write("t/b.csv", "a,b\n1,2\n")
    workspace.write(
        "t/MLTable", "paths: [{file: b.csv}]\ntransformations:\n  - read_delimited\n" + EXTRACT + "'{f}.csv'\n"
    )
    by = "\npartition_keys: [%s]"
    assert workspace.loaded(TABLE % "./t" + by % "f").libraries == {"score": ("pandas",)}
    assert workspace.loaded(TABLE % "./t" + by % "f, a").libraries == {"score": ("pandas", "pyarrow")}
    assert workspace.loaded(TABLE % "./t/b.csv" + by % "a").libraries == {"score": ("pandas", "pyarrow")}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for path in ("./t", "./t/b.csv"):
        problem = workspace.only_problem(TABLE % path + by % "a")
        assert problem.key == "jobs.score.partition_keys" and "pip install 'windrow[partition]'" in problem.message


def test_keys_come_as_a_list_as_text_and_as_an_argument_and_win_over_a_size(workspace: Workspace) -> None:
    workspace.write("t/a/b", "")
    workspace.write("t/MLTable", FILES + EXTRACT + "'/{user}/{season}'\n")
    workspace.write("src/score.py", "parser.add_argument('--partition_keys')\n")
    for given in ("partition_keys: [season, user]", 'partition_keys: \'["season", "user"]\''):
        loaded = workspace.loaded(f"{TABLE % './t'}\n{given}\n")
        assert loaded.job.steps[0].partition_keys == ("season", "user")
        assert loaded.job.steps[0].arguments[-1] == '--partition_keys=["season", "user"]'
        loaded = workspace.loaded(f"{TABLE % './t'}\n{given}\nmini_batch_size: 3\n")
        (warning,) = [one for one in loaded.warnings if " over mini_batch_size" in one.message]
        assert "season, user" in warning.message
    task = "\ntask: {type: run_function, code: ./src, entry_script: score.py, program_arguments: %s}\n"
    step = workspace.loaded(TABLE % "./t" + task % '"--partition_keys \'[\\"user\\"]\'"').job.steps[0]
    assert (step.partition_keys, step.arguments) == (("user",), ("--partition_keys", '["user"]'))
    problem = workspace.only_problem(TABLE % "./t" + task % "--partition_keys user")
    assert 'is "user"; it must be a list of text' in problem.message
