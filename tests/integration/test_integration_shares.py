"""Several jobs on real agents, shared out by a real master: everyone gets its part, and nothing is lost by it."""

from __future__ import annotations

import signal
from pathlib import Path

from embedded_run import DEADLINE_S, EmbeddedRun, wait_until
from served import Served
from windrow import Client, JobState
from windrow.common.queue_settings import Bounds, QueueSettings

NAPPING = """
import os, time
def run(mini_batch):
    time.sleep({seconds})
    return [os.path.basename(path) for path in mini_batch]
"""


LONG = """
import os, time
def run(mini_batch):
    (path,) = mini_batch
    end = time.monotonic() + (5 if int(path[-1]) % 2 else 0.1)
    while time.monotonic() < end and not os.path.exists({hurry!r}):
        time.sleep(0.01)
    return [f"{{os.path.basename(path)}} {{open(path).read()}}"]
"""
NOT_ONE_MORE_TRY = "retry_settings: {max_retries: 0}"
HASTY_MASTER = """
import sys
from dataclasses import fields
from windrow_master.core.settings import Timing
Timing.__init__.__defaults__ = tuple(
    1.5 if one.name == "reclaim_after_s" else one.default for one in fields(Timing)
)
from windrow_master.__main__ import main
sys.exit(main())
"""
"""A master that has workers killed 1.5 s after their place is needed, not 30 s."""
STORMS = 8
KILLS_MASTER, KILLS_NODE = 3, 5


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


def test_storms_of_reclaim_and_deaths_amid_them_lose_nothing_and_charge_nobody(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"
    script, files = LONG.format(hurry=str(hurry)), 60
    jobs = {name: EmbeddedRun(tmp_path / name, script, files, settings=NOT_ONE_MORE_TRY) for name in ("vision", "web")}
    (tmp_path / "store").mkdir()
    served = Served(tmp_path, tmp_path / "store")
    served.program = ["-c", HASTY_MASTER]
    try:
        served.start_master()
        for node_id in ("n1", "n2"):
            served.start_agent(node_id, slots=2)
        with served.client() as client:
            ids = {name: client.submit(job.folder / "job.yml", project=name).job_id for name, job in jobs.items()}

            def preempted_s() -> float:
                """How long mini-batches had run that were cut short for others, in all."""
                return sum(usage.preempted_s for usage in client.queues.usage(["project"]))

            def running(project: str) -> int:
                step_id = client.get(ids[project]).steps[0].step_id
                live = [worker for node in client.list_nodes() for worker in node.processes]
                return sum(worker.step_id == step_id and worker.phase == "running" for worker in live)

            wait_until(lambda: all(client.get(job_id).items.ended for job_id in ids.values()), "both have begun")
            for storm in range(STORMS):
                favoured, other = list(jobs)[:: 1 if storm % 2 else -1]
                client.queues.set({favoured: QueueSettings(1, 9, Bounds(4)), other: QueueSettings()})
                if storm == KILLS_MASTER:
                    served.kill_master()
                    served.start_master()
                if storm == KILLS_NODE:
                    lost = served.agents.pop("n1")
                    lost.send_signal(signal.SIGKILL)
                    lost.wait()
                    served.start_agent("n1", slots=2)
                wait_until(lambda who=favoured: running(who) == 4, f"{favoured} has all workers")
            assert preempted_s() > STORMS * 1.5
            lost_us = [client.report(job_id)["steps"][0]["figures"]["worker_us"]["lost"] for job_id in ids.values()]
            assert sum(lost_us) > STORMS * 1.5e6, "reports have what the killed workers had spent"
            hurry.touch()
            for name, job_id in ids.items():
                ended = client.wait(job_id, timeout_s=DEADLINE_S)
                assert ended.state is JobState.COMPLETED, name
                assert ended.steps[0].failed_attempts.keys() <= {"node_lost"}, "not one try was charged"
                assert [line.strip() for line in client.results(job_id)] == [
                    f"{at} {number}" for number, at in enumerate(names(files))
                ]
    finally:
        served.close()
