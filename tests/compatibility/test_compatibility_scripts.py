"""Entry scripts as they were written for ParallelRunStep (v1) and for parallel jobs (v2), through the whole command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from compatibility_job import CompatibilityJob

LOGGING = """
    import os
    from azureml_user.parallel_run import EntryScript

    def init():
        entry_script = EntryScript()
        logger = entry_script.logger
        logger.info("init() is called.")
        logger.debug("only with DEBUG")
        os.makedirs(entry_script.log_dir, exist_ok=True)

    def run(input_data):
        logger = EntryScript().logger
        logger.info("run() is called with: {}.".format(input_data))
        return [EntryScript().agent_name + " " + os.path.basename(path) for path in input_data]
"""

CONTEXT = """
    import os

    # A partition's values, the data set and the index, as scripts of v1 and of published components read them.
    def run(mini_batch, mini_batch_context):
        print(f"run method start: {__file__}, run({mini_batch}, {mini_batch_context})")
        print(f"partition_key_value = {mini_batch_context.partition_key_value}")
        print(f"dataset = {mini_batch_context.dataset}")
        index = mini_batch_context.minibatch_index
        first = mini_batch_context.global_row_index_lower_bound
        return [",".join(map(str, (os.path.basename(path), index, first + place)))
                for place, path in enumerate(mini_batch)]
"""

TASK_IDS = """
    import os
    import sys

    # A file a mini-batch, by the list's own number, and the tries, as published components tell them.
    def init():
        global folder
        folder = sys.argv[1]

    def run(mini_batch, mini_batch_context):
        if mini_batch.task_id == 1 and mini_batch_context.retry_count < 2:
            raise OSError("the endpoint is busy")
        with open(os.path.join(folder, f"embeddings{mini_batch.task_id}"), "w") as file:
            file.write(" ".join(map(os.path.basename, mini_batch)))
        return [f"{mini_batch.task_id} {mini_batch_context.retry_count}"] * len(mini_batch)
"""

STRICT = """
    import argparse

    def init():
        parser = argparse.ArgumentParser()
        parser.add_argument("--word")
        global args
        args = parser.parse_args()

    def run(mini_batch):
        return [args.word for _ in mini_batch]
"""


def write(job: CompatibilityJob, script: str, *, settings: str = "", files: int = 3) -> None:
    for number in range(files):
        job.write(f"data/f{number}", str(number))
    job.write("code/score.py", script)
    job.write_job("uri_folder", "./data", settings=f"mini_batch_size: 2\nmax_concurrency_per_instance: 1\n{settings}")


def rows(job: CompatibilityJob) -> list[str]:
    return (job.folder / "rows.txt").read_text().splitlines()


@pytest.mark.parametrize("level", ["INFO", "DEBUG", "warning"])
def test_the_entry_script_s_logger_obeys_the_level(job: CompatibilityJob, level: str) -> None:
    write(job, LOGGING, settings=f"logging_level: {level}")
    job.completed()
    assert rows(job) == ["process000 f0", "process000 f1", "process000 f2"]
    texts = [path.read_text() for path in job.state.glob("jobs/*/logs/*/user/entry_script_log/*/process000.log.txt")]
    logged = "".join(texts)
    assert ("init() is called." in logged) == (level != "warning")
    assert ("only with DEBUG" in logged) == (level == "DEBUG")


def test_the_context_is_there_without_partitions(job: CompatibilityJob) -> None:
    write(job, CONTEXT, files=5)
    job.completed()
    assert rows(job) == ["f0,0,0", "f1,0,1", "f2,1,2", "f3,1,3", "f4,2,4"]
    printed = "".join(path.read_text() for path in job.state.glob("jobs/*/logs/*/user/stdout/*/*.stdout.txt"))
    assert "partition_key_value = None\n" in printed
    assert "dataset = MiniBatchDataset()\n" in printed


def test_a_list_of_files_tells_its_task_id_and_the_context_its_retries(job: CompatibilityJob) -> None:
    write(job, TASK_IDS, files=5)
    file = job.folder / "job.yml"
    kept = "outputs:\n      kept: {type: uri_folder, path: ./kept}"
    file.write_text(file.read_text().replace("outputs:", kept, 1))
    job.completed("--set", "jobs.score.task.program_arguments=${{outputs.kept}}")
    assert rows(job) == ["0 0", "0 0", "1 2", "1 2", "2 0"]
    written = {path.name: path.read_text() for path in (job.folder / "kept").iterdir()}
    assert written == {"embeddings0": "f0 f1", "embeddings1": "f2 f3", "embeddings2": "f4"}


def test_the_code_folder_holds_modules_and_files_beside_the_script(job: CompatibilityJob) -> None:
    write(job, "", settings="")
    job.write("code/embeddings/__init__.py", "")
    job.write("code/embeddings/names.json", json.dumps({"f0": "zero"}))
    job.write("code/helping.py", "def last(path):\n    return path.rsplit('/', 1)[-1]\n")
    job.write(
        "code/embeddings/embed_prs.py",
        """
        import json
        import os
        from helping import last

        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.json")) as file:
            NAMES = json.load(file)

        def run(mini_batch):
            assert __name__ != "__main__"
            return tuple(NAMES.get(last(path), last(path)) for path in mini_batch)
        """,
    )
    for entry_script in ("embeddings/embed_prs.py", "embeddings.embed_prs"):
        job.completed("--set", f"jobs.score.task.entry_script={entry_script}")
        assert rows(job) == ["zero", "f1", "f2"]


def test_a_strict_parser_is_fine_with_its_own_arguments_alone(job: CompatibilityJob) -> None:
    write(job, STRICT)
    job.completed("--set", "jobs.score.task.program_arguments=--word yes")
    assert rows(job) == ["yes"] * 3
    code, text = job.run("--set", "jobs.score.task.program_arguments=--word yes --error_threshold 3")
    assert code == 1
    assert "parse_known_args()" in text


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "NoneType"),
        ("'a text'", "str"),
        ("{'a': 1}", "dict"),
        ("len(mini_batch)", "int"),
        ("(path for path in mini_batch)", "generator"),
    ],
)
def test_a_return_of_another_type_is_named(job: CompatibilityJob, returned: str, said: str) -> None:
    write(job, f"def run(mini_batch):\n    return {returned}\n", settings="retry_settings: {max_retries: 0}")
    code, text = job.run()
    # No item succeeded, and rows were to be gathered (docs/reference/azure-ml/parallel-job.md#thresholds).
    assert code == 1
    assert "should return a list or a pandas DataFrame" in text
    assert said in text


def test_a_module_that_is_missing_is_named_with_the_interpreter(job: CompatibilityJob) -> None:
    """Without the vendor's package, scripts have only as much of it as they need."""
    write(job, "from azureml.explain.model import Explainer\n\ndef run(mini_batch):\n    return mini_batch\n")
    code, text = job.run()
    assert code == 1
    assert "No module named 'azureml.explain'" in text
    assert "--python" in text


