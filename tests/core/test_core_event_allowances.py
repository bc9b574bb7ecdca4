"""Events of nodes that come and go without end: bounded, and what is left out is counted."""

from __future__ import annotations

import random

from core_driver import CoreDriver
from windrow_master.core import event_allowances
from windrow_master.core.commands import UpdateJob
from windrow_master.core.event_allowances import EventAllowances
from windrow_master.core.ids import NodeId
from windrow_master.core.settings import StepSettings


def recorded(driver: CoreDriver, node_id: str = "n1") -> list[str]:
    return [event.message for event in driver.tables.events if event.message.startswith(node_id)]


def test_a_node_that_registers_again_and_again_leaves_few_events_and_says_how_many_were_left_out() -> None:
    driver = CoreDriver()
    incarnation = ""
    for number in range(1_000):
        replaced, incarnation = incarnation, f"i{number}"
        assert driver.register(incarnation=incarnation, replaced=replaced) is None
    found = recorded(driver)
    assert len(found) == event_allowances.ONE_BURST and not any("not recorded" in message for message in found)
    assert driver.register("n2") is None and recorded(driver, "n2") == ["n2"], "other nodes are told as always"
    driver.now_s += event_allowances.ONE_INTERVAL_S
    assert driver.register(incarnation="last", replaced=incarnation) is None
    left_out = 1_999 - event_allowances.ONE_BURST
    assert recorded(driver)[-1].endswith(f"(not recorded before it: {left_out:,} events of this node)")


def test_names_that_are_always_new_are_bounded_together() -> None:
    events = EventAllowances()
    told = sum(events.words(NodeId(f"n{number}"), "", 1.0) is not None for number in range(100_000))
    assert told == event_allowances.ALL_BURST
    later = 1.0 + 100 * event_allowances.ALL_INTERVAL_S
    told = sum(events.words(NodeId(f"m{number}"), "", later) is not None for number in range(100_000))
    assert told == 100


def test_nothing_is_lost_of_the_count_and_the_rate_holds_over_any_time() -> None:
    chance = random.Random(7)
    events, now_s, told, counted, times = EventAllowances(), 5.0, 0, 0, list[float]()
    for _ in range(5_000):
        now_s += chance.choice((0.0, 0.1, 3.0, 40.0, 400.0)) * chance.random()
        words = events.words(NodeId("n"), "m", now_s)
        if words is None:
            continue
        told += 1
        times.append(now_s)
        if "(" in words:
            counted += int(words.partition(": ")[2].partition(" ")[0].replace(",", ""))
    assert told > 100 and 5_000 - 500 <= told + counted <= 5_000
    for first in range(len(times)):
        for last in range(first, len(times), 37):
            span_s = times[last] - times[first]
            assert last - first + 1 <= event_allowances.ONE_BURST + 1 + span_s / event_allowances.ONE_INTERVAL_S


def test_a_job_that_is_changed_again_and_again_leaves_few_events_and_every_change_counts() -> None:
    driver = CoreDriver()
    for number in (1, 2):
        driver.submit(StepSettings("step"), job_id=f"j{number}", request_id=str(number))
    for number in range(1_000):
        assert driver.group(UpdateJob("j1", priority=number % 100)) == [1]
    assert driver.core.state.jobs[driver.core.state.job_keys["j1"]].priority == 99
    updates = [event for event in driver.tables.events if event.kind == "updated"]
    assert len(updates) == event_allowances.ONE_BURST
    driver.group(UpdateJob("j2", priority=1))
    assert [event.message for event in driver.tables.events][-1] == "priority 1", "other jobs are told as always"
    driver.now_s += event_allowances.ONE_INTERVAL_S
    driver.group(UpdateJob("j1", priority=7))
    left_out = 1_000 - event_allowances.ONE_BURST
    assert driver.tables.events[-1].message == f"priority 7 (not recorded before it: {left_out:,} events of this job)"
