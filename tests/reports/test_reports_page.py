"""The page of `windrow job report`: what its bounds leave out, it says."""

from __future__ import annotations

from windrow.job_page import tables
from windrow_master.core.ids import LeaseId
from windrow_master.core.states import AttemptState, Cause, Phase
from windrow_master.reports.job_figures import NODES_MAX, ROWS_MAX, StepFigures
from windrow_master.store.records import AttemptFigures

BEGIN_US = 1_700_000_000_000_000


def test_nodes_and_workers_that_are_not_listed_are_counted() -> None:
    figures = StepFigures(BEGIN_US, BEGIN_US + 1_000_000)
    figures.add(
        [
            AttemptFigures(
                lease_id=LeaseId(number + 1),
                mini_batch=number,
                node_id=f"node{number:04d}",
                node_incarnation="1",
                process_number=0,
                state=AttemptState.SUCCEEDED,
                cause=Cause.NONE,
                phase=Phase.UNKNOWN,
                start_unix_us=BEGIN_US,
                elapsed_us=1000,
                run_us=1000,
                cpu_us=0,
                item_count=1,
                peak_rss_kib=1,
            )
            for number in range(NODES_MAX + 1)
        ]
    )
    document = figures.document()
    assert (len(document["nodes"]), document["nodes_left_out"]) == (NODES_MAX, 1)
    page = tables.nodes(document)
    assert "1 more node not listed." in page
    assert f"{NODES_MAX + 1 - ROWS_MAX:,} more workers not listed." in page
    document |= {"nodes_left_out": 0, "workers_left_out": 0}
    assert "not listed" not in tables.nodes(document)
