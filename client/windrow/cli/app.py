"""The typer application: every command, its help, and shell completion."""

from __future__ import annotations

import itertools
import sys
from typing import Annotated

import typer

import windrow
from windrow.cli import (
    agent,
    asset,
    backup,
    become,
    context,
    doctor,
    health,
    init,
    job,
    job_report,
    mini_batches,
    node,
    packages,
    pipeline,
    registry,
    run_start,
    token,
    validate,
)
from windrow.cli import state as state_commands
from windrow.cli.messages import report
from windrow.cli.options import (
    APP_SETTINGS,
    CodeChange,
    CodeChangeChoice,
    Environments,
    EnvironmentsChoice,
    Kind,
    Notify,
    OutputForm,
    SandboxChoice,
    Sets,
    Since,
    Strict,
    Tolerate,
    guarded,
)
from windrow.cli.run_options import RunOptions
from windrow.cli.top import command as top
from windrow.errors import UsageError

EXIT_CODES = (
    "Exit codes: 0 done, 1 job failed, 2 bad usage or job file, 3 done with failures that no threshold "
    "allows (with --strict: with any), 4 cancelled, 5 master unreachable, 130 interrupted with the state kept."
)

app = typer.Typer(
    name="windrow",
    help="Run a script over one big input on many processes and machines, each row exactly once.",
    epilog=f"Example: windrow run job.yml\n\n{EXIT_CODES}",
    no_args_is_help=True,
    **APP_SETTINGS,
)
app.add_typer(job.app, name="job")
app.add_typer(mini_batches.app, name="mb")
app.add_typer(asset.data_app, name="data")
app.add_typer(asset.model_app, name="model")
app.add_typer(packages.environment_app, name="environment")
app.add_typer(packages.component_app, name="component")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(registry.app, name="registry")
app.add_typer(node.app, name="node")
app.add_typer(token.app, name="token")
app.add_typer(context.app, name="context")
app.add_typer(state_commands.app, name="state")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"windrow {windrow.__version__}")
        raise typer.Exit


