"""Nodes: who is admitted, streams, silence, drains, quarantine, late ticks, losses."""

from __future__ import annotations

from core_driver import CoreDriver, completion
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.causes import Budget
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.refused import Refused
from windrow_master.core.states import AttemptState, Cause, MiniBatchState, NodeState, StepState, Verdict


def reason(reply: object) -> str:
    """The reason of a refusal."""
    assert isinstance(reply, Refused)
    return reply.reason


def test_a_nodes_way_through_its_states() -> None:
    driver = CoreDriver()
    assert driver.register() is None and driver.node().state == NodeState.DISCONNECTED
    assert driver.open() is None and driver.node().state == NodeState.READY
    driver.do(commands.CloseWork(NodeId("n1"), driver.node().stream))
    assert driver.node().state == NodeState.DISCONNECTED
    driver.tick(2)
    assert NodeId("n1") not in driver.core.state.nodes
    assert not driver.tables.nodes, "a fleet that comes and goes leaves no rows behind"
    assert reason(driver.beat_unknown()) == "NODE_UNKNOWN"
    assert driver.register() is None
    assert driver.tables.nodes["n1"].state == NodeState.DISCONNECTED


def test_a_live_other_incarnation_is_refused_until_it_is_lost_or_known_to_be_dead() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    assert reason(driver.register(incarnation="b")) == "NODE_ALREADY_LIVE"
    assert reason(driver.register(incarnation="b", replaced="z")) == "NODE_ALREADY_LIVE"
    assert driver.register(incarnation="a") is None and driver.node().stream, "the same again is harmless"
    assert driver.register(incarnation="b", replaced="a") is None
    assert driver.node().node_incarnation == "b" and not driver.held()
    assert driver.tables.nodes["n1"].node_incarnation == "b"
    assert driver.sent(fx.CloseStream)
    assert reason(driver.open(incarnation="a")) == "NODE_UNKNOWN"
    assert reason(driver.beat(incarnation="a")) == "NODE_UNKNOWN"
    driver.tick(5)
    assert driver.register(incarnation="c") is None


def test_a_step_that_ends_before_a_new_stream_is_offered_it_ends_on_that_node_all_the_same() -> None:
    driver = CoreDriver()
    driver.running([1])
    node = driver.join()
    driver.do(commands.CloseWork(NodeId("n1"), node.stream))
    driver.do(commands.PauseJob(JobKey(1), "held"))
    driver.open(steps=(StepId(1),))
    assert not driver.sent(fx.SendStep)
    driver.do(commands.CancelJob("job"))
    assert driver.sent(fx.EndStep) == [fx.EndStep(NodeId("n1"), node.stream, StepId(1), 1)]


def test_a_master_that_hears_of_nobody_gives_nobody_up_for_a_while() -> None:
    driver = CoreDriver()
    driver.running([1] * 4)
    driver.join("n1", leases_max=2)
    driver.join("n2", leases_max=2)
    driver.tick(29)
    assert len(driver.held("n1")) == len(driver.held("n2")) == 2
    driver.tick_alive(4, "n2")
    assert driver.node("n1").stream, "n2 is heard of again, and n1 has all its time left"
    driver.tick_alive(1, "n2")
    assert set(driver.core.state.nodes) == {"n2"}
    driver.join("n1")
    driver.tick(36)
    assert not driver.core.state.nodes, "not for ever"


def test_a_new_stream_ends_the_older_one_and_what_that_still_says_is_ignored() -> None:
    driver = CoreDriver()
    driver.running([1, 1])
    node = driver.join(leases_max=0)
    old = node.stream
    driver.open()
    assert driver.sent(fx.CloseStream) == [fx.CloseStream(NodeId("n1"), old)]
    driver.do(commands.SetCapacity(NodeId("n1"), old, ((StepId(1), 2, 1),)))
    driver.do(commands.CloseWork(NodeId("n1"), old))
    assert driver.node().state == NodeState.READY and not driver.held()


def test_what_a_hello_does_not_name_goes_back_to_the_queue() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1, 1])
    driver.join(leases_max=3)
    one, two, three = driver.held()
    driver.open(held=driver.as_held(two))
    assert driver.held() == [two]
    assert [step.mini_batches.states[at] for at in range(3)] == [0, 1, 0]
    driver.capacity("n1", 3)
    assert [(lease.mini_batch, lease.attempt) for lease in driver.held()] == [(0, 1), (1, 1), (2, 1)]
    assert step.counters.retries == 0, "an assignment that never arrived is no try"
    assert {one.lease_id, three.lease_id}.isdisjoint(driver.core.state.leases)


