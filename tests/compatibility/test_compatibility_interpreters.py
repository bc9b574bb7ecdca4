"""Scripts run in the user's own Python: bare, with other versions than ours of what we use, or another Python.

Issue: a script must never meet our gRPC, protobuf, numpy or pandas, nor be kept from its own.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from compatibility_job import CompatibilityJob
from foreign_environments import Environments
from known_pythons import minors, too_old

pytestmark = pytest.mark.timeout(600)  # installations, on slow lines too

WHO = """
    import os
    import sys
    from azureml_user.parallel_run import EntryScript

    def init():
        EntryScript().logger.info("started by %s", sys.prefix)

    def run(mini_batch):
        ours = {"windrow", "grpc", "google", "structlog", "psutil", "pandas", "numpy", "pyarrow"} & set(sys.modules)
        assert not ours, ours
        return [os.path.basename(path) + " " + sys.prefix for path in mini_batch]
"""
"""Says which Python it runs in; fails where anything of ours has come with it."""


def write_files(job: CompatibilityJob, count: int = 5) -> None:
    for number in range(count):
        job.write(f"data/f{number}", str(number))
    job.write_job("uri_folder", "./data", settings="mini_batch_size: 2\nretry_settings: {max_retries: 0}")


def rows_of(prefix: Path, count: int = 5) -> str:
    return "".join(f"f{number} {prefix}\n" for number in range(count))


@pytest.mark.parametrize("chosen_by", ["--python", "VIRTUAL_ENV", "CONDA_PREFIX", "both"])
def test_a_bare_environment_serves_files(job: CompatibilityJob, environments: Environments, chosen_by: str) -> None:
    python = environments.bare()
    prefix = python.parents[1]
    job.write("code/score.py", WHO)
    write_files(job)
    if chosen_by == "--python":
        # It wins over an environment that is active, and may be given relative to the current folder.
        link = job.folder / "env"
        link.symlink_to(prefix)
        job.completed("--python", "env/bin/python", VIRTUAL_ENV="/not/there")
        prefix = link
    elif chosen_by == "both":
        job.completed(VIRTUAL_ENV=str(prefix), CONDA_PREFIX="/not/there")
    else:
        job.completed(**{chosen_by: str(prefix)})
    assert (job.folder / "rows.txt").read_text() == rows_of(prefix)


def test_without_an_active_environment_it_is_our_own(job: CompatibilityJob) -> None:
    job.write("code/score.py", WHO)
    write_files(job)
    job.completed()
    assert (job.folder / "rows.txt").read_text() == rows_of(Path(sys.prefix))


@pytest.mark.parametrize("data", ["./table.csv", "./table.jsonl"])
def test_a_table_without_pandas_there_says_where_and_what_to_do(
    job: CompatibilityJob, environments: Environments, data: str
) -> None:
    python = environments.bare()
    job.write("code/score.py", "def run(mini_batch):\n    return mini_batch\n")
    job.write("table.csv", "a,b\n1,2\n")
    job.write("table.jsonl", '{"a": 1}\n')
    job.write_job("mltable", data)
    code, text = job.run("--python", str(python))
    assert code == 2
    assert f"Step score reads a table, which needs pandas in the Python that runs the script, {python}" in text
    assert f"({shlex.quote(str(python))} -m pip install pandas)" in text
    assert "--python" in text
    assert "Traceback" not in text
    assert "Run " not in text


def test_a_table_of_an_earlier_step_without_pandas_there_says_so(
    job: CompatibilityJob, environments: Environments
) -> None:
    """Only the worker can know what the earlier step has written."""
    python = environments.bare()
    job.write("code/score.py", "def run(mini_batch):\n    return ['a,b\\n1,2' for _ in mini_batch]\n")
    job.write("data/one", "")
    job.write_job("uri_folder", "./data")
    text = (job.folder / "job.yml").read_text()
    step = text[text.index("  score:\n") :].replace("score:", "second:", 1).replace("type: uri_folder", "type: mltable")
    step = step.replace("path: ./data", "path: '${{parent.jobs.score.outputs.rows}}'").replace("rows.txt", "second.txt")
    (job.folder / "job.yml").write_text(text.replace("rows.txt", "rows.csv") + step)
    code, text = job.run("--python", str(python))
    assert code == 1
    assert f"A table as input needs pandas in the Python that runs the script, {python}: No module named" in text
    assert f"({shlex.quote(str(python))} -m pip install pandas)" in text


def test_pandas_in_the_code_folder_is_found(job: CompatibilityJob, environments: Environments) -> None:
    job.write("code/pandas.py", "__version__ = 'none of it'\n")
    job.write("code/score.py", "def run(mini_batch):\n    return mini_batch\n")
    job.write("table.csv", "a,b\n1,2\n")
    job.write_job("mltable", "./table.csv")
    code, text = job.run("--python", str(environments.bare()))
    assert code == 1
    assert "Run " in text


def test_a_parquet_file_without_pyarrow_there_says_so(job: CompatibilityJob, environments: Environments) -> None:
    python, _ = environments.older(1)
    make = "import pandas, sys; pandas.DataFrame({'a': [1, 2]}).to_parquet(sys.argv[1])"
    subprocess.run([sys.executable, "-c", make, str(job.folder / "table.parquet")], check=True)
    job.write("code/score.py", "def run(mini_batch):\n    return mini_batch\n")
    job.write_job("mltable", "./table.parquet")
    code, text = job.run("--python", str(python))
    assert code == 2
    assert f"Step score reads a table, which needs pyarrow in the Python that runs the script, {python}" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("python", ["/not/there/python", "./code"])
def test_an_interpreter_that_is_none_is_told_by_name(job: CompatibilityJob, python: str) -> None:
    job.write("code/score.py", WHO)
    write_files(job)
    code, text = job.run("--python", python)
    assert code != 0
    assert python.removeprefix(".") in text
    assert "--python" in text
    assert not (job.folder / "rows.txt").exists()


OLDER = """
    import sys
    from importlib.metadata import version

    import google.protobuf
    import grpc
    import numpy
    import pandas
    from azureml_user.parallel_run import EntryScript
    from google.protobuf import struct_pb2

    try:
        import pyarrow
    except ImportError:
        pyarrow = None

    def init():
        modules = {"protobuf": google.protobuf, "grpcio": grpc, "numpy": numpy, "pandas": pandas, "pyarrow": pyarrow}
        wanted = dict(argument.split("==") for argument in sys.argv[1:])
        found = {name: module.__version__ for name, module in modules.items() if module is not None}
        assert found == wanted, found
        assert all(module.__file__.startswith(sys.prefix) for module in modules.values() if module)
        message = struct_pb2.Struct()
        message.update({"a": 1})
        grpc.insecure_channel("localhost:1").close()

    def run(mini_batch):
        assert type(mini_batch) is pandas.DataFrame
        assert mini_batch["whole"].dtype == "int64" and mini_batch["part"].dtype == "float64"
        assert mini_batch["day"].dtype == "datetime64[ns]" and mini_batch["yes"].dtype == bool
        mini_batch["third"] = mini_batch["whole"] / 3
        mini_batch["kind"] = mini_batch["text"].astype("category")
        return mini_batch
