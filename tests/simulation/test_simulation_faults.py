"""A test of the test: each planted fault is found within 200 seeds, by a rule that is there for it."""

from __future__ import annotations

import re

import pytest
import sim_checkers
from sim_faults import FAULTS
from sim_planting import Broken
from sim_run import Simulation, SimulationFailed

SEEDS = 200
FOUND_BY = {
    "late_result_counts_too": 23,
    "no_fence_on_commit": 40,
    "no_generation_check": 5080,
    "nobody_is_doubted": 47,
    "nothing_is_recalled": 42,
    "segment_reused": 60,
    "two_completions_both_accepted": 50,
    "views_compared_without_count": 356,
}
"""Where looking begins, for those that few seeds find. When the core changes they move, and nothing breaks."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first, others = FOUND_BY.get(name, 0), set[str]()
    for seed in range(first, first + SEEDS):
        try:
            with FAULTS[name].plant():
                Simulation(seed).play()
        except SimulationFailed as failed:
            found = failed.__cause__
            if isinstance(found, Broken) and found.rule in FAULTS[name].rules:
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
