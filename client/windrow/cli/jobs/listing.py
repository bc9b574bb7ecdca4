"""`windrow job list`: one line a job."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.jobs.stream import INTERRUPTED, shown_state
from windrow.cli.messages import is_terminal
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.cli.tables import local_time, out, print_json, print_table, width_of
from windrow.common.quantities import brief_duration, moment_in
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.job import Job


class JobStateName(StrEnum):
    """What `--only` takes: `windrow.sdk.job.JobState` without `unknown`, and `interrupted`."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_FAILURES = "completed_with_failures"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


def _done(job: Job) -> str:
    batches = job.mini_batches
    return f"{100 * batches.done // batches.total}%" if batches.total else ""


def _age(job: Job) -> str:
    return _brief(job.create_time, datetime.now(UTC))


def _took(job: Job) -> str:
    return _brief(job.create_time, job.end_time or datetime.now(UTC))


def _brief(begin: datetime | None, end: datetime) -> str:
    return "" if begin is None else brief_duration(max(0.0, (end - begin).total_seconds()))


COLUMNS: dict[str, tuple[str, Callable[[Job, str], str]]] = {
    "job": ("JOB", lambda job, _: job.job_id),
    "state": ("STATE", lambda job, state: state),
    "items": (">ITEMS", lambda job, _: f"{job.items.total:,}"),
    "ok": (">OK", lambda job, _: f"{job.items.ok:,}"),
    "failed": (">FAILED", lambda job, _: f"{job.items.failed:,}" if job.items.failed else ""),
    "done": (">DONE", lambda job, _: _done(job)),
    "age": (">AGE", lambda job, _: _age(job)),
    "took": (">TOOK", lambda job, _: _took(job)),
    "submitted": ("SUBMITTED", lambda job, _: local_time(job.create_time)),
    "ended": ("ENDED", lambda job, _: local_time(job.end_time)),
    "retries": (">RETRIES", lambda job, _: f"{job.retries:,}" if job.retries else ""),
    "experiment": ("EXPERIMENT", lambda job, _: job.experiment_name),
    "project": ("PROJECT", lambda job, _: job.project),
    "line": (">LINE", lambda job, _: str(job.place or "")),
    "forecast": ("FORECAST", lambda job, _: "" if job.forecast is None else job.forecast.brief),
    "submitter": ("SUBMITTER", lambda job, _: job.submitter),
    "priority": (">PRIORITY", lambda job, _: str(job.priority)),
    "deadline": ("DEADLINE", lambda job, _: local_time(job.deadline)),
    "name": ("NAME", lambda job, _: job.display_name),
}
"""By name: the heading, as `print_table` takes it, and the cell of a job, given what its state is shown as."""
DEFAULT_COLUMNS = "job,state,failed,done,line,forecast,age"
WIDE_COLUMNS = "job,state,project,submitter,priority,line,forecast,deadline,items,failed,done,age,name"
OPEN_ONLY = ("line", "forecast")
"""Of the default columns, those that are left out where no job has anything to say there."""
SHORTENED = ("name", "experiment", "job")
"""The columns that are shortened on a terminal that is too narrow, in this order: never numbers, times or states."""
SHORTENED_WIDTH = 12
"""No column is made narrower, unless it disappears."""


