"""How nodes stand with a step: retries go elsewhere; one that fails where others do well is set aside for a while."""

from __future__ import annotations

from random import Random

import pytest
from core_bad_node import doubted, fail_all, set_aside, succeed
from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import Budget
from windrow_master.core.ids import NodeId
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, NodeState, StepState
from windrow_master.rpc.reason_words import words_of

RETRIED = [
    Cause.EXCEPTION,
    Cause.TIMEOUT,
    Cause.BAD_RETURN,
    Cause.LOAD_FAILED,
    Cause.OUTPUT_FAILED,
    Cause.CRASH,
    Cause.OOM,
    Cause.NODE_FAULT,
]


def run_to_its_end(driver: CoreDriver, bad: set[str], good: set[str], cause: Cause = Cause.EXCEPTION) -> dict[str, int]:
    """Bad nodes fail all that they get, at once; good ones do a wave for ten of theirs. Returns how many each had."""
    had = dict.fromkeys(bad | good, 0)
    step = driver.step()
    for turn in range(3000):
        if step.state != StepState.RUNNING:
            return had
        for name in sorted(bad):
            had[name] += fail_all(driver, name, cause)
        if turn % 10 == 9:
            for name in sorted(good):
                had[name] += len(driver.held(name))
                succeed(driver, name)
        driver.tick_alive(0.25, *had)
    raise AssertionError(f"it did not end: {step.counters}")


# Retries


def waiting_for_n1() -> CoreDriver:
    """Two mini-batches failed on nodes that are free now, and would rather go to n1, which is busy with a third."""
    driver = CoreDriver()
    driver.running([1] * 3)
    for name in ("n1", "n2", "n3"):
        driver.join_slots(name, 1)
    for name in ("n1", "n2", "n3"):
        driver.capacity(name, 4)
    failures = []
    for name in ("n2", "n3"):
        (lease,) = driver.held(name)
        failures.append(commands.CompleteAttempts(NodeId(name), [completion(lease.lease_id, Cause.EXCEPTION)]))
    driver.group(*failures)
    return driver


def test_a_retry_does_not_wait_behind_others_while_it_would_be_asked_back() -> None:
    driver = waiting_for_n1()
    (busy,) = driver.held("n1")
    for _ in range(20):
        driver.tick_alive(0.5, "n1", "n2", "n3")
        assert driver.held("n1") == [busy], "it was handed out, and would be recalled for a free slot"
        assert not driver.sent(fx.RecallLeases)
    driver.complete("n1", completion(busy.lease_id))
    assert len(driver.held("n1")) == 1


def test_a_retry_that_has_waited_long_enough_goes_where_a_slot_is_free() -> None:
    driver = waiting_for_n1()
    driver.tick_alive(driver.timing.retry_wait_s + 1, "n1", "n2", "n3")
    assert len(driver.held("n2")) == len(driver.held("n3")) == 1


@pytest.mark.parametrize("cause", RETRIED)
def test_a_retry_goes_to_another_node(cause: Cause) -> None:
    driver = CoreDriver()
    driver.running([1] * 2)
    driver.join_slots("n1", 1)
    driver.join_slots("n2", 1)
    (lease,) = driver.held("n1")
    driver.complete("n2", completion(driver.held("n2")[0].lease_id))
    driver.fail("n1", lease, cause)
    driver.tick_alive(2.25, "n1", "n2")  # a fault of the node costs two seconds
    assert not driver.held("n1") and [at.mini_batch for at in driver.held("n2")] == [lease.mini_batch]


def test_a_retry_waits_for_another_node_that_is_busy_but_not_for_ever() -> None:
    driver = CoreDriver()
    driver.running([1] * 2)
    driver.join_slots("n1", 1)
    driver.join_slots("n2", 1)
    (lease,) = driver.held("n1")
    driver.fail("n1", lease, Cause.EXCEPTION)
    driver.tick_alive(29, "n1", "n2")
    assert not driver.held("n1")
    driver.tick_alive(1.25, "n1", "n2")
    assert [at.mini_batch for at in driver.held("n1")] == [lease.mini_batch]
    driver.fail("n1", driver.held("n1")[0], Cause.EXCEPTION)
    driver.complete("n2", completion(driver.held("n2")[0].lease_id))
    assert [at.mini_batch for at in driver.held("n2")] == [lease.mini_batch], "as soon as there is room"


