"""`windrow top`: jobs, nodes and workers of a master, live on the whole screen.

- `looks`     asks the master, and keeps the figures of jobs between two looks.
- `columns`   lays cells out in columns, within a width.
- `frame`     what the screen shows: pure, of one look.
- `screen`    the terminal: alternate screen, keys, the pace of drawing.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from windrow.cli import completion, exit_codes
from windrow.cli.options import Master, State, guarded, open_client
from windrow.errors import UsageError


class View(StrEnum):
    """What `windrow top` shows."""

    JOBS = "jobs"
    NODES = "nodes"
    WORKERS = "workers"


@guarded
def top(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Only this job, by step: its name, an unambiguous beginning of it, or last [default: all jobs].",
            autocompletion=completion.job_names,
        ),
    ] = None,
    view: Annotated[
        View, typer.Option("--view", help="What to show first. Keys: j or 1 jobs, n or 2 nodes, w or 3 workers.")
    ] = View.JOBS,
    once: Annotated[bool, typer.Option("--once", help="Print what the screen would show, and end.")] = False,
    master: Master = None,
    state: State = None,
) -> int:
    """Show jobs, nodes and workers live, on the whole screen.

    Keys: j, n, w (or 1, 2, 3) switch the view, the arrows scroll, q or Ctrl-C ends it. Jobs go on.
    """
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("windrow top needs a terminal. To print once what it would show, add --once.")
    from windrow.cli.top import screen
    from windrow.cli.top.looks import Looks
    from windrow.sdk.job_names import only_job

    with open_client(master, state) as client:
        looks = Looks(client, client.find(only_job(job)).job_id if job is not None else None)
        if once:
            screen.print_once(looks.look(), view)
        else:
            screen.show(looks, view)
    return exit_codes.DONE
