"""One module for each row of the table of aims (docs/explanation/architecture.md, what it must cost). Each has a
`ROW`."""

from __future__ import annotations

from benchmarks.measurement import Row
from benchmarks.rows import (
    agent_cut_off,
    backup,
    big_table,
    cluster,
    cold_start,
    csv_table,
    data_cache,
    efficiency,
    fairness,
    fleet,
    flood,
    many_jobs,
    million_files,
    million_mini_batches,
    noop,
    partitions,
    pipeline_steps,
    restart,
    role_killed,
    sandbox,
    sharing,
    small_files,
    worker_killed,
)

ROWS: list[Row] = [
    module.ROW
    for module in (
        noop,
        cold_start,
        sandbox,
        pipeline_steps,
        small_files,
        csv_table,
        big_table,
        partitions,
        efficiency,
        worker_killed,
        role_killed,
        agent_cut_off,
        cluster,
        data_cache,
        million_files,
        million_mini_batches,
        restart,
        backup,
        flood,
        sharing,
        fairness,
        many_jobs,
        fleet,
    )
]
