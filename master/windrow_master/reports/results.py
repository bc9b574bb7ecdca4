"""`job_result.txt` of a step and of the whole job, and `job_error.txt`: how it ended, why, and what to do next.

Short if all went well. The numbers come from stored counters; only the first few failures, and the attempts of the
mini-batches that are named, are read from the attempts themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from windrow.common.failure_kinds import SHORT_RETURN, FailureKind, headline
from windrow.common.failure_list import FILE_NAME, place_in
from windrow.common.quantities import counted, duration, size

from windrow_master.core.states import DONE_STEPS, Cause, JobState, StepState
from windrow_master.reports.facts import JobFacts, StepFacts
from windrow_master.reports.node_folders import REGISTER, folder_name, read_register
from windrow_master.store.protocol import StoreReader

TRACEBACK_LINES = 15
FAILED_SHOWN = 5
MOST_TRIED_SHOWN = 3
WITHOUT_LOG = frozenset(("node_lost", "preempted", "cancelled", "rows_lost", SHORT_RETURN))
"""Causes that do not show in any worker's log."""


def step_result(job: JobFacts, step: StepFacts, reader: StoreReader) -> str:
    """Return the text of a step's `job_result.txt`. Raises StateError."""
    lines = [f"Step {step.name} of job {job.row.job_id}: {step.outcome}", *_why(step.message), ""]
    if step.paths.reused_from:
        lines.append(f"Output        {_rows(step)}")
    elif step.row.state == StepState.SKIPPED:
        lines += [f"Outputs       {', '.join(step.paths.outputs.values())}"] if step.paths.outputs else []
    elif not step.counters.planned:
        lines.append("None of it has run.")
    else:
        lines += _numbers(step, reader)
    if step.has_failures:
        lines += ["", *_failures(job, step, reader)]
        lines += ["", *_next_commands(job, step, reader)]
    elif step.row.state not in DONE_STEPS:
        lines += ["", *_next_commands(job, step, reader)]
    return "\n".join(lines) + "\n"


def job_result(job: JobFacts, reader: StoreReader) -> str:
    """Return the text of the job's `job_result.txt`. Raises StateError."""
    lines = [f"Job {job.row.job_id}: {job.outcome}", *_why(job.message), ""]
    by = f", by {job.row.submitter} for the project {job.row.queue}" if job.row.submitter else ""
    lines += [f"Submitted  {_moment(job.row.create_time)}{by}", f"Ended      {_moment(job.row.end_time)}"]
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
        if step.row.state == StepState.SKIPPED:
            lines += [f"    {line}" for line in _why(step.message)]
        lines += [f"    {' '.join(note.split())}" for note in counters.notes]
        if rows := _rows(step):
            lines.append(f"    {rows}")
    for warning in job.warnings:
        lines.append(f"warning: {warning}")
    failed = _most_telling(job)
    if failed is None:
        return "\n".join(lines) + "\n"
    if failed.has_failures:
        lines += ["", f"Step {failed.name}", "", *_numbers(failed, reader), "", *_failures(job, failed, reader)]
    elif failed.message and failed.message not in job.message:
        lines += ["", f"Step {failed.name}: {failed.message}"]
    lines += ["", *_next_commands(job, failed, reader)]
    others = [step.name for step in job.steps if step is not failed and step.has_failures]
    if others:
        lines += ["", f"Failures of other steps: {', '.join(f'{name}/job_result.txt' for name in others)}"]
    return "\n".join(lines) + "\n"


