"""`windrow job`: the jobs of a master."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windrow.cli import exit_codes
from windrow.cli.code_change import asker
from windrow.cli.display.uploads import UploadDisplay
from windrow.cli.explain import explain
from windrow.cli.job_deletion import delete, prune
from windrow.cli.job_files import download_outputs, print_log
from windrow.cli.job_list import list_jobs
from windrow.cli.job_metrics import print_metrics
from windrow.cli.job_query import query
from windrow.cli.job_rows import rows
from windrow.cli.job_stream import INTERRUPTED, shown_state, stands_still, stream_job
from windrow.cli.job_wait import wait
from windrow.cli.master_choice import master_options
from windrow.cli.messages import say
from windrow.cli.options import (
    STRICT_HELP,
    CodeChange,
    CodeChangeChoice,
    JobName,
    JobOrStep,
    Master,
    Notify,
    Output,
    OutputForm,
    Sets,
    Since,
    State,
    Strict,
    Tolerate,
    guarded,
    open_client,
    warn_read_only,
)
from windrow.cli.retry import retry
from windrow.cli.tables import local_time, out, print_fields, print_json, print_table
from windrow.cli.validate import validate
from windrow.errors import UsageError
from windrow.sdk.code_change import refuse_without_earlier_job
from windrow.sdk.job import Job, JobState
from windrow.sdk.job_names import only_job, with_step
from windrow.transfer.fetch_places import shown_places

if TYPE_CHECKING:
    from windrow.sdk.client import Client

app = typer.Typer(
    help="Submit, inspect, follow, cancel, download and delete jobs.",
    no_args_is_help=True,
    epilog="Example: windrow job list",
)

NOTIFY_WAITS = "--notify tells of the job's end, and this command does not wait for it. Add --stream."
JobFile = Annotated[Path, typer.Argument(metavar="FILE", help="The job file: a pipeline YAML with parallel steps.")]


@app.command("create", epilog="Example: windrow job create job.yml --master 127.0.0.1:8470 --stream")
@guarded
def create(
    file: JobFile,
    sets: Sets = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the job, instead of the file's.")] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", help="Jobs with a higher priority go first.", min=-1000, max=1000)
    ] = 0,
    since: Since = "",
    code_change: CodeChange = CodeChangeChoice.ASK,
    stream: Annotated[bool, typer.Option("--stream", help="Follow the job until it ends.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help=f"With --stream. {STRICT_HELP}"),
    ] = False,
    tolerate: Tolerate = False,
    targets: Notify = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the plan (steps, places, mini-batches, settings) and submit nothing."),
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
    with open_client(master, state, live=True) as client:
        if dry_run:
            from windrow.cli.dry_run import dry_create

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


app.command("validate", epilog="Example: windrow job validate job.yml --set inputs.data.path=./other")(validate)


app.command("list", epilog="Example: windrow job list --since 2d --only failed")(list_jobs)


@app.command("show", epilog="Example: windrow job show digits-20260501-101500-ab12 --format json")
@guarded
def show(
    job: JobName,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Show what its scripts have logged by Run.log: the newest value of each.")
    ] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Show one job: its state, failures and outputs."""
    from windrow.cli.display.summary import print_summary

    with open_client(master, state) as client:
        found = client.find(only_job(job))
        if metrics:
            warn_read_only(client)
            return print_metrics(found, client.metrics(found.job_id), as_json=output is OutputForm.JSON)
        document = client.document(found.job_id)
        waits, state_now = _why_it_waits(client, found), shown_state(client, found)
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


app.command("rows", epilog="Example: windrow job rows last --follow")(rows)


app.command("query", epilog='Example: windrow job query last "select count(*) from rows"')(query)


app.command("explain", epilog="Example: windrow job explain digits-20260501-101500-ab12")(explain)


@app.command("stream", epilog="Example: windrow job stream digits-20260501-101500-ab12")
@guarded
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


app.command("wait", epilog="Example: windrow job wait last --timeout 3600 && echo done")(wait)


