"""GPUs that workers hold without using them: shown, and given back; GPUs that are lost; what is counted of use."""

from __future__ import annotations

from typing import Any

from core_driver import CoreDriver, completion
from core_shares import compared_with_scratch
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_master.core.commands import ExplainJob, GpuUse, HeartbeatNode, IdleWorker, Moment
from windrow_master.core.gpus import SHOWN_FROM_S, idle_gpus
from windrow_master.core.ids import StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.shares import DECISION_S


def join(driver: CoreDriver, *names: str, gpus: int = 4, slots: int = 8) -> None:
    for name in names:
        driver.register(name, slots=slots, gpus=gpus)
        driver.open(name)


def job(driver: CoreDriver, number: int, mini_batches: int, *, done: bool = True, **more: Any) -> None:
    """A job of one step, whose id is its number."""
    driver.submit(StepSettings("step", **more), job_id=f"j{number}", request_id=str(number))
    driver.plan(number, [1] * mini_batches, done=done)


def beat(driver: CoreDriver, name: str, *idle: IdleWorker, **more: Any) -> None:
    """A heartbeat that agrees with the master about leases."""
    node = driver.node(name)
    digest = 0
    for lease_id in node.lease_ids:
        digest ^= lease_id
    beat = HeartbeatNode(node.node_id, node.node_incarnation, len(node.lease_ids), digest, idle_gpus=idle, **more)
    driver.do(beat)


def idle(step_id: int, idle_s: float, process: int = 0, *, is_working: bool = False) -> IdleWorker:
    return IdleWorker(StepId(step_id), process, 1.0, idle_s, is_working)


def decide(driver: CoreDriver) -> None:
    driver.now_s += DECISION_S
    driver.tick(0.25)


def share(driver: CoreDriver, name: str, step_id: int = 1) -> int:
    return driver.node(name).shares.get(StepId(step_id), 0)


def finish(driver: CoreDriver, name: str, step_id: int = 1) -> None:
    """Everything that the node holds of the step succeeds."""
    node = driver.node(name)
    held = [lease for lease in sorted(node.lease_ids) if driver.core.state.leases[lease].step_id == step_id]
    for lease_id in held:
        driver.complete(name, completion(lease_id))


def test_idle_gpus_are_shown_with_whose_they_are_the_longest_first() -> None:
    driver = CoreDriver()
    join(driver, "n0", "n1")
    job(driver, 1, 10, gpus_per_worker=1)
    driver.capacity("n0", 2)
    driver.capacity("n1", 2)
    beat(driver, "n0", idle(1, SHOWN_FROM_S - 1, 3), idle(1, 700, 4, is_working=True))
    beat(driver, "n1", idle(1, 900, 5), idle(77, 900, 6))
    shown = idle_gpus(driver.core.state, driver.now)
    assert [(one.node_id, one.process_number, one.is_working) for one in shown] == [("n1", 5, False), ("n0", 4, True)]
    assert {(one.project, one.job_id, one.step) for one in shown} == {("default", "j1", "step")}
    assert idle_gpus(driver.core.state, driver.now, project="other") == []
    later = Moment(driver.now_s + 2, driver.now.wall_s + 2)
    assert len(idle_gpus(driver.core.state, later)) == 3, "time passes also between two heartbeats"
    (reason,) = driver.do(ExplainJob("j1"))
    assert [one.process_number for one in reason.idle_gpus] == [5, 4]
    beat(driver, "n1")
    assert [one.process_number for one in idle_gpus(driver.core.state, driver.now)] == [4], "it uses it again"


def test_a_job_that_waits_for_gpus_is_told_who_does_not_use_theirs() -> None:
    driver = CoreDriver()
    join(driver, "n0", gpus=1)
    job(driver, 1, 5, gpus_per_worker=1)
    driver.capacity("n0", 1)
    job(driver, 2, 5, gpus_per_worker=1)
    job(driver, 3, 5)
    beat(driver, "n0", idle(1, 1000, is_working=True))
    (waiting,) = driver.do(ExplainJob("j2"))
    assert [one.job_id for one in waiting.idle_gpus] == ["j1"], waiting
    (other,) = driver.do(ExplainJob("j3"))
    assert other.idle_gpus == (), "this one needs no GPU"


