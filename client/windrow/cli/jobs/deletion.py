"""`windrow job delete` and `windrow job prune`: remove jobs that have ended."""

from __future__ import annotations

from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, State, open_client
from windrow.cli.tables import local_time, out, print_json
from windrow.common.quantities import counted, seconds_in, size
from windrow.errors import NotFound, UsageError
from windrow.sdk.deletion import Deletion
from windrow.sdk.job_names import only_job

Force = Annotated[
    bool, Option("--force", help="Also jobs that others need: those whose results were reused, for example.")
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Delete nothing. Show what would go, what is lost with it, and what stays.")
]


@command(epilog="Example: windrow job delete digits-20260501-101500-ab12 --dry-run")
def delete(
    jobs: Annotated[
        list[str],
        Argument(
            metavar="JOB…",
            help="The jobs: their names, or unambiguous beginnings of them.",
            autocompletion=completion.job_names,
        ),
    ],
    force: Force = False,
    dry_run: DryRun = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Delete jobs that have ended.

    Their history, logs and rows go, and outputs without a path of their own, which only the state folder holds. Other
    outputs stay where they are. A job that another one needs is refused; the message says why, and whether --force
    overrides that. Exit codes: 0 all are deleted, 2 one was refused.
    """
    with open_client(master, state) as client:
        found = {job.job_id: job for job in (client.find(only_job(name)) for name in jobs)}
        done: list[Deletion] = []
        # The newest first: a job before those whose results it took over.
        for job in sorted(found.values(), key=lambda job: str(job.create_time), reverse=True):
            try:
                answer = client.delete(job, force=force, dry_run=dry_run)
            except NotFound:
                continue  # deleted meanwhile, or by a call whose answer was lost
            done.append(answer)
            if output is OutputForm.TEXT:
                _tell(answer, dry_run=dry_run)
    if output is OutputForm.JSON:
        print_json([one.to_dict() for one in done])
    return exit_codes.USAGE if any(one.refusal for one in done) else exit_codes.DONE


@command(epilog="Example: windrow job prune --older-than 30d --keep-last 100 --dry-run")
def prune(
    older_than: Annotated[
        str | None,
        Option("--older-than", metavar="AGE", help="Only jobs that ended longer ago: 12h, 30d, 8w."),
    ] = None,
    keep_last: Annotated[
        int | None, Option("--keep-last", min=0, metavar="N", help="Not the N jobs that ended last.")
    ] = None,
    force: Force = False,
    dry_run: DryRun = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Delete old jobs.

    Give --older-than, --keep-last, or both: then a job goes only if it is old and not among the last ones. Jobs that
    others need stay, and are named with the reason.
    """
    if older_than is None and keep_last is None:
        raise UsageError("Say which jobs are old: --older-than 30d, --keep-last 100, or both.")
    older_than_s = None if older_than is None else seconds_in(older_than)
    if older_than is not None and older_than_s is None:
        raise UsageError(f"--older-than {older_than} is not an age. Write a number with a unit: 12h, 30d or 8w.")
    done: list[Deletion] = []
    with open_client(master, state) as client:
        for one in client.prune(older_than_s=older_than_s, keep_last=keep_last, force=force, dry_run=dry_run):
            done.append(one)
            if output is OutputForm.TEXT:
                _tell(one, dry_run=dry_run)
    if output is OutputForm.JSON:
        print_json([one.to_dict() for one in done])
        return exit_codes.DONE
    gone = [one for one in done if not one.refusal]
    what = f"{counted(len(gone), 'job')}, {size(sum(one.size for one in gone))}"
    stays = f" {counted(len(done) - len(gone), 'old job')} kept." if len(gone) < len(done) else ""
    out(f"{'Would delete' if dry_run else 'Deleted'} {what}.{stays}")
    return exit_codes.DONE


def _tell(one: Deletion, *, dry_run: bool) -> None:
    if one.refusal:
        out(f"{one.job_id} stays. {one.refusal}")
        return
    out(f"{one.job_id} {'would be' if dry_run else 'is'} deleted: {size(one.size)}, ended {local_time(one.end_time)}.")
    if dry_run:
        for loss in one.losses:
            out(f"  lost: {loss}")
        for place in one.outputs_kept:
            out(f"  stays: {place}")
    elif one.outputs_gone:
        out(f"  with the outputs that only the state folder held: {', '.join(one.outputs_gone)}")
