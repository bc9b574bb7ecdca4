"""What nodes report of their workers goes into the reason of their step."""

from __future__ import annotations

import pytest
from windrow.rpc.v1 import node_pb2
from windrow_master.core.ids import NodeId
from windrow_master.core.reasons import AtWork, Code, Reason
from windrow_master.rpc.reason_briefs import brief_of
from windrow_master.rpc.reason_words import words_of
from windrow_master.rpc.worker_reports import WorkerReport, reason_with_reports


def report(phase: int, seconds: int, node: str = "n1", silent_s: float = 0.5) -> WorkerReport:
    status = node_pb2.WorkerStatus(phase=phase, phase_ms=seconds * 1000)  # type: ignore[arg-type]
    return WorkerReport(NodeId(node), status, silent_s)


INIT, STARTING = node_pb2.WORKER_PHASE_INIT, node_pb2.WORKER_PHASE_STARTING
BUILDING, IDLE = node_pb2.WORKER_PHASE_BUILDING, node_pb2.WORKER_PHASE_IDLE


def test_workers_in_init_are_counted_with_the_longest_time_as_of_now() -> None:
    reports = [report(INIT, 11), report(INIT, 3, "n2"), report(STARTING, 2, silent_s=0), report(IDLE, 50)]
    found = reason_with_reports(Reason("s", Code.WORKERS_STARTING, leased=3, for_s=12), reports)
    assert (found.code, found.at_work) == (
        Code.WORKERS_STARTING,
        (AtWork("init", 2, 11.5), AtWork("starting", 1, 2.0)),
    )
    words = "init() for 12 s on 2 workers, starting Python and loading the script for 2 s on 1 worker"
    assert brief_of(found) == words and words in words_of(found)


@pytest.mark.parametrize("code", [Code.NODES_FULL, Code.NODES_BUSY, Code.NODES_ANSWER, Code.WORKERS_STARTING])
def test_a_build_is_the_reason_while_nothing_else_is_known_of_a_step(code: Code) -> None:
    found = reason_with_reports(Reason("s", code, queued=3), [report(BUILDING, 90, "n2"), report(BUILDING, 5, "n1")])
    assert (found.code, found.nodes, found.for_s) == (Code.BUILDING_ENVIRONMENT, ("n1", "n2"), 90.5)
    assert brief_of(found) == "building its environment on n1, n2 for 1 min 30 s"


def test_without_such_reports_the_reason_is_that_of_the_core() -> None:
    reason = Reason("s", Code.NODES_FULL, queued=3)
    assert reason_with_reports(reason, [report(IDLE, 9)]) is reason
    assert reason_with_reports(Reason("s", Code.WORKERS_STARTING, for_s=0.4), []).at_work == ()


def test_a_worker_that_starts_counts_more_than_a_build_on_another_node() -> None:
    found = reason_with_reports(Reason("s", Code.WORKERS_STARTING), [report(BUILDING, 9), report(INIT, 2, "n2")])
    assert found.code == Code.WORKERS_STARTING


def test_workers_in_run_are_told_with_the_longest_time() -> None:
    reports = [report(node_pb2.WORKER_PHASE_RUNNING, 40, silent_s=2), report(INIT, 1, "n2"), report(IDLE, 50)]
    running = reason_with_reports(Reason("s", Code.RUNNING, leased=2), reports)
    assert brief_of(running) == "run() for 42 s on 1 worker, init() for 2 s on 1 worker"
    quiet = reason_with_reports(Reason("s", Code.NO_PROGRESS, leased=2, for_s=70), reports)
    assert brief_of(quiet) == "no result for 1 min 10 s: run() for 42 s on 1 worker, init() for 2 s on 1 worker"
