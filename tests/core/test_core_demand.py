"""What a fleet is told that the steps need: what another agent would run, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from core_driver import CoreDriver, completion
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import commands
from windrow_master.core.allocations import Fleet, FleetGroup, Shape
from windrow_master.core.commands import ReleaseLeases, SetQueues
from windrow_master.core.demand import AHEAD_S, OUTLOOK_S, outlook_of
from windrow_master.core.fleets import outlook
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.outlook import Demand, Worker
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import Cause, NodeState

SECOND_US = 1_000_000
ONE = Worker()


def demands(driver: CoreDriver) -> dict[tuple[str, Worker], Demand]:
    return {(one.pool, one.worker): one for one in outlook_of(driver.core.state, driver.now).demands}


def demand(driver: CoreDriver) -> Demand:
    """The only one; one that asks for nothing if there is none."""
    found = demands(driver)
    assert len(found) <= 1
    return next(iter(found.values()), Demand("", ONE))


def limit(driver: CoreDriver, **settings: Any) -> None:
    driver.do(SetQueues({"default": QueueSettings(**settings)}))


def measured(driver: CoreDriver, each_s: float, name: str = "n1", slots: int = 2) -> None:
    """A node runs mini-batches that take so long, and keeps as many."""
    driver.register(name, slots=slots)
    driver.open(name)
    driver.capacity(name, slots, slots)
    driver.complete(name, *(completion(one.lease_id, elapsed_us=int(each_s * SECOND_US)) for one in driver.held(name)))


def test_what_waits_is_asked_for_and_as_unmeasured_as_it_is() -> None:
    driver = CoreDriver()
    driver.running([1] * 30)
    assert demand(driver) == Demand("", ONE, ready=30, unmeasured=30, workers_max=30)
    measured(driver, 7.0)
    found = demand(driver)
    assert (found.ready, found.leased, found.unmeasured, found.workers_max) == (26, 2, 0, 28)
    assert found.ready_s == pytest.approx(26 * 7.0) and found.longest_s == pytest.approx(7, rel=0.3)


def test_what_runs_for_long_is_known_to_take_as_long_at_least() -> None:
    driver = CoreDriver()
    driver.running([1] * 10)
    driver.join_slots("n1", 1)
    driver.beat("n1", ready_steps=(driver.step().step_id,))
    driver.now_s += 60
    assert (demand(driver).unmeasured, demand(driver).ready_s) == (9, 0)
    driver.now_s += 940
    assert (demand(driver).unmeasured, demand(driver).ready_s) == (0, 9 * 1000)


def test_pools_and_needs_are_asked_for_apart() -> None:
    driver = CoreDriver()
    driver.submit(
        StepSettings("a", compute="gpu", gpus_per_worker=0.5),
        StepSettings("b", compute="gpu", gpus_per_worker=0.5),
        StepSettings("c", compute="gpu"),
        StepSettings("d", memory_per_worker=8 << 30, cpus_per_worker=2),
    )
    for step_id, count in ((1, 3), (2, 4), (3, 5), (4, 6)):
        driver.plan(step_id, [1] * count)
    assert {key: one.ready for key, one in demands(driver).items()} == {
        ("gpu", Worker(gpus=0.5)): 7,
        ("gpu", ONE): 5,
        ("", Worker(2, 8 << 30)): 6,
    }


def test_what_is_not_known_yet_is_counted_as_a_step() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a"), StepSettings("b", depends_on=("a",)))
    assert demand(driver) == Demand("", ONE, unknown_steps=1)
    driver.plan(1, [1] * 3, done=False)
    assert (demand(driver).ready, demand(driver).unknown_steps) == (3, 1)


def test_jobs_that_wait_to_be_admitted_are_unknown_steps_while_their_project_may_have_more() -> None:
    driver = CoreDriver()
    limit(driver, admitted_jobs=1, cluster=Bounds(limit=4))
    driver.running([1] * 3)
    for number in range(5):
        driver.submit(StepSettings("a", min_nodes=number), job_id=f"more-{number}", request_id=str(number))
    # One worker of four is left.
    assert (demand(driver).ready, demand(driver).unknown_steps) == (3, 1)
    limit(driver, admitted_jobs=1)
    assert (demand(driver).ready, demand(driver).unknown_steps, demand(driver).min_nodes) == (3, 5, 4)


@pytest.mark.parametrize("how", ["paused", "cancelled", "compared", "held", "retry later"])
def test_what_another_agent_would_not_run_asks_for_none(how: str) -> None:
    driver = CoreDriver()
    if how == "compared":
        driver.submit(StepSettings("a", reuse=True))
        assert not demand(driver).asks
        return
    driver.running([1], retry_delay_s=50)
    if how == "paused":
        driver.do(commands.PauseJob(JobKey(1), "a bug"))
    elif how == "cancelled":
        driver.do(commands.CancelJob("job"))
    elif how == "held":
        driver.core.state.held = True
    else:
        driver.join()
        driver.fail("n1", driver.held()[0], Cause.EXCEPTION)
        assert driver.step().counters.queued == 1
    assert not demand(driver).asks
    if how == "retry later":
        driver.node().capacity.clear()
        driver.now_s += 80
        assert demand(driver).ready == 1


def test_a_step_asks_for_no_node_beyond_its_instance_count() -> None:
    driver = CoreDriver()
    group = FleetGroup("g", "", "slurm", Shape(4), 0, 9)
    driver.core.state.fleets["f"] = Fleet("f", "p", "a1", 0.0, (group, group._replace(name="h", pool="gpu")))
    driver.running([1] * 100, instance_count=2)
    assert (demand(driver).ready, demand(driver).workers_max) == (8, 8)
    measured(driver, 6.0, "n1", slots=4)
    driver.tick()
    found = demand(driver)
    assert (found.ready, found.leased, found.workers_max) == (4, 4, 8)
    assert found.ready_s == 4 * AHEAD_S  # what four workers run in that time, of the 92 that wait
    driver.join_slots("n2", 4)
    driver.tick()
    found = demand(driver)
    assert (found.ready, found.ready_s, found.asks, found.workers_max) == (0, 0, False, found.leased)
    driver.do(commands.CordonNode(NodeId("n2"), True))
    assert demand(driver).ready == 4


def test_a_step_that_is_served_asks_for_nothing_while_its_input_is_divided() -> None:
    driver = CoreDriver()
    driver.submit(StepSettings("a", instance_count=1))
    driver.plan(1, [1] * 50, done=False)
    assert demand(driver).unknown_steps == 1
    driver.join_slots("n1", 1)
    assert not demand(driver).asks


def test_a_step_with_a_bound_for_each_node_counts_by_it() -> None:
    driver = CoreDriver()
    driver.running([1] * 100, instance_count=3, max_concurrency_per_instance=2)
    assert demand(driver).ready == 6


def test_a_project_asks_for_no_more_than_it_may_have() -> None:
    driver = CoreDriver()
    limit(driver, cluster=Bounds(limit=10), pools={"gpu": Bounds(limit=3)})
    driver.submit(StepSettings("a", compute="gpu"), StepSettings("b", cpus_per_worker=2), StepSettings("c"), job_id="j")
    for step_id in (1, 2, 3):
        driver.plan(step_id, [1] * 100)
    found = demands(driver)
    assert found["gpu", ONE].ready == 3  # 7 slots are left
    assert found["", Worker(2)].ready == 3  # 1 is left
    assert found["", ONE].ready == 1
    driver.submit(StepSettings("other"), job_id="k", request_id="k", project="other")
    driver.plan(4, [1] * 100)
    assert demands(driver)["", ONE].ready == 101


def test_what_a_project_has_is_taken_off_its_limit() -> None:
    driver = CoreDriver()
    limit(driver, cluster=Bounds(limit=5))
    driver.running([1] * 100)
    measured(driver, 10.0, slots=3)
    driver.tick()
    found = demand(driver)
    assert (found.leased, found.ready, found.workers_max, found.ready_s) == (3, 2, 5, 2 * AHEAD_S)


def test_a_rate_limit_asks_for_no_more_workers_than_it_keeps_busy() -> None:
    driver = CoreDriver()
    driver.running([1] * 100, rate_per_s=0.5)
    assert demand(driver).ready == 1
    driver.step().counters.add_duration(20 * SECOND_US)
    assert demand(driver).ready == 10


def test_the_nodes_that_a_step_begins_on_are_told_until_it_has_begun() -> None:
    driver = CoreDriver()
    driver.running([1] * 100, min_nodes=3)
    assert demand(driver).min_nodes == 3
    driver.step().gathering.is_done = True
    assert demand(driver).min_nodes == 0


def test_it_is_computed_at_most_once_a_second() -> None:
    driver = CoreDriver()
    driver.running([1])
    first = outlook(driver.core.state, driver.now)
    driver.submit(job_id="later", request_id="later")
    driver.plan(2, [1] * 5)
    assert outlook(driver.core.state, driver.now) is first
    driver.now_s += OUTLOOK_S
    assert outlook(driver.core.state, driver.now).demands[0].ready == 6


COUNTS = st.integers(0, 40)
STEPS = st.fixed_dictionaries(
    {
        "compute": st.sampled_from(["", "gpu"]),
        "instance_count": st.sampled_from([None, 1, 2, 5]),
        "cpus_per_worker": st.sampled_from([None, 1.0, 2.0]),
        "max_concurrency_per_instance": st.sampled_from([None, 1, 3]),
        "rate_per_s": st.sampled_from([float("inf"), 0.1, 5.0]),
    }
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(STEPS, COUNTS, st.booleans()), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from(["", "gpu"])), max_size=4),
    st.one_of(st.none(), st.integers(0, 30)),
    st.one_of(st.none(), st.floats(0.1, 1000)),
)
def test_no_demand_is_beyond_what_waits_and_what_limits_allow(
    steps: list[tuple[dict[str, Any], int, bool]],
    nodes: list[tuple[int, str]],
    slots_max: int | None,
    each_s: float | None,
) -> None:
    driver = CoreDriver()
    if slots_max is not None:
        limit(driver, cluster=Bounds(limit=slots_max))
    driver.submit(*(StepSettings(f"s{at}", **given_) for at, (given_, _, _) in enumerate(steps)))
    for step_id, (_, count, done) in enumerate(steps, 1):
        driver.plan(step_id, [1] * count, done=done)
        if each_s is not None and driver.step(step_id).counters.planned:
            driver.step(step_id).counters.add_duration(int(each_s * SECOND_US))
    for at, (slots, pool) in enumerate(nodes):
        name = f"n{at}"
        driver.register(name, slots=slots, pool=pool)
        driver.open(name)
        for step_id in range(1, len(steps) + 1):
            driver.capacity(name, driver.node(name).shares.get(step_id, 0), slots, step_id=step_id)
    before = {step.step_id: (len(step.ready), step.counters.to_json()) for step in driver.core.state.steps.values()}
    found = demands(driver)
    # It changes nothing.
    assert before == {
        step.step_id: (len(step.ready), step.counters.to_json()) for step in driver.core.state.steps.values()
    }
    for (pool, worker), one in found.items():
        own = [
            step
            for step in driver.core.state.steps.values()
            if step.settings.compute == pool and (step.settings.cpus_per_worker or 1.0) == worker.cpus
        ]
        assert one.ready <= sum(step.counters.queued for step in own)
        assert one.leased == sum(step.counters.leased for step in own)
        assert one.unmeasured <= one.ready and one.leased <= one.workers_max <= one.ready + one.leased
        assert (one.ready_s > 0) <= bool(one.ready) and one.unknown_steps <= len(own)
        assert one.ready_s <= sum(step.counters.queued for step in own) * (each_s or 0) * (1 + 1e-9)
    if slots_max is not None:
        asked = sum(one.ready * worker.cpus for (_, worker), one in found.items())
        assert asked <= slots_max + 1e-9


def test_a_node_that_drains_serves_no_step_with_an_instance_count() -> None:
    driver = CoreDriver()
    driver.running([1] * 100, instance_count=1, max_concurrency_per_instance=1)
    driver.join_slots("n1", 1)
    assert not demand(driver).ready
    driver.capacity("n1", 0, 1, draining=True)
    assert driver.node().state == NodeState.DRAINING and demand(driver).ready == 1
    driver.do(ReleaseLeases(NodeId("n1"), [one.lease_id for one in driver.held()]))
