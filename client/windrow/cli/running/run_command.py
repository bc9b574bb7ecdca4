"""`windrow run`, when its command line is not as plain as `run_options` wants it, and its help."""

from __future__ import annotations

import sys
from typing import Annotated

from windrow.cli.options.declared import EXIT_CODES, Argument, Option, command
from windrow.cli.options.run_options import RunOptions
from windrow.cli.options.shared import (
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
)
from windrow.cli.running import run_start
from windrow.errors import UsageError


@command(
    short_help="Run a script or a job file on this machine.",
    epilog=f"Example: windrow run sizes.py photos/ -o sizes.csv. Then: windrow run job.yml\n\n{EXIT_CODES}",
)
def run(
    file: Annotated[
        str, Argument(metavar="FILE", help="A script (.py), or a job file: a pipeline YAML with parallel steps.")
    ],
    inputs: Annotated[
        list[str] | None,
        Argument(
            metavar="INPUT",
            help="What a script runs on: folders, files, patterns in quotes, tables (.csv, .tsv, .parquet, .jsonl), "
            "addresses in a store. Then -- and arguments of the script.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        Option(
            "--output",
            "-o",
            metavar="FILE",
            help="With a script: the file for its rows; .csv, .jsonl, .parquet, or .txt for lines of text.",
        ),
    ] = None,
    kind: Annotated[
        Kind,
        Option(
            "--as", help="With a script: run() gets paths of files, or DataFrames [default: by the inputs' suffixes]."
        ),
    ] = Kind.AUTO,
    mini_batch_size: Annotated[
        str | None,
        Option(
            metavar="SIZE",
            help="With a script: files in a mini-batch; of tables, bytes such as 100kb [default: chosen by the input].",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            min=1,
            max=4096,
            metavar="N",
            help="With a script: the same as --slots, for its step.",
            excludes={"slots": "--workers and --slots are the same option: the number of workers. Give one of them."},
        ),
    ] = None,
    timeout: Annotated[
        int | None,
        Option(min=1, max=259_200, metavar="S", help="With a script: seconds that a call of run() may take."),
    ] = None,
    max_retries: Annotated[
        int | None,
        Option(min=0, max=2**31 - 1, metavar="N", help="With a script: so often a failed mini-batch runs again."),
    ] = None,
    partition_keys: Annotated[
        str | None,
        Option(metavar="KEY,…", help="With a script: columns of a table; each mini-batch has one of their values."),
    ] = None,
    returns: Annotated[
        str | None,
        Option(
            metavar="per_item|per_group|any",
            help="With a script: what a row that run() returns stands for [default: an item; with keys, the group].",
        ),
    ] = None,
    split: Annotated[
        str | None,
        Option(
            metavar="off|N",
            help="With a script: do not split failed mini-batches to find the items that fail, or split N at a time "
            "[default: 1].",
        ),
    ] = None,
    retry_delay: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="With a script: so long a failed mini-batch waits for its first retry, such as 1s; twice as long for "
            "each further one [default: not at all].",
        ),
    ] = None,
    rate_limit: Annotated[
        str | None,
        Option(
            metavar="N/s",
            help="With a script: so many calls of run() may begin, such as 20/s or 500/min; or items: '20 items/s'.",
        ),
    ] = None,
    cpus_per_worker: Annotated[
        str | None,
        Option(metavar="N", help="With a script: processors that a worker takes, such as 4 or 0.5 [default: 1]."),
    ] = None,
    memory_per_worker: Annotated[
        str | None,
        Option(metavar="SIZE", help="With a script: memory that a worker takes, such as 8gb [default: not counted]."),
    ] = None,
    gpus_per_worker: Annotated[
        str | None,
        Option(metavar="N", help="With a script: GPUs that a worker takes, such as 1, or 0.5 for half of one."),
    ] = None,
    min_nodes: Annotated[
        str | None,
        Option(metavar="N", help="With a script: begin on so many nodes at once, not on one after the other."),
    ] = None,
    idle_gpu_timeout: Annotated[
        int | None,
        Option(
            min=1,
            max=259_200,
            metavar="S",
            help="With a script: seconds after which a worker without a mini-batch gives back a GPU that it does not "
            "use [default: never].",
        ),
    ] = None,
    speculate: Annotated[
        bool,
        Option(
            "--speculate",
            help="With a script: a mini-batch may run twice at the same time. When workers are idle, the slowest "
            "mini-batches begin once more, and the first attempt that succeeds counts.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        Option(metavar="FILE", help="With a script: write the equivalent job file, and run nothing."),
    ] = None,
    sets: Sets = None,
    state: Annotated[
        str,
        Option(
            "--state",
            envvar="WINDROW_STATE",
            metavar="DIR",
            help="State folder. Run again with the same one to continue an unfinished run.",
        ),
    ] = ".windrow",
    python: Annotated[
        str | None,
        Option(metavar="PATH", help="Interpreter for the script [default: the active environment's, else Windrow's]."),
    ] = None,
    environments: EnvironmentsChoice = Environments.BUILD,
    sandbox: SandboxChoice = None,
    slots: Annotated[
        int | None, Option(min=1, max=4096, metavar="N", help="Number of workers [default: one per processor].")
    ] = None,
    datastores: Annotated[
        list[str] | None,
        Option(
            "--datastore",
            metavar="NAME=PLACE",
            help="What azureml://datastores/NAME means: a folder, or a place in storage (s3://…). Repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Show the plan (steps, places, mini-batches, settings) and run nothing."),
    ] = False,
    restart: Annotated[
        bool,
        Option(
            "--restart",
            help="Cancel the unfinished run of this file and start a new one.",
            excludes={
                "keep_rows": "--restart and --keep-rows are mutually exclusive: cancel the unfinished run, or finish "
                "it."
            },
        ),
    ] = False,
    keep_rows: Annotated[
        bool,
        Option(
            "--keep-rows",
            help="Finish the unfinished run as it was started, although the file or its code has changed.",
        ),
    ] = False,
    since: Since = "",
    code_change: CodeChange = CodeChangeChoice.ASK,
    exact_row_index: Annotated[
        bool,
        Option(
            "--exact-row-index",
            help="Count the records of tables while dividing them, like the argument --exact_row_index True.",
        ),
    ] = False,
    strict: Strict = False,
    tolerate: Tolerate = False,
    notify: Notify = None,
    no_progress: Annotated[bool, Option("--no-progress", help="Show only the start and the end.")] = False,
    form: Annotated[
        OutputForm, Option("--format", help="json: one event per line on standard output.")
    ] = OutputForm.TEXT,
) -> int:
    """Run a script over its inputs, or a job file, on this machine, and wait until it ends.

    A private master and agent do the work. Ctrl-C once lets running mini-batches finish and keeps the state; the same
    command then continues the run. Ctrl-C twice ends at once.
    """
    options = RunOptions(file)
    options.inputs = inputs or []
    if "--" in sys.argv:
        # Both readers count what follows among the inputs.
        options.arguments = sys.argv[sys.argv.index("--") + 1 :]
        options.inputs = options.inputs[: len(options.inputs) - len(options.arguments)]
    options.output, options.kind, options.mini_batch_size = output, kind.value, mini_batch_size
    options.workers, options.timeout, options.max_retries = workers, timeout, max_retries
    options.partition_keys, options.save = partition_keys, save
    options.returns, options.split = returns, split
    options.retry_delay, options.rate_limit, options.speculate = retry_delay, rate_limit, speculate
    options.cpus_per_worker, options.memory_per_worker = cpus_per_worker, memory_per_worker
    options.gpus_per_worker, options.min_nodes = gpus_per_worker, min_nodes
    options.idle_gpu_timeout = idle_gpu_timeout
    if misplaced := options.misplaced():
        raise UsageError(
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
