"""`windrow mb`: the mini-batches of a job."""

from __future__ import annotations

import shlex
import shutil
import sys
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.display.typed_words import attempts_as_typed, details_as_typed
from windrow.cli.messages import is_terminal
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import JobOrStep, Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.cli.tables import local_time, out, print_fields, print_json, print_table, shortened, width_of
from windrow.common.quantities import counted, precise_duration, size
from windrow.common.status_words import status_words
from windrow.errors import UsageError
from windrow.sdk.job_names import with_step
from windrow.sdk.mini_batch import Attempt, MiniBatch, MiniBatchDetails

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.sdk.client import Client
    from windrow.sdk.job import Step


MiniBatchName = Annotated[
    str, Argument(metavar="MB", help="Which mini-batch: 17, or STEP/17 if the job has several steps.")
]


class MiniBatchState(StrEnum):
    """What `--only` takes: `windrow.sdk.mini_batch.STATES`.

    Not the core's `MiniBatchState`, whose numbers are stored.
    """

    QUEUED = "queued"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


COLUMNS = (
    "STEP", ">MB", "STATE", ">TRIES", "CAUSE", ">ITEMS", ">OK", "NODE", "PROCESS", "BEGAN", ">TOOK", "WHY",
)  # fmt: skip
LEFT_OUT = ("PROCESS", "BEGAN", "NODE", ">OK", ">TOOK")
"""On a terminal that is too narrow, in this order: `windrow mb show` has them."""
WHY_WIDTH = 20
"""The reason is made no shorter while another column can be left out."""
ITEMS_SHOWN = 20
BUNDLES_MAX = 10
"""The kinds of failures that get a bundle when no mini-batch is named."""

JobOrBundle = Annotated[
    str,
    Argument(
        metavar="JOB|FILE.zip",
        help="Name of the job, a beginning of it, or last; or a bundle (`windrow mb bundle`).",
        autocompletion=completion.job_and_step_names,
    ),
]