def test_a_silent_node_loses_its_leases_and_nobody_is_charged() -> None:
    driver = CoreDriver()
    step = driver.running([1, 1])
    driver.join(leases_max=1)
    driver.tick_alive(2, "n1")
    driver.capacity("n1", 2)
    old, young = driver.held()
    driver.tick(0.25)
    driver.now_s += 0.01
    for _ in range(15):
        driver.tick(0.25)
    assert driver.node().lease_ids, "4.5 s of silence cost nothing"
    driver.tick(0.5)
    assert not driver.core.state.nodes and not driver.core.state.leases
    tries = step.mini_batches.tries[old.mini_batch]
    assert tries.failures == {Budget.NODE_LOSSES: 1}
    assert driver.tables.attempts[old.lease_id].cause == Cause.NODE_LOST
    assert driver.tables.attempts[young.lease_id].cause == Cause.NODE_LOST
    driver.assert_reload_equals_live()


def test_leases_too_young_to_have_started_are_not_blamed_for_the_loss() -> None:
    driver = CoreDriver()
    step = driver.running([1])
    driver.join()
    driver.register(incarnation="b", replaced="a")
    assert 0 not in step.mini_batches.tries
    driver.open(incarnation="b")
    driver.capacity("n1", 1)
    assert driver.held()[0].attempt == 1


def lose_holder(driver: CoreDriver, number: int) -> None:
    """A node joins, takes the mini-batch, and is lost after it has had time to start it."""
    driver.join(f"n{number}")
    assert len(driver.held(f"n{number}")) == 1
    driver.tick_alive(1.5, f"n{number}")
    driver.tick(6)
    assert not driver.core.state.nodes


def test_after_three_node_losses_it_runs_alone_and_after_ten_it_is_given_up() -> None:
    driver = CoreDriver()
    step = driver.running([2])
    for number in range(1, 11):
        driver.join(f"n{number}")
        (lease,) = driver.held(f"n{number}")
        assert lease.exclusive == (number > 3) and lease.attempt == number
        driver.tick_alive(1.5, f"n{number}")
        driver.tick(6)
        if number in (2, 5):
            driver.assert_reload_equals_live()
    assert step.state == StepState.FAILED, "append_row has nothing"
    (told,) = driver.tables.item_outcomes[1, 0]
    assert (told.cause, told.item_count) == (Cause.NODE_KILLER, 2)
    assert driver.tables.mini_batches[1][0].state == MiniBatchState.FAILED


def test_a_late_tick_moves_every_deadline_by_the_gap() -> None:
    driver = CoreDriver()
    step = driver.running([1], progress_update_timeout_s=6)
    driver.join()
    driver.tick_alive(2, "n1")
    driver.now_s += 3600
    driver.do(commands.Tick())
    assert driver.held() and step.state == StepState.RUNNING
    driver.tick(3)
    assert driver.held(), "what was left of the time to live is left"
    driver.tick(2)
    assert not driver.core.state.nodes


def test_a_late_tick_moves_delays_too() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    driver.do(commands.Tick())
    driver.fail("n1", driver.held()[0], Cause.NODE_FAULT)
    driver.now_s += 100
    driver.do(commands.Tick())
    assert not driver.held()
    driver.tick_alive(2.5, "n1")
    assert driver.held()


def test_heartbeats_ask_for_a_new_stream_when_the_views_differ_and_stand_still() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    assert [driver.beat() for _ in range(6)] == [False] * 6
    assert [driver.beat(held=[5]) for _ in range(5)] == [False] * 4 + [True]
    assert [driver.beat(held=[digest]) for digest in (1, 2, 3, 4, 5, 6)] == [False] * 6


def test_a_lost_run_of_leases_is_missed_even_when_their_ids_cancel_out() -> None:
    driver = CoreDriver()
    driver.running([1] * 7)
    driver.join(leases_max=7)
    ids = [lease.lease_id for lease in driver.held()]
    assert ids[3] ^ ids[4] ^ ids[5] ^ ids[6] == 0
    assert [driver.beat(held=ids[:3]) for _ in range(5)] == [False] * 4 + [True]


