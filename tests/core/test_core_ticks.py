"""Ticks come when something is due: `next_due` names the moment, and nothing would have changed before it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from core_bad_node import set_aside
from core_deadlines import assert_quiet_until_due, changes
from core_driver import CoreDriver
from windrow_master.core import commands, ticks
from windrow_master.core.ids import NodeId, StepId
from windrow_master.core.states import Cause, NodeState
from windrow_master.shell.ticking import GRAIN_S, LOOK_S, Plan

AFTER_S = 0.01


def waits_for_nothing() -> CoreDriver:
    return CoreDriver()


def a_node_is_silent() -> CoreDriver:
    driver = CoreDriver()
    driver.join()
    return driver


def an_idle_node_is_silent() -> CoreDriver:
    driver = CoreDriver()
    driver.join()
    driver.do(commands.HeartbeatNode(NodeId("n1"), "a", 0, 0, (), 4.0))
    return driver


def a_lease_grows_old() -> CoreDriver:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    return driver


def a_retry_is_delayed() -> CoreDriver:
    driver = a_lease_grows_old()
    driver.fail("n1", driver.held()[0], Cause.NODE_FAULT)
    return driver


def a_retry_waits_for_a_busy_node() -> CoreDriver:
    driver = CoreDriver()
    driver.timing.cut_off_max_s = 0.0
    driver.running([1, 1], max_retries=9)
    driver.join("n1", leases_max=1)
    driver.join("n2", leases_max=1)
    driver.fail("n1", driver.held("n1")[0], Cause.EXCEPTION)
    assert driver.step().ready.retries and not driver.held("n1")
    return driver


def a_node_is_set_aside() -> CoreDriver:
    driver = CoreDriver()
    driver.timing.cut_off_max_s = 0.0
    set_aside(driver, max_retries=9)
    return driver


def a_node_is_quarantined() -> CoreDriver:
    driver = CoreDriver()
    driver.timing.quarantine_faults = 1
    driver.running([1, 1])
    driver.join("n1", leases_max=1)
    driver.fail("n1", driver.held("n1")[0], Cause.NODE_FAULT)
    assert driver.node("n1").state == NodeState.QUARANTINED
    return driver


def nothing_is_planned() -> CoreDriver:
    driver = CoreDriver()
    driver.submit()
    return driver


def a_step_makes_no_progress() -> CoreDriver:
    driver = CoreDriver()
    driver.running([1], progress_update_timeout_s=3)
    driver.join()
    driver.tick_alive(1.5, "n1")
    return driver


def workers_are_never_ready() -> CoreDriver:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.init_fails("n1", 10)
    driver.tick_alive(119.0, "n1")
    return driver


def workers_take_long_to_end() -> CoreDriver:
    driver = CoreDriver()
    driver.running([1], ends_workers_first=True)
    driver.join()
    driver.finish_all()
    assert driver.step().workers.ending_on
    return driver


def nodes_are_awaited_after_a_restart() -> CoreDriver:
    driver = a_lease_grows_old()
    driver.tick_alive(2.0, "n1")
    driver.restart()
    return driver


def a_job_has_ended() -> CoreDriver:
    driver = CoreDriver()
    driver.submit()
    driver.do(commands.CancelJob("job"))
    return driver


SCENES = [
    waits_for_nothing,
    a_node_is_silent,
    an_idle_node_is_silent,
    a_lease_grows_old,
    a_retry_is_delayed,
    a_retry_waits_for_a_busy_node,
    a_node_is_set_aside,
    a_node_is_quarantined,
    nothing_is_planned,
    a_step_makes_no_progress,
    workers_are_never_ready,
    workers_take_long_to_end,
    nodes_are_awaited_after_a_restart,
    a_job_has_ended,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_nothing_changes_before_the_moment_that_is_named_and_something_does_then(
    scene: Callable[[], CoreDriver],
) -> None:
    driver = scene()
    for _ in range(40):
        assert_quiet_until_due(driver.core, driver.now)
        due_s = driver.core.next_due(driver.now)
        if math.isinf(due_s):
            break
        looks_again = due_s - driver.now_s <= ticks.STALL_S  # whether a commit still needs something
        assert looks_again or changes(driver.core, max(due_s, driver.now_s) + AFTER_S)
        last_s = driver.core.state.tick_s
        driver.now_s = max(due_s, driver.now_s) + AFTER_S
        driver.do(commands.Tick(driver.now_s - last_s if last_s is not None else 0.0))
        assert driver.core.next_due(driver.now) > driver.now_s, "what was due is done"
    assert not driver.core.state.nodes, "each scene ends with nothing left to wait for"


HOLES = {
    "never_ready_s": workers_are_never_ready,
    "overdue_s": nothing_is_planned,
    "ending_announced_s": workers_take_long_to_end,
    "placement_due_s": a_retry_waits_for_a_busy_node,
}
"""What `next_due` asks, and the scene in which nothing else is due."""


@pytest.mark.parametrize("name", HOLES)
def test_a_deadline_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = HOLES[name]()
    with monkeypatch.context() as planted:
        planted.setattr(ticks, name, lambda *_: math.inf)
        due_s = driver.core.next_due(driver.now)
    assert any(changes(driver.core, at_s) for at_s in (driver.now_s + 1, min(due_s, driver.now_s + 1000) - AFTER_S))


def test_a_step_that_all_nodes_have_given_up_is_due_at_once() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join("n1")
    driver.join("n2", leases_max=0)
    driver.fail("n1", driver.held("n1")[0], Cause.NODE_FAULT)
    driver.give_up("n1")
    step = driver.step()
    assert driver.core.next_due(driver.now) > driver.now_s
    driver.node("n2").given_up.add(StepId(1))
    step.ready.delayed.clear()
    assert driver.core.next_due(driver.now) < driver.now_s


# The plan: how the moments become ticks.


def test_a_plan_ticks_at_the_moment_and_looks_at_the_clock_in_between() -> None:
    driver = CoreDriver()
    plan = Plan(driver.core)
    assert plan.take(driver.now) is None and math.isinf(plan.wake_s), "nothing can become due"
    driver.join()
    expires_s = driver.node().expires_s
    plan.after([commands.Tick()], driver.now_s)
    looks = ticked = 0
    while driver.core.state.nodes:
        assert plan.wake_s - driver.now_s <= LOOK_S
        driver.now_s = plan.wake_s
        looks += 1
        tick = plan.take(driver.now)
        if tick is not None:
            ticked += 1
            driver.do(tick)
            plan.after([tick], driver.now_s)
    assert ticked == 1 and looks < 8
    assert driver.now_s - expires_s < GRAIN_S


def test_a_plan_that_is_woken_late_moves_the_deadlines() -> None:
    driver = CoreDriver()
    driver.join()
    driver.do(commands.Tick())
    plan = Plan(driver.core)
    plan.after([commands.Tick()], driver.now_s)
    driver.now_s = plan.wake_s + 3600
    tick = plan.take(driver.now)
    assert tick is not None
    driver.do(tick)
    assert driver.core.state.nodes, "nobody could act during the pause"


def test_heartbeats_alone_plan_nothing() -> None:
    driver = CoreDriver()
    plan = Plan(driver.core)
    plan.after([commands.HeartbeatNode(NodeId("n1"), "a", 0, 0)], driver.now_s)
    assert math.isinf(plan.wake_s)
