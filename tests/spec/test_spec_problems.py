"""What a job file's problems look like when they are told."""

from __future__ import annotations

from windrow.spec.reading.problems import Problem, grouped


def test_what_is_said_of_many_steps_is_said_once() -> None:
    same = [Problem("job.yml", 7 + at, 3, f"jobs.s{at}.environment", "it has no effect") for at in range(60)]
    other = Problem("job.yml", 1, 1, "tags", "they are not kept")
    assert grouped([same[0], other, *same[1:]]) == [
        "job.yml:7:3: jobs.s0.environment: it has no effect (So at 59 more places.)",
        "job.yml:1:1: tags: they are not kept",
    ]
    assert grouped([]) == []
