"""`windrow job cancel`."""

from __future__ import annotations

from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import (
    JobName,
    Master,
    Output,
    OutputForm,
    State,
    open_client,
)
from windrow.cli.tables import out, print_json
from windrow.sdk.job import JobState
from windrow.sdk.job_names import only_job


@command(epilog="Example: windrow job cancel digits-20260501-101500-ab12 --wait")
def cancel(
    job: JobName,
    to_its_end: Annotated[bool, Option("--wait", help="Return when the job has ended.")] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Cancel a job. A job that has ended stays as it is."""
    with open_client(master, state) as client:
        found = client.cancel(client.find(only_job(job)).job_id)
        if to_its_end and not found.state.ended:
            found = client.end_of(found.job_id)
    if output is OutputForm.JSON:
        print_json(found.to_dict())
    elif found.state in (JobState.CANCELLED, JobState.CANCELLING):
        out(f"{found.job_id} is {found.state.value}.")
    else:
        out(f"{found.job_id} has already ended: it is {found.state.words}.")
    return exit_codes.DONE
