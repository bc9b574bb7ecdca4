"""`windrow queue`: what each project may have of the cluster, and has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, open_served
from windrow.cli.tables import local_time, out, print_fields, print_json, print_table
from windrow.common.quantities import ahead, counted, duration
from windrow.common.queue_settings import (
    ADMITTED_JOBS,
    ADMITTED_JOBS_MAX,
    PRIORITY_MAX,
    WEIGHT_MAX,
    WEIGHT_MIN,
    Bounds,
    QueueSettings,
)
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.queue import Queue, QueueExplanation, QueuesNow

NOT_HERE = "Runs on this machine have no queues: they share it by themselves."
NO_LIMIT = "none"
QueueName = Annotated[str, Argument(metavar="PROJECT", help="The project, which has one queue of its name.")]
Overcommit = Annotated[
    bool, Option("--overcommit", help="Guarantee more than the nodes that the master knows now have.")
]


@command(epilog="Example: windrow queue list --format json")
def list_queues(master: Master = None, output: Output = OutputForm.TEXT) -> int:
    """List what each project may have, and has.

    The fair share is what a project is entitled to now.
    """
    with open_served(master, NOT_HERE) as client:
        now = client.queues.list()
    if output is OutputForm.JSON:
        print_json({"revision": now.revision, "queues": [queue.to_dict() for queue in now.queues]})
    elif not now.queues:
        out("No project has an open job or settings of its own. All projects share the cluster alike.")
    else:
        print_table(
            (
                "PROJECT",
                ">WEIGHT",
                ">PRIORITY",
                ">QUOTA",
                ">LIMIT",
                ">FAIR SHARE",
                ">WORKERS",
                ">LEASED",
                ">READY",
                ">OPEN JOBS",
                ">QUEUED",
            ),
            [
                (
                    queue.name,
                    f"{queue.settings.weight:g}",
                    str(queue.settings.priority),
                    _quota(queue.settings),
                    _limit(queue.settings.cluster),
                    f"{queue.fair_slots:.3g}",
                    f"{queue.workers:,}",
                    f"{queue.leased:,}",
                    f"{queue.ready:,}",
                    f"{queue.open_jobs:,}",
                    f"{queue.queued_jobs:,}",
                )
                for queue in now.queues
            ],
        )
    return exit_codes.DONE


@command(epilog="Example: windrow queue show vision")
def show(name: QueueName, master: Master = None, output: Output = OutputForm.TEXT) -> int:
    """Show the queue of a project, with its open jobs."""
    with open_served(master, NOT_HERE) as client:
        queue = client.queues.get(name)
        jobs = [job for job in client.list_jobs() if job.project == name and not job.state.ended]
    if output is OutputForm.JSON:
        print_json(queue.to_dict() | {"jobs": [job.to_dict() for job in jobs]})
        return exit_codes.DONE
    settings = queue.settings
    print_fields(
        [
            ("project", queue.name),
            ("weight", f"{settings.weight:g}"),
            ("priority", str(settings.priority)),
            *((f"in pool {pool}" if pool else "in the cluster", _words(bounds)) for pool, bounds in settings.bounds()),
            ("admits", f"{counted(settings.admitted_jobs, 'job')} at a time, and what would get a worker"),
            ("set", _changed(queue)),
            ("fair share", f"{queue.fair_slots:.3g} slots"),
            ("has", f"{counted(queue.workers, 'worker')}, {counted(queue.leased, 'leased mini-batch')}"),
            ("waiting", f"{counted(queue.ready, 'mini-batch')}"),
            ("jobs", f"{queue.open_jobs:,} open, {queue.queued_jobs:,} of them queued"),
        ]
    )
    if queue.idle_gpus:
        out("")
        out("GPUs held by workers that have used less than 5 % of them for ten minutes or more:")
        print_table(
            ("JOB", "STEP", "WORKER", "NODE", ">GPUS", ">IDLE", "MINI-BATCH", "SUBMITTER"),
            [
                (
                    one.job_id,
                    one.step,
                    f"process{one.process_number:03d}",
                    one.node_id,
                    f"{one.gpus:.3g}",
                    duration(one.idle_s),
                    "has one" if one.is_working else "none",
                    one.submitter,
                )
                for one in queue.idle_gpus
            ],
        )
    if jobs:
        out("")
        print_table(
            ("JOB", "STATE", ">PRIORITY", ">WEIGHT", "DEADLINE", ">LEASED", ">READY", ">LINE", "FORECAST", "SUBMITTER"),
            [
                (
                    job.job_id,
                    job.state.value,
                    str(job.priority),
                    str(job.weight),
                    local_time(job.deadline),
                    f"{job.mini_batches.leased:,}",
                    f"{job.mini_batches.queued:,}",
                    str(job.place or ""),
                    "" if job.forecast is None else job.forecast.brief,
                    job.submitter,
                )
                for job in sorted(jobs, key=lambda job: (-job.priority, job.create_time is None, job.create_time))
            ],
        )
    return exit_codes.DONE


@command(epilog="Example: windrow queue explain vision")
def explain(name: QueueName, master: Master = None, output: Output = OutputForm.TEXT) -> int:
    """Explain what a project has, and what would give it more.

    What it has, is entitled to and could use; whose share is above; which quota is owed; which of its jobs wait, and
    when they are likely to start; which settings, and which ends of jobs, would give it more.
    """
    with open_served(master, NOT_HERE) as client:
        found = client.queues.explain(name)
    if output is OutputForm.JSON:
        print_json(found.to_dict())
        return exit_codes.DONE
    for line in explanation(found):
        out(line)
    return exit_codes.DONE


def explanation(found: QueueExplanation) -> list[str]:
    """Where a project stands, in lines."""
    name = found.queue.name
    lines = [
        f"{name} has {slots(found.held_slots)} of {found.total_slots:g}, is entitled to {figure(found.fair_slots)}, "
        f"and could use {figure(found.wanted_slots)}. {_verdict(found)}"
    ]
    if found.others:
        lines += ["", "Others, those furthest above their share first:"]
        lines += [
            f"  {one.project} has {slots(one.held_slots)}, and is entitled to {figure(one.fair_slots)}"
            f"{_beyond(one.held_slots - one.fair_slots)}"
            for one in found.others
        ]
    if found.owed:
        lines += ["", "Quotas that are owed, which go first:"]
        lines += [
            f"  {one.project} has {slots(one.held)} of the {figure(one.quota)} guaranteed"
            f"{f' in pool {one.pool}' if one.pool else ''}, and lacks {figure(one.owed)}"
            for one in found.owed
        ]
    if found.waiting:
        lines += ["", "Its jobs that wait for a first worker:"]
        lines += [
            f"  {one.job_id}: number {one.place} in line"
            + ("" if one.begin_s is None else f", likely to start {ahead(one.begin_s)}")
            for one in found.waiting
        ]
    if found.steps:
        lines += ["", "Steps of its jobs with several steps:"]
        lines += [f"  {one.job_id}/{one.step}: {one.forecast.words}" for one in found.steps]
    if found.changes or found.ends:
        lines += ["", "What would give it more:"]
        lines += [
            f"  the end of {f'{one.job_id}/{one.step}' if one.job_id else 'a job'} of {one.project}, likely "
            f"{ahead(one.end_s)}: entitled to {figure(one.fair_slots)}"
            for one in found.ends
        ]
        lines += [
            f"  windrow queue set {name} --{one.setting} {NO_LIMIT if one.value is None else f'{one.value:g}'}"
            f"{f' --pool {one.pool}' if one.pool else ''}: entitled to {figure(one.fair_slots)}"
            for one in found.changes
        ]
    return lines


def _verdict(found: QueueExplanation) -> str:
    """Why it has no more, in a sentence."""
    if not found.wanted_slots:
        return "None of its jobs has a mini-batch that could run now."
    if not found.total_slots:
        return "No node takes work: see `windrow node list`."
    if found.limited:
        return "It has all that its limit allows."
    if found.fair_slots >= found.wanted_slots - 0.05:
        lacks = found.held_slots < found.wanted_slots - 0.05
        return "It is to have all that it can use; its workers are coming." if lacks else "It has all that it can use."
    if found.held_slots < found.fair_slots - 1:
        return "It is owed more, and gets that as others finish what they run."
    return "It has its share; more is for others."


def _beyond(beyond: float) -> str:
    return f": {figure(beyond)} above it" if beyond >= 1 else ""


def figure(number: float) -> str:
    """A number of slots, which need not be whole."""
    return f"{number:,.0f}" if abs(number - round(number)) < 0.005 else f"{number:.3g}"


def slots(number: float) -> str:
    """A number of slots in words."""
    return f"{figure(number)} slot{'' if figure(number) == '1' else 's'}"


@command(epilog="Example: windrow queue set vision --quota 8 --limit 16 --weight 2")
def set_queue(
    name: QueueName,
    weight: Annotated[
        float | None,
        Option(
            metavar="NUMBER",
            min=WEIGHT_MIN,
            max=WEIGHT_MAX,
            help="Of what is guaranteed to nobody, projects of one priority get parts by their weights.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        Option(
            metavar="N",
            min=-PRIORITY_MAX,
            max=PRIORITY_MAX,
            help="Of what is guaranteed to nobody, projects of a higher priority get all they can use first.",
        ),
    ] = None,
    quota: Annotated[
        float | None, Option(metavar="SLOTS", min=0, help="What the project is guaranteed, if it can use it.")
    ] = None,
    limit: Annotated[
        str | None, Option(metavar="SLOTS", help=f"The most that the project gets; {NO_LIMIT} for no limit.")
    ] = None,
    pool: Annotated[
        str,
        Option(metavar="POOL", help="Where --quota and --limit hold: on the nodes of this pool [default: all nodes]."),
    ] = "",
    admitted_jobs: Annotated[
        int | None,
        Option(
            metavar="N",
            min=1,
            max=ADMITTED_JOBS_MAX,
            help="Jobs that begin even if there is no worker for them; others are queued until they would get one.",
        ),
    ] = None,
    overcommit: Overcommit = False,
    master: Master = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Set what a project may have of the cluster.

    What is not given stays. It counts at once, also for jobs that run. Needs a token with the role admin. Several
    projects at once, in a file: `windrow queue apply`.
    """
    if weight is None and priority is None and quota is None and limit is None and admitted_jobs is None:
        raise UsageError("Nothing is to be set. Give --weight, --priority, --quota, --limit or --admitted-jobs.")
    if pool and quota is None and limit is None:
        raise UsageError("--pool says where --quota and --limit hold. Give one of these, too.")
    with open_served(master, NOT_HERE) as client:
        now = client.queues.list()
        settings = next((queue.settings for queue in now.queues if queue.name == name), QueueSettings())
        bounds = settings.of_pool(pool)
        if quota is not None:
            bounds = bounds._replace(quota=quota)
        if limit is not None:
            bounds = bounds._replace(limit=_limit_of(limit))
        settings = settings.with_pool(pool, bounds)._replace(
            weight=settings.weight if weight is None else weight,
            priority=settings.priority if priority is None else priority,
            admitted_jobs=settings.admitted_jobs if admitted_jobs is None else admitted_jobs,
        )
        changed = client.queues.set({name: settings}, revision=now.revision, overcommit=overcommit)
    _tell(changed, output)
    return exit_codes.DONE


