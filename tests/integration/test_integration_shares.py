"""Several jobs on real agents, shared out by a real master: everyone gets its part, and nothing is lost by it."""

from __future__ import annotations

import signal
from pathlib import Path

from embedded_run import DEADLINE_S, EmbeddedRun, wait_until
from served import Served
from windrow import Client, JobState

NAPPING = """
import os, time
def run(mini_batch):
    time.sleep({seconds})
    return [os.path.basename(path) for path in mini_batch]
"""


def a_job(folder: Path, name: str, files: int, seconds: float) -> EmbeddedRun:
    return EmbeddedRun(folder / name, NAPPING.format(seconds=seconds), files)


def rows(job: EmbeddedRun) -> list[str]:
    return job.output.read_text().split()


def names(files: int) -> list[str]:
    return [f"f{number:05d}" for number in range(files)]


def submit(client: Client, job: EmbeddedRun) -> str:
    return client.submit(job.folder / "job.yml").job_id


def test_a_small_job_does_not_wait_for_a_large_one_on_the_only_slot(tmp_path: Path) -> None:
    large, small = a_job(tmp_path, "large", 2000, 0.1), a_job(tmp_path, "small", 3, 0.1)
    served = Served(tmp_path)
    try:
        served.start_master()
        served.start_agent("n1", slots=1)
        with served.client() as client:
            first = submit(client, large)
            wait_until(lambda: client.get(first).items.ended, "the large job has begun")
            second = submit(client, small)
            assert client.wait(second, timeout_s=DEADLINE_S).state is JobState.COMPLETED
            assert rows(small) == names(3)
            job = client.get(first)
            assert job.state is JobState.RUNNING and not job.steps[0].failed_attempts
            before = job.items.ended
            wait_until(lambda: client.get(first).items.ended > before, "the large job goes on")
            client.cancel(first)
    finally:
        served.close()


def test_a_higher_priority_gets_all_and_the_others_go_on_afterwards(tmp_path: Path) -> None:
    usual, urgent = a_job(tmp_path, "usual", 60, 0.2), a_job(tmp_path, "urgent", 8, 0.1)
    served = Served(tmp_path)
    try:
        served.start_master()
        served.start_agent("n1", slots=2)
        with served.client() as client:
            first = submit(client, usual)
            wait_until(lambda: client.get(first).items.ended, "the usual job has begun")
            second = client.submit(urgent.folder / "job.yml", priority=5).job_id
            assert client.wait(second, timeout_s=DEADLINE_S).state is JobState.COMPLETED
            assert client.get(first).state is JobState.RUNNING
            assert client.wait(first, timeout_s=DEADLINE_S).state is JobState.COMPLETED
        assert (rows(usual), rows(urgent)) == (names(60), names(8))
    finally:
        served.close()


def test_nothing_is_lost_where_the_master_and_a_node_die_while_jobs_share_them(tmp_path: Path) -> None:
    jobs = [a_job(tmp_path, f"job{number}", 40, 0.1) for number in range(5)]
    (tmp_path / "store").mkdir()
    served = Served(tmp_path, tmp_path / "store")
    try:
        served.start_master()
        for node_id in ("n1", "n2"):
            served.start_agent(node_id, slots=2)
        with served.client() as client:
            ids = [submit(client, job) for job in jobs]
            wait_until(lambda: sum(client.get(job_id).items.ended for job_id in ids) > 20, "they have begun")
            served.kill_master()
            served.start_master()
            wait_until(lambda: sum(client.get(job_id).items.ended for job_id in ids) > 60, "they go on")
            lost = served.agents.pop("n1")
            lost.send_signal(signal.SIGKILL)
            lost.wait()
            for job_id in ids:
                assert client.wait(job_id, timeout_s=DEADLINE_S).state is JobState.COMPLETED
                assert [line.strip() for line in client.results(job_id)] == names(40)
    finally:
        served.close()
