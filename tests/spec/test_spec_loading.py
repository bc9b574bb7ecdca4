"""From a file's bytes to a tree with places: what is no job file at all, and how it is said."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest
from spec_workspace import STEP, Workspace, changed
from windrow.spec import JobFileError, load_job


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("type: pipeline\n\tjobs: 1\n", 2, "spaces, never with tabs"),
        ("type: pipeline\njobs:\n\tscore: 1\n", 3, "spaces, never with tabs"),
        ("type: pipeline\njobs:\n  score:\n  \ttype: 1\n", 4, "spaces, never with tabs"),
        ("type: pipeline\njobs: {a: [}\n", 2, "not valid YAML"),
        ("type: pipeline\njobs: {a: [}\n#" + "[" * 1_000, 2, "not valid YAML"),
        ("type: pipeline\n---\ntype: pipeline\n", 2, "single document"),
        ("type: pipeline\ntype: pipeline\n", 2, "already given in line 1"),
        ("type: pipeline\njobs: *nowhere\n", 2, "not valid YAML"),
        ("type: pipeline\njobs: &a\n  x: *a\n", 2, "refers to the value that contains it"),
        ("type: pipeline\njobs: !python/object x\n", 2, "has no meaning"),
        ("type: !!int pipeline\njobs: x\n", 1, "remove the tag"),
        ("type: pipeline\n? [a]\n: 1\n", 2, "plain text"),
        ("type: pipeline\n<<: 1\n", 2, "only a mapping can be merged"),
        (b"type: pipeline\nname: \xff\n", 2, "UTF-8"),
        (b"type: pipeline\nname: a\0b\n", 0, "not valid YAML"),
        ("", 0, "is empty"),
        ("# only a comment\n", 0, "is empty"),
        ("---\n", 0, "is empty"),
        ("~\n", 0, "is empty"),
        ("pipeline:\n", 1, "is empty"),
        ("parallel_run_config:\n", 1, "is empty"),
        ("just text\n", 1, "has to be a mapping"),
        ("- a\n", 1, "has to be a mapping"),
        ("type: parallel\n", 1, "only as a step"),
        ("type: command\n", 1, "type: pipeline"),
        ("jobs: {}\n", 1, "type: pipeline"),
        ("pipeline: {steps: {}}\n", 1, "it has to hold steps"),
        ("parallel_run_config: {}\n", 1, "a ParallelRunConfig needs it"),
        ("type: pipeline\n", 1, "at least one"),
        ("type: pipeline\njobs:\n", 2, "at least one"),
        ("type: pipeline\njobs: {}\n", 2, "at least one"),
        ("type: pipeline\njobs: [a]\n", 2, "a mapping"),
        ("type: pipeline\njobs:\n  a:\n", 3, "is empty"),
        ("type: pipeline\njobs:\n  a: text\n", 3, "a mapping"),
        ("[" * 200_000, 1, "nested deeper"),
        ("[" * 1_001 + "]" * 1_001, 1, "nested deeper"),
        ("größer: " + "[" * 200_000, 1, "nested deeper"),
        ("{a: " * 70_000, 1, "nested deeper"),
        ("{" * 200_000, 1, "nested deeper"),
        ("- " * 100_000, 1, "nested deeper"),
        ("type: pipeline\njobs: " + "[" * 70 + "]" * 70, 2, "nested deeper"),
        ("x" * (4 * 1024 * 1024 + 1), 0, "too large"),
    ],
)
def test_a_file_that_is_no_job_file_says_where_and_why(
    workspace: Workspace, text: str | bytes, line: int, said: str
) -> None:
    path = workspace.write("bad.yml", text)
    with pytest.raises(JobFileError) as caught:
        load_job(path)
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == (str(path), line)
    assert said in problem.message
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="there is no such file"):
        load_job(tmp_path / "job.yml")
    with pytest.raises(JobFileError, match="is a folder"):
        load_job(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_says_so(workspace: Workspace) -> None:
    path = workspace.write("job.yml", workspace.job_of())
    path.chmod(0)
    with pytest.raises(JobFileError, match="Permission denied"):
        load_job(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_unicode_encoding_is_read(workspace: Workspace, encoding: str) -> None:
    text = workspace.job_of(more="description: größer\n")
    assert load_job(workspace.write("job.yml", text.encode(encoding))).job.description == "größer"


def test_anchors_and_merge_keys_are_followed_and_own_keys_win(workspace: Workspace) -> None:
    retry = "retry_settings: &retry {max_retries: 7, timeout: 70}\n"
    second = changed(STEP, "outputs: {scores: }\nretry_settings:\n  timeout: 30\n  <<: *retry")
    text = workspace.job_of(changed(STEP, retry)) + "".join(f"    {line}\n" for line in second.splitlines()).replace(
        "    type: parallel", "  second:\n    type: parallel", 1
    )
    first, other = workspace.job(text).job.steps
    assert (first.max_retries, first.run_invocation_timeout_s) == (7, 70)
    assert (other.max_retries, other.run_invocation_timeout_s) == (7, 30)


@pytest.mark.parametrize(
    "bomb",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 40)),
        "a0: &a0 {x: y}\n" + "".join(f"a{n}: &a{n} {{j: *a{n - 1}, k: *a{n - 1}}}\n" for n in range(1, 60)),
        "a0: &a0 {k0: y}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}, k{n}: y}}\n" for n in range(1, 6_000)),
        f"b: &b {{{', '.join(f'k{n}: y' for n in range(500))}}}\na: {{<<: [{', '.join(['*b'] * 10_000)}]}}\n",
        f"text: &text {'x' * 100_000}\nall: [{', '.join(['*text'] * 1_000)}]\n",
    ],
    ids=["lists", "mappings", "a chain of merges", "one merge often", "a long text"],
)
def test_aliases_that_stand_for_too_much_are_refused_where_they_do(workspace: Workspace, bomb: str) -> None:
    problem = workspace.only_problem("comment:\n" + textwrap.indent(bomb, "  "))
    assert "comes to more than 16 MiB by its aliases" in problem.message
    assert problem.line


@pytest.mark.parametrize("number", ["9" * 5_000, "1" + ":59" * 200_000, "1" + ":59" * 200_000 + ".5"])
def test_a_number_that_is_too_long_is_not_read(workspace: Workspace, number: str) -> None:
    problem = workspace.only_problem(f"comment: {number}")
    assert f"is a number of {len(number):,} characters" in problem.message


def test_the_file_is_shown_relative_to_the_working_folder(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.folder)
    assert workspace.only_problem("mini_batch_size: x").file == "job.yml"


def test_several_problems_are_printed_one_a_line_with_their_number(workspace: Workspace) -> None:
    with pytest.raises(JobFileError) as caught:
        workspace.loaded("mini_batch_size: x\nerror_threshold: y")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("2 errors")
    assert [line.startswith(str(workspace.folder / "job.yml:")) for line in lines[1:]] == [True, True]


def test_what_the_pipeline_says_of_itself_goes_into_the_job(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.folder)
    text = "name: n-1\ndisplay_name: shown\nexperiment_name: exp\ndescription: d\ntags: {a: 1, b: x}\n"
    job = workspace.loaded(more=text).job
    assert (job.name, job.display_name, job.experiment_name, job.description) == ("n-1", "shown", "exp", "d")
    assert job.tags == {"a": "1", "b": "x"}
    job = workspace.loaded().job
    assert (job.name, job.display_name, job.experiment_name) == (None, "job", workspace.folder.name)
    assert job.job_file == str(workspace.folder / "job.yml")


@pytest.mark.parametrize("name", ["-a", "a/b", "a b", "ä", "x" * 65, "''"])
def test_a_job_name_must_be_one(workspace: Workspace, name: str) -> None:
    assert workspace.only_problem("", more=f"name: {name}\n").key == "name"


@pytest.mark.parametrize("name", ["a.b", "-a", "'a b'", "x" * 65])
def test_names_of_steps_inputs_and_outputs_must_fit_expressions(workspace: Workspace, name: str) -> None:
    assert "letters, digits" in workspace.problems(workspace.job_of(name=name))[0].message
    for changes in (f"inputs: {{images: {{path: ./images}}, {name}: 1}}", f"outputs: {{scores: , {name}: }}"):
        assert "letters, digits" in workspace.only_problem(changes).message


@pytest.mark.parametrize(
    ("trigger", "line"),
    [
        ('{type: cron, expression: "15 10 * * 1"}', ": 15 10 * * 1  cd "),
        (
            "{type: recurrence, frequency: day, schedule: {hours: [4, 5], minutes: 30}}",
            ": 30 4,5 * * *  cd",
        ),
        (
            "{frequency: week, interval: 2, start_time: 2026-05-11T03:00:00}",
            "count weeks.): 0 3 * * 1  cd ",
        ),
        ("{frequency: fortnight}", "Let cron run the job: windrow run ./job.yml."),
    ],
)
def test_the_file_of_a_schedule_is_told_the_line_for_cron(workspace: Workspace, trigger: str, line: str) -> None:
    text = f"name: nightly\ntrigger: {trigger}\ncreate_job: ./job.yml\n"
    (problem,) = workspace.problems(text)
    assert "this file is a schedule, and Windrow has none" in problem.message and line in problem.message
