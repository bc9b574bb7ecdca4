"""The metrics of a step over time: `metrics.csv`, one line for each value, with Azure ML's names
(docs/reference/azure-ml/parallel-job.md#logs).

With `--push_metrics_to_parent` they are also written to the `metrics.csv` of the job, at the root of its logs.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from windrow_master.core.counters import Counters

FILE_NAME = "metrics.csv"
COLUMNS = ("Utc Time", "Name", "Value")


def metrics_of(counters: Counters, *, planned: bool, elapsed_s: float) -> dict[str, int | float]:
    """The metrics by name. While the input is still being divided, totals are those known so far.

    What was taken over from an earlier job was not processed here: it has metrics of its own, if there is any.
    """
    items_open = counters.items_total - counters.items_ok - counters.items_failed - counters.items_cancelled
    values: dict[str, int | float] = {
        "Total Mini Batches": counters.planned,
        "Remaining Mini Batches": counters.planned - counters.ended,
        "Processed Mini Batches": counters.ran,
        "Failed Mini Batches": counters.failed,
        "Total Items": counters.items_total,
        "Remaining Items": max(0, items_open),
        "Processed Items": counters.items_ok + counters.items_failed - counters.items_taken_over,
        "Failed Items": counters.items_failed,
        "Retried Mini Batches": counters.retries,
        "Elapsed Seconds": round(elapsed_s, 3),
    }
    if counters.taken_over:
        values |= {
            "Mini Batches Taken Over": counters.taken_over,
            "Items Taken Over": counters.items_taken_over,
        }
    if not planned:
        del values["Remaining Mini Batches"], values["Remaining Items"]
    return values


def append_metrics(target: Path, moment: str, values: Mapping[str, int | float], prefix: str) -> None:
    """Append one moment's values. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        writer.writerows((moment, prefix + name, value) for name, value in values.items())
