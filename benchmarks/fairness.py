"""Projects on one cluster in containers: what they get, beside the fair shares that `water_filling` computes.

    python -m benchmarks.fairness                    # all scenarios, a line of figures for each
    python -m benchmarks.fairness weights --series . # and what ran in each second, in weights.csv

Scripts note when their mini-batches begin and end. All containers have the clock of this machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from windrow import Job
from windrow.common.queue_settings import Bounds, QueueSettings

from benchmarks.compose import Cluster
from benchmarks.waiting import wait_until
from benchmarks.water_filling import Project, fair_shares

AGENTS = 4
SLOTS = 8
"""Of all agents together."""

RECLAIM_S = 30.0
"""What a worker that has to yield may take for the mini-batch that it runs."""

SCRIPT = """\
import argparse, os, socket, time

def init():
    global seconds, log
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--times")
    options, _ = parser.parse_known_args()
    seconds = options.seconds
    name = f"{options.times}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
    log = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

def run(mini_batch):
    os.write(log, f"{time.time()} begins\\n".encode())
    time.sleep(seconds)
    os.write(log, f"{time.time()} ends\\n".encode())
    return [os.path.basename(path) for path in mini_batch]
"""

JOB = """\
type: pipeline
inputs: {{data: {{type: uri_folder, path: /data/input-{items}}}}}
outputs: {{rows: {{type: uri_folder}}}}
jobs:
  measured:
    type: parallel
    mini_batch_size: "1"
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    input_data: ${{{{inputs.data}}}}
    outputs: {{rows: "${{{{parent.outputs.rows}}}}"}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: --seconds {seconds} --times /data/begun/{name}
      append_row_to: ${{{{outputs.rows}}}}
"""


class Run(NamedTuple):
    """One mini-batch, from its begin to its end; `end_s` is infinite where it never came."""

    begin_s: float
    end_s: float


class Work:
    """A job whose mini-batches note when they run."""

    def __init__(self, fleet: Fleet, name: str, project: str, items: int, seconds: float) -> None:
        self.fleet, self.name, self.project, self.items = fleet, name, project, items
        self.file = fleet.folder / f"{name}.yml"
        self.file.write_text(JOB.format(name=name, items=items, seconds=seconds))
        fleet.make_input(items)
        self.job_id = ""
        self.submitted_s = 0.0

    def submit(self, priority: int = 0) -> Work:
        """Submit it; itself."""
        self.submitted_s = time.time()
        self.job_id = self.fleet.client.submit(self.file, project=self.project, priority=priority).job_id
        return self

    def runs(self) -> list[Run]:
        """What has begun until now."""
        found = []
        for log in self.fleet.begun.glob(f"{self.name}.*"):
            times = [(float(line.split()[0]), line.split()[1]) for line in log.read_text().splitlines()]
            ends = [at for at, what in times if what == "ends"]
            begins = [at for at, what in times if what == "begins"]
            found += [Run(at, ends[number] if number < len(ends) else float("inf")) for number, at in enumerate(begins)]
        return sorted(found)

    def running(self, at_s: float) -> int:
        """How many ran at a time."""
        return sum(run.begin_s <= at_s < run.end_s for run in self.runs())

    def worker_s(self, from_s: float, until_s: float) -> float:
        """Seconds that workers spent on it, within a time."""
        return sum(max(0.0, min(run.end_s, until_s) - max(run.begin_s, from_s)) for run in self.runs())

    def finish(self) -> Job:
        """Wait for its end, and check that nothing is lost, and nobody is charged for anything."""
        job = self.fleet.client.wait(self.job_id, timeout_s=600, check=False)
        rows = (self.fleet.cluster.data / "outputs" / self.job_id / "rows" / "parallel_run_step.txt").read_text()
        charged = {cause: count for step in job.steps for cause, count in step.failed_attempts.items()}
        charged.pop("preempted", None)
        if job.state != "completed" or rows.split() != _names(self.items) or charged:
            raise RuntimeError(f"{self.name} ended {job.state}, with {len(rows.split())} rows, charged: {charged}")
        return job

    def cancel(self) -> None:
        """It has served its purpose."""
        self.fleet.client.cancel(self.job_id)
        self.fleet.client.wait(self.job_id, timeout_s=120, check=False)


def _names(items: int) -> list[str]:
    return [f"{number:05d}" for number in range(items)]


class Fleet:
    """A cluster, and the jobs on it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.client, self.folder = cluster, cluster.client, folder
        self.begun = cluster.data / "begun"
        self.begun.mkdir()
        self.begun.chmod(0o777)
        (folder / "code").mkdir()
        (folder / "code" / "entry.py").write_text(SCRIPT)
        self.works: list[Work] = []
        self.queues: dict[str, QueueSettings] = {}

    def make_input(self, items: int) -> None:
        """A folder with so many files, which all jobs with so many mini-batches read."""
        folder = self.cluster.data / f"input-{items}"
        if not folder.exists():
            folder.mkdir()
            for name in _names(items):
                (folder / name).touch()

    def work(self, name: str, project: str, items: int, seconds: float) -> Work:
        """A new job, not yet submitted."""
        self.works.append(Work(self, name, project, items, seconds))
        return self.works[-1]

    def set(self, **queues: QueueSettings) -> None:
        """Say what projects may have; the others have the defaults."""
        self.queues = queues
        self.client.queues.set(queues, only=True)

    def fair(self, at_s: float, runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
        """What each project should have had at a time."""
        demands: dict[str, float] = {}
        for work in self.works:
            if work.submitted_s <= at_s:
                ended = sum(run.end_s <= at_s for run in runs[work.name])
                demands[work.project] = demands.get(work.project, 0.0) + max(0, work.items - ended)
        projects = {}
        for name, demand in demands.items():
            queue = self.queues.get(name, QueueSettings())
            projects[name] = Project(demand, queue.weight, queue.priority, queue.cluster.quota, queue.cluster.limit)
        return fair_shares(SLOTS, projects)

    def series(self) -> list[dict[str, float]]:
        """For each second: mini-batches that began, by project, the workers that ran them on average, and the fair
        share.
        """
        runs = {work.name: work.runs() for work in self.works}
        first_s = min(work.submitted_s for work in self.works)
        last_s = max((run.begin_s for each in runs.values() for run in each), default=first_s)
        projects = sorted({work.project for work in self.works})
        rows = []
        for second in range(int(last_s - first_s) + 1):
            at_s = first_s + second
            row: dict[str, float] = {"second": second}
            fair = self.fair(at_s + 0.5, runs)
            for project in projects:
                mine = [run for work in self.works if work.project == project for run in runs[work.name]]
                row[f"{project} begun"] = sum(at_s <= run.begin_s < at_s + 1 for run in mine)
                busy_s = (min(run.end_s, at_s + 1) - max(run.begin_s, at_s) for run in mine)
                row[f"{project} workers"] = round(sum(max(0.0, one) for one in busy_s), 2)
                row[f"{project} fair"] = round(fair.get(project, 0.0), 2)
            rows.append(row)
        return rows


def weights(fleet: Fleet) -> dict[str, float]:
    """Weights 2:1 on a full cluster, over 60 s."""
    fleet.set(heavy=QueueSettings(2.0), light=QueueSettings())
    heavy, light = (fleet.work(name, name, 4000, 0.2).submit() for name in ("heavy", "light"))
    wait_until("both run", lambda: heavy.runs() and light.runs())
    from_s = time.time() + 5
    time.sleep(65.5)
    ratio = heavy.worker_s(from_s, from_s + 60) / light.worker_s(from_s, from_s + 60)
    busy = (heavy.worker_s(from_s, from_s + 60) + light.worker_s(from_s, from_s + 60)) / (60 * SLOTS)
    for work in (heavy, light):
        work.cancel()
    return {"ratio": ratio, "busy": 100 * busy}


def urgent(fleet: Fleet) -> dict[str, float]:
    """A project of a higher priority comes to a cluster that is full of mini-batches of 1 s."""
    fleet.set(urgent=QueueSettings(priority=10))
    usual = fleet.work("usual", "usual", 160, 1.0).submit()
    wait_until("the cluster is full", lambda: usual.running(time.time()) == SLOTS)
    time.sleep(2)
    hasty = fleet.work("hasty", "urgent", 16, 0.1).submit()
    hasty.finish()
    usual.finish()
    return {"first": hasty.runs()[0].begin_s - hasty.submitted_s, "again": len(usual.runs()) - usual.items}


def quota(fleet: Fleet) -> dict[str, float]:
    """A project below its quota comes to a cluster that is full of mini-batches of 1 s."""
    return _reach_quota(fleet, 1.0)


def reclaim(fleet: Fleet) -> dict[str, float]:
    """The same with mini-batches of two minutes, which have to be killed."""
    return _reach_quota(fleet, 120.0)


def _reach_quota(fleet: Fleet, seconds: float) -> dict[str, float]:
    fleet.set(owed=QueueSettings(cluster=Bounds(4.0)), greedy=QueueSettings(9.0))
    greedy = fleet.work("greedy", "greedy", 1000, seconds).submit()
    wait_until("the cluster is full", lambda: greedy.running(time.time()) == SLOTS)
    time.sleep(2)
    owed = fleet.work("owed", "owed", 400, 0.5).submit()
    wait_until("the first one runs", owed.runs)
    wait_until("it has its quota", lambda: owed.running(time.time()) >= 4)
    reached_s = time.time() - owed.submitted_s
    (step,) = fleet.client.get(greedy.job_id).steps
    figures = {
        "first": owed.runs()[0].begin_s - owed.submitted_s,
        "reached": reached_s,
        "again": step.failed_attempts.get("preempted", 0),
        "charged": sum(step.failed_attempts.values()) - step.failed_attempts.get("preempted", 0),
    }
    owed.finish()
    greedy.cancel()
    return figures


def idle(fleet: Fleet) -> dict[str, float]:
    """One of two projects has nothing to do, and then it has."""
    fleet.set()
    busy = fleet.work("busy", "busy", 2000, 0.2).submit()
    wait_until("it has all of the cluster", lambda: busy.running(time.time()) == SLOTS)
    late = fleet.work("late", "late", 120, 0.2).submit()
    wait_until("it runs", late.runs)
    wait_until("it has its half", lambda: late.running(time.time()) >= SLOTS // 2)
    reached_s = time.time() - late.submitted_s
    late.finish()
    wait_until("all of it again", lambda: busy.running(time.time()) == SLOTS)
    busy.cancel()
    return {"first": late.runs()[0].begin_s - late.submitted_s, "reached": reached_s}


def priorities(fleet: Fleet) -> dict[str, float]:
    """Three priorities: while the first one can use all, the others have nothing; what it leaves goes to the next."""
    fleet.set(high=QueueSettings(priority=10), middle=QueueSettings(priority=5), low=QueueSettings())
    low, middle = (fleet.work(name, name, 300, 0.2).submit() for name in ("low", "middle"))
    wait_until("the middle one has all", lambda: middle.running(time.time()) == SLOTS)
    high = fleet.work("high", "high", 300, 0.2).submit()
    for work in (high, middle, low):
        work.finish()
    ends = [max(run.end_s for run in work.runs()) for work in (high, middle, low)]
    if ends != sorted(ends):
        raise RuntimeError("they did not end by priority")
    settled_s = high.runs()[0].begin_s + 1
    others = sum(work.worker_s(settled_s, ends[0] - 1) for work in (middle, low))
    return {"first": high.runs()[0].begin_s - high.submitted_s, "others": others}


def small_and_huge(fleet: Fleet) -> dict[str, float]:
    """Ten small jobs beside a huge one of the same project: how long the last of them takes."""
    fleet.set()
    huge = fleet.work("huge", "one", 4000, 0.2).submit()
    wait_until("the cluster is full", lambda: huge.running(time.time()) == SLOTS)
    small = [fleet.work(f"small-{number}", "one", 8, 0.2).submit() for number in range(10)]
    for work in small:
        work.finish()
    firsts = [work.runs()[0].begin_s - work.submitted_s for work in small]
    took_s = max(run.end_s for work in small for run in work.runs()) - small[0].submitted_s
    huge.cancel()
    return {"first": max(firsts), "reached": took_s}


def many(fleet: Fleet, jobs: int = 100, seconds: float = 0.1) -> dict[str, float]:
    """A hundred jobs of 100 mini-batches at once, and one of as many: how long from the first submission to the end."""
    fleet.set()
    items = 100
    one = fleet.work("one", "one", jobs * items, seconds).submit()
    one.finish()
    one_s = max(run.end_s for run in one.runs()) - one.submitted_s
    works = [fleet.work(f"many-{number}", "one", items, seconds) for number in range(jobs)]
    for work in works:
        work.submit()
    listed_s = []
    open_ids = {work.job_id for work in works}
    while open_ids:
        begun_s = time.perf_counter()
        states = {job.job_id: job.state for job in fleet.client.list_jobs()}
        listed_s.append(time.perf_counter() - begun_s)
        open_ids = {job_id for job_id in open_ids if not states[job_id].ended}
        time.sleep(0.2)
    for work in works:
        work.finish()
    many_s = max(run.end_s for work in works for run in work.runs()) - works[0].submitted_s
    listed_s.sort()
    return {
        "one": one_s,
        "many": many_s,
        "longer": 100 * (many_s / one_s - 1),
        "list": 1e3 * listed_s[len(listed_s) // 2],
        "slowest": 1e3 * listed_s[-1],
    }


SCENARIOS: dict[str, Callable[[Fleet], dict[str, float]]] = {
    one.__name__: one for one in (weights, urgent, quota, reclaim, idle, priorities, small_and_huge, many)
}


def play(name: str, folder: Path) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Play a scenario on a cluster of its own; return its figures, and its series."""
    with Cluster(folder, AGENTS) as cluster:
        fleet = Fleet(cluster, folder)
        figures = SCENARIOS[name](fleet)
        return figures, fleet.series() if len(fleet.works) < AGENTS * SLOTS else []


def main() -> int:
    """Play, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--series", type=Path, help="folder for what ran in each second, a CSV a scenario")
    options = parser.parse_args()
    for name in options.scenarios or SCENARIOS:
        with tempfile.TemporaryDirectory(prefix="windrow-fair-") as folder:
            figures, series = play(name, Path(folder))
        print(json.dumps({"scenario": name, **{key: round(value, 3) for key, value in figures.items()}}), flush=True)
        if options.series and series:
            with (options.series / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, list(series[0]))
                writer.writeheader()
                writer.writerows(series)
    return 0


if __name__ == "__main__":
    sys.exit(main())
