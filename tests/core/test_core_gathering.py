"""Steps that begin on several nodes at once: all or nothing, and nothing is held for ever."""

from __future__ import annotations

from typing import Any

from core_driver import CoreDriver, completion
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import effects as fx
from windrow_master.core.commands import CancelJob, ExplainJob, SetQueues
from windrow_master.core.gathering import HOLD_S, REST_S
from windrow_master.core.settings import StepSettings
from windrow_master.core.state import Step
from windrow_master.rpc.reason_briefs import brief_of
from windrow_master.rpc.reason_words import words_of


def driver_with(*slots: int) -> CoreDriver:
    """Nodes n1, n2, … with so many slots."""
    driver = CoreDriver()
    for number, count in enumerate(slots, 1):
        driver.register(f"n{number}", slots=count)
        driver.open(f"n{number}")
    return driver


def submit(
    driver: CoreDriver, name: str = "wide", planned: int = 100, project: str = "default", **settings: Any
) -> Step:
    key = driver.submit(StepSettings("s", **settings), job_id=name, request_id=name, project=project)
    step = driver.job(key).steps[0]
    assert driver.plan(step.step_id, [1] * planned)
    return step


def takes_work(driver: CoreDriver, step: Step) -> None:
    """Nodes that were told of the step want a lease for each of its workers."""
    for node in list(driver.core.state.nodes.values()):
        if step.step_id in node.offered:
            driver.capacity(
                node.node_id, node.shares.get(step.step_id, 0), node.shares.get(step.step_id, 0), step.step_id
            )


def pass_time(driver: CoreDriver, seconds: float) -> None:
    driver.tick_alive(seconds, *driver.core.state.nodes)


def has(driver: CoreDriver, step: Step) -> list[int]:
    """Its workers on n1, n2, …"""
    return [node.shares.get(step.step_id, 0) for node in driver.core.state.nodes.values()]


def reason_of(driver: CoreDriver, name: str = "wide") -> Any:
    (reason,) = driver.do(ExplainJob(name))
    return reason


def test_it_begins_when_so_many_nodes_take_its_work_and_grows_from_there() -> None:
    driver = driver_with(2, 2, 2)
    step = submit(driver, min_nodes=3)
    pass_time(driver, 0.5)
    assert has(driver, step) == [1, 1, 1]
    for name in ("n1", "n2"):
        driver.capacity(name, 1, 1, step.step_id)
    assert not step.lease_ids
    assert reason_of(driver).code == "GATHERING_NODES"
    assert "begins on 3 nodes at once (min_nodes), and 2 of them are ready" in words_of(reason_of(driver))
    driver.capacity("n3", 1, 1, step.step_id)
    assert {lease.node_id for lease in driver.core.state.leases.values()} == {"n1", "n2", "n3"}
    pass_time(driver, 0.5)
    assert has(driver, step) == [2, 2, 2]


def test_it_runs_nothing_and_holds_nothing_while_there_are_too_few_nodes() -> None:
    driver = driver_with(2, 2)
    wide = submit(driver, min_nodes=3)
    other = submit(driver, "other")
    pass_time(driver, 1)
    takes_work(driver, wide)
    assert has(driver, wide) == [0, 0] and has(driver, other) == [2, 2] and not wide.lease_ids
    told = words_of(reason_of(driver))
    assert "begins on 3 nodes at once (min_nodes), and 2 can have its workers. Start more agents" in told
    assert brief_of(reason_of(driver)) == "begins on 3 nodes at once; has 0 of 2"
    driver.register("n3", slots=3)
    driver.open("n3")
    pass_time(driver, 0.5)
    takes_work(driver, wide)
    assert {lease.node_id for lease in driver.core.state.leases.values()} >= {"n1", "n2", "n3"}


def test_nodes_that_it_counts_on_are_awaited_until_there_are_enough() -> None:
    """Agents that leave when they are idle would leave one after the other while the others come."""
    driver = driver_with(2, 2)
    wide = submit(driver, min_nodes=3)
    pass_time(driver, 0.5)
    assert driver.core.state.shares.awaited == {"n1", "n2"}
    driver.register("n3", slots=2)
    driver.open("n3")
    pass_time(driver, 0.5)
    assert has(driver, wide) == [1, 1, 1] and not driver.core.state.shares.awaited


def test_nobody_is_awaited_once_the_step_is_gone() -> None:
    driver = driver_with(2, 2)
    submit(driver, min_nodes=3)
    pass_time(driver, 0.5)
    driver.do(CancelJob("wide"))
    pass_time(driver, 0.5)
    assert not driver.core.state.shares.awaited


