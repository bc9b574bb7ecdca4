"""`windrow job create`: submits a job to a running master."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.display.uploads import UploadDisplay
from windrow.cli.jobs.stream import stream_job
from windrow.cli.jobs.worth import PRIORITY, Deadline, deadline_of
from windrow.cli.messages import say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import (
    STRICT_HELP,
    CodeChange,
    CodeChangeChoice,
    Master,
    Notify,
    Output,
    OutputForm,
    Sets,
    Since,
    State,
    Tolerate,
    open_client,
)
from windrow.cli.running.code_change import asker
from windrow.cli.tables import out, print_json
from windrow.errors import UsageError
from windrow.sdk.code_change import refuse_without_earlier_job
from windrow.sdk.job import Job
from windrow.transfer.fetch_places import shown_places

if TYPE_CHECKING:
    from windrow.sdk.client import Client


NOTIFY_WAITS = "--notify tells of the job's end, and this command does not wait for it. Add --stream."
JobFile = Annotated[Path, Argument(metavar="FILE", help="The job file: a pipeline YAML with parallel steps.")]


@command(epilog="Example: windrow job create job.yml --master 127.0.0.1:8470 --stream")
def create(
    file: JobFile,
    sets: Sets = None,
    name: Annotated[str | None, Option(metavar="NAME", help="Name of the job, instead of the file's.")] = None,
    priority: Annotated[int, PRIORITY] = 0,
    deadline: Deadline = None,
    project: Annotated[
        str, Option(metavar="NAME", help="The project that the job belongs to [default: that of the token].")
    ] = "",
    since: Since = "",
    code_change: CodeChange = CodeChangeChoice.ASK,
    stream: Annotated[bool, Option("--stream", help="Follow the job until it ends.")] = False,
    strict: Annotated[
        bool,
        Option("--strict", help=f"With --stream. {STRICT_HELP}"),
    ] = False,
    tolerate: Tolerate = False,
    targets: Notify = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Show the plan (steps, places, mini-batches, settings) and submit nothing."),
    ] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Submit a job to a running master.

    Data at relative paths is uploaded, unless the master sees the same folder. If an upload breaks off, the same
    command continues it. Outputs at relative paths stay with the master until `windrow job download` fetches them.
    """
    if targets and not (stream or dry_run):
        raise UsageError(NOTIFY_WAITS)
    due = None if deadline is None else deadline_of(deadline)
    with open_client(master, state, live=True) as client:
        if dry_run:
            from windrow.cli.running.dry_run import dry_create

            as_json = output is OutputForm.JSON
            return dry_create(
                client,
                str(file),
                sets=sets or (),
                name=name,
                priority=priority,
                since=since,
                code_change=code_change.value,
                as_json=as_json,
            )
        with UploadDisplay(quiet=output is OutputForm.JSON) as display:
            loaded = client.load_job(file, sets or ())
            refuse_without_earlier_job(loaded, code_change.value, since)
            job = client.submit(
                loaded,
                name=name,
                priority=priority,
                project=project,
                deadline=due,
                since=since,
                code_change=code_change.value,
                on_upload=display.show,
                on_code_change=asker(quiet=output is OutputForm.JSON),
            )
        return tell_submitted(
            client,
            job,
            stream=stream,
            strict=strict,
            tolerate=tolerate,
            targets=targets or (),
            options=master_options(master, state),
            output=output,
        )


def tell_submitted(
    client: Client,
    job: Job,
    *,
    stream: bool,
    strict: bool,
    tolerate: bool,
    targets: Sequence[str],
    options: str,
    output: OutputForm,
) -> int:
    """Say which job was accepted, or follow it (`stream`). `options`: those that name the master. Returns the exit
    code.
    """
    for warning in job.warnings if output is OutputForm.TEXT else ():
        out(f"warning: {warning}")
    if stream:
        return stream_job(
            client,
            job,
            output.value,
            strict=strict,
            tolerate=tolerate,
            options=options,
            begun=True,
            targets=targets,
        )
    if output is OutputForm.JSON:
        print_json(job.to_dict())
    else:
        out(job.job_id)
        for path in shown_places(client.document(job.job_id), job.job_id):
            say(f"Note: {path} is filled by: windrow job download {job.job_id}{options}")
        if waits := client.why_no_work(job.job_id):
            say(waits)
    return exit_codes.DONE
