"""Limits of mini-batches and jobs: what would pass one is refused, and what waits goes on."""

from __future__ import annotations

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.plans import RESUMES_AT, must_wait
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import JobState, StepState
from windrow_master.limits import BadLimit, Limits, read_limits


def test_a_step_that_would_have_too_many_mini_batches_fails_and_has_none_of_the_group() -> None:
    driver = CoreDriver(limits=Limits(mini_batches_per_step=5))
    driver.submit()
    assert driver.plan(1, [1] * 5, done=False)
    assert not driver.plan(1, [1])
    step = driver.step()
    assert step.state == StepState.FAILED and step.error_category == "UserError"
    assert step.counters.planned == step.counters.cancelled == 5
    assert "more than 5 mini-batches" in step.message
    assert "limit mini_batches_per_step" in step.message
    assert "a larger mini_batch_size" in step.message
    assert "windrow master --limit mini_batches_per_step=NUMBER" in step.message
    driver.tables.check()


def test_the_mini_batches_of_all_steps_of_a_job_count() -> None:
    driver = CoreDriver(limits=Limits(mini_batches_per_job=5))
    driver.submit(StepSettings("one"), StepSettings("two", without_input=True))
    assert driver.plan(1, [1] * 4)
    assert driver.plan(2, [1], done=False)
    assert not driver.plan(2, [1])
    assert "limit mini_batches_per_job" in driver.step(2).message
    assert "a smaller --rank_mini_batch_count" in driver.step(2).message
    assert driver.job().state == JobState.FAILED


def test_a_step_waits_with_its_plan_while_enough_is_ready_and_goes_on_when_it_is_fewer() -> None:
    driver = CoreDriver(limits=Limits(ready_mini_batches=8))
    driver.submit()
    assert driver.plan(1, [1] * 7, done=False)
    assert not must_wait(driver.core.state, driver.step())
    assert driver.plan(1, [1], done=False)
    assert must_wait(driver.core.state, driver.step())
    driver.restart()
    assert must_wait(driver.core.state, driver.step()), "a later master knows it as well"
    driver.join("n1", 1)
    assert must_wait(driver.core.state, driver.step(), RESUMES_AT), "seven are ready"
    (reason,) = driver.do(commands.ExplainJob("job"))
    assert reason.dividing_waits
    driver.capacity("n1", 3)
    assert not must_wait(driver.core.state, driver.step(), RESUMES_AT), "five are"


def test_a_step_of_which_nothing_is_ready_does_not_wait_for_others() -> None:
    """Those may wait for nodes of a pool that never come."""
    driver = CoreDriver(limits=Limits(ready_mini_batches=8))
    driver.submit(StepSettings("one", compute="nowhere"), StepSettings("two"))
    assert driver.plan(1, [1] * 20, done=False)
    assert must_wait(driver.core.state, driver.step(1))
    assert not must_wait(driver.core.state, driver.step(2))


def test_a_job_more_than_may_be_open_is_refused_until_one_has_ended() -> None:
    driver = CoreDriver(limits=Limits(open_jobs=1))
    driver.submit()
    again = commands.SubmitJob("job", "r", b"{}", "digest", (StepSettings("step"),))
    assert driver.do(again) == driver.job().job_key, "a repeated request gets its first answer"
    another = commands.SubmitJob("other", "q", b"{}", "digest", (StepSettings("step"),))
    refused = driver.do(another)
    assert isinstance(refused, Refused) and refused.reason == "LIMIT_REACHED"
    assert "1 job of this master" in refused.message and "--limit open_jobs=NUMBER" in refused.message
    driver.cancel()
    assert driver.do(another) == 2


def test_one_project_leaves_room_for_the_jobs_of_others() -> None:
    driver = CoreDriver(limits=Limits(open_jobs_per_project=1))

    def submitted(name: str, project: str) -> object:
        return driver.do(commands.SubmitJob(name, name, b"{}", "digest", (StepSettings("step"),), project=project))

    assert submitted("one", "vision") == 1
    refused = submitted("two", "vision")
    assert isinstance(refused, Refused) and refused.reason == "LIMIT_REACHED"
    assert "1 job of project vision" in refused.message and "--limit open_jobs_per_project=NUMBER" in refused.message
    assert submitted("two", "speech") == 2


