"""Program arguments: splitting, groups, and the runtime's own arguments among them."""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec_workspace import STEP, Workspace, changed, unhurried
from windrow.spec import EffectiveJob, EffectiveStep, LiteralInput, LoadedJob, Problem, resolve_arguments
from windrow.spec.effective.document import DocumentError
from windrow.spec.effective.job import Rows
from windrow.spec.naming.expressions import split_arguments
from windrow.spec.settings.arguments import EXACT_ONLY, RUNTIME_ARGUMENTS, find_runtime_arguments, full_name
from windrow.spec.settings.pace import Rate, rate_words


def with_arguments(arguments: str, more: str = "") -> str:
    quoted = arguments.replace("'", "''")
    return f"""
inputs: {{images: {{path: ./images}}, word: a b, n: 7, none: {{type: string, optional: true}}}}
task:
  type: run_function
  code: ./src
  entry_script: score.py
  append_row_to: ${{{{outputs.scores}}}}
  program_arguments: '{quoted}'
{more}"""


def load(workspace: Workspace, arguments: str, more: str = "") -> LoadedJob:
    return workspace.loaded(with_arguments(arguments, more))


def problem_of(workspace: Workspace, arguments: str) -> Problem:
    return workspace.only_problem(with_arguments(arguments))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--a b  --z=d", ["--a", "b", "--z=d"]),
        ("--a 'b c' \"d e\" f\\ g", ["--a", "b c", "d e", "f g"]),
        ("--a ${{ inputs.word }}", ["--a", "${{inputs.word}}"]),
        ("--a=${{inputs.word}}/x", ["--a=${{inputs.word}}/x"]),
        ("--a # b", ["--a", "#", "b"]),
        ("--a '' b", ["--a", "", "b"]),
        ("$[[ --x ${{inputs.word}} ]] --y", ["--x", "${{inputs.word}}", "--y"]),
        ("$[[ --x ${{inputs.none}} ]] --y", ["--y"]),
        ("--y $[[--x ${{inputs.word}} --z ${{inputs.none}}]]", ["--y"]),
        ("$[[--x]]$[[--y]]", ["--x", "--y"]),
        ("", []),
    ],
)
def test_arguments_are_split_as_a_shell_splits_them(workspace: Workspace, text: str, expected: list[str]) -> None:
    assert list(load(workspace, text).job.steps[0].arguments) == expected


def test_folded_text_is_one_line_of_arguments(workspace: Workspace) -> None:
    changes = """
    task:
      type: run_function
      code: ./src
      entry_script: score.py
      program_arguments: >-
        --a 1
        --images ${{inputs.images}}
    """
    assert workspace.step(changes).arguments == ("--a", "1", "--images", "${{inputs.images}}")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("--a 1 \\\n  --b 2 \\\n", ["--a", "1", "--b", "2"]),
        ("--a 1\\\n2", ["--a", "12"]),
        ("--a '1\\\n2' \"it's\" --b \\\n 3", ["--a", "1\\\n2", "it's", "--b", "3"]),
        ("--a \\\\\n--b \\' \\\n--c \\'", ["--a", "\\", "--b", "'", "--c", "'"]),
    ],
)
def test_a_backslash_continues_a_line(text: str, arguments: list[str]) -> None:
    assert split_arguments(text) == arguments


def test_a_blank_at_the_end_may_be_escaped(workspace: Workspace) -> None:
    """As in published components, whose arguments end so."""
    assert load(workspace, "--x ${{inputs.n}}\\ ").job.steps[0].arguments == ("--x", "${{inputs.n}} ")


def test_resolved_arguments_hold_values_as_they_are(workspace: Workspace) -> None:
    step = load(workspace, "--w ${{inputs.word}} --i ${{inputs.images}}/x --o=${{outputs.scores}}").job.steps[0]
    resolved = resolve_arguments(step, {"images": "/data/my images"}, {"scores": "/out/$x 'y'"})
    assert resolved == ["--w", "a b", "--i", "/data/my images/x", "--o=/out/$x 'y'"]


