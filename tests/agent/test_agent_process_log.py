"""What an agent writes about a worker process."""

from __future__ import annotations

import re
from pathlib import Path

from windrow_agent.leases.lease import Lease
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.frames import FrameType, Result
from windrow_agent.workers.process_log import LISTED_FIRST, ProcessLog

BEGIN_US = 1_777_000_000_000_000


def result(kind: FrameType = FrameType.DONE, results: int = 4) -> Result:
    return Result(kind, 0, 1, 4, results, results, 0, BEGIN_US, 2_000, 1_500, 500, 1_000, 0, b"", b"", b"")


def lease(mini_batch: int, attempt: int = 1) -> Lease:
    return Lease(1, 1, 1, mini_batch, 0, 4, b"", attempt)


def test_a_line_a_mini_batch_with_items_and_times(tmp_path: Path) -> None:
    file = tmp_path / "process000.txt"
    log = ProcessLog(CapturedFile(file))
    log.begin("process000", "node-1", 4711, "/usr/bin/python3", "job-1", "score")
    log.add(lease(17), result(), "")
    log.add(lease(18), result(results=3), "")
    log.add(lease(19, 2), result(FrameType.FAILED, 0), "exception")
    log.end("exit code 0")
    begins, *told, ended = file.read_text().splitlines()
    assert re.fullmatch(
        r"\S+Z process000 begins: node node-1 \([\d.]+\), pid 4711, /usr/bin/python3; step score of job job-1", begins
    )
    times = "duration 0.002000 s, process time 0.000500 s, run method 0.001500 s"
    assert told == [
        f"2026-04-24T03:06:40.000000Z mini-batch 17, try 1: done; total 4, succeeded 4, failed 0; {times}",
        f"2026-04-24T03:06:40.000000Z mini-batch 18, try 1: done; total 4, succeeded 3, failed 1; {times}",
        f"2026-04-24T03:06:40.000000Z mini-batch 19, try 2: exception; total 4, succeeded 0, failed 4; {times}",
    ]
    assert ended.endswith("Z ended: exit code 0")


def test_short_mini_batches_are_counted_after_the_first(tmp_path: Path) -> None:
    file = tmp_path / "process000.txt"
    log = ProcessLog(CapturedFile(file))
    for number in range(LISTED_FIRST):
        assert log.lists_each
        log.add(lease(number), result(), "")
    assert not log.lists_each
    log.count(4_000, 8_000_000)
    log.count(96, 192_000)
    log.flush()
    log.flush()
    lines = file.read_text().splitlines()
    assert len(lines) == LISTED_FIRST + 1
    assert "4096 short mini-batches done, 8.192000 s" in lines[-1]


def test_a_disk_that_takes_nothing_costs_no_more_than_the_lines(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    log = ProcessLog(CapturedFile(tmp_path / "logs" / "process000.txt"))
    log.begin("process000", "node-1", 1, "python", "job-1", "score")
    log.end("exit code 0")
