"""When failures end a step: its thresholds, which all compare with "greater than"
(docs/reference/azure-ml/parallel-job.md#thresholds)."""

from __future__ import annotations

from windrow.common.quantities import counted

from windrow_master.core.settings import StepSettings
from windrow_master.core.state import Step

NOT_PER_ITEM = (
    "If a row does not stand for an item, as after a filter, say so: --returns any, in program_arguments of the job "
    "file or, without one, as an option."
)
"""What to do about items without a result, where each row counts as the result of one."""
FEWER_RESULTS = f"run() returned fewer results than it was given items. {NOT_PER_ITEM}"


def short_returns_fail(step: Step) -> bool:
    """Whether a return with fewer results than items makes its mini-batch failed."""
    return step.settings.error_threshold >= 0


def sets_threshold(step: Step) -> bool:
    """Whether a number of failures would fail the step."""
    settings = step.settings
    return (
        settings.error_threshold >= 0
        or settings.mini_batch_error_threshold >= 0
        or settings.allowed_failed_percent < 100
    )


def passed_threshold(step: Step) -> str:
    """Why the step fails by its thresholds, given its counters; empty if it does not."""
    counters, settings = step.counters, step.settings
    if settings.is_command and counters.failed:
        # Of a command there is one only: what happened to it says more than any count.
        return counters.main_failure().partition(": ")[2]
    if 0 <= settings.error_threshold < counters.items_failed_at_least:
        uncounted = (
            " 1 mini-batch failed before its items were counted, and counts as one item."
            if counters.failed_uncounted == 1
            else f" {counted(counters.failed_uncounted, 'mini-batch')} failed before their items were counted; "
            "each counts as one item."
        )
        return (
            f"{counted(counters.items_failed_at_least, 'item')} failed, "
            f"more than error_threshold allows ({settings.error_threshold})."
            + ("" if counters.failed_attempts else f" {FEWER_RESULTS}")
            + (uncounted if counters.failed_uncounted else "")
        )
    if 0 <= settings.mini_batch_error_threshold < counters.failed:
        return (
            f"{counted(counters.failed, 'mini-batch')} failed, more than mini_batch_error_threshold allows "
            f"({settings.mini_batch_error_threshold})."
            + (" A short return counts as one." if short_returns_fail(step) else "")
        )
    # A share of the whole: before planning has ended nobody knows of what.
    if step.plan.is_done and counters.failed and _share_passed(counters.failed, counters.planned, settings):
        return (
            f"{counters.failed} of {counted(counters.planned, 'mini-batch')} failed, "
            f"more than allowed_failed_percent allows ({settings.allowed_failed_percent:g} %)."
        )
    return ""


def _share_passed(failed: int, planned: int, settings: StepSettings) -> bool:
    """Whether more than allowed_failed_percent failed, calculated exactly: 69 of 375 are not more than 18.4 %,
    although in binary fractions they are.
    """
    # Here: it takes time that the start of a master has not, and few jobs come this far.
    from fractions import Fraction

    return failed * 100 > Fraction(str(settings.allowed_failed_percent)) * planned


def nothing_to_write(step: Step) -> str:
    """Why a step that has ended without one good item fails, for people."""
    if not step.counters.items_total and not step.counters.failed_attempts:
        return "there was nothing to run: the steps in the input's MLTable file leave no rows. Check its filter."
    failed = f" ({step.counters.items_failed:,} failed)" if step.counters.items_failed else ""
    return f"no item has a result{failed}, so there are no rows to write. " + (
        f"Most attempts failed with {step.counters.main_failure()}"
        if step.counters.failed_attempts
        else f"Return a list or a pandas DataFrame with one element for each item. {NOT_PER_ITEM}"
    )