def test_a_value_that_looks_like_an_expression_is_not_followed() -> None:
    step = EffectiveStep("s", "", "", {"x": LiteralInput("${{inputs.y}}")}, ("y",), arguments=("${{inputs.x}}",))
    assert resolve_arguments(step, {}, {}) == ["${{inputs.y}}"]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), max_size=8), max_size=6))
@unhurried
def test_whatever_is_quoted_comes_out_as_it_was(arguments: list[str]) -> None:
    assert split_arguments(shlex.join(arguments)) == arguments


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        ("--error_threshold 5", "error_threshold", 5),
        ("--error_threshold=-1", "error_threshold", -1),
        ("--error_threshold -1", "error_threshold", -1),
        ("--error_thr 5", "error_threshold", 5),
        ("--error_threshold ${{inputs.n}}", "error_threshold", 7),
        ("--allowed_failed_percent 12.5", "allowed_failed_percent", 12.5),
        ("--allowed_failed_count 3", "mini_batch_error_threshold", 3),
        ("--mini_batch_error_threshold 3", "mini_batch_error_threshold", 3),
        ("--task_overhead_timeout 30", "task_overhead_timeout_s", 30),
        ("--progress_update_timeout 31", "progress_update_timeout_s", 31),
        ("--first_task_creation_timeout 32", "first_task_creation_timeout_s", 32),
        ("--run_invocation_timeout 33", "run_invocation_timeout_s", 33),
        ("--run_max_try 4", "max_retries", 3),
        ("--process_count_per_node 2", "max_concurrency_per_instance", 2),
        ("--mini_batch_size 2kb", "mini_batch_size", 2048),
        ("--logging_level warning", "logging_level", "WARNING"),
        ("--error_threshold 1 --error_threshold 2", "error_threshold", 2),
        ("-- --error_threshold 5", "error_threshold", -1),
        ("--rank_mini_batch_count 0", "rank_mini_batch_count", 0),
        ("--rank_mini_batch_count -3", "rank_mini_batch_count", 0),
        ("--rank_mini_batch_count 3", "rank_mini_batch_count", 3),
        ("--rank_mini_batch_count 3", "input_data", ()),
        ("--amlbi_file_format JSONL", "file_format", "jsonl"),
        ("--amlbi_file_format jsonl --amlbi_mini_batch_rows 5", "mini_batch_rows", 5),
        ("--amlbi_mini_batch_rows 5", "mini_batch_rows", None),
        ("--amlbi_file_format jsonl --amlbi_pf_enabled True --amlbi_pf_run_mode component", "file_format", "jsonl"),
        ("--amlbi_dataframe_mixed_types true", "mixed_types", True),
        ("--exact_row_ind True", "exact_row_index", False),
    ],
)
def test_runtime_arguments_set_what_they_name_and_stay_visible(
    workspace: Workspace, arguments: str, setting: str, value: Any
) -> None:
    step = load(workspace, arguments).job.steps[0]
    assert getattr(step, setting) == value
    assert list(step.arguments) == shlex.split(arguments)


def test_scripts_that_do_not_name_arguments_of_windrow_alone_do_not_get_them(workspace: Workspace) -> None:
    arguments = "--a 1 --append_row_format csv --exact_row_index=True --b -- --append_row_format x"
    step = load(workspace, arguments, "outputs: {scores: {type: uri_file, path: ./o.csv}}").job.steps[0]
    assert (step.exact_row_index, step.rows.format) == (True, "csv")
    assert step.arguments == ("--a", "1", "--b", "--", "--append_row_format", "x")
    workspace.write("src/score.py", 'add("--append_row_format")')
    step = load(workspace, arguments, "outputs: {scores: {type: uri_file, path: ./o.csv}}").job.steps[0]
    assert step.arguments == ("--a", "1", "--append_row_format", "csv", "--b", "--", "--append_row_format", "x")