"""
"""Imports what Windrow uses too, in versions of its own, and returns what it was given, and more."""

EXPECTED = """
    import sys
    import pandas
    frame = pandas.read_csv(sys.argv[1], parse_dates=["day"], keep_default_na=False, na_values={"part": [""]})
    frame["third"] = frame["whole"] / 3
    frame["kind"] = frame["text"].astype("category")
    sys.stdout.reconfigure(newline="")
    sys.stdout.write(frame.to_csv(sep=" ", header=False, index=False))
"""
"""The whole at once, by that environment's pandas alone."""


def write_table(job: CompatibilityJob, rows: int) -> Path:
    texts = ["plain", "two words", '"a ""quoted"" one"', "üñî", "x'y", "comma; and more"]
    lines = ["whole,part,text,yes,day"]
    for number in range(rows):
        part = "" if number % 7 == 3 else f"{number / 8 - 5}" if number % 5 else f"{number * 1e17}"
        yes = "true" if number % 2 else "false"
        day = f"2021-{number % 12 + 1:02}-{number % 28 + 1:02}"
        lines.append(f"{number * 37 - 50},{part},{texts[number % len(texts)]},{yes},{day}")
    return job.write("table/data.csv", "\n".join(lines) + "\n")


@pytest.mark.parametrize("rows", [40, 6000])
@pytest.mark.parametrize("variant", [0, 1], ids=["pyarrow", "no pyarrow"])
def test_older_packages_serve_tables_byte_equal_to_their_own_pandas(
    job: CompatibilityJob, environments: Environments, variant: int, rows: int
) -> None:
    python, versions = environments.older(variant)
    job.write("code/score.py", OLDER)
    table = write_table(job, rows)
    job.write(
        "table/MLTable",
        """
        type: mltable
        paths:
          - file: ./data.csv
        transformations:
          - read_delimited: {delimiter: ",", encoding: utf8, header: all_files_same_headers}
        """,
    )
    job.write_job("mltable", "./table", settings="mini_batch_size: 60kb\nretry_settings: {max_retries: 0}")
    wanted = " ".join(f"{name}=={version}" for name, version in versions.items())
    job.completed("--python", str(python), "--set", f"jobs.score.task.program_arguments={wanted}")

    job.write("expected.py", EXPECTED)
    expected = subprocess.run([python, job.folder / "expected.py", table], capture_output=True, check=True).stdout
    assert (job.folder / "rows.txt").read_bytes() == expected
    assert job.counters()["items_ok"] == rows
    assert job.counters()["planned"] == -(-table.stat().st_size // (60 * 1024))


INTERPRETERS = {minor: python for minor, python in minors().items() if python != sys.executable} or {"none": ""}


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS.keys())
def test_other_versions_of_python_serve_files(job: CompatibilityJob, python: str) -> None:
    if not python:
        pytest.skip("no other Python from 3.8 on is on this machine")
    job.write("code/score.py", WHO)
    write_files(job)
    job.completed("--python", python)
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert (job.folder / "rows.txt").read_text() == rows_of(Path(prefix.stdout.strip()))


OLD_INTERPRETERS = {"pretended": "", **too_old()}


@pytest.mark.parametrize("python", OLD_INTERPRETERS.values(), ids=OLD_INTERPRETERS.keys())
def test_a_python_that_is_too_old_is_told_from_one_that_is_broken(job: CompatibilityJob, python: str) -> None:
    if not python:
        pretend = "import sys; sys.version_info = (3, 6, 0); sys.argv = sys.argv[1:]; exec(open(sys.argv[0]).read())"
        wrapper = job.write("python3.6", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{pretend}" "$@"\n')
        wrapper.chmod(0o755)
        python = str(wrapper)
    job.write("code/score.py", WHO)
    write_files(job)
    code, text = job.run("--python", python)
    assert code == 2
    assert "too old; Python 3.8 or newer is needed" in text
    assert "--python PATH" in text
    assert "Traceback" not in text
    assert "Run " not in text
