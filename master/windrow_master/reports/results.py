"""`job_result.txt` of a step and of the whole job, and `job_error.txt`: how it ended, why, and what to do next.

Short if all went well. The numbers come from stored counters; only the first few failures, and the attempts of the
mini-batches that are named, are read from the attempts themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from windrow.common.failure_list import place_in
from windrow.common.quantities import counted, duration, size

from windrow_master.core.states import AttemptState, Cause, JobState, Phase, StepState
from windrow_master.core.statuses import category_of, status_of
from windrow_master.reports.facts import JobFacts, StepFacts
from windrow_master.reports.failed_items import FILE_NAME
from windrow_master.reports.node_folders import REGISTER, folder_name, read_register
from windrow_master.store.protocol import StoreReader

TRACEBACK_LINES = 15
FAILED_SHOWN = 5
MOST_TRIED_SHOWN = 3


def step_result(job: JobFacts, step: StepFacts, reader: StoreReader) -> str:
    """Return the text of a step's `job_result.txt`. Raises StateError."""
    lines = [f"Step {step.name} of job {job.row.job_id}: {step.outcome}", *_why(step.row.message), ""]
    if step.paths.reused_from:
        lines.append(f"Output        {_rows(step)}")
    elif not step.counters.planned:
        lines.append("None of it has run.")
    else:
        lines += _numbers(step, reader)
    if step.has_failures:
        lines += ["", *_failures(job, step, reader)]
        lines += ["", *_next_commands(job, step, reader)]
    elif step.row.state != StepState.COMPLETED:
        lines += ["", *_next_commands(job, step, reader)]
    return "\n".join(lines) + "\n"


def job_result(job: JobFacts, reader: StoreReader) -> str:
    """Return the text of the job's `job_result.txt`. Raises StateError."""
    lines = [f"Job {job.row.job_id}: {job.outcome}", *_why(job.row.message), ""]
    lines += [f"Submitted  {_moment(job.row.create_time)}", f"Ended      {_moment(job.row.end_time)}"]
    if job.row.end_time is not None:
        lines[-1] += f", after {duration(max(0.0, job.row.end_time - job.row.create_time))}"
    lines += ["", "Steps"]
    for step in job.steps:
        counters = step.counters
        told = f"{counters.succeeded:,} of {counted(counters.planned, 'mini-batch')} ok"
        if counters.items_total:
            told += f", {counters.items_ok:,} of {counted(counters.items_total, 'item')} ok"
        counts = f" ({told})" if counters.planned and not step.is_command else ""
        reused = f", reused from job {step.paths.reused_from}" if step.paths.reused_from else ""
        lines.append(f"  {step.name}: {step.outcome}{reused}{counts}")
        if rows := _rows(step):
            lines.append(f"    {rows}")
    for warning in job.warnings:
        lines.append(f"warning: {warning}")
    failed = _most_telling(job)
    if failed is None:
        return "\n".join(lines) + "\n"
    if failed.has_failures:
        lines += ["", f"Step {failed.name}", "", *_numbers(failed, reader), "", *_failures(job, failed, reader)]
    elif failed.row.message and failed.row.message not in job.row.message:
        lines += ["", f"Step {failed.name}: {failed.row.message}"]
    lines += ["", *_next_commands(job, failed, reader)]
    others = [step.name for step in job.steps if step is not failed and step.has_failures]
    if others:
        lines += ["", f"Failures of other steps: {', '.join(f'{name}/job_result.txt' for name in others)}"]
    return "\n".join(lines) + "\n"


def step_error(job: JobFacts, step: StepFacts) -> str:
    """Return the text of `job_error.txt` for a step that failed: a few lines about what ended it."""
    lines = [f"{step.row.error_category or 'SystemError'}: step {step.name} of job {job.row.job_id} failed."]
    lines += _why(step.row.message)
    main = _examples(step)[:1]
    for cause, _, example in main:
        lines += ["", f"Most attempts failed with {cause.name.lower()}, the first in {_where(step, cause, example)}:"]
        lines += _told(example)
    lines += ["", f"What to do: see {step.name}/job_result.txt, or: {job.command('job logs', '--failed')}"]
    return "\n".join(lines) + "\n"


def _most_telling(job: JobFacts) -> StepFacts | None:
    """The step to explain: the one that failed, else the first with failures; None if all went well."""
    for step in job.steps:
        if step.row.state == StepState.FAILED:
            return step
    for step in job.steps:
        if step.counters.failed or step.counters.items_failed:
            return step
    if job.row.state == JobState.COMPLETED:
        return None
    return next((step for step in job.steps if step.row.state != StepState.COMPLETED), None)


def _why(message: str) -> list[str]:
    return [" ".join(message.split())] if message else []