@pytest.mark.parametrize("word", ["True", "true", "TRUE", "1"])
def test_booleans_are_words(workspace: Workspace, word: str) -> None:
    assert load(workspace, f"--append_row_dataframe_header {word}").job.steps[0].rows.dataframe_header is True
    assert load(workspace, "--append_row_dataframe_header False").job.steps[0].rows.dataframe_header is False


def test_the_argument_wins_over_the_key_and_says_so(workspace: Workspace) -> None:
    loaded = load(workspace, "--error_threshold 5", "error_threshold: 3")
    assert loaded.job.steps[0].error_threshold == 5
    (warning,) = loaded.warnings
    assert "5 wins over 3, given by job" in warning.message
    assert not load(workspace, "--error_threshold 3", "error_threshold: 3").warnings


def test_the_number_of_tries_is_told_as_it_was_written(workspace: Workspace) -> None:
    changes = with_arguments("--run_max_try 2", "retry_settings: {max_retries: 5}")
    (warning,) = workspace.loaded(changes).warnings
    assert "--run_max_try 2 (max_retries 1) wins over 5, given by job" in warning.message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--error_threshold", "has no value"),
        ("--error_threshold --other 3", "has no value"),
        ("--error_threshold many", '"many"'),
        ("--error_threshold -2", "from -1"),
        ("--error_thresh x", "read as --error_threshold"),
        ("--error_thresh x", "rename it if it is the script's own argument"),
        ("--f", "rename it if it is the script's own argument"),
        ("--allowed_failed_percent 101", "from 0 to 100"),
        ("--allowed_failed_percent nan", "from 0 to 100"),
        ("--first_task_creation_timeout 518400", "from 1 to 259200"),
        ("--task_overhead_timeout 0", "from 1"),
        ("--append_row_dataframe_header maybe", "true or false"),
        ("--error_threshold ${{inputs.images}}", "is data"),
        ("--error_threshold ${{inputs.word}}", 'that is "a b"'),
        ("--amlbi_async_mode true", "enqueue()"),
        ("--amlbi_file_format csv", "one of jsonl"),
        ("--amlbi_file_format jsonl --amlbi_mini_batch_rows 0", "from 1"),
        ("--append_row_file_name a/b", "without a folder"),
        ("--append_row_file_name a|b", "without any of"),
        ("--append_row_format orc", "one of text, csv, jsonl, parquet"),
        ("--exact_row_index maybe", "true or false"),
        ("--amlbi_dataframe_mixed_types maybe", "true or false"),
    ],
)
def test_a_bad_runtime_argument_is_an_error(workspace: Workspace, arguments: str, said: str) -> None:
    problem = problem_of(workspace, arguments)
    assert problem.key == "jobs.score.task.program_arguments"
    assert said in problem.message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--resource_monitor_interval 20", []),
        ("--c mine", ["read as --copy_logs_to_parent"]),
        ("--resource_monitor_interva 20", ["which it abbreviates"]),
        ("--copy_logs_to_parent True", []),
        ("--push_metrics_to_parent True --metrics_name_prefix x", []),
        ("--profiling_module cProfile", []),
        ("--output_action append_row", ["no effect"]),
        ("--resume_from job", []),
        ("--append_row_safe_output true", []),
        ("--amlbi_pf_enabled True --amlbi_pf_run_mode component", []),
        ("--amlbi_mini_batch_rows 5", ["without --amlbi_file_format"]),
        ("--rank_mini_batch_count 3", ["makes mini-batches without input"]),
        ("--output x --model y --model_name z --input_asset_a b", []),
    ],
)
def test_runtime_arguments_without_effect_are_warnings(workspace: Workspace, arguments: str, said: list[str]) -> None:
    warnings = [warning.message for warning in load(workspace, arguments).warnings]
    assert len(warnings) == len(said)
    for message, text in zip(warnings, said, strict=True):
        assert text in message


def with_format(output: str, row_format: str) -> str:
    return with_arguments(f"--append_row_format {row_format}", f"outputs: {{scores: {output}}}")


