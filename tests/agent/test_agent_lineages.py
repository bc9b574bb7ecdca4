"""What an agent remembers of steps that it has served is bounded, and nothing of theirs is used twice."""

from __future__ import annotations

from pathlib import Path

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.steps.lineages import KEPT, Lineages
from windrow_agent.steps.step import Step


def test_a_step_that_comes_back_after_thousands_of_others_uses_no_number_again(tmp_path: Path) -> None:
    lineages = Lineages()

    def opened(step_id: int) -> Step:
        return Step.open(work.StepSpec(step_id=step_id), tmp_path, "node-1", 1, 0, lineages.of(step_id, {2}))

    first = opened(1)
    assert [first.lineage.number() for _ in range(3)] == [0, 1, 2]
    first.log_file(rpc.LOG_KIND_ENVIRONMENT, 0).write(b"built\n")
    (log,) = first.logs
    log.file.sent = 6
    log.file.end()
    held = lineages.of(2, ())
    for step_id in range(3, 2 * KEPT + 3):
        assert lineages.of(step_id, {2}).number() == 0, "a new step begins at 0"
    assert len(lineages._kept) <= 2 * KEPT
    assert lineages.of(2, {2}) is held, "it is on the node"
    again = opened(1)
    assert again.lineage is not first.lineage
    assert again.lineage.number() == 3
    assert again.folder != first.folder
    assert again.log_file(rpc.LOG_KIND_ENVIRONMENT, 0).increment(10) == b""
    assert again.logs[0].file.length == 6, "behind what the master has"


def test_logs_of_a_step_that_the_master_does_not_have_begin_anew(tmp_path: Path) -> None:
    lineages = Lineages()
    step = Step.open(work.StepSpec(step_id=1), tmp_path, "node-1", 1, 0, lineages.of(1, ()))
    step.log_file(rpc.LOG_KIND_ENVIRONMENT, 0)
    lineages.forget_logs(1)
    lineages.forget_logs(7)
    assert not lineages.of(1, ()).node_logs
