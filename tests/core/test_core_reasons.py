"""Why a job stands where it stands: the code that each situation is told by."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core_driver import CoreDriver, completion
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import commands
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.reasons import Code, Reason
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, NodeState, Phase, StepState
from windrow_master.rpc.reason_briefs import brief_of
from windrow_master.rpc.reason_words import words_of


def reason(driver: CoreDriver, at: int = 0, job_id: str = "job") -> Reason:
    reasons = driver.do(commands.ExplainJob(job_id))
    assert isinstance(reasons, list)
    return reasons[at]


def planned(driver: CoreDriver) -> None:
    driver.running([1] * 4)


def dividing(driver: CoreDriver) -> None:
    driver.submit()
    driver.join()


def waiting_for_planner(driver: CoreDriver) -> None:
    dividing(driver)
    driver.do(commands.AwaitPlanner(StepId(1), waits=True))


def dividing_slowly(driver: CoreDriver) -> None:
    driver.submit()
    driver.join()
    driver.plan(1, [1] * 3, done=False)
    driver.capacity("n1", 9)
    driver.finish_all()


def no_node_in_pool(driver: CoreDriver) -> None:
    driver.running([1], compute="gpu")
    driver.join("n1", pool="cpu")


def cordoned(driver: CoreDriver) -> None:
    planned(driver)
    driver.join()
    driver.do(commands.CordonNode(NodeId("n1"), True))
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id for lease in driver.held()]))


def quarantined(driver: CoreDriver) -> None:
    driver.running([1])
    driver.join(leases_max=0)
    driver.node().state, driver.node().message = NodeState.QUARANTINED, "disk full."


def told_of_the_step(driver: CoreDriver) -> None:
    driver.running([1])
    driver.register()
    driver.open()


def starting(driver: CoreDriver) -> None:
    planned(driver)
    driver.join()


def running(driver: CoreDriver) -> None:
    starting(driver)
    driver.beat(ready_steps=(driver.step().step_id,))


def splitting(driver: CoreDriver) -> None:
    driver.running([8, 8], max_retries=0, split=1)
    driver.join()
    driver.beat(ready_steps=(driver.step().step_id,))
    for lease in driver.held():
        driver.fail("n1", lease, Cause.EXCEPTION, items=8, phase=Phase.RUNNING)


def quiet(driver: CoreDriver) -> None:
    running(driver)
    driver.tick_alive(70, "n1")


def busy(driver: CoreDriver) -> None:
    driver.submit(StepSettings("other"), job_id="first", request_id="1", priority=1)
    driver.submit(job_id="job", request_id="2")
    driver.plan(1, [1] * 9)
    driver.plan(2, [1])
    driver.join(leases_max=2)
    driver.capacity("n1", 0, step_id=2)


def limited(driver: CoreDriver) -> None:
    driver.do(commands.SetQueues({"default": QueueSettings(cluster=Bounds(limit=1))}))
    driver.submit(job_id="first", request_id="1", priority=1)
    driver.submit(job_id="job")
    driver.join()
    for step_id in (1, 2):
        driver.plan(step_id, [1] * 9)
    driver.capacity("n1", 9)


def outranked(driver: CoreDriver) -> None:
    driver.submit(job_id="first", request_id="1", priority=1)
    driver.submit(job_id="job")
    driver.join()
    for step_id in (1, 2):
        driver.plan(step_id, [1] * 9)
    driver.capacity("n1", 9)


def full(driver: CoreDriver) -> None:
    planned(driver)
    driver.join(leases_max=0)


def delayed(driver: CoreDriver) -> None:
    driver.running([1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.NODE_FAULT)
    driver.step().progress.fault_message = ""


def node_fault(driver: CoreDriver) -> None:
    driver.running([1])
    driver.join()
    driver.fail("n1", driver.held()[0], Cause.NODE_FAULT)


def compared(driver: CoreDriver) -> None:
    driver.submit(StepSettings("a", reuse=True))


def verified(driver: CoreDriver) -> None:
    driver.submit(StepSettings("a", reads_outputs=True))


def gathering(driver: CoreDriver) -> None:
    driver.running([1])
    driver.join()
    driver.finish_all()


def ending_workers(driver: CoreDriver) -> None:
    driver.running([1], ends_workers_first=True)
    driver.join()
    driver.finish_all()


def paused(driver: CoreDriver) -> None:
    planned(driver)
    driver.do(commands.PauseJob(JobKey(1), "PlanGroup raised"))


def gave_up(driver: CoreDriver) -> None:
    """The only node that could run it is cordoned."""
    driver.running([1] * 4)
    driver.join("n1", leases_max=1)
    driver.complete("n1", completion(driver.held()[0].lease_id))
    driver.do(commands.CordonNode(NodeId("n1"), True))
    driver.do(commands.ReleaseLeases(NodeId("n1"), [lease.lease_id for lease in driver.held()]))
    driver.join("n2", leases_max=0)
    driver.init_fails("n2")
    driver.give_up("n2")


def cancelling(driver: CoreDriver) -> None:
    running(driver)
    driver.do(commands.CancelJob("job"))


def cancelled(driver: CoreDriver) -> None:
    planned(driver)
    driver.do(commands.CancelJob("job"))


@pytest.mark.parametrize(
    ("situation", "code", "words"),
    [
        (planned, "NO_NODE", "No node is connected"),
        (no_node_in_pool, "NO_NODE_IN_POOL", "windrow agent --pool gpu"),
        (cordoned, "NODES_SET_ASIDE", "(1 cordoned)"),
        (
            quarantined,
            "NODES_SET_ASIDE",
            "(1 quarantined): the job waits for one. n1: disk full. See `windrow node list`",
        ),
        (compared, "COMPARING_INPUTS", "whether an earlier job has made the same"),
        (verified, "VERIFYING_ROWS", "The rows of earlier steps have been read for 0 s"),
        (dividing, "DIVIDING_INPUT", "--first_task_creation_timeout"),
        (waiting_for_planner, "WAITS_FOR_PLANNER", "when its turn comes"),
        (dividing_slowly, "DIVIDING_INPUT", "3 mini-batches so far, and none of them is left to run"),
        (told_of_the_step, "NODES_ANSWER", "n1"),
        (starting, "WORKERS_STARTING", "4 mini-batches leased on n1 (4), none waits. No worker is ready"),
        (running, "RUNNING", "The oldest lease is mini-batch 0 on n1"),
        (splitting, "RUNNING", "In 2 mini-batches, the items that fail are being found"),
        (quiet, "NO_PROGRESS", "no result has arrived for 70 s"),
        (busy, "NODES_BUSY", "taken by first/other (2)"),
        (limited, "PROJECT_LIMIT", "project default has all 1 of the 1 slots that it may have"),
        (outranked, "NODES_BUSY", "Project default has 2 of 2 slots, and is entitled to 2. In it, first goes first."),
        (full, "NODES_FULL", "results wait"),
        (delayed, "RETRY_DELAYED", "1 mini-batch waits a moment"),
        (node_fault, "NODE_FAULT", "node_fault"),
        (gathering, "GATHERING_ROWS", "output is being written"),
        (ending_workers, "ENDING_WORKERS", "Workers are ending on n1"),
        (paused, "JOB_PAUSED", "windrow job cancel job"),
        (gave_up, "NODES_GAVE_UP", "No worker could be made ready on n2: init_failed: no model"),
        (cancelling, "CANCELLING", "Nodes are still ending its workers: n1."),
        (cancelled, "CANCELLED", "Cancelled on request"),
    ],
)
def test_each_situation_is_told_by_its_code(situation: Callable[[CoreDriver], None], code: str, words: str) -> None:
    driver = CoreDriver()
    situation(driver)
    found = reason(driver)
    assert found.code == code and words in words_of(found), found


def test_a_step_that_waits_names_those_that_it_waits_for_with_their_states() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)))
    found = reason(driver, 1)
    assert found == Reason("b", Code.WAITS_FOR_STEPS, steps=(("a", StepState.RUNNING),))
    assert words_of(found) == "It waits for a (running), and begins when they are done."


def test_each_code_is_put_into_words() -> None:
    ended = (Code.COMPLETED, Code.SKIPPED, Code.FAILED, Code.CANCELLED)
    for code in Code:
        found = Reason("s", code, "why", limit_s=1.0, rate_per_s=20.0)
        assert words_of(found), code
        assert bool(brief_of(found)) == (code not in ended), code


@pytest.mark.parametrize(
    ("situation", "brief"),
    [
        (planned, "no node is connected"),
        (no_node_in_pool, "no node of the pool 'gpu' is connected"),
        (quarantined, "no node takes work (1 quarantined)"),
        (dividing, "listing the input"),
        (dividing_slowly, "listing the input, 3 mini-batches so far"),
        (starting, "workers are starting"),
        (running, "4 mini-batches handed out"),
        (splitting, "finding the items that fail in 2 mini-batches"),
        (quiet, "no result for 1 min 10 s"),
        (busy, "no free slot: taken by first/other (2)"),
        (gave_up, "no worker could be made ready on n2"),
        (gathering, "writing the output"),
    ],
)
def test_each_situation_is_told_in_a_few_words(situation: Callable[[CoreDriver], None], brief: str) -> None:
    driver = CoreDriver()
    situation(driver)
    assert brief_of(reason(driver)) == brief


def test_the_one_agent_of_a_run_starts_with_its_master() -> None:
    driver = CoreDriver()
    planned(driver)
    assert brief_of(reason(driver), embedded=True) == "the agent is starting"


def test_asking_changes_nothing() -> None:
    driver = CoreDriver()
    running(driver)
    before = repr(driver.core.state)
    driver.core.handle(commands.ExplainJob("job"), driver.now)
    assert repr(driver.core.state) == before


def test_a_job_that_is_not_at_work_is_refused() -> None:
    driver = CoreDriver()
    assert driver.do(commands.ExplainJob("none")).reason == "JOB_UNKNOWN"