@pytest.mark.parametrize(
    ("output", "row_format", "name"),
    [
        ("{type: uri_folder, path: ./out}", "csv", "parallel_run_step.csv"),
        ("{type: uri_file}", "jsonl", "parallel_run_step.jsonl"),
        ("{type: uri_file, path: ./scores.parquet}", "parquet", None),
        ("{type: uri_folder, path: ./out}", "parquet --append_row_file_name mine.parquet", "mine.parquet"),
        ("{type: uri_folder, path: ./out}", "text", None),
    ],
)
def test_the_file_of_rows_is_named_by_its_format(
    workspace: Workspace, output: str, row_format: str, name: str | None
) -> None:
    step = workspace.step(with_format(output, row_format))
    assert step.outputs["scores"].file_name == name
    assert step.rows.format == row_format.split()[0]


@pytest.mark.parametrize(
    ("output", "row_format", "said"),
    [
        ("{type: uri_file, path: ./scores.txt}", "csv", 'the file of rows is "scores.txt"'),
        ("{type: uri_folder}", "csv --append_row_file_name rows.jsonl", "ends in .csv"),
    ],
)
def test_a_file_of_rows_with_another_name_is_an_error(
    workspace: Workspace, output: str, row_format: str, said: str
) -> None:
    assert said in workspace.only_problem(with_format(output, row_format)).message


def test_settings_that_a_format_decides_are_told(workspace: Workspace) -> None:
    workspace.write(
        "src/parallel_run_step.settings.json",
        '{"append_row": {"pandas.DataFrame.to_csv": {"sep": ";", "na_rep": "NA", "header": true}}}',
    )
    loaded = load(workspace, "--append_row_format csv --append_row_dataframe_header False")
    assert loaded.job.steps[0].rows == Rows({"na_rep": "NA"}, False, "csv")
    assert ["sep" in warning.message for warning in loaded.warnings] == [True, False]
    assert "begins with its header" in loaded.warnings[1].message


def test_a_format_without_rows_is_told(workspace: Workspace) -> None:
    changes = with_arguments("--append_row_format csv").replace("  append_row_to: ${{outputs.scores}}\n", "")
    (warning,) = workspace.loaded(changes).warnings
    assert "without task.append_row_to, no rows are collected" in warning.message


def test_parquet_needs_pyarrow_where_the_script_runs(workspace: Workspace) -> None:
    assert load(workspace, "--append_row_format parquet").libraries == {"score": ("pyarrow",)}


NAMES = sorted({*RUNTIME_ARGUMENTS, *EXACT_ONLY})