def step_error(job: JobFacts, step: StepFacts) -> str:
    """Return the text of `job_error.txt` for a step that failed: a few lines about what ended it."""
    lines = [f"{step.row.error_category or 'SystemError'}: step {step.name} of job {job.row.job_id} failed."]
    lines += _why(step.message)
    for kind in step.failure_kinds[:1]:
        lines += ["", f"{_headline(step, kind)}, the first in {_where(step, kind)}:", *_told(kind)]
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
    return next((step for step in job.steps if step.row.state not in DONE_STEPS), None)


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
    kinds = step.failure_kinds
    permanent = [kind for kind in kinds if kind.is_permanent]
    others = [kind for kind in kinds if not kind.is_permanent]
    if permanent:
        yield "What failed for good"
        for kind in permanent:
            yield from _told_whole(job, step, kind, reader)
    if others:
        yield "What recovered" if step.row.state == StepState.COMPLETED else "What was tried again"
        if not permanent and step.row.state != StepState.COMPLETED:
            # It did not end the step on its own, and nothing more is known about why the step did not continue.
            yield from _told_whole(job, step, others.pop(0), reader)
        yield from (f"- {_headline(step, kind)}" for kind in others)
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
        beside, listed = place_in(step.message), job.command("job logs", f"{step.name}/{FILE_NAME}")
        yield f"All failed items: {beside}, or {listed}" if beside else f"All failed items: {listed}"


def _next_commands(job: JobFacts, step: StepFacts, reader: StoreReader) -> Iterator[str]:
    kinds = step.failure_kinds
    number = next((kind.mini_batch_index for kind in kinds if kind.mini_batch_index >= 0), None)
    commands: list[tuple[str, str]] = []
    if any(_log_of(step, kind, reader) for kind in kinds):
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


def _told_whole(job: JobFacts, step: StepFacts, kind: FailureKind, reader: StoreReader) -> Iterator[str]:
    cause = "no_result" if kind.cause == SHORT_RETURN else kind.cause
    about = ", ".join(filter(None, (cause, kind.status, kind.error_category)))
    yield f"- {_headline(step, kind)} ({about})"
    yield f"  First in {_where(step, kind)}:"
    yield from _told(kind)
    if file := _log_of(step, kind, reader):
        yield f"  Read first: {job.command('job logs', f'{step.name}/{file}')}"


def _headline(step: StepFacts, kind: FailureKind) -> str:
    return headline(kind, settled=step.row.state == StepState.COMPLETED, is_command=step.is_command)


def _where(step: StepFacts, kind: FailureKind) -> str:
    parts = []
    if kind.mini_batch_index >= 0 and not step.is_command:
        parts.append(f"mini-batch {kind.mini_batch_index}")
    if kind.node_id:
        number = kind.process_number
        parts.append(f"{f'process{number:03d} of ' if number is not None else ''}node {kind.node_id}")
    return ", ".join(parts) or "an unknown place"


def _told(kind: FailureKind) -> Iterator[str]:
    """The message and the end of the traceback, indented."""
    message = " ".join(kind.message.split())
    yield f"    {message}"
    detail = kind.detail.rstrip().splitlines()
    if " ".join(" ".join(detail).split()) == message:
        return  # some causes have no traceback
    if len(detail) > TRACEBACK_LINES:
        yield "      ..."
    for line in detail[-TRACEBACK_LINES:]:
        yield f"      {line}"


def _log_of(step: StepFacts, kind: FailureKind, reader: StoreReader) -> str:
    """The worker's log that says most about a failure, below the step's logs; "" if there was no worker.

    Raises StateError.
    """
    node, number = kind.node_id, kind.process_number
    if not node or number is None or kind.cause in WITHOUT_LOG:
        return ""
    incarnations = read_register(step.logs / REGISTER).get(node, [])
    folders = [folder_name(node, at) for at in range(1, len(incarnations) + 1)]
    tried = reader.attempts_at(step.row.step_id, [kind.mini_batch_index]) if kind.mini_batch_index >= 0 else []
    for one in tried:
        if (one.node_id, one.process_number) == (node, number) and one.cause and one.node_incarnation in incarnations:
            # The example does not say which incarnation of the node it was.
            folders = [folders[incarnations.index(one.node_incarnation)]]
            break
    places = [f"user/error/{folder}/process{number:03d}.txt" for folder in folders or [node]]
    return next((place for place in places if (step.logs / place).is_file()), places[0])


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
