"""`windrow init`: a script and a job file to begin with, for the data that it is pointed at."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Kind
from windrow.cli.tables import out
from windrow.errors import UsageError

FILES_SCRIPT = '''\
from pathlib import Path


def init():
    """Called once in each worker process: load a model or open a connection here. May be left out."""


def run(mini_batch):
    """Called for each mini-batch, a list of paths of files. Returns one row for each of them."""
    rows = []
    for name in mini_batch:
        file = Path(name)
        rows.append({"file": file.name, "bytes": file.stat().st_size})
    return rows
'''
TABLE_SCRIPT = '''\
def init():
    """Called once in each worker process: load a model or open a connection here. May be left out."""


def run(mini_batch):
    """Called for each mini-batch, a pandas DataFrame with some rows of the table. Returns one row for each of them."""
    mini_batch["columns"] = mini_batch.notna().sum(axis=1)
    return mini_batch
'''


@command(
    epilog="Example: windrow init photos/. Then: windrow run job.yml",
    short_help="Write a script and a job file for your data.",
)
def init(
    inputs: Annotated[
        list[str],
        Argument(metavar="INPUT", help="The data: folders, files, patterns in quotes, tables, addresses."),
    ],
    script: Annotated[str, Option(metavar="FILE", help="The script to write.")] = "score.py",
    job: Annotated[str, Option(metavar="FILE", help="The job file to write.")] = "job.yml",
    output: Annotated[
        str,
        Option("--output", "-o", metavar="FILE", help="Where the rows will go: .csv, .jsonl, .parquet or .txt."),
    ] = "rows.csv",
    kind: Annotated[Kind, Option("--as", help="What run() gets [default: by the inputs' suffixes].")] = Kind.AUTO,
) -> int:
    """Write a script and a job file for your data, which run as they are. Existing files are never replaced."""
    # Here, since all commands import this module, and these read YAML.
    from windrow.cli.running import one_line
    from windrow.spec.one_line.inputs import has_only_headers, is_empty, read_inputs
    from windrow.spec.one_line.job_file import make_job_file
    from windrow.spec.one_line.request import SCRIPT_SUFFIX, OneLine

    for name in (script, job):
        if Path(name).exists():
            raise UsageError(f"{name} exists already. Name another file with --script or --job, or remove it.")
    if not script.endswith(SCRIPT_SUFFIX):
        raise UsageError(f"--script {script}: the name of a script ends in {SCRIPT_SUFFIX}.")
    here = Path.cwd()
    found = read_inputs(inputs, kind.value, str(here))
    for given in found:
        if is_empty(given):
            _warn(f"{given.typed} is empty")
        elif has_only_headers(given):
            _warn(f"{given.typed} has a header and no row")
    target = Path(job).absolute()
    text = FILES_SCRIPT if all(one.is_list for one in found) else TABLE_SCRIPT
    place = Path(script)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{script} cannot be written: {error.strerror}. Name another file: --script FILE") from error
    try:
        one = OneLine(script, tuple(inputs), output, kind.value, slots=one_line.processors())
        made = make_job_file(one, str(here), relative_to=str(target.parent), job_name=target.name)
        one_line.write(made, str(target.parent))
    except BaseException:
        place.unlink()
        raise
    for note in made.notes:
        say(f"Note: {note}")
    line = shlex.join(["windrow", "run", script, *inputs, "-o", output])
    out(f"{script} is an example: write your own work into its run().")
    out(f"{job} says what it runs on. Run it: windrow run {shlex.quote(job)}")
    out(f"The same without a job file: {line}{'' if kind is Kind.AUTO else f' --as {kind.value}'}")
    return exit_codes.DONE


def _warn(what: str) -> None:
    say(f"{coloured('warning:', YELLOW, sys.stderr)} {what}: the job fails until there is data.")