@given(
    st.one_of(st.sampled_from(NAMES), st.builds(lambda name, n: name[:n], st.sampled_from(NAMES), st.integers(1, 30)))
)
@unhurried
def test_abbreviations_are_those_of_argparse(written: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    for name in NAMES:
        parser.add_argument(f"--{name}")
    try:
        parsed, rest = parser.parse_known_args([f"--{written}", "value"])
        theirs = None if rest else next(name for name, value in vars(parsed).items() if value is not None)
    except (argparse.ArgumentError, SystemExit):
        theirs = None
    ours = full_name(written)
    # Names that shipped components use are never taken from an abbreviation.
    assert ours == (None if theirs in EXACT_ONLY and theirs != written else theirs)


def test_values_are_never_taken_for_names() -> None:
    found = list(find_runtime_arguments(["error_threshold", "--error_threshold", "--", "--error_threshold", "1"]))
    assert [(one.name, one.value) for one in found] == [("error_threshold", None)]


@pytest.mark.parametrize(
    ("script", "changes", "seen"),
    [
        ('add("--logging_level")', "logging_level: debug", ("--logging_level=DEBUG",)),
        ("add('--run_max_try'); add('--error_threshold')", "", ("--error_threshold=-1", "--run_max_try=3")),
        ('add("--process_count_per_node")', "", ()),  # not set: nothing to tell
        ('add("--model"); add("--output")', "", ()),  # the script's own
        ("logging_level = 1", "", ()),
        ("add('--mini_batch_size')", with_arguments("--mini_batch_size 7"), ("--mini_batch_size", "7")),
        ("add('--mini_batch_size')", with_arguments("--mini_batch_s=7"), ("--mini_batch_s=7",)),
    ],
)
def test_a_script_gets_the_settings_it_reads_from_its_arguments(
    workspace: Workspace, script: str, changes: str, seen: tuple[str, ...]
) -> None:
    workspace.write("src/score.py", script)
    assert workspace.step(changes).arguments == seen


def test_arguments_about_logs_become_settings_of_the_step(workspace: Workspace) -> None:
    given = (
        "--copy_logs_to_parent True --resource_monitor_interval 0 --metrics_name_prefix mine_ "
        "--push_metrics_to_parent true --profiling_module CPROFILE"
    )
    step = load(workspace, given).job.steps[0]
    assert (step.copy_logs_to_parent, step.push_metrics_to_parent) == (True, True)
    assert (step.resource_monitor_interval_s, step.metrics_name_prefix) == (0, "mine_")
    assert step.profiling_module == "cProfile"
    again = EffectiveJob.from_json(workspace.effective(load(workspace, given)).to_json()).steps[0]
    assert again._replace(code_digest="") == step._replace(code_digest="")


def test_arguments_about_logs_have_the_documented_defaults_and_leave_earlier_documents_alone(
    workspace: Workspace,
) -> None:
    loaded = load(workspace, "--epochs 3")
    step = loaded.job.steps[0]
    assert (step.copy_logs_to_parent, step.resource_monitor_interval_s, step.profiling_module) == (False, 600, None)
    document = json.loads(workspace.effective(loaded).to_json())
    assert not {"resource_monitor_interval_s", "profiling_module", "copy_logs_to_parent"} & document["steps"][0].keys()


def test_a_script_is_not_handed_what_is_about_logs_unasked(workspace: Workspace) -> None:
    workspace.write("src/score.py", "parser.add_argument('--resource_monitor_interval')\ndef run(b): return b\n")
    assert load(workspace, "--epochs 3").job.steps[0].arguments == ("--epochs", "3")


@pytest.mark.parametrize(
    ("text", "per_s", "counts_items", "words"),
    [
        ("20/s", 20.0, False, "20 calls of run() per second"),
        ("1/min", 1 / 60, False, "1 call of run() per minute"),
        ("5000/h", 5000 / 3600, False, "1.39 calls of run() per second"),
        ("'0.5/s'", 0.5, False, "30 calls of run() per minute"),
        ("'20 items/s'", 20.0, True, "20 items per second"),
        ("20items/s", 20.0, True, "20 items per second"),
    ],
)
def test_a_rate_limit_is_of_calls_or_of_items(
    workspace: Workspace, text: str, per_s: float, counts_items: bool, words: str
) -> None:
    loaded = load(workspace, f"--rate_limit {text} --retry_delay 500ms")
    step = loaded.job.steps[0]
    assert step.rate_limit == Rate(pytest.approx(per_s), counts_items)
    assert step.retry_delay_s == 0.5
    assert rate_words(step.rate_limit.per_s, counts_items=counts_items) == words
    again = EffectiveJob.from_json(workspace.effective(loaded).to_json()).steps[0]
    assert again._replace(code_digest="") == step._replace(code_digest="")


@pytest.mark.parametrize(
    "arguments",
    ["--rate_limit 20", "--retry_delay 5", "--rate_limit 0/s", "--rate_limit 2000000/s"],
)
def test_a_pace_without_a_unit_is_the_scripts_own_and_that_is_told(workspace: Workspace, arguments: str) -> None:
    loaded = load(workspace, arguments)
    step = loaded.job.steps[0]
    assert (step.rate_limit, step.retry_delay_s) == (None, 0.0)
    assert step.arguments == tuple(arguments.split())
    (warning,) = [str(found) for found in loaded.warnings if arguments in str(found)]
    assert "is read as an argument of the script alone. If Windrow is meant, it must be" in warning


@pytest.mark.parametrize(
    ("arguments", "speculate", "left"),
    [("--speculate True", True, ()), ("--speculate draft.gguf", False, ("--speculate", "draft.gguf"))],
)
def test_stragglers_may_run_twice_unless_the_argument_is_the_script_s(
    workspace: Workspace, arguments: str, speculate: bool, left: tuple[str, ...]
) -> None:
    loaded = load(workspace, arguments)
    step = loaded.job.steps[0]
    assert step.speculate is speculate
    assert step.arguments == left
    again = EffectiveJob.from_json(workspace.effective(loaded).to_json()).steps[0]
    assert again.speculate is speculate


def test_paths_that_a_step_asks_for_add_up(workspace: Workspace) -> None:
    loaded = load(workspace, "--allow_path /models --n 1 --allow_path=/cache:rw")
    step = loaded.job.steps[0]
    assert step.allow_path == ("/models", "/cache:rw")
    assert step.arguments == ("--n", "1")
    assert not [str(found) for found in loaded.warnings if "allow_path" in str(found)]
    again = EffectiveJob.from_json(workspace.effective(loaded).to_json()).steps[0]
    assert again.allow_path == step.allow_path


def test_a_document_with_a_damaged_pace_is_refused(workspace: Workspace) -> None:
    document = json.loads(workspace.effective(load(workspace, "--rate_limit 20/s")).to_json())
    for found in (20, {"per_s": 0, "counts_items": False}, {"per_s": True, "counts_items": False}, {"per_s": 20.0}):
        document["steps"][0]["rate_limit"] = found
        with pytest.raises(DocumentError, match="rate_limit"):
            EffectiveJob.from_json(json.dumps(document))
    document["steps"][0] = {**document["steps"][0], "rate_limit": None, "retry_delay_s": 61}
    with pytest.raises(DocumentError, match="retry_delay_s: is 61"):
        EffectiveJob.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        ("--cpus_per_worker 2 --memory_per_worker 4gb --gpus_per_worker 2", (2.0, 4 << 30, 2)),
        ("--cpus_per_worker=0.25 --gpus_per_worker=0.5", (0.25, 0, 0.5)),
        ("--gpus_per_worker 1.0", (None, 0, 1)),
    ],
)
def test_what_a_worker_needs_is_no_argument_of_the_script(
    workspace: Workspace, arguments: str, needs: tuple[float | None, int, float]
) -> None:
    (step,) = load(workspace, arguments).job.steps
    assert (step.cpus_per_worker, step.memory_per_worker, step.gpus_per_worker) == needs
    (again,) = EffectiveJob.from_json(load(workspace, arguments).job.to_json()).steps
    assert again == step