@command(epilog="Example: windrow job list --since 2d --only failed")
def list_jobs(
    limit: Annotated[int, Option("--limit", "-n", min=1, metavar="N", help="Show at most the newest N jobs.")] = 20,
    only: Annotated[
        list[JobStateName] | None,
        Option("--only", metavar="STATE", help=f"Only jobs in this state: {', '.join(JobStateName)}. Repeatable."),
    ] = None,
    since: Annotated[
        str | None,
        Option(
            "--since",
            metavar="TIME",
            help="Only jobs submitted since: 30min, 12h, 2d or 1w ago, or a date such as 2026-05-31.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        Option("--name", metavar="PATTERN", help="Only jobs whose name fits, for example 'digits-*'."),
    ] = None,
    columns: Annotated[
        str,
        Option("--columns", metavar="COLUMN,…", help=f"What to show of a job, of: {', '.join(COLUMNS)}."),
    ] = DEFAULT_COLUMNS,
    wide: Annotated[
        bool, Option("--wide", "-w", help="Also show project, submitter, priority, deadline, items and name.")
    ] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """List jobs, newest first, one on a line.

    A terminal with room for it also shows the display names. Names that do not fit there end with …; any unambiguous
    beginning of a job's name is enough for other commands.

    LINE is the place among the jobs that wait for their first worker: 1 is served next. FORECAST says when a job is
    likely to start or to end, once its mini-batches have been measured.
    """
    if wide and columns != DEFAULT_COLUMNS:
        raise UsageError("--wide and --columns both say what to show. Give one of them.")
    chosen = _columns(WIDE_COLUMNS if wide else columns)
    oldest = None if since is None else _moment(since)
    with open_client(master, state) as client:
        found = list(islice(_fitting(client, only or (), oldest, name), limit))
        states = {job.job_id: shown_state(client, job) for job in found}
        options, is_here = client.options, client.is_here
        warn_read_only(client)
    if output is OutputForm.JSON:
        print_json([job.to_dict() | {"interrupted": states[job.job_id] == INTERRUPTED} for job in found])
    elif not found and (only or since or name):
        out("No job fits --only, --since and --name.")
    elif not found and is_here:
        out("This state folder has no jobs yet. Run one with: windrow run job.yml, or windrow run script.py INPUT")
    elif not found:
        out("This master has no jobs yet. Submit one with: windrow job create FILE")
    else:
        rows = [[COLUMNS[column][1](job, states[job.job_id]) for column in chosen] for job in found]
        if columns == DEFAULT_COLUMNS and not wide:
            chosen, rows = _without_empty(chosen, rows)
        if is_terminal(sys.stdout):
            width = shutil.get_terminal_size().columns
            chosen, rows = _shortened(chosen, rows, width)
            if columns == DEFAULT_COLUMNS and not wide:
                chosen, rows = _with_projects(chosen, rows, [(job.project, job.submitter) for job in found], width)
                chosen, rows = _with_names(chosen, rows, [job.display_name for job in found], width)
        print_table([COLUMNS[column][0] for column in chosen], rows, folds=False)
        _tell_interrupted([job_id for job_id, state in states.items() if state == INTERRUPTED], options)
    return exit_codes.DONE


def _tell_interrupted(job_ids: Sequence[str], options: str) -> None:
    """Say how jobs continue that no process runs, by the example of the newest."""
    if job_ids:
        from windrow.sdk.ending import how_to_continue

        out(f"No process runs what is interrupted. {how_to_continue(job_ids[0], options)}")


def _columns(text: str) -> list[str]:
    """The names of columns in a list. Raises UsageError."""
    names = [name.strip().lower() for name in text.split(",")]
    unknown = next((name for name in names if name not in COLUMNS), None)
    if unknown is not None:
        raise UsageError(f"--columns: there is no column {unknown!r}. Choose from: {', '.join(COLUMNS)}.")
    return list(dict.fromkeys(names))


def _moment(text: str) -> datetime:
    """The moment that `--since` means. Raises UsageError."""
    try:
        return moment_in(text, from_now=-1)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--since {text} is not a time. Write how long ago (30min, 12h, 2d, 1w), or a date (2026-05-31)."
        ) from error


def _fitting(
    client: Client, states: Sequence[JobStateName], oldest: datetime | None, pattern: str | None
) -> Iterator[Job]:
    """The jobs that the options leave, in their order. None is fetched after the first that is too old."""
    jobs = client.list_jobs()
    if oldest is not None:
        since = oldest
        jobs = takewhile(lambda job: job.create_time is None or job.create_time >= since, jobs)
    for job in jobs:
        if states and shown_state(client, job) not in states:
            continue
        if pattern is None or fnmatchcase(job.job_id, pattern) or fnmatchcase(job.display_name, pattern):
            yield job


def _without_empty(columns: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without columns that are of open jobs only, and empty."""
    kept = [at for at, name in enumerate(columns) if name not in OPEN_ONLY or any(row[at] for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _with_projects(
    columns: list[str], rows: list[list[str]], owners: Sequence[tuple[str, str]], width: int
) -> tuple[list[str], list[list[str]]]:
    """The table with projects and submitters, where these differ, as far as there is room."""
    for at, name in enumerate(("project", "submitter")):
        wider = [*columns, name]
        cells = [[*row, owner[at]] for row, owner in zip(rows, owners, strict=True)]
        fits = width_of([COLUMNS[column][0] for column in wider], cells) <= width
        if fits and len({owner[at] for owner in owners}) > 1:
            columns, rows = wider, cells
    return columns, rows


def _with_names(
    columns: list[str], rows: list[list[str]], names: Sequence[str], width: int
) -> tuple[list[str], list[list[str]]]:
    """The table with the names that people gave: jobs of one folder look alike without. As it is, if there is no room
    or they all stand in the column `job` already.
    """
    room = width - width_of([COLUMNS[column][0] for column in columns], rows) - 2
    if room < SHORTENED_WIDTH or all(row[0].startswith(name) for row, name in zip(rows, names, strict=True)):
        return columns, rows
    cut = [name if len(name) <= room else f"{name[: room - 1]}…" for name in names]
    return [*columns, "name"], [[*row, name] for row, name in zip(rows, cut, strict=True)]


def _shortened(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """The table within a width, with names cut; as it is if that is not enough."""
    names, cells = list(columns), [list(row) for row in rows]

    def needed(index: int) -> int:
        return max(len(COLUMNS[names[index]][0].lstrip(">")), *(len(row[index]) for row in cells))

    def excess() -> int:
        return width_of([COLUMNS[name][0] for name in names], cells) - width

    for name in SHORTENED:
        if name not in names or excess() <= 0:
            continue
        index = names.index(name)
        least = max(SHORTENED_WIDTH, len(COLUMNS[name][0]))
        room = max(needed(index) - excess(), least)
        for row in cells:
            if len(row[index]) > room:
                row[index] = f"{row[index][: room - 1]}…"
    return (names, cells) if excess() <= 0 else (names, [list(row) for row in rows])