FAILS_ONCE = "def run(mini_batch, context):\n    assert context.minibatch_index != 1, 'one'\n    return ['row']\n"


def test_the_list_of_failed_items_goes_with_the_output_it_was_of(job: CompatibilityJob) -> None:
    write(job, FAILS_ONCE, settings="retry_settings: {max_retries: 0}", files=4)
    assert f"listed in {job.folder}/failed_items.csv" in job.completed()
    write(job, "def run(mini_batch):\n    return mini_batch\n", files=4)
    job.completed("--strict")
    assert not (job.folder / "failed_items.csv").exists()


def test_a_failed_job_says_that_the_output_is_older_and_leaves_no_older_list_beside_it(job: CompatibilityJob) -> None:
    listed, older = job.folder / "failed_items.csv", f"{job.folder}/rows.txt is from an earlier run"
    fails = "def run(mini_batch):\n    assert not mini_batch, 'all'\n"
    write(job, fails, settings="retry_settings: {max_retries: 0}", files=4)
    code, text = job.run()
    assert code == 1 and older not in text and not listed.exists(), text
    write(job, FAILS_ONCE, settings="retry_settings: {max_retries: 0}", files=4)
    assert older not in job.completed() and ": one (score.py" in listed.read_text()
    rows = (job.folder / "rows.txt").read_bytes()
    write(job, fails, settings="retry_settings: {max_retries: 0}", files=4)
    code, text = job.run()
    assert code == 1 and older in text
    assert (job.folder / "rows.txt").read_bytes() == rows
    assert listed.read_text().count(": all (score.py") == 4


def test_a_file_that_is_not_windrow_s_is_not_made_a_list_of_failed_items(job: CompatibilityJob) -> None:
    write(job, FAILS_ONCE, settings="retry_settings: {max_retries: 0}", files=4)
    job.write("failed_items.csv", "mine")
    text = job.completed()
    assert (job.folder / "failed_items.csv").read_text() == "mine"
    (listed,) = re.findall(r"CompletedWithFailures: .*; listed in (.*)\. Output", text)
    assert ",exception," in Path(listed).read_text()


def test_each_step_of_several_has_a_list_of_its_own_and_the_last_line_names_it(job: CompatibilityJob) -> None:
    write(job, FAILS_ONCE, settings="retry_settings: {max_retries: 0}", files=4)
    step = (job.folder / "job.yml").read_text().partition("  score:\n")[2]
    with (job.folder / "job.yml").open("a") as file:
        file.write("  more:\n" + step.replace("./rows.txt", "./more.txt"))
    text = job.completed()
    files = [str(job.folder / name) for name in ("score.failed_items.csv", "more.failed_items.csv")]
    assert sorted(re.findall(r"; listed in (.*)\. Output", text)[0].split(", ")) == sorted(files)
    assert all(Path(file).is_file() for file in files)
