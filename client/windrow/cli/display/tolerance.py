"""What a job tolerates if nobody has said so: the rule for the note at its start and for the exit code at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.cli import exit_codes
from windrow.common.quantities import first_few

NAMED_MAX = 5


def without_threshold(document: Mapping[str, Any]) -> list[str]:
    """The parallel steps for which nobody has said how many failures they may tolerate: the job file sets no
    threshold, or there is no job file.
    """
    return [
        step["name"]
        for step in document.get("steps", ())
        if step.get("command") is None
        and not step.get("tolerates_all")
        and step.get("error_threshold", -1) < 0
        and step.get("mini_batch_error_threshold", -1) < 0
        and step.get("allowed_failed_percent", 100.0) >= 100
    ]


def tolerance_note(document: Mapping[str, Any], *, tolerate: bool) -> str:
    """What to say at the start of a run about what it tolerates; empty if its thresholds say it."""
    names = without_threshold(document)
    if not names or tolerate:
        return ""
    # Of such a step, Azure ML fails the job as well.
    writes_rows = any(step.get("append_row_to") for step in document["steps"] if step["name"] in names)
    all_failed = f"; if all fail, the job fails ({exit_codes.JOB_FAILED})" if writes_rows else ""
    steps = f"Step {names[0]} sets" if len(names) == 1 else f"Steps {first_few(names, NAMED_MAX)} set"
    return (
        f"{steps} no threshold: any number of failures is tolerated. If items fail, the exit code is "
        f"{exit_codes.TOLERATED_FAILURES} (with --tolerate: {exit_codes.DONE}){all_failed}."
    )