@pytest.mark.parametrize("reason", ["wants nothing", "gave the step up", "is cordoned", "is gone", "of another pool"])
def test_a_retry_does_not_wait_for_a_node_that_will_not_have_it(reason: str) -> None:
    driver = CoreDriver()
    driver.running([1] * 2, compute="gpu")
    driver.join("n1", 1, pool="gpu")
    driver.join("n2", 0 if reason == "wants nothing" else 1, pool="cpu" if reason == "of another pool" else "gpu")
    if reason == "gave the step up":
        driver.give_up("n2")
    elif reason == "is cordoned":
        driver.do(commands.CordonNode(NodeId("n2"), True))
    elif reason == "is gone":
        driver.do(commands.CloseWork(NodeId("n2"), driver.node("n2").stream))
        driver.tick_alive(2, "n1")
    lease = driver.held("n1")[0]
    driver.fail("n1", lease, Cause.EXCEPTION)
    assert lease.mini_batch in [at.mini_batch for at in driver.held("n1")]


def test_once_it_has_failed_on_every_node_a_retry_goes_where_it_failed_least_and_not_last() -> None:
    driver = CoreDriver()
    driver.running([1], max_retries=5)
    for name in ("n1", "n2", "n3"):
        driver.join_slots(name, 1)
    places = []
    for _ in range(6):
        (name,) = [name for name in ("n1", "n2", "n3") if driver.held(name)]
        places.append(name)
        fail_all(driver, name)
    assert sorted(places[:3]) == sorted(places[3:]) == ["n1", "n2", "n3"] and places[2] != places[3]
    assert driver.step().counters.failed == 1


def test_what_ran_out_of_memory_goes_to_a_node_with_more_of_it() -> None:
    driver = CoreDriver()
    driver.running([1] * 3)
    for name, memory_bytes in (("a", 1 << 30), ("m", 2 << 30), ("z", 4 << 30)):
        driver.join_slots(name, 1, memory_bytes=memory_bytes)
    lease = driver.held("m")[0]
    succeed(driver, "a")
    succeed(driver, "z")
    driver.fail("m", lease, Cause.OOM)
    assert driver.held("z")[0].mini_batch == lease.mini_batch


def test_changed_input_is_looked_at_from_one_other_node() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 2)
    driver.join_slots("n1", 1)
    driver.join_slots("n2", 1)
    (lease,) = driver.held("n1")
    succeed(driver, "n2")
    driver.fail("n1", lease, Cause.INPUT_CHANGED)
    assert [at.mini_batch for at in driver.held("n2")] == [lease.mini_batch], "n1 alone may see it so"
    driver.fail("n2", driver.held("n2")[0], Cause.INPUT_CHANGED)
    assert step.counters.failed == 1, "two nodes agree"


def test_where_a_mini_batch_failed_is_known_after_a_restart() -> None:
    driver = CoreDriver()
    driver.running([1] * 3)
    driver.join_slots("n1", 1)
    driver.join_slots("n2", 1)
    (lease,) = driver.held("n1")
    driver.fail("n1", lease, Cause.EXCEPTION)
    driver.restart()
    for name in ("n1", "n2"):
        driver.register(name, "b", "a")
        driver.open(name, "b")
    driver.capacity("n1", 1)
    driver.capacity("n2", 3, 3)
    assert lease.mini_batch not in [at.mini_batch for at in driver.held("n1")]
    assert lease.mini_batch in [at.mini_batch for at in driver.held("n2")]


# Nodes that are set aside


@pytest.mark.parametrize("cause", RETRIED)
@pytest.mark.parametrize("bad", [1, 3])
def test_bad_nodes_cost_no_item_and_get_a_handful(cause: Cause, bad: int) -> None:
    driver = CoreDriver()
    step = driver.running([1] * 400)
    names = {f"bad{at}" for at in range(bad)}
    for name in [*sorted(names), "good"]:
        driver.join_slots(name, 4)
    had = run_to_its_end(driver, names, {"good"}, cause)
    assert (step.counters.succeeded, step.counters.failed) == (400, 0)
    trials = 12  # in the 250 s of it, each twice as long after the one before
    assert all(had[name] <= 5 + 4 + trials for name in names), had
    assert {event.kind for event in driver.tables.events} >= {"node_set_aside"}
    driver.tables.check()


