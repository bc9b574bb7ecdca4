"""How the core shares nodes out: what agents are told, and when that changes."""

from __future__ import annotations

from random import Random

import pytest
from core_driver import CoreDriver, completion
from core_shares import compared_with_scratch
from windrow.common.queue_settings import Bounds, QueueSettings
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.commands import SetQueues, UpdateJob
from windrow_master.core.ids import StepId
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.core.shares import DECISION_S
from windrow_master.core.states import Cause, StepState


def join(driver: CoreDriver, *names: str, slots: int = 4, pool: str = "") -> None:
    for name in names:
        assert driver.register(name, slots=slots, pool=pool) is None
        assert driver.open(name) is None


def job(driver: CoreDriver, number: int, mini_batches: int = 1000, **more: object) -> None:
    """A job of one step, whose id is its number."""
    priority, project = more.pop("priority", 0), more.pop("project", "default")
    assert isinstance(priority, int) and isinstance(project, str)
    settings = StepSettings("step", **more)  # type: ignore[arg-type]
    driver.submit(settings, job_id=f"j{number}", request_id=str(number), priority=priority, project=project)
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


KINDS = [
    {},
    {},
    {"instance_count": 2},
    {"max_concurrency_per_instance": 1},
    {"max_concurrency_per_instance": 7},
    {"compute": "gpu"},
    {"max_retries": 0},
]


def an_event(driver: CoreDriver, random: Random) -> None:
    """Something happens: a node or a job comes, goes or changes, work ends or fails, time passes."""
    state = driver.core.state
    nodes = [str(node_id) for node_id in state.nodes]
    open_steps = [step.step_id for step in state.steps.values() if step.state == StepState.RUNNING]
    what = random.choice(["node", "job", *["work"] * 6, "end", "close", "open", "give_up", "cordon", "time"])
    if what == "node" and len(nodes) < 6:
        name = f"n{len(nodes) + 1}"
        if driver.register(name, slots=random.choice([1, 2, 5]), pool=random.choice(["", "", "gpu"])) is None:
            driver.open(name)
    elif what == "job" and len(open_steps) < 8:
        job(driver, state.step_id_last + 1, random.choice([1, 3, 60]), priority=random.choice([0, 0, 1]),
            **random.choice(KINDS))  # fmt: skip
    elif what == "work" and nodes:
        name = random.choice(nodes)
        for step_id, count in list(driver.node(name).shares.items()):
            driver.capacity(name, 2 * count, count, step_id=step_id)
        for lease in driver.held(name)[: random.choice([1, 4])]:
            fails = random.random() < (0.8 if name == "n1" else 0.1)
            driver.complete(name, completion(lease.lease_id, Cause.EXCEPTION if fails else 0))
    elif what == "end" and open_steps:
        driver.cancel(f"j{random.choice(open_steps)}")
    elif nodes and what in ("close", "open", "give_up", "cordon"):
        node = driver.node(random.choice(nodes))
        if what == "close":
            driver.do(commands.CloseWork(node.node_id, node.stream))
        elif what == "open":
            has = {int(step_id): random.randint(0, 2) for step_id in [*open_steps, 99]}
            driver.register(node.node_id, slots=random.choice([1, 2, 5]))
            driver.open(node.node_id, held=driver.as_held(*driver.held(node.node_id)), workers=has)
        elif what == "cordon":
            driver.do(commands.CordonNode(node.node_id, random.random() < 0.4))
        elif open_steps:
            driver.give_up(node.node_id, random.choice(open_steps))
    driver.tick_alive(random.choice([0.0, 0.0, 0.25, 1.0]), *map(str, state.nodes))


def test_a_decision_is_the_same_as_one_from_scratch_whatever_has_happened() -> None:
    with compared_with_scratch() as changed:
        for seed in range(10):
            random, driver = Random(seed), CoreDriver()
            for _ in range(60):
                an_event(driver, random)
    assert sum(changed) > 60, "too little happens"


def share(driver: CoreDriver, **queues: QueueSettings) -> None:
    """Set what projects may have."""
    (changed,) = driver.group(SetQueues(queues))
    assert not isinstance(changed, Refused), changed