@command(epilog="Example: windrow mb list digits-20260501-101500-ab12 --cause timeout")
def list_mini_batches(
    job: JobOrStep,
    only: Annotated[
        list[MiniBatchState] | None,
        Option("--only", metavar="STATE", help=f"Only those in this state: {', '.join(MiniBatchState)}. Repeatable."),
    ] = None,
    cause: Annotated[
        str | None,
        Option(
            "--cause",
            metavar="CAUSE",
            help="Only those with an attempt that failed for this cause: exception, timeout, oom, …; no_result: run() "
            "returned fewer results than items.",
            autocompletion=completion.causes,
        ),
    ] = None,
    step: Annotated[str | None, Option("--step", metavar="STEP", help="Only those of this step.")] = None,
    newest: Annotated[bool, Option("--newest", help="Sort by start, newest first, instead of by number.")] = False,
    limit: Annotated[int, Option("--limit", "-n", min=1, metavar="N", help="Show at most N.")] = 100,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """List the mini-batches of a job as they are now.

    Each with its state, tries, cause and items, and where and when its newest attempt ran.
    """
    wanted = [str(one) for one in only or ()]
    job, step = with_step(job, step)
    with open_client(master, state) as client:
        whole = client.find(job)
        job = whole.job_id
        found = list(
            islice(
                client.mini_batches(
                    job,
                    step=step,
                    state=wanted,
                    cause=cause,
                    newest_first=newest,
                    page_size=min(limit + 1, 1000),
                ),
                limit + 1,
            )
        )
        several = len(whole.steps) > 1
        document = client.document(job)
        warn_read_only(client)
    more, found = len(found) > limit, found[:limit]
    if output is OutputForm.JSON:
        print_json([one.to_dict() for one in found])
        return exit_codes.DONE
    if not found:
        narrowed = "such " if wanted or cause or step else ""
        out(f"Job {job} has no {narrowed}mini-batches{'' if narrowed else ' yet'}.")
        return exit_codes.DONE
    columns, rows = list(COLUMNS), [list(_row(attempts_as_typed(one, document))) for one in found]
    if not several:
        _leave_out(columns, rows, "STEP")
    if is_terminal(sys.stdout):
        _fit(columns, rows, shutil.get_terminal_size().columns)
    print_table(columns, rows, folds=False)
    if more:
        shown = counted(limit, "mini-batch")
        out(f"Only the first {shown}; --limit N shows more, --only and --cause narrow the list.")
    bad = next((one for one in found if one.cause), None)
    if bad is not None:
        options = master_options(master, state)
        out(f"To look closer: windrow mb show {job} {_name(bad, several=several)}{options}")
    return exit_codes.DONE


@command(epilog="Example: windrow mb show digits-20260501-101500-ab12 17")
def show(
    job: JobOrStep,
    mini_batch: MiniBatchName,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Show one mini-batch and all its attempts.

    Shows its items, the times, memory, traceback and logs of each attempt, and the command that runs it again.
    """
    step, index = parse_name(mini_batch)
    job, step = with_step(job, step)
    with open_client(master, state) as client:
        whole = client.find(job)
        job, steps = whole.job_id, whole.steps
        found = client.mini_batch(job, index, step=step)
        several = len(steps) > 1
        is_command = any(one.is_command for one in steps if one.name == found.mini_batch.step)
        document = client.document(job)
        earlier = "" if found.attempts else _earlier_job(document, found.mini_batch)
        warn_read_only(client)
    replay = f"windrow mb replay {job} {_name(found.mini_batch, several=several)}{master_options(master, state)}"
    if output is OutputForm.JSON:
        print_json({**found.to_dict(), "replay": replay})
    else:
        _print_details(
            job,
            details_as_typed(found, document),
            replay,
            master_options(master, state),
            earlier,
            is_command=is_command,
        )
    return exit_codes.DONE


@command(epilog="Example: windrow mb replay digits-20260501-101500-ab12 17 --code . --pdb")
def replay(
    job: JobOrBundle,
    mini_batch: Annotated[
        str | None,
        Argument(
            metavar="MB",
            help="Which mini-batch: 17, or STEP/17 if the job has several steps. Not with a bundle.",
        ),
    ] = None,
    item: Annotated[
        int | None,
        Option(
            min=0,
            metavar="N",
            help="Run only this item of the mini-batch, counted from 0 (column `number` of failed_items.csv).",
        ),
    ] = None,
    pdb: Annotated[
        bool,
        Option("--pdb", help="Stop in Python's debugger, in the last frame of your code, if run() or init() raises."),
    ] = False,
    python: Annotated[
        str | None,
        Option(
            metavar="PATH",
            help="Interpreter for the script [default: the step's environment, else the active one's, else Windrow's].",
        ),
    ] = None,
    code: Annotated[
        Path | None,
        Option("--code", metavar="DIR", help="Run the code of this folder instead of the code that ran."),
    ] = None,
    keep: Annotated[
        Path | None,
        Option("--keep", metavar="DIR", help="Keep code, data, rows, logs and files that run() wrote in this folder."),
    ] = None,
    write_outputs: Annotated[
        bool,
        Option(
            "--write-outputs",
            help="Let the script write into the job's own output folders, not into a scratch folder.",
        ),
    ] = False,
    master: Master = None,
    state: State = None,
) -> int:
    """Run one mini-batch again in this terminal, beside the job.

    The job does not change. The same worker host runs with the mini-batch's code, arguments, environment variables and
    data; you see what it prints, and breakpoint() and input() work. Exit codes: 0 run() returned usable results, 1 it
    did not, 2 bad usage, 130 interrupted.
    """
    from windrow.cli.mini_batches.replay import Replay

    if job.endswith(".zip") and Path(job).is_file():
        if mini_batch is not None or write_outputs:
            raise UsageError(f"{job} is a bundle: it says which mini-batch it is, and its outputs are not here.")
        with Replay(keep) as prepared:
            prepared.bring_bundle(Path(job), item=item, pdb=pdb, python=python, code=code)
            return prepared.run()
    if mini_batch is None:
        raise UsageError(f"Which mini-batch of {job}? Give its number: windrow mb replay {job} 17")
    step, index = parse_name(mini_batch)
    job, step = with_step(job, step)
    with Replay(keep) as prepared:
        with open_client(master, state) as client:
            prepared.bring(
                client,
                client.find(job).job_id,
                index,
                step,
                item=item,
                pdb=pdb,
                python=python,
                code=code,
                write_outputs=write_outputs,
            )
        # The master, perhaps this command's own, is not needed while the script runs.
        return prepared.run()


@command(epilog="Example: windrow mb bundle digits-20260501-101500-ab12 17 --item 3")
def bundle(
    job: JobOrStep,
    mini_batch: Annotated[
        str | None,
        Argument(
            metavar="MB",
            help="Which mini-batch: 17, or STEP/17 if the job has several steps. Without it: the first of each kind of "
            "failure.",
        ),
    ] = None,
    item: Annotated[
        int | None,
        Option(min=0, metavar="N", help="Only this item of the mini-batch, counted from 0."),
    ] = None,
    target: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE.zip", help="Write it here [default: JOB-STEP-MB.zip]."),
    ] = None,
    data_mb: Annotated[
        int, Option("--data-mb", min=0, metavar="N", help="Leave the data out if it is more than N MB.")
    ] = 100,
    master: Master = None,
    state: State = None,
) -> int:
    """Pack a failed mini-batch into a zip file that runs elsewhere.

    The file holds code, data, traceback and settings, without secrets. `windrow mb replay FILE.zip` runs it on any
    machine with Windrow.
    """
    from windrow.cli.mini_batches.bundles import SUFFIX, write_bundle

    if target is not None and target.suffix != SUFFIX:
        raise UsageError(f"-o {target}: the name of a bundle must end in {SUFFIX}.")
    if mini_batch is None and (item is not None or target is not None):
        raise UsageError("--item and -o are for one mini-batch: give its number.")
    with open_client(master, state) as client:
        job, step = with_step(job, None if mini_batch is None else parse_name(mini_batch)[0])
        found = client.find(job)
        if mini_batch is not None:
            wanted = [(step, parse_name(mini_batch)[1], item)]
        else:
            wanted = _failures_of(client, found.job_id, [one for one in found.steps if step in (None, one.name)])
        for name, index, number in wanted:
            told = name or found.steps[0].name
            file = target or Path(f"{found.job_id}-{told}-{index}{'' if number is None else f'-{number}'}{SUFFIX}")
            written = write_bundle(client, found.job_id, index, name, item=number, target=file, data_mb=data_mb)
            data = f"without its data ({written.why})" if written.data_bytes is None else size(written.data_bytes)
            left = f", without {', '.join(written.secrets)}" if written.secrets else ""
            again = f"windrow mb replay {shlex.quote(str(file))}"
            out(f"{file}: mini-batch {index} of step {told}, {data}{left}. To run it: {again}")
    if not wanted:
        out(f"Nothing of job {found.job_id} has failed for good: give the number of a mini-batch.")
    return exit_codes.DONE


def _failures_of(client: Client, job_id: str, steps: list[Step]) -> list[tuple[str | None, int, int | None]]:
    """A mini-batch for each kind of failure that was final, with the item that failed, where that is known."""
    wanted: list[tuple[str | None, int, int | None]] = []
    for step in steps:
        for kind in step.failure_kinds:
            if not kind.is_permanent or kind.mini_batch_index < 0 or len(wanted) >= BUNDLES_MAX:
                continue
            failed = client.mini_batch(job_id, kind.mini_batch_index, step=step.name).failed_items
            same = [one.number for one in failed if one.message == kind.message]
            number = next((one for one in [*same, *(one.number for one in failed)] if one is not None), None)
            wanted.append((step.name, kind.mini_batch_index, number))
    return wanted


def parse_name(text: str) -> tuple[str | None, int]:
    """`17` or `STEP/17` -> (step, index). Raises UsageError."""
    step, slash, number = text.rpartition("/")
    if not number.isdecimal() or (slash and not step):
        raise UsageError(f"{text!r} is not a mini-batch. Give its number, as in 17, or STEP/17 with the step's name.")
    return step or None, int(number)


def _name(found: MiniBatch, *, several: bool) -> str:
    return f"{found.step}/{found.mini_batch_index}" if several else str(found.mini_batch_index)


def _row(found: MiniBatch) -> tuple[str, ...]:
    last = found.last_attempt
    return (
        found.step,
        str(found.mini_batch_index),
        found.state,
        str(found.tries) if found.tries else "",
        found.cause,
        f"{found.item_count:,}" if found.item_count or found.state == "succeeded" else "?",
        f"{found.ok_count:,}" if found.ok_count or found.state == "succeeded" else "",
        last.node_id if last is not None else "",
        last.process_name if last is not None else "",
        local_time(last.start_time) if last is not None else "",
        _duration(last.elapsed_s) if last is not None else "",
        last.message if last is not None else "",
    )


def _fit(columns: list[str], rows: list[list[str]], width: int) -> None:
    """Make each mini-batch one line of this width: least columns are left out, then the reason is shortened."""
    reasons = [" ".join(row[-1].split()) for row in rows]
    wanted = min(WHY_WIDTH, max(map(len, reasons)))
    for row in rows:
        row[-1] = ""
    room = width - width_of(columns, rows) + len(columns[-1])
    for name in LEFT_OUT:
        if room < wanted:
            _leave_out(columns, rows, name)
            room = width - width_of(columns, rows) + len(columns[-1])
    for row, reason in zip(rows, reasons, strict=True):
        row[-1] = shortened(reason, max(room, WHY_WIDTH))


def _leave_out(columns: list[str], rows: list[list[str]], name: str) -> None:
    at = columns.index(name)
    for row in (columns, *rows):
        del row[at]


def _earlier_job(document: Mapping[str, Any], found: MiniBatch) -> str:
    """The earlier job from which a mini-batch without an attempt has its result; empty if it has none."""
    if found.state != "succeeded":
        return ""
    return next((step.get("resume_from") or "" for step in document["steps"] if step["name"] == found.step), "")


def _print_details(
    job: str, found: MiniBatchDetails, replay: str, options: str, earlier: str, *, is_command: bool
) -> None:
    one = found.mini_batch
    print_fields(
        [
            ("job", job),
            ("step", one.step),
            ("mini-batch", str(one.mini_batch_index)),
            ("state", one.state),
            *([("cause", one.cause)] if one.cause else []),
            ("tries", str(one.tries)),
            ("items", _items_line(one)),
            *([("rows", f"{one.row_count:,}")] if one.state == "succeeded" else []),
            *([("partition", found.partition)] if found.partition else []),
        ]
    )
    out("")
    out("Items:")
    for item in found.items[:ITEMS_SHOWN]:
        out(f"  {item}", whole=True)
    left = len(found.items) - ITEMS_SHOWN + found.items_left_out
    if left > 0:
        out(f"  … and {left:,} more (--format json lists the first 1,000)")
    if found.failed_items:
        _print_failed_items(found, replay, is_command=is_command)
    recipe = found.recipe
    if not recipe.startswith('{"files"') and recipe != "{}":
        out(f"Recipe: {recipe if len(recipe) <= 2000 else recipe[:2000] + '…'}", whole=True)
    for number, attempt in enumerate(found.attempts, 1):
        out("")
        _print_attempt(number, attempt)
    if not found.attempts:
        out("")
        out(f"It did not run: its result was taken over from job {earlier}." if earlier else "No attempt yet.")
    out("")
    log = next((path for attempt in reversed(found.attempts) for path in attempt.logs), None)
    if log is not None:
        failed = any(attempt.state == "failed" for attempt in found.attempts)
        if one.state == "succeeded" and not failed:
            out(f"Its worker's logs, with those of other mini-batches: windrow job logs {job} {log}{options}")
        else:
            out(f"Its logs:        windrow job logs {job} {log}{options}")
    pdb = "" if is_command else "--pdb: stop where it fails; "
    out(f"To run it again: {replay}   ({pdb}--code DIR: with repaired code)")


def _print_failed_items(found: MiniBatchDetails, replay: str, *, is_command: bool) -> None:
    """The items that failed, each kind of message once; and the command that runs only the first of them."""
    out("")
    out("Failed items:")
    before = ""
    for one in found.failed_items[:ITEMS_SHOWN]:
        why = one.message or one.cause
        out(f"  {one.item}{f': {why}' if why != before else ': as the one before'}")
        before = why
    left = len(found.failed_items) - ITEMS_SHOWN + found.failed_items_left_out
    if left > 0:
        out(f"  … and {left:,} more (failed_items.csv lists them all)")
    first = next((one.number for one in found.failed_items if one.number is not None), None)
    if first is not None and not is_command:
        out(f"To run only the first of them: {replay} --item {first}")


def _items_line(one: MiniBatch) -> str:
    if not one.item_count and one.state != "succeeded":
        return "counted when they are loaded"
    ok = f", {one.ok_count:,} with a result" if one.ok_count or one.state == "succeeded" else ""
    return f"{one.item_count:,}{ok}"


def _print_attempt(number: int, attempt: Attempt) -> None:
    counts = ", its outcome counts" if attempt.counts else ""
    category = f" ({attempt.error_category})" if attempt.error_category else ""
    out(f"Attempt {number}: {status_words(attempt.status)}{category}{counts}")
    where = f"{attempt.node_id} {attempt.process_name}".strip()
    fields = [("  on", where), ("  began", local_time(attempt.start_time))]
    if attempt.state == "running":
        fields.append(("  now", attempt.phase or "waits on the node"))
    elif attempt.elapsed_s is not None:
        times = (
            f"{_duration(attempt.elapsed_s)}: run() {_duration(attempt.run_s)}, "
            f"loading and writing {_duration(attempt.load_s)}, CPU {_duration(attempt.cpu_s)}"
        )
        fields.append(("  took", times))
        if attempt.peak_rss_bytes:
            fields.append(("  memory", f"peak {size(attempt.peak_rss_bytes)}, of the process so far"))
    if attempt.state == "succeeded":
        fields.append(("  results", f"{attempt.result_count:,} for {counted(attempt.item_count, 'item')}"))
    if attempt.message:
        fields.append(("  why", attempt.message))
    fields += [("  log", path) for path in attempt.logs]
    print_fields(fields)
    if attempt.detail and attempt.detail.strip() != attempt.message.strip():
        for line in attempt.detail.rstrip().splitlines():
            out(f"    {line}")


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else precise_duration(seconds)
