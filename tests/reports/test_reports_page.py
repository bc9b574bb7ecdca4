"""The page of `windrow job report`: what its bounds leave out, it says."""

from __future__ import annotations

from typing import Any

from windrow.job_page import tables
from windrow.job_page.page import job_page
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


def queued(**of_job: Any) -> dict[str, Any]:
    """The report of a job of which nothing has begun."""
    nothing = dict.fromkeys(("total", "queued", "leased", "succeeded", "failed", "cancelled", "taken_over"), 0)
    return {
        "job": {
            "job_id": "j", "display_name": "nightly", "experiment_name": "", "project": "web", "submitter": "",
            "state": "queued", "message": "", "create_s": 0.0, "end_s": None, "now_s": 9.0, "at_work_s": 9.0,
            "forecast": None, **of_job,
        },
        "steps": [
            {
                "name": "score", "state": "waiting", "message": "", "why": "The job is queued: 3 go before it.",
                "is_command": False, "reused_from": "", "start_s": None, "end_s": None, "planned": False, "retries": 0,
                "mini_batches": nothing, "items": nothing, "failures": [], "figures": None,
            }
        ],
    }  # fmt: skip


def test_the_page_of_a_queued_job_says_why_it_waits_and_when_it_is_likely_to_start() -> None:
    page = job_page(queued(forecast={"place": 2, "begin_s": 720.0, "end_s": 3600.0}))
    assert "number 2 in line" in page and "likely to start in about 12 min and to end in about 1 h" in page
    assert "The job is queued: 3 go before it." in page
    assert "The job had not ended" in page


def test_what_nothing_is_known_of_is_left_out() -> None:
    page = job_page(queued())
    assert "useful time" not in page and "done of" not in page and "in line" not in page