@app.callback()
def windrow_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of `windrow` itself."""


@app.command(
    "run",
    short_help="Run a script or a job file on this machine.",
    epilog=f"Example: windrow run sizes.py photos/ -o sizes.csv. Then: windrow run job.yml\n\n{EXIT_CODES}",
)
@guarded
def run(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A script (.py), or a job file: a pipeline YAML with parallel steps.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="What a script runs on: folders, files, patterns in quotes, tables (.csv, .tsv, .parquet, .jsonl), "
            "addresses in a store. Then -- and arguments of the script.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="With a script: the file for its rows; .csv, .jsonl, .parquet, or .txt for lines of text.",
        ),
    ] = None,
    kind: Annotated[
        Kind,
        Notify,
        typer.Option(
            "--as", help="With a script: run() gets paths of files, or DataFrames [default: by the inputs' suffixes]."
        ),
    ] = Kind.AUTO,
    mini_batch_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="With a script: files in a mini-batch; of tables, bytes such as 100kb [default: chosen by the input].",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=4096, metavar="N", help="With a script: the same as --slots, for its step.")
    ] = None,
    timeout: Annotated[
        int | None,
        typer.Option(min=1, max=259_200, metavar="S", help="With a script: seconds that a call of run() may take."),
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, metavar="N", help="With a script: so often a failed mini-batch runs again."),
    ] = None,
    partition_keys: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,…", help="With a script: columns of a table; each mini-batch has one of their values."
        ),
    ] = None,
    returns: Annotated[
        str | None,
        typer.Option(
            metavar="per_item|per_group|any",
            help="With a script: what a row that run() returns stands for [default: an item; with keys, the group].",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="off|N",
            help="With a script: do not split failed mini-batches to find the items that fail, or split N at a time "
            "[default: 1].",
        ),
    ] = None,
    retry_delay: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With a script: so long a failed mini-batch waits for its first retry, such as 1s; twice as long for "
            "each further one [default: not at all].",
        ),
    ] = None,
    rate_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N/s",
            help="With a script: so many calls of run() may begin, such as 20/s or 500/min; or items: '20 items/s'.",
        ),
    ] = None,
    speculate: Annotated[
        bool,
        typer.Option(
            "--speculate",
            help="With a script: a mini-batch may run twice at the same time. When workers are idle, the slowest "
            "mini-batches begin once more, and the first attempt that succeeds counts.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With a script: write the equivalent job file, and run nothing."),
    ] = None,
    sets: Sets = None,
    state: Annotated[
        str,
        typer.Option(
            "--state",
            envvar="WINDROW_STATE",
            metavar="DIR",
            help="State folder. Run again with the same one to continue an unfinished run.",
        ),
    ] = ".windrow",
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Interpreter for the script [default: the active environment's, else Windrow's]."
        ),
    ] = None,
    environments: EnvironmentsChoice = Environments.BUILD,
    sandbox: SandboxChoice = None,
    slots: Annotated[
        int | None, typer.Option(min=1, max=4096, metavar="N", help="Number of workers [default: one per processor].")
    ] = None,
    datastores: Annotated[
        list[str] | None,
        typer.Option(
            "--datastore",
            metavar="NAME=PLACE",
            help="What azureml://datastores/NAME means: a folder, or a place in storage (s3://…). Repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan (steps, places, mini-batches, settings) and run nothing."),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Cancel the unfinished run of this file and start a new one.")
    ] = False,
    keep_rows: Annotated[
        bool,
        typer.Option(
            "--keep-rows",
            help="Finish the unfinished run as it was started, although the file or its code has changed.",
        ),
    ] = False,
    since: Since = "",
    code_change: CodeChange = CodeChangeChoice.ASK,
    exact_row_index: Annotated[
        bool,
        typer.Option(
            "--exact-row-index",
            help="Count the records of tables while dividing them, like the argument --exact_row_index True.",
        ),
    ] = False,
    strict: Strict = False,
    tolerate: Tolerate = False,
    notify: Notify = None,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="Show only the start and the end.")] = False,
    form: Annotated[
        OutputForm, typer.Option("--format", help="json: one event per line on standard output.")
    ] = OutputForm.TEXT,
) -> int:
    """Run a script over its inputs, or a job file, on this machine, and wait until it ends.

    A private master and agent do the work. Ctrl-C once lets running mini-batches finish and keeps the state; the same
    command then continues the run. Ctrl-C twice ends at once.
    """
    if restart and keep_rows:
        raise typer.BadParameter(
            "--restart and --keep-rows are mutually exclusive: cancel the unfinished run, or finish it."
        )
    if workers is not None and slots is not None:
        raise typer.BadParameter("--workers and --slots are the same option: the number of workers. Give one of them.")
    options = RunOptions(file)
    options.inputs = inputs or []
    if "--" in sys.argv:
        # Typer counts what follows among the inputs.
        options.arguments = sys.argv[sys.argv.index("--") + 1 :]
        options.inputs = options.inputs[: len(options.inputs) - len(options.arguments)]
    options.output, options.kind, options.mini_batch_size = output, kind.value, mini_batch_size
    options.workers, options.timeout, options.max_retries = workers, timeout, max_retries
    options.partition_keys, options.save = partition_keys, save
    options.returns, options.split = returns, split
    options.retry_delay, options.rate_limit, options.speculate = retry_delay, rate_limit, speculate
    if misplaced := options.misplaced():
        raise typer.BadParameter(
            f"{file} is read as a job file, which says everything itself, but {misplaced} is given, too. Leave it out "
            "(--set changes a job file for one run), or name a script, whose name ends in .py."
        )
    options.sets = sets or []
    options.datastores = datastores or []
    options.state = state
    options.python = python
    options.environments = environments.value
    options.sandbox = None if sandbox is None else sandbox.value
    options.slots = slots or workers
    options.restart, options.keep_rows, options.strict, options.no_progress = restart, keep_rows, strict, no_progress
    options.tolerate, options.notify = tolerate, notify or []
    options.exact_row_index, options.dry_run, options.since = exact_row_index, dry_run, since
    options.code_change = code_change.value
    options.form = form.value
    return run_start.run(options)


@app.command(
    "master",
    short_help="Run a master, which owns the queue of mini-batches.",
    epilog="Example: windrow master --state /var/lib/windrow --listen 127.0.0.1:8470",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def master(context: typer.Context) -> None:
    """Run a master, which owns the queue of mini-batches and gathers their rows. Options: windrow master --help"""
    become("master", context.args)


@app.command(
    "setup",
    short_help="Make certificates and tokens for a master and its agents.",
    epilog="Example: windrow setup --folder /etc/windrow --name gpu1.example",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def setup(context: typer.Context) -> None:
    """Make certificates and tokens for a master, its agents and its clients. Options: windrow setup --help"""
    become("setup", context.args)


@app.command(
    "schema",
    short_help="Print the JSON Schema of job files, for editors.",
    epilog="Example: windrow schema > job.schema.json",
)
@guarded
def schema() -> int:
    """Print the JSON Schema of job files, by which editors complete, explain and check their keys."""
    from importlib import resources

    print((resources.files("windrow.spec") / "job.schema.json").read_text("utf-8"), end="")
    return 0


job.app.command("report", epilog="Example: windrow job report digits-20260501-101500-ab12 --to report.html --open")(
    job_report.report
)

agent.add_to(app)

app.command(
    "top",
    short_help="Show jobs, nodes and workers, live on the whole screen.",
    epilog="Example: windrow top --view workers --master 127.0.0.1:8470",
)(top.top)

app.command(
    "init",
    short_help="Write a script and a job file for your data.",
    epilog="Example: windrow init photos/. Then: windrow run job.yml",
)(init.init)

app.command(
    "validate",
    short_help="Check a job file, a component or a table without running it.",
    epilog="Example: windrow validate job.yml --set inputs.data.path=./other",
)(validate.validate)

app.command("backup", epilog="Example: windrow backup /mnt/backups/monday --state /var/lib/windrow")(backup.backup)
app.command("restore", epilog="Example: windrow restore /mnt/backups/monday --state /var/lib/windrow")(backup.restore)
app.command(
    "doctor",
    short_help="Check this machine, and its master if there is one.",
    epilog="Example: windrow doctor --state /var/lib/windrow",
)(doctor.doctor)

app.command(
    "health",
    short_help="Check whether a master or an agent serves.",
    epilog="Example: windrow health --master 127.0.0.1:8470",
)(health.health)


def run_app() -> int:
    """Run the command line of this process.

    Returns its exit code, or ends the process with it. If JSON is requested, usage errors are also reported as JSON.
    """
    if not _wants_json(sys.argv[1:]):
        app(prog_name="windrow")
    try:
        return app(prog_name="windrow", standalone_mode=False) or 0
    except typer.Abort:
        return 1
    except Exception as error:
        # What typer says of a command line; of which package its class is depends on typer's version.
        if not hasattr(error, "format_message"):
            raise
        return report(UsageError(error.format_message()), "json")


def _wants_json(arguments: list[str]) -> bool:
    """Whether the command line asks for JSON, as far as can be told before it is read: it may be what is wrong."""
    pairs = itertools.pairwise(arguments)
    return "--format=json" in arguments or ("--format", "json") in pairs
