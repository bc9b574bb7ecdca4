"""`windrow run script.py INPUT… -o rows.csv`: the job file that this means is kept in the state folder, and is run."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.cli import exit_codes
from windrow.cli.messages import report, say
from windrow.errors import UsageError
from windrow.spec.one_line.job_file import MadeJob, make_job_file, run_name
from windrow.spec.one_line.request import FOLDER, OneLine

if TYPE_CHECKING:
    from windrow.cli.options.run_options import RunOptions


def make(options: RunOptions) -> MadeJob:
    """The job file of a run without one, with all paths absolute. Raises UsageError."""
    one, here = _one_line(options), Path.cwd()
    try:
        before = Path(_place(options, options.state), "job.yml").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        before = ""
    return make_job_file(one, str(here), before=before)


def keep(made: MadeJob, options: RunOptions, state: str) -> str:
    """Write the job file into the state folder. Returns its path. Raises UsageError."""
    return write(made, _place(options, state))


def kept_in(options: RunOptions, state: str) -> str:
    """The folder in which `keep` writes the job file. Raises UsageError."""
    return _place(options, state)


def write(made: MadeJob, folder: str) -> str:
    """Write the job file, and what it needs, into a folder. Returns the path of the job file. Raises UsageError."""
    for name, text in made.files.items():
        path = Path(folder, name)
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError as error:
            line = text[text.rfind("\n", 0, error.start) + 1 :].partition("\n")[0].strip()
            raise UsageError(
                f"A name is no UTF-8 text, which a job file cannot hold: `{line}`. Rename it, or name the folder that "
                "holds it."
            ) from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.{os.getpid()}")
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    return str(Path(folder, made.job_name))


def save(options: RunOptions) -> int:
    """`--save`: write the job file for people, with relative paths, and run nothing. Returns the exit code."""
    try:
        target = Path(options.save or "").absolute()
        if target.suffix not in (".yml", ".yaml"):
            raise UsageError(f"--save {options.save}: the name of a job file ends in .yml or .yaml.")
        made = make_job_file(_one_line(options), str(Path.cwd()), relative_to=str(target.parent), job_name=target.name)
        taken = [name for name in made.files if (target.parent / name).exists()]
        if taken:
            raise UsageError(f"{target.parent / taken[0]} exists already. Name another file, or remove it.")
        write(made, str(target.parent))
    except Exception as error:
        return report(error, options.form)
    command = shlex.join(["windrow", "run", options.save or "", *_beside_file(options)])
    print(f"{options.save} is written. Run it with: {command}", file=sys.stdout)
    for note in made.notes:
        say(f"Note: {note}")
    return exit_codes.DONE


def _beside_file(options: RunOptions) -> list[str]:
    """The options of this command that no job file holds, as the run of the file needs them."""
    from windrow.cli.options import run_options

    unset = run_options.RunOptions()
    words: list[str] = []
    for option, name in {**run_options.VALUES, **run_options.FLAGS, **run_options.LISTS}.items():
        value = getattr(options, name)
        if name in run_options.ONE_LINE or value == getattr(unset, name):
            continue
        if isinstance(value, list):
            words += [word for one in value for word in (option, one)]
        else:
            words += [option] if value is True else [option, str(value)]
    return words


def _one_line(options: RunOptions) -> OneLine:
    keys = [key.strip() for key in (options.partition_keys or "").split(",")]
    return OneLine(
        script=options.job_file,
        inputs=tuple(options.inputs),
        output=options.output or "",
        kind=options.kind,
        mini_batch_size=options.mini_batch_size,
        workers=options.workers,
        timeout=options.timeout,
        max_retries=options.max_retries,
        partition_keys=tuple(key for key in keys if key),
        returns=options.returns,
        split=options.split,
        retry_delay=options.retry_delay,
        rate_limit=options.rate_limit,
        cpus_per_worker=options.cpus_per_worker,
        memory_per_worker=options.memory_per_worker,
        gpus_per_worker=options.gpus_per_worker,
        min_nodes=options.min_nodes,
        idle_gpu_timeout=options.idle_gpu_timeout,
        speculate=options.speculate,
        arguments=tuple(options.arguments),
        slots=options.slots or options.workers or processors(),
        keeps_earlier=bool(options.since),
    )


def processors() -> int:
    """How many workers there are by default."""
    return len(os.sched_getaffinity(0))


def _place(options: RunOptions, state: str) -> str:
    one = _one_line(options)
    return str(Path(state, FOLDER, run_name(one, str(Path.cwd()))))