def _numbers(step: StepFacts, reader: StoreReader) -> Iterator[str]:
    counters = step.counters
    yield (
        f"Mini-batches  {counters.planned:,}: {counters.succeeded:,} succeeded, {counters.failed:,} failed, "
        f"{counters.cancelled:,} cancelled{_taken_over(counters.taken_over, step)}"
    )
    if counters.items_total:
        yield (
            f"Items         {counters.items_total:,}: {counters.items_ok:,} ok, {counters.items_failed:,} failed, "
            f"{counters.items_cancelled:,} cancelled{_taken_over(counters.items_taken_over, step)}"
        )
    if rows := _rows(step):
        yield f"Output        {rows}"
    row = step.row
    if row.start_time is not None and row.end_time is not None:
        yield (
            f"Time          {_moment(row.start_time)} to {_moment(row.end_time)} "
            f"({duration(max(0.0, row.end_time - row.start_time))})"
        )
    if step.paths.why_run:
        yield f"Not reused    {step.paths.why_run}"
    if counters.retries:
        told = f"Retried       {counted(counters.retries, 'time')}"
        tried = reader.most_tried_of(row.step_id, MOST_TRIED_SHOWN)
        most = ", ".join(f"{mini_batch} ({counted(attempts, 'failed attempt')})" for mini_batch, attempts, _ in tried)
        noun = "mini-batch" if len(tried) == 1 else "mini-batches"
        yield told + (f"; most often {noun} {most}" if most else "")
    if step.has_failures and not step.is_command:
        yield from _thresholds(step)


def _taken_over(count: int, step: StepFacts) -> str:
    return f"; {count:,} taken over from job {step.settings.get('resume_from')}" if count else ""


def _rows(step: StepFacts) -> str:
    if step.row.state != StepState.COMPLETED:
        return ""
    if step.paths.append_row is not None and not step.paths.reused_from:
        return f"{counted(step.counters.rows, 'row')} ({size(step.counters.output_bytes)}) in {step.paths.append_row}"
    return ", ".join(step.paths.outputs.values())


def _thresholds(step: StepFacts) -> Iterator[str]:
    settings, counters = step.settings, step.counters
    told = (
        ("error_threshold", counters.items_failed_at_least, "item"),
        ("mini_batch_error_threshold", counters.failed, "mini-batch"),
    )
    head = "Thresholds    "
    for name, failed, noun in told:
        allowed = settings.get(name, -1)
        if allowed < 0:
            yield f"{head}{name}: off ({counted(failed, noun)} failed)"
        elif failed > allowed:
            yield f"{head}{name}: {allowed:,} allowed, {failed:,} failed: exceeded"
        else:
            yield f"{head}{name}: {allowed:,} allowed, {failed:,} failed; {allowed - failed:,} more would be tolerated"
        head = " " * len(head)
    percent = settings.get("allowed_failed_percent", 100.0)
    share = 100 * counters.failed / counters.planned if counters.planned else 0.0
    state = "off" if percent >= 100 else f"{percent:g} % allowed"
    yield f"{head}allowed_failed_percent: {state}, {share:.3g} % of the mini-batches failed"


def _failures(job: JobFacts, step: StepFacts, reader: StoreReader) -> Iterator[str]:
    yield "What went wrong, by cause"
    examples = _examples(step)
    for cause, count, example in examples:
        phase = example.get("phase", Phase.UNKNOWN)
        kind = category_of(cause, phase)
        status = status_of(AttemptState.FAILED, cause, phase)
        yield f"- {cause.name.lower()} ({status}{', ' + kind if kind else ''}): {counted(count, 'attempt')}"
        yield f"  First in {_where(step, cause, example)}:"
        yield from _told(example)
        if file := _log_of(step, cause, example, reader):
            yield f"  Read first: {job.command('job logs', f'{step.name}/{file}')}"
    if not examples:
        missing = counted(step.counters.items_failed, "item")
        yield f"- run() returned fewer results than it was given items: {missing} without a result count as failed"
    found = [] if step.is_command else next(reader.failures_of(step.row.step_id, FAILED_SHOWN + 1), [])
    first = found[:FAILED_SHOWN]
    if first:
        yield ""
        total = step.counters.failed
        if len(found) == len(first):
            yield "What failed:"
        elif total > len(first) and all(failure.cause for failure in first):
            yield f"Failed mini-batches (the first {len(first)} of {total:,}):"
        else:  # mini-batches that lack only some results are not counted as failed
            yield f"What failed (the first {len(first)} mini-batches):"
        for failure in first:
            name = Cause(failure.cause).name.lower() if failure.cause else "short return"
            tries = f", {counted(failure.tries, 'attempt')}" if failure.tries else ""
            of = f"{failure.item_count:,} of {counted(failure.items, 'item')}" if failure.items else ""
            where = f" on {failure.node_id}" if failure.node_id else ""
            yield f"- mini-batch {failure.mini_batch}: {name}{tries}{where}" + (f", {of}" if of else "")
        beside, listed = place_in(step.row.message), job.command("job logs", f"{step.name}/{FILE_NAME}")
        yield f"All failed items: {beside}, or {listed}" if beside else f"All failed items: {listed}"


