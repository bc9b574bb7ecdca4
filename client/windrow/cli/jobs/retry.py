"""`windrow job retry`: runs what is not done of a job that has ended, into the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.display.uploads import UploadDisplay
from windrow.cli.jobs.stream import stream_job
from windrow.cli.messages import say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.run_options import RunOptions
from windrow.cli.options.shared import (
    JobName,
    Master,
    Output,
    OutputForm,
    Sets,
    State,
    Strict,
    Tolerate,
    open_client,
    state_of,
)
from windrow.cli.tables import out, print_json
from windrow.common.quantities import counted
from windrow.errors import UsageError
from windrow.sdk.job_names import only_job


@command(epilog="Example: windrow job retry digits-20260501-101500-ab12 --file job.yml --stream")
def retry(
    job: JobName,
    file: Annotated[
        Path | None,
        Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The repaired job file. Its code, arguments, limits and retries apply from now on "
            "[default: as the job was submitted].",
        ),
    ] = None,
    sets: Sets = None,
    stream: Annotated[bool, Option("--stream", help="Follow the job until it ends.")] = False,
    strict: Strict = False,
    tolerate: Tolerate = False,
    python: Annotated[
        str | None,
        Option(metavar="PATH", help="Interpreter for the script, for runs on this machine [default: as before]."),
    ] = None,
    slots: Annotated[
        int | None,
        Option(
            min=1,
            max=4096,
            metavar="N",
            help="Number of workers, for runs on this machine [default: one per processor].",
        ),
    ] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Run the failed and cancelled parts of an ended job again.

    Items with a result keep it, and all rows end up in the same output. If you have repaired code or settings, name
    the job file with --file. A run on this machine is followed until it ends.
    """
    if file is not None and file.suffix == ".py":
        raise UsageError(
            f"--file {file} is a script, and a job file is needed. That of a run without one is in its state folder, "
            f"under one-line; `windrow job show {job} --format json` names it (job_file of its document)."
        )
    if sets and file is None:
        raise UsageError("--set changes a job file: name it with --file.")
    job = only_job(job)
    folder = state_of(master, state)
    if folder is not None:
        return _here(job, file, sets, folder, python, slots, strict=strict, tolerate=tolerate, output=output)
    if python is not None or slots is not None:
        option = "--slots" if python is None else "--python"
        raise UsageError(
            f"{option} applies only to runs on this machine. This job runs on a master, where each agent decides. "
            "Leave it out."
        )
    with open_client(master, state, live=True) as client:
        with UploadDisplay(quiet=output is OutputForm.JSON) as display:
            found = client.retry(client.find(job).job_id, file, sets=sets or (), on_upload=display.show)
        if stream:
            return stream_job(
                client,
                found,
                output.value,
                strict=strict,
                tolerate=tolerate,
                options=master_options(master, state),
                begun=True,
            )
        if output is OutputForm.JSON:
            print_json(found.to_dict())
        else:
            batches = found.mini_batches
            done = f"{batches.done:,} of {counted(batches.total, 'mini-batch')}"
            out(f"{found.job_id} is {found.state.value} again: {done} are already done.")
    return exit_codes.DONE


def _here(
    job: str,
    file: Path | None,
    sets: list[str] | None,
    folder: Path,
    python: str | None,
    slots: int | None,
    *,
    strict: bool,
    tolerate: bool,
    output: OutputForm,
) -> int:
    """Retry a run of this machine with a private master and agent, like `windrow run`."""
    from windrow.cli.running import run_start
    from windrow.embedded import remembered_options

    if not (folder / "jobs" / job).is_dir():
        # Not the whole name of a job. To ask takes a master, and this command's own is started with the job's options.
        with open_client(None, folder) as client:
            job = client.find(job).job_id
    before = remembered_options.recall(str(folder), job)
    options = RunOptions("" if file is None else str(file))
    options.retried, options.sets = job, sets or []
    options.state, options.python, options.slots = str(folder), python or before.python, slots
    options.datastores = list(before.datastores)
    if before.environments == "own":
        options.environments = "own"
    if before.python and not python:
        say(f"Scripts run in {before.python}, as in the previous run; --python chooses another.")
    options.strict, options.tolerate, options.form = strict, tolerate, output.value
    return run_start.run(options)