def test_that_a_node_is_set_aside_is_told_everywhere() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 100)
    driver.join_slots("bad", 1)
    driver.join_slots("good", 5)
    while not step.nodes.standings.get(NodeId("bad")) or not step.nodes.standings[NodeId("bad")].asides:
        if not fail_all(driver, "bad"):
            succeed(driver, "good")
    node = driver.node("bad")
    assert node.state == NodeState.READY, "it may serve other steps"
    assert node.status_text(lambda step_id: False) == "Set aside for a step of another project."
    assert node.status_text(lambda step_id: True) == (
        "Set aside for step 'step' of job: 5 mini-batches in a row failed there, while other nodes do well. "
        "The last: exception: broken. It gets one mini-batch after 30 s."
    )
    (warning,) = driver.job().warnings
    assert warning.startswith("Step 'step': node bad was set aside: 5 mini-batches in a row failed there")
    (reason,) = driver.do(commands.ExplainJob("job"))
    assert [doubt.node_id for doubt in reason.doubts] == ["bad"] and "bad is set aside" in words_of(reason)
    while step.state == StepState.RUNNING:
        succeed(driver, "good")
    driver.finish_step()
    assert node.status_text(lambda step_id: True) == ""


def test_what_failed_on_a_node_that_is_set_aside_is_charged_to_nobody() -> None:
    driver = CoreDriver()
    step = doubted(driver, 60)
    assert not driver.held("bad"), "the others are to show whether they fail there, too"
    failed = {attempt.mini_batch: attempt for attempt in driver.tables.attempts.values() if attempt.node_id == "bad"}
    assert len(failed) == 5 and {step.mini_batches.tries[at].failures[Budget.MAX_RETRIES] for at in failed} == {1}
    succeed(driver, "good")
    assert {lease.mini_batch for lease in driver.held("good")} == failed.keys()
    first, second, third, *rest = driver.held("good")
    driver.complete("good", *(completion(lease.lease_id) for lease in (first, second, third)))
    assert step.nodes.standings[NodeId("bad")].asides == 1
    assert [step.mini_batches.tries[lease.mini_batch].failures.total() for lease in rest] == [0, 0]
    rows = [driver.tables.attempts[failed[lease.mini_batch].lease_id] for lease in rest]
    assert {(row.state, row.cause, row.message) for row in rows} == {
        (AttemptState.ABANDONED, Cause.EXCEPTION, "broken")
    }
    driver.tick_alive(2, "bad", "good")
    driver.assert_reload_equals_live()
    for _ in range(3):  # all of their tries are left
        assert step.mini_batches.states[rest[0].mini_batch] == MiniBatchState.LEASED
        (lease,) = [at for name in ("good", "bad") for at in driver.held(name) if at.mini_batch == rest[0].mini_batch]
        driver.fail(lease.node_id, lease, Cause.EXCEPTION)
        driver.tick_alive(31, "bad", "good")
    assert step.mini_batches.states[rest[0].mini_batch] == MiniBatchState.FAILED


def test_it_is_tried_with_one_mini_batch_and_comes_back_when_that_succeeds() -> None:
    driver = CoreDriver()
    step = set_aside(driver, 300, max_retries=0)
    lost, standing = step.counters.failed, step.nodes.standings[NodeId("bad")]
    driver.tick_alive(29, "bad", "good")
    assert not driver.held("bad")
    driver.tick_alive(2, "bad", "good")
    assert fail_all(driver, "bad") == 1
    assert (standing.asides, step.counters.failed) == (2, lost), "the trial is charged to nobody"
    driver.tick_alive(59, "bad", "good")
    assert not driver.held("bad"), "twice as long"
    driver.tick_alive(2, "bad", "good")
    (trial,) = driver.held("bad")
    driver.complete("bad", completion(trial.lease_id))
    assert len(driver.held("bad")) == 5 and driver.node("bad").status_text(lambda step_id: True) == ""
    driver.assert_reload_equals_live()


def test_one_that_comes_back_under_its_name_is_tried_at_once() -> None:
    driver = CoreDriver()
    set_aside(driver)
    assert driver.node("bad").status_text(lambda step_id: True)
    driver.register("bad", "b", "a")
    driver.open("bad", "b")
    driver.capacity("bad", 5, 5)
    assert len(driver.held("bad")) == 1