def settle(driver: CoreDriver, seconds: float = 1.0) -> None:
    """Let decisions be made, while all nodes send heartbeats."""
    for _ in range(round(seconds / DECISION_S)):
        for name in driver.core.state.nodes:
            driver.beat(name)
        driver.tick(DECISION_S)


def held(driver: CoreDriver, *step_ids: int) -> list[int]:
    """How many workers these steps have, on all nodes."""
    return [sum(at.get(step_id, 0) for at in workers(driver).values()) for step_id in step_ids]


def test_projects_share_by_their_weights() -> None:
    driver = CoreDriver()
    share(driver, big=QueueSettings(weight=3.0))
    join(driver, "n1", "n2")
    job(driver, 1, project="big")
    job(driver, 2)
    assert held(driver, 1, 2) == [6, 2]
    share(driver, big=QueueSettings(weight=1.0))
    settle(driver)
    assert held(driver, 1, 2) == [4, 4], "it counts at once, for jobs that run"


def test_a_project_of_a_higher_priority_gets_all_that_is_guaranteed_to_nobody() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    share(driver, urgent=QueueSettings(priority=5), steady=QueueSettings(cluster=Bounds(quota=3)))
    job(driver, 1, project="steady")
    job(driver, 2)
    job(driver, 3, 1000, project="urgent")
    settle(driver)
    assert held(driver, 1, 2, 3) == [3, 0, 5]


@pytest.mark.parametrize("part", ["start_us", "init_us"])
def test_a_quota_is_taken_back_from_who_has_just_begun(part: str) -> None:
    driver = CoreDriver()
    join(driver, "n1", slots=4)
    share(driver, vision=QueueSettings(cluster=Bounds(quota=2)))
    job(driver, 1)
    driver.core.state.steps[StepId(1)].counters.starts.update({"workers": 1, part: 60_000_000})
    settle(driver)
    job(driver, 2)
    settle(driver)
    assert held(driver, 1, 2) == [4, 0], "a worker stays until it has paid for its start"
    job(driver, 3, project="vision")
    settle(driver)
    assert held(driver, 1, 2, 3) == [2, 0, 2], "but yields to what is guaranteed, and to no more than that"


def test_no_project_has_more_than_its_limit_even_where_nobody_else_wants_it() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    share(driver, small=QueueSettings(cluster=Bounds(limit=3)))
    job(driver, 1, project="small")
    job(driver, 2, project="small")
    settle(driver)
    assert sum(held(driver, 1, 2)) == 3
    share(driver, small=QueueSettings(cluster=Bounds(limit=1)))
    assert sum(held(driver, 1, 2)) == 1, "a lower limit counts at once"
    share(driver, small=QueueSettings())
    settle(driver)
    assert sum(held(driver, 1, 2)) == 8


def test_within_a_limit_the_higher_priority_goes_first() -> None:
    driver = CoreDriver()
    join(driver, "n1", "n2")
    share(driver, small=QueueSettings(cluster=Bounds(limit=3)))
    job(driver, 1, project="small")
    settle(driver)
    job(driver, 2, project="small", priority=1)
    settle(driver)
    assert held(driver, 1, 2) == [0, 3]


def test_bounds_of_a_pool_are_of_its_nodes_and_those_of_the_cluster_of_all() -> None:
    driver = CoreDriver()
    join(driver, "g1", pool="gpu")
    join(driver, "n1", "n2")
    share(driver, vision=QueueSettings(cluster=Bounds(limit=5), pools={"gpu": Bounds(quota=3, limit=3)}))
    job(driver, 1, compute="gpu")
    job(driver, 2, project="vision", compute="gpu")
    job(driver, 3, project="vision")
    settle(driver)
    found = workers(driver)
    assert found["g1"].get(2, 0) + found["g1"].get(3, 0) == 3, found
    assert sum(held(driver, 2, 3)) == 5, found


def test_of_jobs_of_one_priority_the_earliest_deadline_goes_first() -> None:
    driver = CoreDriver()
    join(driver, "n1", slots=2)
    job(driver, 1)
    job(driver, 2)
    assert held(driver, 1, 2) == [1, 1]
    driver.group(UpdateJob("j2", deadline=2e9))
    assert held(driver, 1, 2) == [0, 2]
    driver.group(UpdateJob("j1", deadline=1e9))
    settle(driver)
    assert held(driver, 1, 2) == [2, 0]
