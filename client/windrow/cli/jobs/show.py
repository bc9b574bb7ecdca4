"""`windrow job show`: one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.display.summary import print_summary
from windrow.cli.display.typed_words import typed
from windrow.cli.jobs.metrics import print_metrics
from windrow.cli.jobs.stream import INTERRUPTED, shown_state, stands_still
from windrow.cli.options.declared import Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import (
    JobName,
    Master,
    Output,
    OutputForm,
    State,
    open_client,
    warn_read_only,
)
from windrow.cli.tables import local_time, out, print_fields, print_json, print_table
from windrow.common.quantities import counted, size
from windrow.sdk.job import DataCacheUse, GpuUse, Job
from windrow.sdk.job_names import only_job

if TYPE_CHECKING:
    from windrow.sdk.client import Client


@command(epilog="Example: windrow job show digits-20260501-101500-ab12 --format json")
def show(
    job: JobName,
    metrics: Annotated[
        bool,
        Option("--metrics", help="Show what its scripts have logged by Run.log: each newest value; and tags."),
    ] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Show one job: its state, failures and outputs."""
    with open_client(master, state) as client:
        found = client.find(only_job(job))
        if metrics:
            warn_read_only(client)
            from windrow.sdk.metrics import metrics_and_tags

            values, tags = metrics_and_tags(client, found.job_id)
            return print_metrics(found, values, tags, as_json=output is OutputForm.JSON)
        document = client.document(found.job_id)
        waits, state_now = typed(_why_it_waits(client, found), document), shown_state(client, found)
        warn_read_only(client)
    if output is OutputForm.JSON:
        print_json({**found.to_dict(), "interrupted": state_now == INTERRUPTED, "document": document})
        return exit_codes.DONE
    _print_job(found, state_now)
    if waits:
        out(waits)
    if found.state.ended:
        out("")
        print_summary(found, document, options=master_options(master, state), here=client.is_here)
    return exit_codes.DONE


def _why_it_waits(client: Client, job: Job) -> str:
    """Why nobody works on a job, and what to do; "" if somebody does, or it has ended."""
    if stands_still(client, job):
        from windrow.sdk.ending import how_to_continue

        return f"No process runs this job. {how_to_continue(job.job_id, client.options)}"
    return "" if job.state.ended else client.why_no_work(job.job_id)


def ahead_of(job: Job) -> str:
    """What lies ahead of an open job, in words: its place in line, when it starts and ends, and its deadline; "" if
    nobody knows.
    """
    found = job.forecast
    if found is None:
        return ""
    place = f"number {job.place} in line" if job.place else ""
    told = ", ".join(filter(None, (place, found.words)))
    return f"{told}: {found.deadline_words}" if told and found.deadline_words else told


def gpu_use_words(use: GpuUse) -> str:
    """What workers have used of their GPUs, in words."""
    busy = f"kept their GPUs busy {use.busy_percent:.0f}% of the time" if use.busy_percent is not None else ""
    memory = f"used at most {size(use.peak_memory_bytes)} of GPU memory each" if use.peak_memory_bytes else ""
    return f"its workers {' and '.join(filter(None, (busy, memory))) or 'had GPUs'}"


def data_cache_words(use: DataCacheUse) -> str:
    """What a step's data has had of the data caches of nodes, in words."""
    asked = counted(use.hits + use.misses, "read")
    saved = f", {size(use.bytes_saved)} were not fetched again" if use.hits else ""
    evicted = f"; {counted(use.evictions, 'entry')} made room for others" if use.evictions else ""
    return f"data caches of nodes had {use.hits:,} of {asked} from storage{saved}{evicted}"


def _print_job(job: Job, state: str) -> None:
    fields = [
        ("job", job.job_id),
        ("name", job.display_name),
        ("experiment", job.experiment_name),
        ("state", state),
        ("why", "" if job.state.ended else job.message),
        # Where no tokens are asked for, there is one project, and nobody has a name.
        ("project", job.project if job.submitter else ""),
        ("priority", str(job.priority or "")),
        ("weight", str(job.weight) if job.weight != 1 else ""),
        ("deadline", local_time(job.deadline)),
        ("ahead", ahead_of(job)),
        ("submitted", f"{local_time(job.create_time)}{f', by {job.submitter}' if job.submitter else ''}"),
        ("ended", local_time(job.end_time)),
    ]
    print_fields([(name, value) for name, value in fields if value])
    out("")
    taken_over = any(step.mini_batches.taken_over for step in job.steps)
    print_table(
        (
            "STEP",
            "STATE",
            ">ITEMS",
            ">OK",
            ">FAILED",
            ">MINI-BATCHES",
            ">QUEUED",
            ">LEASED",
            ">DONE",
            *([">TAKEN OVER"] if taken_over else []),
            ">RETRIES",
            ">ROWS",
            "WHY",
        ),
        [
            (
                step.name,
                state if state == INTERRUPTED and step.state in ("running", "concatenating") else step.shown_state,
                f"{step.items.total:,}{'' if step.planned else '+'}",
                f"{step.items.ok:,}",
                f"{step.items.failed:,}",
                f"{step.mini_batches.total:,}{'' if step.planned else '+'}",
                f"{step.mini_batches.queued:,}",
                f"{step.mini_batches.leased:,}",
                f"{step.mini_batches.done:,}",
                *([f"{step.mini_batches.taken_over:,}"] if taken_over else []),
                f"{step.retries:,}",
                f"{step.rows:,}",
                # The reason for the end of the job is shown once, at the end.
                "" if job.state.ended and step.message in job.message else step.message,
            )
            for step in job.steps
        ],
    )
    for step in job.steps if len(job.steps) > 1 else ():
        if step.forecast is not None and step.forecast.words:
            out(f"{step.name}: {step.forecast.words}")
    for step in job.steps:
        if step.gpu_use is not None:
            out(f"{step.name}: {gpu_use_words(step.gpu_use)}")
        if step.data_cache is not None:
            out(f"{step.name}: {data_cache_words(step.data_cache)}")
    for warning in job.warnings:
        out(f"warning: {warning}")
    for note in job.notes:
        out(f"note: {note}")