@pytest.mark.parametrize(
    ("limits", "whose"),
    [
        (Limits(open_document_bytes=2500), "of this master"),
        (Limits(open_document_bytes_per_project=2500), "of project vision"),
    ],
)
def test_documents_of_open_jobs_are_bounded(limits: Limits, whose: str) -> None:
    """The master has them in memory, however few jobs they are of."""
    driver = CoreDriver(limits=limits)

    def submitted(name: str, project: str) -> object:
        return driver.do(
            commands.SubmitJob(name, name, bytes(1000), "digest", (StepSettings("step"),), project=project)
        )

    assert [submitted("one", "vision"), submitted("two", "vision")] == [1, 2]
    refused = submitted("three", "vision")
    assert isinstance(refused, Refused) and refused.reason == "LIMIT_REACHED"
    assert f"2 jobs {whose}" in refused.message and "come to 2,000 bytes, this one's has 1,000" in refused.message
    assert isinstance(submitted("four", "speech"), Refused) == (whose == "of this master")
    driver.do(commands.CancelJob("one"))
    assert isinstance(submitted("three", "vision"), int)


def test_a_node_too_many_is_refused_until_another_has_left_and_those_that_are_known_come_back() -> None:
    driver = CoreDriver(limits=Limits(nodes=2))
    assert driver.register("n1") is None and driver.register("n2") is None
    refused = driver.register("n3")
    assert isinstance(refused, Refused) and refused.reason == "LIMIT_REACHED"
    assert "2 nodes are registered" in refused.message and "--limit nodes=NUMBER" in refused.message
    assert driver.register("n1", "a") is None, "again"
    driver.restart()
    assert isinstance(driver.register("n3"), Refused), "a later master knows them as well"
    assert driver.register("n2") is None
    driver.do(commands.RemoveNode(NodeId("n1"), True))
    assert driver.register("n3") is None


def test_a_node_that_claims_to_have_any_number_of_workers_leaves_work_to_others() -> None:
    most = 2**32 - 1
    driver = CoreDriver(limits=Limits(workers_per_node=4, leases_per_node=10))
    driver.running([1] * 100)
    honest = driver.join("honest", 0)
    greedy = driver.join("greedy", 0)
    driver.capacity("greedy", most, most)
    assert len(greedy.lease_ids) == 10
    driver.capacity("honest", 4, 4)
    assert len(honest.lease_ids) == 4
    done, *_ = sorted(greedy.lease_ids)
    driver.do(commands.CompleteAttempts(greedy.node_id, [completion(done)]))
    assert len(greedy.lease_ids) == 10, "it gets another one"


def test_the_leases_of_all_steps_on_a_node_count() -> None:
    driver = CoreDriver(limits=Limits(leases_per_node=10))
    driver.submit(StepSettings("one"), StepSettings("two"))
    assert driver.plan(1, [1] * 8) and driver.plan(2, [1] * 8)
    node = driver.join("n1", 100)
    driver.do(commands.SetCapacity(node.node_id, node.stream, ((StepId(2), 100, 1),)))
    assert len(node.lease_ids) == 10


def test_an_agent_can_list_what_it_holds_in_one_message() -> None:
    with pytest.raises(BadLimit, match="message_parts must be at least 2 times leases_per_node"):
        read_limits(["leases_per_node=100", "message_parts=199"])


def test_limits_are_read_by_name() -> None:
    assert read_limits([]) == Limits()
    assert read_limits(["open_jobs=7", "document_bytes=8_000_000_000"]) == Limits(
        open_jobs=7, document_bytes=8_000_000_000
    )
    assert read_limits(["script_bytes_per_job=8_000_000_000"]).script_bytes_per_job == 8_000_000_000


@pytest.mark.parametrize("item", ["jobs=7", "open_jobs", "open_jobs=0", "open_jobs=many", "open_jobs=2147483648"])
def test_what_sets_no_limit_is_refused(item: str) -> None:
    with pytest.raises(BadLimit, match=f"--limit {item}"):
        read_limits([item])
