"""How a run ended, for people: the last lines of `windrow run` and `windrow job stream`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from windrow.cli import exit_codes
from windrow.cli.display.tolerance import without_threshold
from windrow.cli.messages import DIM, GREEN, RED, YELLOW, coloured
from windrow.cli.tables import out
from windrow.common import failure_list
from windrow.common.failure_kinds import SHORT_RETURN, FailureKind, headline
from windrow.common.quantities import counted, duration, first_few, rate, size
from windrow.common.second_attempts import second_attempts
from windrow.sdk.job import Job, JobState, Step
from windrow.sdk.results import rows_files
from windrow.storage.urls import is_remote
from windrow.transfer.fetch_places import shown_places

DETAIL_LINES = 20
KINDS_SHOWN = 8
"""The number of kinds of failures that are shown for a step; its `user/error.txt` has all."""
SKIPPED_NAMED = 3
"""A line names at most this many skipped steps."""
NO_SCRIPT_RAN = frozenset(("node_fault", "node_lost", "preempted", "cancelled"))
"""Causes that a mini-batch can have without any worker."""


def exit_code(job: Job, document: Mapping[str, Any], *, strict: bool, tolerate: bool) -> int:
    """The exit code for a job that has ended or is paused.

    Failures within a threshold of the job file end with 0, unless `strict`. Those of a step without any threshold end
    with 3, unless `tolerate`. Values that did not fit the columns of a table end with 0, unless `strict`.
    """
    match job.state:
        case JobState.COMPLETED:
            misfits = any(step.misfits for step in job.steps)
            return exit_codes.TOLERATED_FAILURES if strict and misfits else exit_codes.DONE
        case JobState.COMPLETED_WITH_FAILURES:
            unsaid = set(without_threshold(document))
            failed = any(step.name in unsaid and (step.items.failed or step.mini_batches.failed) for step in job.steps)
            return exit_codes.TOLERATED_FAILURES if strict or (failed and not tolerate) else exit_codes.DONE
        case JobState.CANCELLED:
            return exit_codes.CANCELLED
    return exit_codes.JOB_FAILED


def output_places(job: Job, document: Mapping[str, Any]) -> list[str]:
    """Where the outputs are: first the files of rows, then the other outputs that the pipeline names. If it names none,
    those that no other step reads, of a loop the last iteration's; but not single values.
    """
    rows = rows_files(job, document)
    with_rows = {(step.name, out.name) for step in job.steps for out in step.outputs if out.append_row}
    named = {(bound["step"], bound["output"]) for bound in document.get("outputs", {}).values()}
    read = {
        (given["step"], given["output"])
        for step in document.get("steps", ())
        for given in step["inputs"].values()
        if given["kind"] == "output"
    }
    for step in document.get("steps", ()):
        repeated = {iteration["follows"] for iteration in step.get("iterations", ())}
        read |= {(name, output) for name in repeated for output in step["outputs"]}
        read |= {(step["name"], name) for name, output in step["outputs"].items() if output.get("value")}
    others = [
        out.path
        for step in job.steps
        for out in step.outputs
        if (step.name, out.name) not in with_rows
        and ((step.name, out.name) in named if named else (step.name, out.name) not in read)
    ]
    first = [file.place for file in rows if "." not in file.output or not named] or [file.place for file in rows]
    return list(dict.fromkeys(first + others))


def failed_items_files(job: Job, options: str = "") -> list[str]:
    """Where to find the failed items of each step that has some: the file that the step's message names, or, if this
    machine cannot see it, the command that shows the list.
    """
    found = []
    for step in job.steps:
        if step.is_command or (not step.items.failed and not step.mini_batches.failed):
            continue
        file = step.failed_items_file
        seen = os.path.isfile(file)  # noqa: PTH113  as `_where` looks
        found.append(file if seen else f"`{failed_items_command(job, step, options)}`")
    return found


def failed_items_command(job: Job, step: Step, options: str) -> str:
    """The command that shows a step's list of failed items, which is among the step's logs as well."""
    return f"windrow job logs {job.job_id} {step.name}/{failure_list.FILE_NAME}{options}"


def _print_registered(job: Job, document: Mapping[str, Any]) -> None:
    """Print the names under which other jobs can use the outputs."""
    told = {step.name: step.message for step in job.steps}
    for step in document.get("steps", ()):
        for name, output in step.get("outputs", {}).items():
            asset, version = output.get("asset_name"), output.get("asset_version")
            if asset is None:
                continue
            if f"The output {name} is not registered" in told.get(step["name"], ""):
                out(coloured(f"{step['name']}: {told[step['name']]}", YELLOW, sys.stdout))
            else:
                reference = f"{asset}:{version}" if version else f"{asset}@latest"
                out(f"Registered: output {name} of step {step['name']} as azureml:{reference}")


def print_summary(
    job: Job, document: Mapping[str, Any], *, options: str = "", here: bool = False, continued: bool = False
) -> None:
    """Print how the run ended. The last line says where the output is, or why there is none.

    `options`: what later commands about this job need, such as ` --state folder`. `here`: whether it ran on this
    machine. `continued`: whether it was interrupted, so that it was not at work all the time.
    """
    from windrow.cli.display.typed_words import as_typed

    job = as_typed(job, document)
    places = output_places(job, document) if job.state.succeeded else []
    speculating = {step["name"] for step in document.get("steps", ()) if step.get("speculate")}
    for step in job.steps:
        _print_failures(step)
        _print_second_attempts(step, speculating)
        _print_misfits(step)
    _print_reused(job)
    _print_skipped(job)
    work = job.parallel
    items, batches = work.items, work.mini_batches
    took = _took(job)
    # Mini-batches without input (--rank_mini_batch_count) hold no items.
    of_batches = counted(batches.total, "mini-batch")
    if batches.taken_over:
        of_batches += f" ({batches.taken_over:,} taken over)"
    counts = f"{counted(items.ok, 'item')} in {of_batches}" if items.total else of_batches
    rows = sum(step.rows for step in job.steps)
    written = sum(step.output_bytes for step in job.steps)
    # There may be days between a job's end and its retry, and between an interruption and its continuation.
    paused = continued or job.generation > 1
    pace = f" ({rate(items.ran / took, 'items')})" if took and items.ran and not paused else ""
    commands = counted(job.commands.total, "command") if job.commands.total else ""
    counts = ", ".join(filter(None, (counts if work.steps else "", commands)))
    tail = ", ".join(
        filter(
            None,
            (
                f"{counted(rows, 'row')} ({size(written)})" if work.steps else "",
                f"{duration(took)}{' since it was submitted' if paused else pace}" if took is not None else "",
            ),
        )
    )
    for place in _older_outputs(job, document) if here else ():
        out(coloured(f"{place} is from an earlier run: this one has written no output there.", YELLOW, sys.stdout))
    match job.state:
        case JobState.COMPLETED:
            said = ", ".join((counts or "nothing had to run", tail))
            out(f"{coloured('Completed', GREEN, sys.stdout)}: {said}")
            _print_registered(job, document)
            output = _where(places, job, document, options, here)
            out(f"Output: {output or '(none: no step has outputs)'}")
        case JobState.COMPLETED_WITH_FAILURES:
            went_well = f"{items.ok:,} of {counted(items.total, 'item')} ok in {of_batches}"
            if not items.total:
                went_well = f"{batches.succeeded:,} of {of_batches} ok"
            out(f"{went_well}, {tail}")
            _print_registered(job, document)
            reports = ", ".join(failed_items_files(job, options)) or failure_list.FILE_NAME
            what = _failed_of(job)
            kinds = [kind for step in job.steps for kind in step.failure_kinds if kind.is_permanent]
            if not batches.failed and all(kind.cause == SHORT_RETURN for kind in kinds):
                what = f"{what}, because run() returned fewer results than it was given items"
            output = _where(places, job, document, options, here) or "(none)"
            out(coloured(f"CompletedWithFailures: {what}; listed in {reports}. Output: {output}", RED, sys.stdout))
        case JobState.CANCELLED:
            ended = (
                f"Cancelled: of {counted(items.total, 'item')} {items.ok:,} ok, {items.failed:,} failed, "
                f"{items.cancelled:,} cancelled. {job.message}"
            )
            out(coloured(ended.rstrip(), YELLOW, sys.stdout))
        case JobState.PAUSED:
            out(
                coloured(
                    f"Paused: {job.message} It is kept; `windrow job cancel {job.job_id}{options}` ends it.",
                    RED,
                    sys.stdout,
                )
            )
        case _:
            for step in job.steps:
                if not step.is_command and (step.items.failed or step.mini_batches.failed):
                    failed = counted(step.items.failed, "failed item")
                    if not step.items.failed:
                        failed = counted(step.mini_batches.failed, "failed mini-batch")
                    out(f"{failed} of step {step.name}: {failed_items_command(job, step, options)}")
            if any(map(_script_ran, job.steps)):
                out(f"What the script printed, and its errors: windrow job logs {job.job_id}{options}")
            if job.state is JobState.FAILED:
                out(f"When the cause is fixed, run the rest with: {retry_command(job, document, options)}")
            why = job.message or next((f"step {step.name}: {step.message}" for step in job.steps if step.message), "")
            out(coloured(f"{job.state.label}: {why or 'the master gave no reason'}", RED, sys.stdout))


def end_line(job: Job) -> str:
    """How a job has ended, or that it is paused, in one line."""
    work = job.parallel
    items, batches = work.items, work.mini_batches
    good, bad, of = items.ok, items.failed, counted(items.total, "item")
    if not items.total:
        good, bad, of = batches.succeeded, batches.failed, counted(batches.total, "mini-batch")
    counts = f"{good:,} of {of} ok" if items.total or batches.total else ""
    failed = f"{bad:,} failed" if bad else ""
    took = _took(job)
    after = "" if took is None else f"after {duration(took)}"
    why = "" if job.state.succeeded else " ".join(job.message.split())
    told = ", ".join(filter(None, (counts, failed, after)))
    return f"{job.job_id} is {job.state.words}" + "".join(f": {part}" for part in (told, why) if part)


def _print_second_attempts(step: Step, speculating: Container[str]) -> None:
    """Print how often stragglers were begun once more (--speculate). `speculating`: the steps that allow it."""
    batches = step.mini_batches
    if step.name in speculating and batches.done > batches.taken_over:
        out(f"{step.name}: {second_attempts(batches.speculated, batches.speculated_won, ended=True)}")


def _print_misfits(step: Step) -> None:
    if step.misfits:
        what = counted(step.misfits, "value")
        told = f"{step.name}: {what} did not fit: null, cut, beyond the header, or left out. A warning says which."
        out(coloured(f"{told} With --strict, this is exit code 3.", YELLOW, sys.stdout))


def _print_reused(job: Job) -> None:
    """Print which steps ran nothing because an earlier job had made the same outputs."""
    made: dict[str, list[str]] = {}
    for step in job.steps:
        if step.reused_from:
            made.setdefault(step.reused_from, []).append(step.name)
    for job_id, names in made.items():
        out(f"Reused from job {job_id}: {', '.join(names)}")


def _print_skipped(job: Job) -> None:
    """Print which steps were skipped, and why."""
    why: dict[str, list[str]] = {}
    for step in job.steps:
        if step.state == "skipped":
            why.setdefault(step.message, []).append(step.name)
    for message, names in why.items():
        out(f"Skipped: {first_few(names, SKIPPED_NAMED, 'step')}. {message}")


def retry_command(job: Job, document: Mapping[str, Any], options: str) -> str:
    """The command that runs what is not done yet; with the job file, if it still exists."""
    file = Path(document.get("job_file", ""))
    shown = file.name if file.parent == Path.cwd() else str(file)
    with_file = f" --file {shlex.quote(shown)}" if os.path.isfile(file) else ""  # noqa: PTH113
    return f"windrow job retry {job.job_id}{with_file}{options}"


def _where(places: Sequence[str], job: Job, document: Mapping[str, Any], options: str, here: bool) -> str:
    """Where the outputs are. For those that this machine does not see, or that belong beside the job file, say how to
    get them.

    `here`: the master is on this machine, so an output that cannot be seen was not written.
    """
    files = [place for place in places if not is_remote(place)]
    # Not Path.exists, which raises where this user may not look: a served master's folder is closed to others.
    unseen = [file for file in files if not os.path.exists(file)]  # noqa: PTH110
    if here:
        return ", ".join(place + " (nothing was written there)" * (place in unseen) for place in places)
    command = f"windrow job download {job.job_id}{options}"
    if wanted := shown_places(document, job.job_id):
        are = "are" if len(wanted) > 1 else "is"
        return f"{', '.join(places)} (on the master; {', '.join(wanted)} {are} filled by: {command})"
    return ", ".join(places) + (f" (on the master; to fetch: {command})" if files and unseen == files else "")


def _older_outputs(job: Job, document: Mapping[str, Any]) -> list[str]:
    """Files of rows that are there although the steps that write them have ended without an output."""
    without = [step for step in job.steps if step.state in ("failed", "cancelled")]
    files = rows_files(job._replace(steps=tuple(without)), document)
    return [file.place for file in files if os.path.exists(file.place)]  # noqa: PTH110  as `_where` looks


def _failed_of(job: Job) -> str:
    """How much failed: items, or mini-batches if no failed one was loaded."""
    job = job.parallel
    if job.mini_batches.failed and not job.items.failed:
        batches = job.mini_batches
        # Where no mini-batch holds items (--rank_mini_batch_count), there is nothing to count.
        when = " before their items were counted" if job.items.total else ""
        return f"{batches.failed:,} of {counted(batches.total, 'mini-batch')} failed{when}"
    return f"{job.items.failed:,} of {counted(job.items.total, 'item')} failed"


def _script_ran(step: Step) -> bool:
    """Whether a worker has started the script, so that there are logs of it."""
    return step.mini_batches.succeeded > step.mini_batches.taken_over or bool(
        step.failed_attempts.keys() - NO_SCRIPT_RAN
    )


def _print_failures(step: Step) -> None:
    """Print what failed for good, with the first failure of each kind; then, in one line each, what recovered."""
    for kind in step.failure_kinds[:KINDS_SHOWN]:
        out(coloured(" ".join(failure_line(step, kind).split()), YELLOW if kind.is_permanent else DIM, sys.stdout))
        if not kind.is_permanent:
            continue
        lines = kind.detail.rstrip().splitlines()[-DETAIL_LINES:]
        if lines and lines != [kind.message]:
            out(coloured("\n".join(f"    {line}" for line in lines), DIM, sys.stdout))
    if more := step.failure_kinds[KINDS_SHOWN:]:
        out(coloured(f"{step.name}: {counted(len(more), 'more kind')} of failures, each rarer", DIM, sys.stdout))


def failure_line(step: Step, kind: FailureKind) -> str:
    """What happened, and where first, with the message of the first failure that was final."""
    settled = step.state == "completed"
    if not kind.is_permanent:
        return f"{step.name}: {headline(kind, settled=settled, is_command=step.is_command)}"
    # A worker that never was ready had no mini-batch, and a command is one.
    where = [] if kind.mini_batch_index < 0 or step.is_command else [f"mini-batch {kind.mini_batch_index}"]
    if kind.node_id:
        process = "" if kind.process_number is None else f" process{kind.process_number:03d}"
        where.append(f"{kind.node_id}{process}")
    first = ", ".join(where)
    if step.is_command and kind.attempts == 1:
        return f"{step.name} ({first}): {kind.message}"
    what = headline(kind, settled=settled, with_place=False, is_command=step.is_command)
    # The cause is what `windrow mb list --cause` takes.
    cause = "no_result" if kind.cause == SHORT_RETURN else kind.cause
    return f"{step.name}: {what}; cause {cause}, first in {first}: {kind.message}"


def _took(job: Job) -> float | None:
    if job.create_time is None or job.end_time is None:
        return None
    return max(0.0, (job.end_time - job.create_time).total_seconds())