def test_the_attempt_rows_of_leases_that_grow_old_are_written() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.join()
    (lease,) = driver.held()
    driver.tick_alive(0.75, "n1")
    assert not driver.tables.attempts
    driver.tick_alive(1, "n1")
    row = driver.tables.attempts[lease.lease_id]
    assert (row.state, row.node_id, row.node_incarnation) == (AttemptState.RUNNING, "n1", "a")


# Drains


def test_a_node_that_drains_gets_nothing_new_finishes_and_leaves() -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1])
    driver.join(leases_max=1)
    driver.do(commands.DrainNode(NodeId("n1")))
    assert driver.sent(fx.SendDrain)
    driver.capacity("n1", 5, draining=True)
    (lease,) = driver.held()
    assert driver.complete("n1", completion(lease.lease_id)) == {Verdict.ACCEPTED: [lease.lease_id]}
    assert not driver.held()
    driver.do(commands.CloseWork(NodeId("n1"), driver.node().stream))
    assert not driver.core.state.nodes
    assert driver.known("n1").message == "Left."
    driver.do(commands.DrainNode(NodeId("n1")))
    assert not driver.effects, "it has left already"
    assert reason(driver.do(commands.DrainNode(NodeId("n2")))) == "NODE_UNKNOWN"


def test_a_node_that_says_it_drains_is_told_when_nothing_more_comes() -> None:
    driver = CoreDriver()
    driver.running([1, 1, 1])
    driver.join(leases_max=1)
    assert not driver.sent(fx.SendDrain)
    driver.capacity("n1", 5, draining=True)
    assert driver.sent(fx.SendDrain), "its agent may leave only then: leases on their way would be lost with it"
    assert len(driver.held()) == 1
    driver.capacity("n1", 5, draining=True)
    assert not driver.sent(fx.SendDrain)


def test_a_node_that_left_by_itself_is_forgotten() -> None:
    driver = CoreDriver()
    driver.join(leases_max=1)
    driver.core.state.nodes[NodeId("n1")].draining = True
    driver.do(commands.CloseWork(NodeId("n1"), driver.node().stream))
    assert driver.known("n1") is None and not driver.tables.nodes


def test_a_request_to_drain_survives_a_broken_stream_and_a_restart() -> None:
    driver = CoreDriver()
    driver.running([1])
    driver.register()
    driver.do(commands.DrainNode(NodeId("n1")))
    assert not driver.sent(fx.SendDrain)
    driver.open()
    assert driver.sent(fx.SendDrain)
    driver.capacity("n1", 5)
    assert driver.node().state == NodeState.DRAINING and not driver.held()
    driver.restart()
    driver.register()
    driver.open()
    assert driver.sent(fx.SendDrain) and driver.node().state == NodeState.DRAINING


# Quarantine


def faults(driver: CoreDriver, name: str, times: int) -> None:
    """So many attempts of a node that meet a fault of its own."""
    for lease in driver.held(name)[:times]:
        driver.fail(name, lease, Cause.NODE_FAULT)


def test_a_node_whose_attempts_meet_its_own_faults_is_quarantined_also_alone() -> None:
    driver = CoreDriver()
    driver.running([1] * 60)
    driver.join("n1", 20)
    faults(driver, "n1", 9)
    driver.complete("n1", completion(driver.held()[0].lease_id))
    faults(driver, "n1", 9)
    assert driver.node("n1").state == NodeState.READY, "a success between them"
    faults(driver, "n1", 1)
    assert driver.node("n1").state == NodeState.QUARANTINED
    known, unknown = (driver.node("n1").status_text(lambda step_id, sees=sees: sees) for sees in (True, False))
    assert known.startswith("10 attempts in a row failed because of this node. The last: node_fault")
    assert unknown == "10 attempts in a row failed because of this node."
    (event,) = (event for event in driver.tables.events if event.kind == "node_quarantined")
    assert event.message == f"n1: {unknown}", "the logs of all jobs have it"
    before = {lease.lease_id for lease in driver.held("n1")}
    (recalled,) = driver.sent(fx.RecallLeases)
    assert (recalled.node_id, recalled.leases_max) == ("n1", len(before))
    driver.capacity("n1", 60)
    assert {lease.lease_id for lease in driver.held("n1")} <= before
    driver.open("n1", held=driver.as_held(*driver.held("n1")))
    assert driver.node("n1").state == NodeState.QUARANTINED, "a new stream is no way out"
    driver.tick_alive(31, "n1")
    assert driver.node("n1").state == NodeState.READY and driver.node("n1").message == ""
