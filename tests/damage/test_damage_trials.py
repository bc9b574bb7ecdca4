"""A few damage trials with every run of the tests; thousands by hand: `make damage-trials`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from damage_trials import trials

SEED = int(os.environ.get("WINDROW_DAMAGE_SEED") or random.SystemRandom().randrange(1 << 32))
"""Given, the same trials again."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["files", "pipeline", "since"])
def test_no_damage_of_the_database_makes_another_output(tmp_path: Path, kind: str) -> None:
    for trial in trials(tmp_path, [kind], range(4), SEED, "windrow.db*"):
        assert trial.passed, f"WINDROW_DAMAGE_SEED={SEED}: {trial}\n{trial.words}"