@app.command("cancel", epilog="Example: windrow job cancel digits-20260501-101500-ab12 --wait")
@guarded
def cancel(
    job: JobName,
    to_its_end: Annotated[bool, typer.Option("--wait", help="Return when the job has ended.")] = False,
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


app.command("retry", epilog="Example: windrow job retry digits-20260501-101500-ab12 --file job.yml --stream")(retry)


app.command("delete", epilog="Example: windrow job delete digits-20260501-101500-ab12 --dry-run")(delete)
app.command("prune", epilog="Example: windrow job prune --older-than 30d --keep-last 100 --dry-run")(prune)


@app.command("download", epilog="Example: windrow job download digits-20260501-101500-ab12 --to results")
@guarded
def download(
    job: JobName,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            "-p",
            metavar="DIR",
            help="Target folder [default: an output's relative path in the job file, else a folder named like the "
            "job].",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--output-name", metavar="OUTPUT", help="Only this output, or STEP.OUTPUT. Repeatable."),
    ] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Download a job's outputs. A download that broke off continues where it stopped."""
    with open_client(master, state) as client:
        return download_outputs(
            client, client.find(only_job(job)).job_id, to, name or [], as_json=output is OutputForm.JSON
        )


@app.command(
    "logs",
    epilog="Example: windrow job logs digits-20260501-101500-ab12 --failed",
)
@guarded
def logs(
    job: JobOrStep,
    path: Annotated[str | None, typer.Argument(metavar="PATH", help="Log file to print [default: list all].")] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Keep printing until the job ends; without PATH: all that scripts write."),
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, metavar="N", help="Only the last N lines; with --failed: failures.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failures with their tracebacks, newest last.")] = False,
    mini_batch: Annotated[
        int | None, typer.Option("--mini-batch", min=0, metavar="N", help="Only what concerns this mini-batch.")
    ] = None,
    worker: Annotated[str | None, typer.Option("--worker", metavar="NODE/process003", help="Only this worker.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Only this node.")] = None,
    step: Annotated[str | None, typer.Option("--step", metavar="STEP", help="Only this step.")] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """List or print the log files of a job, or its failures."""
    from windrow.cli import job_logs

    job, step = with_step(job, step)
    choice = job_logs.make_choice(step, node, worker, mini_batch)
    if path is not None and (failed or choice.given):
        raise UsageError(
            "PATH names one file. Leave it out, or leave out --failed, --mini-batch, --worker, --node and the step."
        )
    if failed and follow:
        raise UsageError("--failed prints the failures so far and ends. Leave out --follow.")
    several = worker is not None or node is not None
    if path is None and tail is not None and not (follow or failed or several):
        raise UsageError(
            f"--tail needs the name of a log file (`windrow job logs {job}` lists them), or --follow, --failed, "
            "--worker or --node."
        )
    as_json = output is OutputForm.JSON
    with open_client(master, state) as client:
        found = client.find(job)
        job = found.job_id
        if follow and path is None:
            return job_logs.Followed(job, choice, tail).run(client)
        if path is not None:
            return print_log(client, job, path, follow=follow, tail=tail)
        if failed:
            return job_logs.print_failures(client, job, choice, tail=tail, as_json=as_json)
        if mini_batch is not None:
            return job_logs.print_mini_batch(client, job, choice, as_json=as_json)
        if several and not as_json:
            return job_logs.print_chosen(client, job, choice, tail=tail)
        files = choice.files(client, job)
    if output is OutputForm.JSON:
        print_json([{"path": file.path, "length": file.length} for file in files])
    elif not files:
        out(f"Job {job} has no log files{'' if found.state.ended else ' yet'}.")
    else:
        print_table((">BYTES", "PATH"), [(f"{file.length:,}", file.path) for file in files])
    return exit_codes.DONE


def _why_it_waits(client: Client, job: Job) -> str:
    """Why nobody works on a job, and what to do; "" if somebody does, or it has ended."""
    if stands_still(client, job):
        from windrow.sdk.ending import how_to_continue

        return f"No process runs this job. {how_to_continue(job.job_id, client.options)}"
    return "" if job.state.ended else client.why_no_work(job.job_id)


def _print_job(job: Job, state: str) -> None:
    fields = [
        ("job", job.job_id),
        ("name", job.display_name),
        ("experiment", job.experiment_name),
        ("state", state),
        ("why", "" if job.state.ended else job.message),
        # Where no tokens are asked for, there is one project, and nobody has a name.
        ("project", job.project if job.submitter else ""),
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
    for warning in job.warnings:
        out(f"warning: {warning}")
    for note in job.notes:
        out(f"note: {note}")
