"""How the core shares nodes out: what agents are told, and when that changes."""

from __future__ import annotations

from core_driver import CoreDriver, completion
from windrow_master.core import effects as fx
from windrow_master.core.ids import StepId
from windrow_master.core.settings import StepSettings
from windrow_master.core.shares import DECISION_S


def join(driver: CoreDriver, *names: str, slots: int = 4, pool: str = "") -> None:
    for name in names:
        assert driver.register(name, slots=slots, pool=pool) is None
        assert driver.open(name) is None


def job(driver: CoreDriver, number: int, mini_batches: int = 1000, **more: object) -> None:
    """A job of one step, whose id is its number."""
    priority = more.pop("priority", 0)
    assert isinstance(priority, int)
    settings = StepSettings("step", **more)  # type: ignore[arg-type]
    driver.submit(settings, job_id=f"j{number}", request_id=str(number), priority=priority)
    driver.plan(number, [1] * mini_batches)


def workers(driver: CoreDriver) -> dict[str, dict[int, int]]:
    """What the nodes were told last."""
    found = {}
    for node in driver.core.state.nodes.values():
        assert node.shares_told == node.shares
        found[str(node.node_id)] = {int(step_id): count for step_id, count in node.shares.items()}
    return found


def test_a_job_alone_gets_all_there_is_at_once() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    job(driver, 1)
    assert workers(driver) == {"n1": {1: 4}, "n2": {1: 4}}
    assert [(at.node_id, at.shares) for at in driver.sent(fx.SendShares)] == [("n1", ((1, 4),)), ("n2", ((1, 4),))]
    assert [at.step_id for at in driver.sent(fx.SendStep)] == [1, 1]


def test_a_second_job_gets_its_share_where_the_first_one_yields_and_all_when_that_has_ended() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    job(driver, 1, 2000)
    job(driver, 2, 2000)
    assert sum(at.get(1, 0) for at in workers(driver).values()) == 4
    assert sum(at.get(2, 0) for at in workers(driver).values()) == 4
    driver.cancel("j1")
    assert workers(driver) == {"n1": {2: 4}, "n2": {2: 4}}


def test_a_step_is_offered_only_where_it_has_workers() -> None:
    driver = CoreDriver()
    join(driver, "n1", slots=1)
    job(driver, 1, priority=5)
    job(driver, 2)
    assert workers(driver) == {"n1": {1: 1}}
    assert driver.node().offered == {1}
    join(driver, "n2", slots=1)
    assert driver.node("n2").shares == {1: 1}, "the higher priority first"
    driver.cancel("j1")
    assert driver.node().offered == driver.node("n2").offered == {2}


def test_a_job_with_little_left_leaves_what_it_does_not_use_to_others() -> None:
    driver = CoreDriver()
    join(driver, "n1")
    job(driver, 1, 2)
    assert workers(driver) == {"n1": {1: 4}}, "nobody else wants them"
    job(driver, 2)
    assert workers(driver) == {"n1": {1: 2, 2: 2}}
    driver.capacity("n1", 2, 2, step_id=1)
    driver.complete("n1", completion(driver.held()[0].lease_id))
    driver.now_s += DECISION_S
    driver.tick()
    assert workers(driver) == {"n1": {1: 1, 2: 3}}


def test_a_node_that_comes_back_keeps_the_workers_that_it_has() -> None:
    driver = CoreDriver()
    join(driver, "n1")
    job(driver, 1)
    job(driver, 2)
    assert workers(driver) == {"n1": {1: 2, 2: 2}}
    driver.open("n1", workers={1: 1, 2: 3})
    assert workers(driver) == {"n1": {1: 1, 2: 3}} or workers(driver) == {"n1": {1: 2, 2: 2}}
    assert driver.sent(fx.SendShares), "told once on each stream, whatever it has"


def test_more_workers_than_slots_where_the_job_file_says_so() -> None:
    driver = CoreDriver()
    join(driver, "n1", slots=2)
    job(driver, 1, max_concurrency_per_instance=6)
    assert workers(driver) == {"n1": {1: 6}}
    job(driver, 2)
    assert workers(driver) == {"n1": {1: 3, 2: 1}}, "each has half of the node"


def test_no_more_nodes_than_instance_count_have_workers() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2", "n3")
    job(driver, 1, instance_count=2)
    assert sorted(len(at) for at in workers(driver).values()) == [0, 1, 1]


def test_a_node_that_gives_a_step_up_leaves_its_slots_to_others() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    job(driver, 1)
    job(driver, 2)
    driver.give_up("n1", 1)
    assert workers(driver) == {"n1": {2: 4}, "n2": {1: 4}}


def test_a_step_that_names_a_pool_has_workers_in_it_and_on_nodes_without_one() -> None:
    driver = CoreDriver()
    join(driver, "n1", pool="gpu")
    join(driver, "n2", pool="cpu")
    join(driver, "n3")
    job(driver, 1, compute="gpu")
    assert workers(driver) == {"n1": {1: 4}, "n2": {}, "n3": {1: 4}}
    job(driver, 2)
    assert workers(driver)["n2"] == {2: 4}


def test_jobs_take_turns_where_there_are_fewer_slots_than_jobs() -> None:
    driver = CoreDriver()
    join(driver, "n1", slots=1)
    for number in (1, 2, 3):
        job(driver, number)
    had: dict[int, float] = {}
    for _ in range(240):
        driver.tick_alive(0.25, "n1")
        for step_id, count in driver.node().shares.items():
            had[step_id] = had.get(step_id, 0.0) + count * 0.25
    assert sorted(had) == [1, 2, 3] and max(had.values()) < 1.4 * min(had.values())
    assert all(isinstance(step_id, int) and StepId(step_id) in driver.core.state.steps for step_id in had)
