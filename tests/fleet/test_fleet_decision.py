"""What a fleet asks for and gives up: single decisions, and a simulated engine over hours of simulated time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from fleet_simulation import Cluster, Engine, Program, idle_until_empty, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from windrow.fleet.decision import JOIN_S, UNWANTED_S, Circumstances, Decision, Held, decide
from windrow.fleet.demand import Agents, Demand
from windrow.fleet.memory import (
    FAILED_MAX,
    PAUSE_MAX_S,
    Memory,
    joined,
    never_joined,
    resumed,
    submission_failed,
    submitted,
)
from windrow.fleet.names import new_name
from windrow.fleet.provider import Shape, State
from windrow.fleet.settings import GroupSettings

PREFIX = "f-g-abcdef-"


def group(name: str = "g", slots: float = 4, *, least: int = 0, most: int = 100, **more: object) -> GroupSettings:
    made = {"submissions_per_minute": 1000, "submissions_at_once": 1000, **more}
    return GroupSettings(name, "process", Shape(slots), least, most, **made)  # type: ignore[arg-type]


def demand(ready: int, each_s: float = 0.0, **more: object) -> Demand:
    """So many mini-batches that take so long; 0: nobody knows how long."""
    made = {"ready": ready, "ready_seconds": ready * each_s, "workers_max": 10**6, **more}
    return Demand(**({"ready_unmeasured": 0 if each_s else ready} | made))  # type: ignore[arg-type]


def decided(
    groups: Sequence[GroupSettings],
    demands: Sequence[Demand],
    held: Sequence[Held] = (),
    others: Sequence[Agents] = (),
    now: float = 0.0,
    memory: Memory = Memory(),  # noqa: B008
    **circumstances: object,
) -> list[Decision]:
    around = Circumstances(**circumstances)  # type: ignore[arg-type]
    found = decide(groups, demands, held, others, {one.name: memory for one in groups}, now, around)
    return [found[one.name] for one in groups]


def alive(number: int, group: str = "g", **more: object) -> list[Held]:
    made = {"state": "started", "engine_id": "1", "has_joined": True, "is_alive": True, **more}
    return [Held(f"{PREFIX}x{index:010}", group, **made) for index in range(number)]  # type: ignore[arg-type]


def queued(number: int, group: str = "g") -> list[Held]:
    return [Held(f"{PREFIX}x1{index:09}", group, "queued", f"{index}") for index in range(number)]


def test_so_many_agents_that_what_is_ready_would_have_run_after_two_minutes() -> None:
    (one,) = decided([group()], [demand(100, 60.0)])
    assert (one.wanted, one.begin) == (math.ceil(6000 / (4 * 120)), 13)
    (one,) = decided([group()], [demand(100, 60.0)], [*alive(5), *queued(3)])
    assert (one.wanted, one.begin, one.reason) == (13, 5, "")


def test_one_probe_while_nobody_knows_how_long_a_mini_batch_takes() -> None:
    for unknown in (demand(1000), demand(0, unknown_steps=3)):
        assert [one.begin for one in decided([group()], [unknown])] == [1]
        assert [one.begin for one in decided([group()], [unknown], queued(1))] == [0]


def test_no_more_agents_than_mini_batches_and_limits_give_workers() -> None:
    assert decided([group()], [demand(3, 10_000.0)])[0].begin == 1
    assert decided([group()], [demand(1000, 1000.0, workers_max=10)])[0].begin == 3
    assert decided([group()], [demand(1000, 1000.0, workers_max=0)])[0].begin == 0


def test_long_mini_batches_that_run_leave_no_agent_for_what_waits() -> None:
    waiting = demand(4, 60.0, leased=4, longest_seconds=3600.0)
    assert decided([group()], [waiting], alive(1, is_busy=True))[0].begin == 1
    assert decided([group()], [waiting._replace(longest_seconds=60.0)], alive(1, is_busy=True))[0].begin == 0


def test_what_one_worker_needs_decides_how_many_an_agent_has() -> None:
    shape = Shape(8, 32 * 10**9, 2)
    made = group()._replace(shape=shape)
    for worker, each in ((Shape(2.0), 4), (Shape(1.0, 16 * 10**9), 2), (Shape(1.0, 0, 1), 2), (Shape(8, 0, 2), 1)):
        (one,) = decided([made], [demand(100, 120.0, worker=worker)])
        assert one.begin == math.ceil(100 / each), worker
    (one,) = decided([made], [demand(100, 120.0, worker=Shape(0.5, 0, 1), gpu_share=0.3)])
    assert one.begin == math.ceil(100 / 6), "three share one of the two GPUs"


def test_a_need_that_no_agent_meets_asks_for_nothing_and_the_reason_says_so_in_numbers() -> None:
    made = group()._replace(shape=Shape(4, 8 * 10**9))
    (one,) = decided([made], [demand(10, 60.0, worker=Shape(16.0, 64 * 10**9))])
    assert one.begin == one.wanted == 0
    assert one.reason == (
        "Steps need 16 processors, 64.0 GB of memory for a worker, and an agent has 4 processors, 8.0 GB of memory."
    )
    (one,) = decided([group(lifetime_s=600.0)], [demand(10, 60.0, longest_seconds=7200.0)])
    assert (one.begin, one.reason) == (0, "Mini-batches take up to 2 h, and an agent lives 10 min.")


def test_a_demand_without_a_pool_goes_to_the_cheapest_then_to_the_first_and_overflows() -> None:
    groups = [
        group("dear", pool="a", price_per_hour=2.0),
        group("first", pool="b", price_per_hour=1.0, most=10),
        group("second", pool="c", price_per_hour=1.0),
    ]
    assert [one.begin for one in decided(groups, [demand(400, 12.0)])] == [0, 10, 0]
    assert [one.begin for one in decided(groups, [demand(800, 12.0)])] == [0, 10, 10]
    assert [one.begin for one in decided(groups, [demand(40, 12.0, pool="a")])] == [1, 0, 0]


def test_a_price_is_that_of_a_worker() -> None:
    groups = [group("small", 1, price_per_hour=1.0), group("large", 16, price_per_hour=8.0)]
    assert [one.begin for one in decided(groups, [demand(160, 120.0)])] == [0, 10]


def test_what_few_groups_can_meet_gets_their_agents_first() -> None:
    groups = [group("any", most=1), group("gpu", pool="gpu", most=1)._replace(shape=Shape(4, 0, 1))]
    both = [demand(4, 120.0), demand(4, 120.0, worker=Shape(1.0, 0, 1))]
    assert [one.begin for one in decided(groups, both)] == [1, 1]


def test_other_agents_of_the_pool_count() -> None:
    others = [Agents("", "p", Shape(4), 3)]
    assert decided([group(pool="p")], [demand(100, 24.0, pool="p")], others=others)[0].begin == 2
    assert decided([group(pool="q")], [demand(100, 24.0, pool="q")], others=others)[0].begin == 5
    assert decided([group(pool="p")], [demand(100, 24.0, pool="p")], others=[Agents("", "", Shape(4), 3)])[0].begin == 2


def test_min_nodes_is_met_at_once() -> None:
    assert decided([group()], [demand(100, 1.0, min_nodes=5)])[0].begin == 5
    assert decided([group()], [demand(100, 1.0, min_nodes=5)], alive(3))[0].begin == 2


def test_min_agents_stay_and_are_asked_for_without_demand() -> None:
    (one,) = decided([group(least=3)], [])
    assert (one.wanted, one.begin, one.begin_staying) == (3, 0, 3)
    # Those that leave when they are idle are not among them.
    (one,) = decided([group(least=3)], [], alive(3))
    assert one.begin_staying == 3


def test_what_leaves_takes_room_and_no_work() -> None:
    (one,) = decided([group(most=4)], [demand(1000, 60.0)], alive(2, is_leaving=True))
    assert one.begin == 2


def test_max_is_never_passed_and_the_reason_says_how_many_more_would_be_of_use() -> None:
    (one,) = decided([group(most=4)], [demand(100, 60.0)], [*alive(1), *queued(1)])
    assert (one.wanted, one.begin) == (4, 2)
    assert one.reason == "It may have 4 at most; 9 more would be of use."


def test_submissions_are_limited_by_the_minute_and_at_once() -> None:
    limited = group(submissions_per_minute=5, submissions_at_once=3)
    (one,) = decided([limited], [demand(1000, 60.0)])
    assert one.begin == 3
    assert "97 submissions will follow: they are limited to 5 a minute, 3 at once." in one.reason
    begun = [Held(f"{PREFIX}x{index:010}", "g") for index in range(2)]
    assert decided([limited], [demand(1000, 60.0)], begun)[0].begin == 1
    busy = Memory(recent=(10.0, 20.0, 30.0, 40.0))
    assert decided([limited], [demand(1000, 60.0)], memory=busy, now=50.0)[0].begin == 1
    assert decided([limited], [demand(1000, 60.0)], memory=busy, now=95.0)[0].begin == 3


def test_a_budget_of_the_day_ends_asking() -> None:
    priced = group(price_per_hour=1.0, budget_per_day=50.0)
    (one,) = decided([priced], [demand(100, 60.0)], spent={"g": 50.5})
    assert (one.begin, one.wanted) == (0, 13)
    assert one.reason == "The budget of the day (UTC) is used up: 50.50 of 50.00."
    assert decided([priced], [demand(100, 60.0)], spent={"g": 50.0})[0].begin == 0
    assert decided([priced], [demand(100, 60.0)], spent={"g": 49.0})[0].begin == 13


@pytest.mark.parametrize(
    ("least", "wants", "joined_ones", "wanted"),
    [
        (1, demand(1, workers_max=1), 0, 1),
        (1, demand(100, 60.0), 0, 13),
        (3, demand(1, workers_max=1), 0, 3),
        (3, demand(1, workers_max=1), 1, 3),
        (2, demand(1, workers_max=1, min_nodes=4), 0, 4),
        (2, demand(1, workers_max=1, min_nodes=4), 2, 4),
    ],
)
@pytest.mark.parametrize("memory", [Memory(pauses=1, paused_until=60.0, unjoined=3), Memory(pauses=1)])
def test_agents_that_are_always_wanted_are_no_further_ones_while_a_group_is_held_back(
    memory: Memory, least: int, wants: Demand, joined_ones: int, wanted: int
) -> None:
    there = [one._replace(name=new_name(PREFIX, stays=True)) for one in alive(joined_ones)]
    (one,) = decided([group(least=least)], [wants], there, memory=memory)
    assert one.wanted == wanted


def test_what_a_step_needs_to_begin_is_not_cancelled_although_it_has_little_to_do() -> None:
    memory, wants = Memory(), [demand(1, workers_max=1, min_nodes=4)]
    for now in (0.0, UNWANTED_S, 2 * UNWANTED_S):
        (one,) = decided([group()], wants, queued(5), now=now, memory=memory)
        memory = one.memory
        assert one.wanted == 4
        assert len(one.cancel) == (1 if now == UNWANTED_S else 0)


def test_a_pause_says_how_often_and_how_long_before_the_log_of_an_agent() -> None:
    memory = Memory(unjoined=3, pauses=1, paused_until=60.0, why="exit code 1\nits log")
    (one,) = decided([group()], [demand(1)], memory=memory)
    assert one.reason == "exit code 1 (3 agents in a row never joined; it tries again after 1 min)\nits log"


def test_a_pause_by_a_person_names_them() -> None:
    (one,) = decided([group(least=2)], [demand(100, 60.0)], paused_by="ann")
    assert (one.begin, one.begin_staying, one.reason) == (0, 0, "Paused by ann: windrow fleet resume")
    (one,) = decided([group(least=2)], [demand(100, 60.0)], paused_by="")
    assert (one.begin, one.begin_staying, one.reason) == (0, 0, "Paused: windrow fleet resume")


def test_queued_ones_that_nobody_wants_for_a_minute_are_cancelled_the_newest_first() -> None:
    held = [*alive(2, is_busy=True), *queued(4)]
    memory = Memory()
    for now, work in ((0.0, 0), (30.0, 16), (59.0, 0)):
        # 16 seconds are one agent's: the surplus is never below 4.
        (one,) = decided([group()], [demand(work, 60.0)] if work else [], held, now=now, memory=memory)
        assert one.cancel == ()
        memory = one.memory
    (one,) = decided([group()], [], held, now=UNWANTED_S, memory=memory)
    assert one.cancel == tuple(held.name for held in reversed(queued(4)))


def test_what_is_wanted_again_within_the_minute_stays() -> None:
    held = queued(4)
    (one,) = decided([group()], [], held, now=0.0)
    (one,) = decided([group()], [demand(100, 60.0)], held, now=50.0, memory=one.memory)
    (one,) = decided([group()], [], held, now=70.0, memory=one.memory)
    assert one.cancel == ()


def test_all_that_has_not_ended_counts_towards_max_whatever_the_engine_has_said_of_it() -> None:
    begun = Held(f"{PREFIX}x1", "g")
    adopted = Held(f"{PREFIX}x2", "g", "started", "7")
    overdue = adopted._replace(name=f"{PREFIX}x3", unjoined_since=0.0)
    held = [begun, adopted, overdue]
    assert decided([group(most=3)], [demand(100, 60.0)], held, now=JOIN_S)[0].begin == 0
    assert decided([group(most=4)], [demand(100, 60.0)], held, now=JOIN_S)[0].begin == 1


def test_agents_that_stay_and_those_that_leave_share_max_and_limits() -> None:
    (one,) = decided([group(least=2, most=5)], [demand(100, 60.0)])
    assert (one.begin, one.begin_staying) == (3, 2)
    # Those that stay do the work as well.
    (one,) = decided([group(least=2)], [demand(12, 120.0)])
    assert (one.begin, one.begin_staying) == (1, 2)
    (one,) = decided([group(least=2, submissions_at_once=3)], [demand(100, 60.0)])
    assert (one.begin, one.begin_staying) == (1, 2)
    # One that has joined was taken by the engine, even if nobody has heard that it was.
    joined_since = alive(3, state="begun", engine_id="")
    assert decided([group(submissions_at_once=3)], [demand(100, 60.0)], joined_since)[0].begin == 3


def test_an_engine_that_is_silent_is_asked_for_nothing() -> None:
    (one,) = decided([group(least=1)], [demand(100, 60.0)], silent={"g": "timed out"})
    assert (one.begin, one.begin_staying) == (0, 0)
    assert one.reason == "The engine does not answer: timed out"


def test_a_reason_names_what_stands_in_the_way_and_not_max_that_does_not() -> None:
    (one,) = decided([group(most=1)], [demand(100, 60.0)], alive(1), silent={"g": "timed out"})
    assert one.reason == "The engine does not answer: timed out"
    started = [one._replace(reason="COMPLETING") for one in alive(1)]
    assert decided([group()], [], started)[0].reason == ""


STAYING = "f-g-abcdef-s"


def test_a_staying_agent_that_leaves_or_does_not_join_is_replaced() -> None:
    (there,) = alive(1)
    there = there._replace(name=f"{STAYING}1")
    assert decided([group(least=1)], [], [there])[0].begin_staying == 0
    assert decided([group(least=1)], [], [there._replace(is_leaving=True)])[0].begin_staying == 1
    stuck = Held(f"{STAYING}2", "g", "started", "7", unjoined_since=0.0)
    assert decided([group(least=1)], [], [stuck], now=JOIN_S - 1)[0].begin_staying == 0
    assert decided([group(least=1)], [], [stuck], now=JOIN_S)[0].begin_staying == 1


def cancelled(
    held: Sequence[Held], made: GroupSettings, *demands: Demand, then: Sequence[Held] | None = None
) -> tuple[str, ...]:
    """What is cancelled of `held` when it, and `then` what has become of it, was there for a minute."""
    (first,) = decided([made], demands, held, now=0.0)
    assert first.cancel == ()
    return decided([made], demands, held if then is None else then, now=UNWANTED_S, memory=first.memory)[0].cancel


def test_only_what_waits_is_cancelled_never_what_was_started_or_works() -> None:
    of_all_kinds = [
        *alive(1, is_busy=True),
        Held(f"{PREFIX}x21", "g"),
        Held(f"{PREFIX}x22", "g", "started", "7"),
        # Its agent was there before the engine said that it has started.
        Held(f"{PREFIX}x23", "g", "queued", "8", has_joined=True, is_alive=True, is_busy=True),
    ]
    assert cancelled(of_all_kinds, group()) == ()
    (waits,) = queued(1)
    assert cancelled([*of_all_kinds, waits], group()) == (waits.name,)


def test_so_many_are_cancelled_as_are_too_many_and_no_more() -> None:
    held = queued(4)
    newest = tuple(one.name for one in reversed(held))
    one_of_use = demand(4, 120.0)
    assert cancelled(held, group(), one_of_use) == newest[:3]
    assert cancelled(held, group(least=2)) == newest[:2]
    # What leaves does no work: what waits takes its place.
    assert cancelled([*alive(1, is_leaving=True), *queued(1)], group(), one_of_use) == ()
    # It was never more than this for the whole minute.
    assert cancelled(queued(2), group(), then=held) == newest[:2]


def test_a_surplus_that_was_cancelled_is_not_counted_again() -> None:
    held = queued(2)
    memory = Memory(surplus_since=0.0, surplus_least=1)
    (one,) = decided([group()], [], held, now=UNWANTED_S, memory=memory)
    assert len(one.cancel) == 1
    # Another one comes at once in its place.
    (one,) = decided([group()], [], held, now=UNWANTED_S + 1, memory=one.memory)
    assert one.cancel == ()
    (one,) = decided([group()], [], queued(5), now=2 * UNWANTED_S, memory=one.memory)
    assert len(one.cancel) == 1, "one has been too many for a minute since, the others have not"


def test_of_queued_ones_that_stay_those_above_min_are_cancelled_after_the_others() -> None:
    stay = [Held(f"{STAYING}{number}", "g", "queued", str(number)) for number in range(3)]
    assert cancelled(stay, group(least=3)) == ()
    assert cancelled(stay, group(least=1)) == (stay[2].name, stay[1].name)
    (other,) = queued(1)
    assert cancelled([other, *stay], group(least=2)) == (other.name, stay[2].name)
    # Agents that leave when they are idle do not stand in for those.
    assert cancelled([*alive(2), *stay[:2]], group(least=2)) == ()


def test_ten_failed_submissions_pause_and_each_further_one_pauses_longer() -> None:
    memory, now = Memory(), 0.0
    for _ in range(FAILED_MAX - 1):
        memory = submission_failed(memory, now, "no such partition")
    assert not memory.is_paused(now)
    pauses = []
    for _ in range(8):
        memory = submission_failed(memory, now, "no such partition")
        pauses.append(memory.paused_until - now)
        # What was under way when the pause began makes it no longer.
        assert submission_failed(memory, now, "late").paused_until == memory.paused_until
        (one,) = decided([group()], [demand(100, 60.0)], now=now, memory=memory)
        assert one.begin == 0
        assert one.reason.startswith("no such partition (1")
        now = memory.paused_until
        assert decided([group()], [demand(100, 60.0)], now=now, memory=memory)[0].begin == 1, "one, to see"
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, *[PAUSE_MAX_S] * 3]
    assert decided([group()], [demand(100, 60.0)], memory=resumed(memory))[0].begin == 13
    assert decided([group()], [demand(100, 60.0)], now=now, memory=submitted(memory))[0].begin == 13


def test_three_agents_that_never_joined_pause_until_one_joins() -> None:
    memory = Memory()
    for _ in range(3):
        memory = submitted(never_joined(memory, 0.0, "no route to host"))
    (one,) = decided([group()], [demand(100, 60.0)], now=1.0, memory=memory)
    assert (one.begin, one.reason) == (
        0,
        "no route to host (3 agents in a row never joined; it tries again after 1 min)",
    )
    assert decided([group()], [demand(100, 60.0)], queued(1), now=60.0, memory=memory)[0].begin == 0
    assert decided([group()], [demand(100, 60.0)], alive(1), now=61.0, memory=joined(memory))[0].begin == 12


def test_an_agent_that_does_not_join_is_no_agent_and_is_named() -> None:
    stuck = [Held(f"{PREFIX}x1", "g", "started", "job 17", unjoined_since=0.0)]
    assert decided([group()], [demand(4, 60.0)], stuck, now=JOIN_S - 1)[0].begin == 0
    (one,) = decided([group()], [demand(4, 60.0)], stuck, now=JOIN_S)
    assert (one.begin, one.reason) == (1, "1 agent started and did not join (job 17).")


def test_after_a_pause_the_next_is_tried_once_the_last_can_no_longer_join() -> None:
    stuck = [Held(f"{PREFIX}x1", "g", "started", "job 17", unjoined_since=0.0)]
    after = Memory(pauses=1, paused_until=0.0)
    assert decided([group()], [demand(100, 60.0)], stuck, now=JOIN_S - 1, memory=after)[0].begin == 0
    assert decided([group()], [demand(100, 60.0)], stuck, now=JOIN_S, memory=after)[0].begin == 1


# Over time.


def cluster(queue_s: float = 10.0, *, least: int = 0, most: int = 50, room: int = 10**6) -> Cluster:
    return Cluster(group(least=least, most=most), Engine(queue_s=queue_s, room=room))


@given(queue_s=st.sampled_from([0.0, 5.0, 20.0, 45.0, 90.0, 300.0]), high=st.integers(200, 20_000))
@settings(max_examples=30, deadline=None)
def test_demand_that_swings_every_30_s_asks_for_little_more_than_is_ideal(queue_s: float, high: int) -> None:
    simulated = cluster(queue_s)
    master = simulated.master
    ideal = 0

    def swing(cluster: Cluster, program: Program) -> None:
        nonlocal ideal
        phase = int(cluster.now) % 60
        if phase == 0:
            master.work_s = float(high)
        elif phase == 30:
            master.work_s = 0.0
        ideal = max(ideal, min(50, math.ceil(master.work_s / (4 * 120))))

    program = run(simulated, 1800.0, swing)
    assert len(simulated.engine.asked) <= 1.5 * ideal
    assert simulated.most <= 50
    idle_until_empty(simulated, program)
    assert simulated.engine.live() == [] and simulated.master.rows == {}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("kill", "work", "no work", "preempt", "master down", "master up", "nobody joins", "all join"),
                *("engine down", "engine up", "engine loses answers", "refuses", "takes"),
            ]
        ),
        st.integers(0, 40),
    ),
    max_size=25,
)


@given(events=EVENTS, queue_s=st.sampled_from([0.0, 10.0, 100.0]), least=st.integers(0, 3))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_nothing_is_doubled_left_behind_or_above_max(
    events: list[tuple[str, int]], queue_s: float, least: int
) -> None:
    most = 6
    simulated = cluster(queue_s, least=least, most=most)
    engine, master = simulated.engine, simulated.master
    simulated.joins = lambda name: joining
    joining = True
    program = Program(simulated)
    steps = program.steps()

    def go(count: int) -> None:
        for _ in range(count):
            if next(steps) == "tick":
                simulated.tick()
            assert len(engine.live()) <= most
            assert len(master.rows) <= most

    for event, after in events:
        match event:
            case "kill":
                program = Program(simulated)
                steps = program.steps()
            case "work":
                master.work_s = 20_000.0
            case "no work":
                master.work_s = 0.0
            case "engine down" | "engine up":
                engine.down = event == "engine down"
            case "engine loses answers":
                engine.loses_answers = True
            case "preempt":
                if started := [job for job in engine.live() if job.state is State.STARTED]:
                    simulated.kill_agent(started[0].name)
            case "master down" | "master up":
                master.down = event == "master down"
            case "nobody joins" | "all join":
                joining = event == "all join"
            case "refuses" | "takes":
                engine.refuses = "no" if event == "refuses" else ""
        go(after)
    engine.down = engine.loses_answers = master.down = False
    engine.refuses, joining, master.work_s = "", True, 0.0
    program.memory = resumed(program.memory)
    go(4000)
    assert len(engine.asked) == len(set(engine.asked))
    stay = [job.name for job in engine.live()]
    assert sorted(stay) == sorted(master.rows), "what the engine has, the master has, and the other way round"
    assert len(stay) >= least
    # Only those stay that were to.
    assert all(name.rpartition("-")[2].startswith("s") for name in stay)


@pytest.mark.parametrize("down_s", [30.0, 600.0])
def test_an_engine_that_is_down_gets_nothing_twice_and_all_when_it_is_back(down_s: float) -> None:
    simulated = cluster()
    simulated.engine.down = True
    simulated.master.work_s = 50_000.0
    program = run(simulated, down_s)
    assert simulated.engine.asked == [] and program.decision is not None and program.decision.reason
    simulated.engine.down = False
    run(simulated, 120.0, program=program)
    assert len(simulated.engine.live()) == 50