@command(epilog="Example: windrow queue apply queues.yml --dry-run")
def apply(
    file: Annotated[Path, Argument(metavar="FILE", help="The file of queues (YAML).")],
    dry_run: Annotated[bool, Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    overcommit: Overcommit = False,
    master: Master = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Set the queues of all projects as a file says. A project that it does not name gets the defaults.

    The file holds `queues`, and below it for each project what differs from the defaults: weight (1), priority (0),
    quota (0), limit (none), admitted_jobs (20), and pools with a quota and a limit each. Needs a token with the role
    admin.
    """
    from windrow.spec.queue_file import load_queue_file

    read = load_queue_file(file)
    for warning in read.warnings:
        say(f"warning: {warning}")
    with open_served(master, NOT_HERE) as client:
        now = client.queues.list()
        before = {queue.name: queue.settings for queue in now.queues}
        differing = _differences(before, read.queues)
        if dry_run:
            if output is OutputForm.JSON:
                print_json({"revision": now.revision, "changes": differing})
            else:
                out("\n".join(differing) if differing else "Nothing would change.")
            return exit_codes.DONE
        changed = client.queues.set(read.queues, only=True, revision=now.revision, overcommit=overcommit)
    _tell(changed, output)
    return exit_codes.DONE


def _differences(before: Mapping[str, QueueSettings], after: Mapping[str, QueueSettings]) -> list[str]:
    """What a file would change, a line for each project."""
    changes = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, QueueSettings()), after.get(name, QueueSettings())
        if old != new:
            changes.append(f"{name}: {_in_words(old)} -> {_in_words(new)}")
    return changes


def _in_words(settings: QueueSettings) -> str:
    """Settings in one line."""
    parts = [f"weight {settings.weight:g}", f"priority {settings.priority}", _words(settings.cluster)]
    if settings.admitted_jobs != ADMITTED_JOBS:
        parts.append(counted(settings.admitted_jobs, "admitted job"))
    parts += [f"in pool {pool}: {_words(bounds)}" for pool, bounds in sorted(settings.pools.items())]
    return ", ".join(parts)


def _tell(changed: QueuesNow, output: OutputForm) -> None:
    if output is OutputForm.JSON:
        print_json({"revision": changed.revision, "queues": [queue.to_dict() for queue in changed.queues]})
        return
    for queue in changed.queues:
        out(f"{queue.name}: {_in_words(queue.settings)}")
    out(f"Revision {changed.revision}." if changed.queues else f"Nothing has changed; revision {changed.revision}.")


def _quota(settings: QueueSettings) -> str:
    """The quota in the cluster; with a + if there are others in pools."""
    pools = any(bounds.quota for bounds in settings.pools.values())
    return f"{settings.cluster.quota:g}{'+' if pools else ''}"


def _limit(bounds: Bounds) -> str:
    return "" if math.isinf(bounds.limit) else f"{bounds.limit:g}"


def _words(bounds: Bounds) -> str:
    return f"quota {bounds.quota:g}, " + (f"limit {_limit(bounds)}" if _limit(bounds) else "no limit")


def _changed(queue: Queue) -> str:
    if not queue.revision:
        return "never: these are the defaults"
    by = f" by {queue.changed_by}" if queue.changed_by else ""
    return f"{local_time(queue.change_time)}{by}, revision {queue.revision}"


def _limit_of(text: str) -> float:
    """What `--limit` means. Raises UsageError."""
    if text == NO_LIMIT:
        return math.inf
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise UsageError(f"--limit {text} is not a number of slots. Write one, such as 16, or {NO_LIMIT}.")
    return number
