"""`windrow job show --metrics`: what the scripts of a job have logged, and the tags of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli import exit_codes
from windrow.cli.tables import local_time, out, print_json, print_table
from windrow.common.quantities import shown_value

if TYPE_CHECKING:
    from windrow.sdk.job import Job
    from windrow.sdk.metrics import Metric, Tag


def print_metrics(job: Job, metrics: Sequence[Metric], tags: Sequence[Tag], *, as_json: bool) -> int:
    """Print the newest value of each metric, with figures, and the tags. Returns the exit code."""
    if as_json:
        print_json([metric.to_dict() for metric in metrics] + [tag.to_dict() for tag in tags])
        return exit_codes.DONE
    if not metrics and not tags:
        out(f"The scripts of job {job.job_id} have logged no metrics{'' if job.state.ended else ' yet'}.")
    if metrics:
        print_table(
            ("STEP", "METRIC", ">NEWEST", ">COUNT", ">MINIMUM", ">MAXIMUM", "LOGGED"),
            [
                (
                    metric.step or "(job)",
                    metric.name,
                    shown_value(metric.newest),
                    f"{metric.values:,}",
                    "" if metric.minimum is None else shown_value(metric.minimum),
                    "" if metric.maximum is None else shown_value(metric.maximum),
                    local_time(metric.time),
                )
                for metric in metrics
            ],
        )
    if metrics and tags:
        out("")
    if tags:
        print_table(
            ("STEP", "TAG", "VALUE", "SET"),
            [
                (
                    tag.step or "(job)",
                    f"{tag.name} (property)" if tag.is_property else tag.name,
                    "" if tag.value is None else shown_value(tag.value),
                    local_time(tag.time),
                )
                for tag in tags
            ],
        )
    return exit_codes.DONE