def _next_commands(job: JobFacts, step: StepFacts, reader: StoreReader) -> Iterator[str]:
    number = next((example["mini_batch"] for _, _, example in _examples(step) if example["mini_batch"] >= 0), None)
    if number is None and step.counters.items_failed:
        number = next((failure.mini_batch for failure in next(reader.failures_of(step.row.step_id, 1), [])), None)
    commands: list[tuple[str, str]] = []
    if any(_log_of(step, cause, example, reader) for cause, _, example in _examples(step)):
        commands.append((job.command("job logs", "--failed"), "show the tracebacks of all failures, the newest last"))
    if number is not None:
        name = job.mini_batch(step, number)
        known, again = "show everything known about that mini-batch", "run that mini-batch again in this terminal"
        if step.is_command:
            known, again = "show everything known about the attempts", "run the command again in this terminal"
        commands.append((job.command("mb show", name), known))
        commands.append((job.command("mb replay", name), again))
    if job.row.state != JobState.COMPLETED:
        commands.append((job.retry_command(), _retry_meaning(job)))
    if not commands:
        return
    yield "What to do next"
    for command, meaning in commands:
        yield f"- {meaning}:"
        yield f"    {command}"


def _retry_meaning(job: JobFacts) -> str:
    if job.row.state == JobState.CANCELLED:
        return "continue the job: run what is not done, into the same output"
    if job.row.state == JobState.COMPLETED_WITH_FAILURES:
        return "when the cause is fixed, run what failed again, into the same output"
    return "when the cause is fixed, run what is not done, into the same output"


def _examples(step: StepFacts) -> list[tuple[Cause, int, dict[str, Any]]]:
    """(cause, number of failed attempts, the first of them), the most frequent first."""
    counts = step.counters.failed_attempts
    ordered: Iterable[str] = sorted(counts, key=lambda key: (-counts[key], int(key)))
    return [(Cause(int(key)), counts[key], step.counters.examples.get(key, {"mini_batch": -1})) for key in ordered]


def _where(step: StepFacts, cause: Cause, example: dict[str, Any]) -> str:
    parts = []
    if cause != Cause.INIT_FAILED and example.get("mini_batch", -1) >= 0 and not step.is_command:
        parts.append(f"mini-batch {example['mini_batch']}")
    if example.get("node_id"):
        number = example.get("process_number")
        parts.append(f"{f'process{number:03d} of ' if number is not None else ''}node {example['node_id']}")
    return ", ".join(parts) or "an unknown place"


def _told(example: dict[str, Any]) -> Iterator[str]:
    """The message and the end of the traceback, indented."""
    message = " ".join(str(example.get("message", "")).split())
    yield f"    {message}"
    detail = str(example.get("detail", "")).rstrip().splitlines()
    if " ".join(" ".join(detail).split()) == message:
        return  # some causes have no traceback
    if len(detail) > TRACEBACK_LINES:
        yield "      ..."
    for line in detail[-TRACEBACK_LINES:]:
        yield f"      {line}"


def _log_of(step: StepFacts, cause: Cause, example: dict[str, Any], reader: StoreReader) -> str:
    """The worker's log that says most about a failure, below the step's logs; "" if there was no worker.

    Raises StateError.
    """
    node, number = example.get("node_id"), example.get("process_number")
    if not node or number is None or cause in (Cause.NODE_LOST, Cause.PREEMPTED, Cause.CANCELLED, Cause.ROWS_LOST):
        return ""
    incarnations = read_register(step.logs / REGISTER).get(node, [])
    folders = [folder_name(node, at) for at in range(1, len(incarnations) + 1)]
    tried = reader.attempts_at(step.row.step_id, [example["mini_batch"]]) if example["mini_batch"] >= 0 else []
    for one in tried:
        where = (one.cause, one.node_id, one.process_number)
        if where == (cause, node, number) and one.node_incarnation in incarnations:
            # The example does not say which incarnation of the node it was.
            folders = [folders[incarnations.index(one.node_incarnation)]]
            break
    places = [f"user/error/{folder}/process{number:03d}.txt" for folder in folders or [node]]
    return next((place for place in places if (step.logs / place).is_file()), places[0])


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