@pytest.mark.parametrize(
    "argument", ["--gpus_per_worker 1.5", "--gpus_per_worker -1", "--cpus_per_worker 0", "--memory_per_worker 4GiB"]
)
def test_a_need_that_no_node_could_mean_is_an_error(workspace: Workspace, argument: str) -> None:
    assert argument.split()[0] in str(problem_of(workspace, argument))


def test_min_nodes_counts_on_a_cluster_and_has_no_effect_on_one_machine(workspace: Workspace) -> None:
    text = workspace.job_of(changed(STEP, with_arguments("--min_nodes 3")), "")
    (step,) = workspace.job(text, embedded=False).job.steps
    assert step.min_nodes == 3
    found = workspace.job(text)
    assert found.job.steps[0].min_nodes == 1
    assert "a run on this machine has one node" in " ".join(map(str, found.warnings))


def test_no_more_nodes_are_asked_for_at_once_than_may_work_on_the_step(workspace: Workspace) -> None:
    text = workspace.job_of(changed(STEP, "resources: {instance_count: 2, min_nodes: 3}"), "")
    (problem,) = workspace.problems(text, embedded=False)
    assert (problem.key, "is 3, and instance_count allows 2" in problem.message) == (
        "jobs.score.resources.min_nodes", True,
    )  # fmt: skip