def test_the_last_node_left_is_not_set_aside() -> None:
    driver = CoreDriver()
    set_aside(driver, max_retries=9)
    driver.do(commands.CordonNode(NodeId("good"), True))
    driver.tick_alive(0.5, "bad", "good")
    assert len(driver.held("bad")) == 5 and driver.node("bad").status_text(lambda step_id: True) == ""
    assert "node_taken_back" in {event.kind for event in driver.tables.events}


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_a_script_that_fails_everywhere_sets_nobody_aside(nodes: int, max_retries: int) -> None:
    driver = CoreDriver()
    step = driver.running([1] * 100, max_retries=max_retries)
    names = {f"n{at}" for at in range(nodes)}
    for name in sorted(names):
        driver.join_slots(name, 4)
    had = run_to_its_end(driver, names, set())
    assert step.state == StepState.FAILED and step.counters.failed == 100
    assert "node_set_aside" not in {event.kind for event in driver.tables.events}
    assert sum(had.values()) == 100 * (max_retries + 1), "tries are counted as ever"


def test_a_run_of_bad_mini_batches_on_one_node_is_not_its_fault() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 100)
    driver.join_slots("n1", 10)
    driver.join_slots("n2", 10)
    bad = {lease.mini_batch for lease in driver.held("n1")}
    while step.state == StepState.RUNNING:
        for name in ("n2", "n1"):
            held = driver.held(name)
            both = name == "n2" and bad <= {lease.mini_batch for lease in held}
            driver.complete(
                name, *(completion(at.lease_id, Cause.EXCEPTION if at.mini_batch in bad else 0) for at in held)
            )
            assert not both or not step.nodes.doubted, "they fail on the other, too"
        driver.tick_alive(0.25, "n1", "n2")
    assert (step.counters.failed, step.counters.succeeded) == (10, 90)
    assert "node_set_aside" not in {event.kind for event in driver.tables.events}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_nodes_that_fail_alike_by_chance_are_not_set_aside(share: float, seed: int) -> None:
    chance = Random(seed)
    driver = CoreDriver()
    step = driver.running([1] * 300, max_retries=50)
    names = ("n1", "n2", "n3", "n4")
    for name in names:
        driver.join_slots(name, 3)
    for _ in range(2000):
        if step.state != StepState.RUNNING:
            break
        for name in names:
            results = [
                completion(lease.lease_id, Cause.EXCEPTION if chance.random() < share else 0)
                for lease in driver.held(name)
            ]
            driver.complete(name, *results)
        driver.tick_alive(0.25, *names)
    assert step.counters.succeeded == 300
    assert "node_set_aside" not in {event.kind for event in driver.tables.events}


def test_what_a_doubted_node_has_not_begun_is_asked_back() -> None:
    driver = CoreDriver()
    driver.running([1] * 100)
    driver.join("bad", 20)
    driver.join_slots("good", 5)
    held = driver.held("bad")
    driver.complete("bad", *(completion(at.lease_id, Cause.EXCEPTION) for at in held[:5]))
    (recall,) = [at for at in driver.sent(fx.RecallLeases) if at.node_id == "bad"]
    assert recall.leases_max == 15


def test_a_bound_on_the_number_of_nodes_lets_another_in_for_one_that_is_set_aside() -> None:
    driver = CoreDriver()
    step = driver.running([1] * 100, instance_count=2)
    for name in ("n1", "n2", "n3"):
        driver.join_slots(name, 5)
    bad, good = [name for name in ("n1", "n2", "n3") if driver.held(name)]
    fail_all(driver, bad)
    succeed(driver, good)
    succeed(driver, good)
    assert driver.node(bad).status_text(lambda step_id: True)
    driver.tick_alive(0.5, "n1", "n2", "n3")
    assert bad not in step.nodes.chosen and len(step.nodes.chosen) == 2


def test_a_budget_whose_charges_are_all_taken_back_is_as_it_is_after_a_restart() -> None:
    driver = CoreDriver()
    set_aside(driver)
    discharged = [tries for tries in driver.step().mini_batches.tries.values() if not tries.lease_ids]
    assert discharged and not any(tries.failures for tries in discharged)
    assert all(0 not in tries.failures.values() for tries in driver.step().mini_batches.tries.values())
