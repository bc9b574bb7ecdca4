"""A test of the test: each planted fault is found within 200 seeds, by a rule that is there for it."""

from __future__ import annotations

import re
from random import Random

import pytest
import sim_checkers
from sim_config import draw_storm
from sim_faults import FAULTS
from sim_planting import Broken
from sim_run import Simulation, SimulationFailed, config_of

SEEDS = 200
FOUND_BY = {
    "a_gpu_is_overfilled": 29,
    "a_lower_limit_takes_nothing_away": 4,
    "a_project_starves": 9,
    "a_worker_takes_one_processor": 8,
    "all_are_split_at_once": 48,
    "bound_of_a_step_passed": 8,
    "cancelled_at_once": 5,
    "cancelled_job_takes_rows": 21,
    "checksums_not_looked_at": 4,
    "counters_left_behind": 29,
    "deadlines_of_nodes_forgotten": 7,
    "everybody_would_get_a_worker": 18,
    "failed_items_begin_at_the_first": 44,
    "first_come_first_served": 44,
    "large_ones_never_have_their_turn": 14,
    "large_ones_wait_until_there_is_room": 831,
    "late_result_counts_too": 53,
    "free_places_admit_nobody": 75,
    "lost_assignment_never_noticed": 43,
    "lost_node_not_stored": 11,
    "no_fence_on_commit": 33,
    "no_generation_check": 5204,
    "nobody_is_doubted": 47,
    "nothing_is_recalled": 102,
    "only_deaths_are_split": 85,
    "pause_not_made_up_for": 7,
    "pieces_are_never_given_up": 35,
    "places_change_hands_at_once": 9,
    "planner_group_applied_twice": 36,
    "priorities_are_forgotten": 101,
    "quotas_are_forgotten": 113,
    "removed_node_stays": 19,
    "requeued_but_not_dropped": 4,
    "restart_forgets_tries": 8,
    "retries_are_not_charged_to_the_rate": 292,
    "retries_go_anywhere": 8,
    "segment_reused": 33,
    "set_aside_for_ever": 5,
    "silent_node_kept_for_ever": 70,
    "step_ends_only_where_this_stream_offered_it": 33,
    "stream_outlives_its_incarnation": 39,
    "success_not_taken_back": 33,
    "the_oldest_job_takes_all": 1,
    "two_completions_both_accepted": 50,
    "views_compared_without_count": 590,
    "weights_are_forgotten": 9,
    "what_is_held_is_never_released": 111,
}
"""Where looking begins: a small world that finds it, or 0. When the core changes, they move."""


NOT_EVERY_JOB_ENDED = 13
PATIENCE = 0.2
"""Nobody waits for long for what a fault keeps from ending: the same world without the fault ends in that time."""


def a_world(name: str, seed: int) -> Simulation:
    """A world in which a fault may show."""
    config = draw_storm(Random(seed)) if FAULTS[name].storm else config_of(seed)
    config.patience = PATIENCE
    return Simulation(seed, config)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first, others = FOUND_BY.get(name, 0), set[str]()
    for seed in range(first, first + SEEDS):
        try:
            with FAULTS[name].plant():
                a_world(name, seed).play()
        except SimulationFailed as failed:
            found = failed.__cause__
            if isinstance(found, Broken) and found.rule in FAULTS[name].rules:
                if found.rule == NOT_EVERY_JOB_ENDED:
                    a_world(name, seed).play()
                return
            others.add(f"{type(found).__name__}: {found}")
    told = f" (but this is raised: {min(others)})" if others else ""
    pytest.fail(f"none of {SEEDS} seeds from {first} on finds {name!r}: a checker or the chaos has gone blind{told}")


def test_each_rule_finds_a_planted_fault() -> None:
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", sim_checkers.__doc__ or "", re.MULTILINE)}
    assert rules == set(range(1, len(rules) + 1)) == {rule for fault in FAULTS.values() for rule in fault.rules}


def test_a_failing_seed_says_how_to_see_it_again() -> None:
    with pytest.raises(SimulationFailed) as failed, FAULTS["ack_before_commit"].plant():
        Simulation(0).play()
    story = str(failed.value)
    assert "rule 7" in story and "python tests/simulation/run.py --first 0 --seeds 1 --trace" in story
    assert "master starts" in story