def test_a_place_is_given_back_when_nothing_is_left_to_begin_and_taken_again_when_there_is() -> None:
    driver = CoreDriver()
    with compared_with_scratch():
        join(driver, "n0", "n1")
        job(driver, 1, 8, done=False, gpus_per_worker=1, idle_gpu_timeout_s=60)
        decide(driver)
        assert (share(driver, "n0"), share(driver, "n1")) == (4, 4)
        driver.capacity("n0", 4, workers=4)
        driver.capacity("n1", 4, workers=4)
        driver.now_s += 1
        beat(
            driver,
            "n0",
            *(idle(1, 1000, number) for number in range(4)),
        )
        decide(driver)
        assert share(driver, "n0") == 4, "a report that is older than the leases takes nothing away"
        assert not driver.node("n0").gave_gpus_back_s
        beat(driver, "n0")
        finish(driver, "n0")
        finish(driver, "n1")
        decide(driver)
        assert (share(driver, "n0"), share(driver, "n1")) == (4, 4), "places are kept for what is still to come"
        beat(driver, "n0", idle(1, 59), idle(1, 61, 1), idle(1, 300, 2), idle(1, 300, 3, is_working=True))
        decide(driver)
        assert (share(driver, "n0"), share(driver, "n1")) == (2, 4), "those that have waited for too long end"
        beat(driver, "n0", idle(1, 61), idle(1, 300, 2))
        decide(driver)
        assert share(driver, "n0") == 2, "a report may be older than what was decided"
        driver.now_s += 6
        beat(driver, "n1")
        beat(driver, "n0", idle(1, 70))
        decide(driver)
        assert share(driver, "n0") == 1
        assert share(driver, "n1") == 4, "a worker that uses its GPU keeps it"
        driver.plan(1, [1] * 8, done=False)
        decide(driver)
        assert (share(driver, "n0"), share(driver, "n1")) == (4, 4), "there is work again"
        finish(driver, "n0")
        finish(driver, "n1")
        join(driver, "n2")
        decide(driver)
        assert share(driver, "n2") == 4, "and workers in advance, as before"


def test_without_the_setting_nothing_is_given_back() -> None:
    driver = CoreDriver()
    join(driver, "n0")
    job(driver, 1, 4, done=False, gpus_per_worker=1)
    driver.capacity("n0", 4, workers=4)
    finish(driver, "n0")
    for _ in range(3):
        driver.now_s += 5
        beat(driver, "n0", *(idle(1, 100_000, number) for number in range(4)))
        decide(driver)
    assert share(driver, "n0") == 4


def test_a_lost_gpu_takes_its_place_away_and_brings_it_back() -> None:
    driver = CoreDriver()
    with compared_with_scratch():
        join(driver, "n0", gpus=2)
        job(driver, 1, 10, gpus_per_worker=1)
        decide(driver)
        assert share(driver, "n0") == 2
        beat(driver, "n0", gpu_count=1)
        decide(driver)
        assert share(driver, "n0") == 1 and driver.node("n0").gpu_count == 1
        beat(driver, "n0", gpu_count=0)
        decide(driver)
        assert share(driver, "n0") == 0
        beat(driver, "n0", gpu_count=2)
        decide(driver)
        assert share(driver, "n0") == 2


def test_what_workers_use_is_counted_of_steps_that_the_node_knows() -> None:
    driver = CoreDriver()
    join(driver, "n0", "n1")
    job(driver, 1, 10, gpus_per_worker=1)
    driver.capacity("n0", 2, workers=2)
    beat(driver, "n0", gpu_uses=[GpuUse(StepId(1), 5 << 30, 2, 130)])
    beat(driver, "n0", gpu_uses=[GpuUse(StepId(1), 3 << 30, 2, 70)])
    assert driver.step(1).counters.gpus == {"peak_bytes": 5 << 30, "measured": 4, "busy_percent": 200}
    driver.node("n1").told_steps.clear()
    beat(driver, "n1", gpu_uses=[GpuUse(StepId(1), 9 << 30, 1, 100), GpuUse(StepId(99), 1, 1, 1)])
    assert driver.step(1).counters.gpus["peak_bytes"] == 5 << 30, "a node tells nothing of what it was never offered"


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["beat", "finish", "plan", "pass"]),
            st.sampled_from(["n0", "n1"]),
            st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([0.0, 30.0, 90.0]), st.booleans()), max_size=4),
        ),
        max_size=12,
    )
)
def test_whatever_is_reported_a_step_with_work_has_workers(history: list[tuple[str, str, list[Any]]]) -> None:
    """Whatever nodes say of idle GPUs: what is decided is the same from scratch, and a step whose mini-batches wait
    gets every place that it could use.
    """
    driver = CoreDriver()
    with compared_with_scratch():
        join(driver, "n0", "n1", gpus=2)
        job(driver, 1, 6, done=False, gpus_per_worker=1, idle_gpu_timeout_s=60)
        job(driver, 2, 3, done=False, gpus_per_worker=0.5, idle_gpu_timeout_s=20)
        for what, name, reported in history:
            if what == "beat":
                workers = [idle(step, s, at, is_working=busy) for at, (step, s, busy) in enumerate(reported)]
                beat(driver, name, *workers)
            elif what == "finish":
                finish(driver, name, 1)
                finish(driver, name, 2)
            elif what == "plan":
                driver.plan(1, [1] * 3, done=False)
            else:
                driver.now_s += 3
            for node in ("n0", "n1"):
                if what != "beat" or node != name:
                    driver.beat(node)
                driver.capacity(node, 2, workers=2, step_id=1)
                driver.capacity(node, 2, workers=2, step_id=2)
            decide(driver)
            decide(driver)
            steps = driver.core.state.steps.values()
            waiting = {step.step_id for step in steps if step.ready.ready_count(driver.now_s)}
            for step_id in waiting:
                assert share(driver, "n0", step_id) + share(driver, "n1", step_id) > 0, (step_id, what)
            if waiting:
                used = sum(
                    share(driver, node, step) * (1 if step == 1 else 0.5) for node in ("n0", "n1") for step in (1, 2)
                )
                assert used >= 4 - 0.5 * len(waiting), "no GPU is free while somebody could use it"
