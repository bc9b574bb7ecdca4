"""The clock of a machine is set a day forward and back while a job runs."""

from __future__ import annotations

import datetime
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import windrow
from moved_clock import DAY_S, MovedClock
from phased_job import ITEMS, PhasedJob, agent_of
from served_tls import SecureMaster, wait_until
from windrow.rpc.contexts import Access


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MovedClock:
    """That of all processes that the test starts."""
    clock = MovedClock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    return clock


def test_a_clock_that_jumps_by_a_day_changes_nothing_about_a_job(tmp_path: Path, clock: MovedClock) -> None:
    with SecureMaster(tmp_path).serving() as master, agent_of(master, tmp_path / "agent"):
        job = PhasedJob(master)
        with windrow.Client(access=master.access) as client:
            _, brief = client.tokens.create("brief", "view", expires=datetime.timedelta(hours=12))
            reader = windrow.Client(access=Access(master.address, master.ca, brief))
            job.submit(client)
            for phase, moved in enumerate((DAY_S, -DAY_S, 0)):
                job.begin(phase)
                job.wait_for(phase, client)
                if moved > 0:
                    assert reader.get(job.job_id).job_id == job.job_id
                    watched = reader.progress(job.job_id)
                    next(watched)
                clock.set(moved)
                if moved > 0:
                    with pytest.raises(windrow.errors.RequestRefused, match="has expired"):
                        reader.get(job.job_id)
                    with pytest.raises(windrow.errors.RequestRefused, match="has expired"):
                        list(watched)
                else:
                    assert reader.get(job.job_id).job_id == job.job_id
            job.begin(3)
            assert client.wait(job.job_id).state == "completed"
        assert job.rows() == list(range(ITEMS))
        attempts = job.attempts()
        document = json.loads(job.command("job", "show", job.job_id, "--format", "json"))
        line = next(text for text in job.command("job", "list").splitlines() if job.job_id in text)
    assert Counter(int(attempt[1]) for attempt in attempts) == {1: ITEMS, 2: 1}, "one failed, and no lease was lost"
    (second,) = (attempt for attempt in attempts if attempt[1] == "2")
    assert second[10] == "RUN_DONE", "although it began, by the clock, two days before the one that failed"
    assert document["state"] == "completed"
    assert not re.search(r"\s-\d", line), "no time is negative"
    said = [line for line in map(json.loads, master.log().splitlines()) if "the clock of" in line["event"]]
    assert [round(line["by_seconds"] / DAY_S) for line in said] == [1, -2, 1], "each change is told once"
    assert "node lost" not in master.log()


@pytest.mark.parametrize("moved_s", [365 * DAY_S, -365 * DAY_S], ids=["forward", "back"])
def test_the_clock_of_an_agent_alone_matters_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved_s: int
) -> None:
    """A year, over a connection that is made before. Its certificates are those of a day when they were good."""
    clock = MovedClock(tmp_path)
    with SecureMaster(tmp_path).serving() as master, windrow.Client(access=master.access) as client:
        for name, value in clock.environment.items():
            monkeypatch.setenv(name, value)
        with agent_of(master, tmp_path / "agent"):
            job = PhasedJob(master)
            job.submit(client)
            for phase, moved in enumerate((moved_s, 0, moved_s)):
                job.begin(phase)
                job.wait_for(phase, client)
                clock.set(moved)
            wait_until(lambda: next(client.list_nodes()).silent_s is not None, "a heartbeat")
            (node,) = client.list_nodes()
            assert node.state == "ready" and 0 <= (node.silent_s or 0) < 60
            job.begin(3)
            assert client.wait(job.job_id).state == "completed"
        assert job.rows() == list(range(ITEMS))
        assert Counter(int(attempt[1]) for attempt in job.attempts()) == {1: ITEMS, 2: 1}, "no lease was lost"
    assert "node lost" not in master.log()
