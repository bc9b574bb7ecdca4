"""`windrow job stream`: follows a job that another process runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli import exit_codes
from windrow.cli.display.tolerance import tolerance_note
from windrow.cli.messages import say
from windrow.cli.options.declared import command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import (
    JobName,
    Master,
    Notify,
    Output,
    OutputForm,
    State,
    Strict,
    Tolerate,
    open_client,
)
from windrow.common.quantities import counted
from windrow.sdk.job import Job, JobState
from windrow.sdk.job_names import only_job

if TYPE_CHECKING:
    from windrow.sdk.client import Client

INTERRUPTED = "interrupted"


def stands_still(client: Client, job: Job) -> bool:
    """Whether nothing runs an unfinished job. Following it would never end, and would block its state folder."""
    return client.runs_nothing and not job.state.ended


def shown_state(client: Client, job: Job) -> str:
    """The state of a job; `interrupted` if it would be at work, and nothing runs it."""
    is_interrupted = stands_still(client, job) and job.state in (JobState.QUEUED, JobState.RUNNING)
    return INTERRUPTED if is_interrupted else job.state.value


def tell_stands_still(client: Client, job: Job) -> int:
    """Say that nothing runs the job, and what to do. Returns the exit code."""
    from windrow.sdk.ending import how_to_continue

    say(
        f"Job {job.job_id} was interrupted ({job.items.done:,} of {counted(job.items.total, 'item')} done), and no "
        f"process runs it. {how_to_continue(job.job_id, client.options)}"
    )
    return exit_codes.INTERRUPTED


def stream_job(
    client: Client,
    job: Job,
    output: str,
    *,
    strict: bool,
    tolerate: bool,
    options: str,
    begun: bool,
    targets: Sequence[str] = (),
) -> int:
    """Show a job until it has ended; return the exit code for its end.

    `options`: those by which later commands find its master. `begun`: whether this command has begun the job, and told
    its warnings. `targets`: whom to notify (`windrow.cli.display.notify`).
    """
    from windrow.cli.display import summary
    from windrow.cli.display.choice import make_display
    from windrow.cli.display.follower import Follower

    job_id = job.job_id
    if stands_still(client, job):
        return tell_stands_still(client, job)
    display = make_display(output, quiet=False)
    display.begin(job, continued=False if begun else None)
    if note := tolerance_note(client.document(job_id), tolerate=tolerate or strict):
        display.notice(note)
    follower = Follower(
        client,
        job_id,
        after_seq=0,
        warned=job.warnings if begun else (),
    )
    try:
        job = follower.run(display, lambda: None)
        document = client.document(job_id)
    except KeyboardInterrupt:
        display.end()
        say(f"The job is still running. To follow it again: windrow job stream {job_id}{options}")
        return exit_codes.INTERRUPTED
    finally:
        follower.close()
        display.end()
    code = summary.exit_code(job, document, strict=strict, tolerate=tolerate)
    if output == "json":
        from windrow.cli.display.jsonlines import emit

        places = summary.output_places(job, document) if job.state.succeeded else []
        emit("end", job=job.to_dict(), outputs=places, exit_code=code)
    else:
        summary.print_summary(job, document, options=options, here=client.is_here)
    if targets:
        from windrow.cli.display.notify import notify

        notify(targets, job, code)
    return code


@command(epilog="Example: windrow job stream digits-20260501-101500-ab12")
def stream(
    job: JobName,
    strict: Strict = False,
    tolerate: Tolerate = False,
    targets: Notify = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Follow a job until it ends.

    The exit code is the job's. Ctrl-C stops following, not the job.
    """
    with open_client(master, state) as client:
        return stream_job(
            client,
            client.find(only_job(job)),
            output.value,
            strict=strict,
            tolerate=tolerate,
            options=master_options(master, state),
            begun=False,
            targets=targets or (),
        )
