"""`sys/job_report/`: tables of all attempts, worker processes and nodes.

`processed_mini-batches.csv` has the columns of docs/reference/azure-ml/parallel-job.md#mini-batch-tables, and the node.
The columns of the summaries are ours: Azure ML's are not public.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from windrow_master.core.bounds import DURATION_US_MAX, TIME_US_MAX
from windrow_master.core.ids import StepId
from windrow_master.reports.attempt_lines import attempt_lines
from windrow_master.reports.whole_files import whole_file
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import WorkerTotals

LATEST_US = TIME_US_MAX + DURATION_US_MAX
PROCESSED_COLUMNS = (
    "Mini-batch Id",
    "Picked Count",
    "Process",
    "Process Start Time",
    "Total",
    "Succeeded",
    "Failed",
    "Elapsed Seconds",
    "Process Seconds",
    "Run Method Seconds",
    "Status",
    "Error Category",
    "Error Message",
    "Mini-batch Detail",
    "Node",
)
_SUMS = (
    "Attempts",
    "Succeeded Mini-batches",
    "Failed Attempts",
    "Total",
    "Succeeded",
    "Failed",
    "Elapsed Seconds",
    "Process Seconds",
    "Run Method Seconds",
    "Idle Seconds",
    "Process Percent",
    "Peak Memory (MB)",
    "First Start Time",
    "Last End Time",
)
PROCESS_COLUMNS = ("Node", "Process", *_SUMS)
NODE_COLUMNS = ("Node", "Processes", "Percent of Mini-batches", *_SUMS)


def write_processed(reader: StoreReader, step_id: StepId, folders: Mapping[tuple[str, str], str], target: Path) -> None:
    """One row for each attempt; memory holds one page of them. Raises OSError, StateError."""
    with whole_file(target) as file:
        csv.writer(file).writerow(PROCESSED_COLUMNS)
        for lines in attempt_lines(reader, step_id, folders):
            file.write(lines)


def write_summaries(totals: list[WorkerTotals], folders: Mapping[tuple[str, str], str], folder: Path) -> None:
    """Write `process_summary.csv` and `node_summary.csv`. Raises OSError."""
    # No run needs it before a step has ended.
    from windrow.common.spreadsheet_cells import as_text

    named = sorted(
        (folders.get((row.node_id, row.node_incarnation), row.node_id), row.process_number, row) for row in totals
    )
    with whole_file(folder / "process_summary.csv") as file:
        writer = csv.writer(file)
        writer.writerow(PROCESS_COLUMNS)
        writer.writerows(
            (as_text(node), f"process{number:03d}" if number >= 0 else "", *_sums([row])) for node, number, row in named
        )
    by_node: dict[str, list[WorkerTotals]] = {}
    for node, _, row in named:
        by_node.setdefault(node, []).append(row)
    done = sum(row.done for row in totals)
    with whole_file(folder / "node_summary.csv") as file:
        writer = csv.writer(file)
        writer.writerow(NODE_COLUMNS)
        for node, rows in by_node.items():
            share = 100 * sum(row.done for row in rows) / done if done else 0.0
            writer.writerow((as_text(node), sum(row.process_number >= 0 for row in rows), f"{share:.1f}", *_sums(rows)))


def utc(us: int) -> str:
    """A moment in µs since 1970, as the tables write it."""
    # An earlier version has stored any moment.
    return datetime.fromtimestamp(min(max(us, 0), LATEST_US) / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _sums(rows: Iterable[WorkerTotals]) -> tuple[object, ...]:
    rows = list(rows)
    first = rows[0]
    for row in rows[1:]:
        first = first.plus(row)
    # A process works on one mini-batch at a time: for the rest of its span, it waited.
    idle_us = sum(max(0, row.last_us - row.first_us - row.elapsed_us) for row in rows if row.process_number >= 0)
    return (
        first.attempts,
        first.done,
        first.failed,
        first.items,
        first.items_ok,
        first.items - first.items_ok,
        f"{first.elapsed_us / 1e6:.6f}",
        f"{first.cpu_us / 1e6:.6f}",
        f"{first.run_us / 1e6:.6f}",
        f"{idle_us / 1e6:.6f}",
        f"{100 * first.cpu_us / first.elapsed_us:.1f}" if first.elapsed_us else "",
        f"{first.peak_rss_kib / 1024:.1f}",
        utc(first.first_us),
        utc(first.last_us),
    )