def test_it_holds_nothing_while_its_share_is_too_small() -> None:
    driver = driver_with(1, 1, 1, 1)
    submit(driver, "other", project="web")
    wide = submit(driver, min_nodes=3)
    pass_time(driver, 2)
    assert has(driver, wide) == [0, 0, 0, 0]
    told = words_of(reason_of(driver))
    assert "and is entitled to 2 workers now" in told and "Project default has 0 of 4 slots" in told
    driver.do(SetQueues({"default": QueueSettings(cluster=Bounds(quota=3))}))
    pass_time(driver, 0.5)
    assert sum(has(driver, wide)) == 3


def join(driver: CoreDriver, *names: str) -> None:
    for name in names:
        driver.register(name, slots=1)
        driver.open(name)


def test_what_is_held_in_vain_is_released_and_tried_again_later() -> None:
    driver = driver_with(1)
    other = submit(driver, "other", project="web")
    other.counters.starts.update(init_us=30_000_000, workers=1)  # its workers need not yield before 150 s
    pass_time(driver, 100)
    join(driver, "n2", "n3", "n4")
    pass_time(driver, 60)
    wide = submit(driver, min_nodes=2)
    pass_time(driver, 1)
    assert has(driver, wide) == [1, 0, 0, 0] and has(driver, other) == [0, 1, 1, 1]
    told = words_of(reason_of(driver))
    assert "holds places on 1, for" in told and "After 60 s it releases them" in told
    pass_time(driver, HOLD_S)
    assert has(driver, wide) == [0, 0, 0, 0] and has(driver, other) == [1, 1, 1, 1]
    assert "has released them; it tries again in" in words_of(reason_of(driver))
    pass_time(driver, REST_S + 40)
    assert sum(has(driver, wide)) == 2


def test_a_rest_ends_early_when_all_is_free() -> None:
    driver = driver_with(1, 1)
    wide = submit(driver, min_nodes=2)
    wide.gathering.rests_until_s = driver.now_s + REST_S
    pass_time(driver, 0.5)
    assert has(driver, wide) == [1, 1]


def test_two_of_them_do_not_hold_what_the_other_one_lacks() -> None:
    driver = driver_with(1, 1, 1)
    first, second = submit(driver, "first", min_nodes=2), submit(driver, "second", min_nodes=2)
    pass_time(driver, 1)
    assert (sum(has(driver, first)) >= 2) != (sum(has(driver, second)) >= 2)
    assert min(sum(has(driver, first)), sum(has(driver, second))) == 0
    assert "another step that does gathers nodes before it" in words_of(reason_of(driver, "second"))


def test_a_node_that_goes_once_it_has_begun_does_not_stop_it() -> None:
    driver = driver_with(1, 1)
    wide = submit(driver, min_nodes=2)
    pass_time(driver, 0.5)
    takes_work(driver, wide)
    assert len(wide.lease_ids) == 2
    driver.tick_alive(10, "n1")
    driver.complete("n1", completion(driver.held("n1")[0].lease_id))
    assert len(wide.lease_ids) == 1


def test_it_does_not_wait_for_more_nodes_than_it_has_mini_batches() -> None:
    driver = driver_with(1, 1)
    wide = submit(driver, planned=1, min_nodes=5)
    pass_time(driver, 0.5)
    takes_work(driver, wide)
    assert len(wide.lease_ids) == 1


def test_a_new_master_does_not_hold_back_what_has_begun() -> None:
    driver = driver_with(1, 1)
    wide = submit(driver, min_nodes=2)
    pass_time(driver, 0.5)
    takes_work(driver, wide)
    driver.complete("n1", completion(driver.held("n1")[0].lease_id))
    driver.restart()
    driver.register("n1", "b", slots=1)
    driver.open("n1", "b")
    pass_time(driver, 20)
    driver.capacity("n1", 1, 1, 1)
    assert driver.held("n1") and not [effect for effect in driver.effects if isinstance(effect, fx.CloseStream)]


def test_many_that_wait_do_not_keep_each_other_from_beginning() -> None:
    driver = driver_with(1, 1)
    steps = [submit(driver, f"j{number}", min_nodes=2) for number in range(5)]
    pass_time(driver, 0.5)
    assert [sum(has(driver, step)) for step in steps] == [2, 0, 0, 0, 0]


def test_workers_of_which_a_node_may_have_many_take_no_more_while_a_step_gathers() -> None:
    """By its settings, four of them share two processors: half a slot each, also while a node has one of them."""
    driver = driver_with(2, 2)
    driver.do(SetQueues({"default": QueueSettings(cluster=Bounds(limit=2.0))}))
    step = submit(driver, planned=2, min_nodes=2, max_concurrency_per_instance=4)
    other = submit(driver, "other")
    pass_time(driver, 1)
    assert has(driver, step) == [1, 1]
    assert sum(has(driver, other)) == 1
