"""`windrow job explain`: why a job is in its current state, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.cli import exit_codes
from windrow.cli.display.summary import KINDS_SHOWN, failure_line, retry_command
from windrow.cli.display.typed_words import as_typed, typed
from windrow.cli.jobs.show import ahead_of
from windrow.cli.jobs.stream import shown_state, stands_still
from windrow.cli.options.declared import command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import JobName, Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.cli.tables import out, print_json
from windrow.common.quantities import counted
from windrow.common.second_attempts import second_attempts
from windrow.sdk.job import Job, JobState, Step, StepReason
from windrow.sdk.job_names import only_job

if TYPE_CHECKING:
    from windrow.job_page.verdict import Verdict
    from windrow.sdk.client import Client

FIGURES_MAX = 200_000
"""Of a job with more mini-batches, the figures take seconds to make; `windrow job report` makes them."""


@command(epilog="Example: windrow job explain digits-20260501-101500-ab12")
def explain(job: JobName, master: Master = None, state: State = None, output: Output = OutputForm.TEXT) -> int:
    """Explain the current state of each step of a job.

    For each step: the scheduler's reason, as of now, and what you can do about it. Then what the time went into, and
    what would make the job faster.
    """
    with open_client(master, state) as client:
        found = client.find(only_job(job))
        reasons = client.explain(found.job_id)
        still, state_now = stands_still(client, found), shown_state(client, found)
        document = client.document(found.job_id)
        pace = None if still else _pace(client, found)
        warn_read_only(client)
    if output is OutputForm.JSON:
        print_json(
            {
                "job_id": found.job_id,
                "state": found.state,
                "place": found.place,
                "forecast": None if found.forecast is None else found.forecast._asdict(),
                "reasons": [reason._asdict() for reason in reasons],
                "pace": None if pace is None else pace.to_dict(),
            }
        )
        return exit_codes.DONE
    found = as_typed(found, document)
    out(f"{found.job_id} is {state_now.replace('_', ' ')}{': ' + found.message if found.message else '.'}")
    if not still and (ahead := ahead_of(found)):
        out(f"It is {ahead}.")
    options = master_options(master, state)
    if still:
        from windrow.sdk.ending import how_to_continue

        out(f"No process runs this job. {how_to_continue(found.job_id, options)}")
    steps = {step.name: step for step in found.steps}
    speculating = {step["name"] for step in document["steps"] if step.get("speculate")}
    for reason in reasons:
        out("")
        if still and reason.code not in ("COMPLETED", "SKIPPED", "FAILED", "CANCELLED", "WAITS_FOR_STEPS"):
            # Why the scheduler gives it no work is said above.
            out(f"{reason.step}: {_done(steps[reason.step])}")
        else:
            out(f"{reason.step}: {reason.code}")
            out(f"  {typed(reason.message, document) or 'Nothing else is known.'}")
            likely = steps[reason.step].forecast
            if len(steps) > 1 and likely is not None and likely.words:
                out(f"  It is {likely.words}.")
        _tell_failures(steps[reason.step])
        if reason.step in speculating:
            step = steps[reason.step]
            batches, ended = step.mini_batches, step.state not in ("waiting", "running")
            if ended or batches.total:
                out(f"  {_capital(second_attempts(batches.speculated, batches.speculated_won, ended=ended))}.")
    _tell_pace(pace)
    for line in _what_next(found, reasons, document, options):
        out(line)
    return exit_codes.DONE


def _pace(client: Client, job: Job) -> Verdict | None:
    """What the time of a job went into; None where that is not the question, or takes long to find out."""
    if job.state in (JobState.FAILED, JobState.CANCELLED) or job.mini_batches.total > FIGURES_MAX:
        return None
    from windrow.job_page.verdict import SUGGESTED_FROM_S, verdict

    report = client.report(job.job_id)
    return verdict(report) if report["job"]["at_work_s"] >= SUGGESTED_FROM_S else None


def _tell_pace(found: Verdict | None) -> None:
    if found is None or not found.sentences:
        return
    out("")
    for sentence in found.sentences:
        out(sentence)
    for number, one in enumerate(found.suggestions):
        if number == 0:
            out("What would make it faster:")
        out(f"  - {one.text} Saves up to {100 * one.gain:.0f} %.")


def _done(step: Step) -> str:
    """How much of an unfinished step is done."""
    if not step.items.total:
        return "nothing is done yet"
    return f"{step.items.done:,} of {counted(step.items.total, 'item')} done"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _tell_failures(step: Step) -> None:
    """Print what has failed so far, by kind: how often, and where to look at one failure."""
    for kind in step.failure_kinds[:KINDS_SHOWN]:
        out(f"  {failure_line(step, kind).partition(': ')[2] or kind.message}")


def _what_next(job: Job, reasons: list[StepReason], document: Mapping[str, Any], options: str) -> list[str]:
    """Commands worth typing now."""
    commands: list[str] = []
    if job.parallel.mini_batches.failed:
        commands.append(f"windrow mb list {job.job_id} --only failed{options}")
    # A lost node leaves no traceback.
    if any(cause not in ("node_lost", "node_killer") for step in job.steps for cause in step.failed_attempts):
        commands.append(f"windrow job logs {job.job_id} --failed{options}")
    if job.state in (JobState.FAILED, JobState.CANCELLED, JobState.COMPLETED_WITH_FAILURES):
        commands.append(retry_command(job, document, options))
    if any(reason.waits_for_node for reason in reasons):
        commands.append(f"windrow node list{options}")
    return ["", "Look closer:", *(f"  {command}" for command in commands)] if commands else []
