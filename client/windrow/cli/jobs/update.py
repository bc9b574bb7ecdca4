"""`windrow job update`: what an open job is worth."""

from __future__ import annotations

from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.jobs.worth import PRIORITY, WEIGHT, Deadline, deadline_of
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import (
    JobName,
    Master,
    Output,
    OutputForm,
    State,
    open_client,
)
from windrow.cli.tables import local_time, out, print_json
from windrow.errors import UsageError
from windrow.sdk.job_names import only_job

NO_DEADLINE = "none"


@command(epilog="Example: windrow job update digits-20260501-101500-ab12 --priority 10")
def update(
    job: JobName,
    priority: Annotated[int | None, PRIORITY] = None,
    weight: Annotated[int | None, WEIGHT] = None,
    deadline: Deadline = None,
    project: Annotated[str, Option(metavar="NAME", help="The project that it belongs to from now on.")] = "",
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Change what an open job is worth. What is not given stays; `--deadline none` takes the deadline away.

    Workers change hands as soon as the master has decided anew. What the job has run stays as it is.
    """
    if priority is None and weight is None and deadline is None and not project:
        raise UsageError("Nothing is to be changed. Give --priority, --weight, --deadline or --project.")
    none = deadline == NO_DEADLINE
    due = None if deadline is None or none else deadline_of(deadline)
    with open_client(master, state, live=True) as client:
        found = client.update(
            client.find(only_job(job)).job_id,
            priority=priority,
            weight=weight,
            project=project,
            deadline=due,
            no_deadline=none,
        )
    if output is OutputForm.JSON:
        print_json(found.to_dict())
    else:
        due_text = f", deadline {local_time(found.deadline)}" if found.deadline is not None else ""
        out(f"{found.job_id}: project {found.project}, priority {found.priority}, weight {found.weight}{due_text}.")
    return exit_codes.DONE
