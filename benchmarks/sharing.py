"""A master's core alone, with simulated nodes: how long decisions about shares take, and how much of a processor all of
its work. `python -m benchmarks.sharing --nodes 1000 --jobs 200` prints the measures as JSON.

Time is simulated. What is measured is the processor time of the core: commands, scheduling, the rows that it hands to
its store. Calls, and the disk, come on top of that.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from random import Random
from unittest.mock import patch
from zlib import crc32

from windrow.common.queue_settings import QueueSettings
from windrow.rpc.v1 import work_pb2
from windrow_master.core import admission, commands, shares
from windrow_master.core import effects as fx
from windrow_master.core.commands import Moment
from windrow_master.core.core import Core
from windrow_master.core.ids import DEFAULT_PROJECT, NodeId, StepId
from windrow_master.core.records import PLAN_RECORD
from windrow_master.core.settings import StepSettings
from windrow_master.core.state import CoreState, Node, Step
from windrow_master.limits import Limits

GROUP_S = 0.02
"""Commands that come within this time are one group, as they are while a commit is on its way."""
ROWS = b"row\n"


class Cluster:
    """A core, and nodes that do what it says: each mini-batch takes about `run_s`."""

    def __init__(self, nodes: int, jobs: int, slots: int, run_s: float, queued: int = 0, kinds: int = 1) -> None:
        """`queued`: further jobs, which wait to be admitted; `kinds`: which ask for so many different things."""
        self._run_s, self._random = run_s, Random(1)
        self.now_s = 1000.0
        most = jobs + queued
        self.core = Core(1, 1, limits=Limits(open_jobs=most, open_jobs_per_project=most))
        self.decisions: list[float] = []
        """How long each one took, in seconds."""
        self.admissions: list[float] = []
        """The same of each look at the jobs that wait to be admitted."""
        self.rounds: list[float] = []
        """Of these, those that compute what some of them would be entitled to."""
        self.completed = 0
        self._due: list[tuple[float, int, str]] = []
        """Leases that run, by when they end."""
        self._shares: dict[NodeId, dict[StepId, int]] = {}
        """What each node was told last."""
        self._nodes = [NodeId(f"n{number:04}") for number in range(nodes)]
        resources = json.dumps({"slots": slots}).encode()
        for number, name in enumerate(self._nodes, 1):
            self._do(commands.RegisterNode(name, "a", "", resources, b"{}"))
            self._do(commands.OpenWork(name, "a", number, (), ()))
        self._do(commands.SetQueues({DEFAULT_PROJECT: QueueSettings(admitted_jobs=jobs)}))
        count = 2 * nodes * slots
        for number in range(1, jobs + 1):
            self._do(commands.SubmitJob(f"job{number}", str(number), b"{}", "", (StepSettings("step"),)))
            self._do(commands.StartStep(StepId(number), b"{}"))
            records = b"".join(PLAN_RECORD.pack(at, 1, at * 10, 10, at) for at in range(count))
            checkpoint = json.dumps({"mini_batches": count, "done": False}).encode()
            self._do(commands.PlanGroup(StepId(number), None, checkpoint, 0, records, False, b"{}"))
        for number in range(jobs + 1, jobs + queued + 1):
            asked = StepSettings("step", cpus_per_worker=1.0 + number % kinds / 64)
            self._do(commands.SubmitJob(f"job{number}", str(number), b"{}", "", (asked,), priority=-1))

    @property
    def now(self) -> Moment:
        """The present."""
        return Moment(self.now_s, self.now_s)

    def _do(self, command: commands.Command) -> None:
        self.core.handle(command, self.now)

    def end_group(self) -> None:
        """Schedule, and have the nodes do what they are told."""
        self.core.pick(self.now)
        self.core.take_dirty()
        for effect in self.core.take_effects():
            if isinstance(effect, fx.SendShares):
                shares = dict(effect.shares)
                gone = self._shares.get(effect.node_id, {}).keys() - shares.keys()
                wanted = (*((step_id, at, at) for step_id, at in shares.items()), *((at, 0, 0) for at in gone))
                self._shares[effect.node_id] = shares
                self._do(commands.SetCapacity(effect.node_id, effect.stream, wanted, False))
            elif isinstance(effect, fx.SendAssignments):
                for lease in effect.leases:
                    ends_s = self.now_s + self._run_s * (0.5 + self._random.random())
                    heapq.heappush(self._due, (ends_s, lease.lease_id, lease.node_id))

    def run(self, duration_s: float) -> None:
        """Let so many seconds pass."""
        until_s, beats = self.now_s + duration_s, 0.0
        while self.now_s < until_s:
            self.now_s += GROUP_S
            ended: dict[str, list[int]] = {}
            while self._due and self._due[0][0] <= self.now_s:
                _, lease_id, node_id = heapq.heappop(self._due)
                ended.setdefault(node_id, []).append(lease_id)
            for node_id, lease_ids in ended.items():
                results = [
                    work_pb2.Completion(
                        lease_id=lease_id, item_count=1, result_count=1, row_count=1, rows=ROWS, rows_length=len(ROWS),
                        rows_crc32=crc32(ROWS), elapsed_us=int(self._run_s * 1e6),
                    )
                    for lease_id in lease_ids
                ]  # fmt: skip
                self._do(commands.CompleteAttempts(NodeId(node_id), results))
                self.completed += len(results)
            beats += len(self._nodes) * GROUP_S
            for _ in range(int(beats)):
                node = self.core.state.nodes[self._nodes[0]]
                self._nodes.append(self._nodes.pop(0))
                digest = 0
                for lease_id in node.lease_ids:
                    digest ^= lease_id
                self._do(commands.HeartbeatNode(node.node_id, "a", len(node.lease_ids), digest))
            beats -= int(beats)
            if self.core.next_due(self.now) <= self.now_s:
                self._do(commands.Tick(GROUP_S))
            self.end_group()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--slots", type=int, default=8, help="of each node")
    parser.add_argument("--run-s", type=float, default=10.0, help="how long a mini-batch runs")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long, in simulated seconds")
    parser.add_argument("--queued", type=int, default=0, help="jobs that wait to be admitted")
    parser.add_argument("--kinds", type=int, default=1, help="so many different things do these ask for")
    options = parser.parse_args()
    cluster = Cluster(options.nodes, options.jobs, options.slots, options.run_s, options.queued, options.kinds)
    decide, admit = shares.decide, admission.admit

    def timed(state: CoreState, steps: Sequence[Step], serving: Mapping[NodeId, Node], now: Moment) -> None:
        begun_s, before_s = time.process_time(), state.shares.decided_s
        decide(state, steps, serving, now)
        if state.shares.decided_s != before_s:
            cluster.decisions.append(time.process_time() - begun_s)

    def timed_admission(state: CoreState, now: Moment) -> None:
        begun_s, looked_s = time.process_time(), state.admission_looked_s
        admit(state, now)
        cluster.admissions.append(time.process_time() - begun_s)
        if state.admission_looked_s != looked_s:
            cluster.rounds.append(cluster.admissions[-1])

    with patch.object(shares, "decide", timed), patch.object(admission, "admit", timed_admission):
        cluster.end_group()
        cluster.run(2 * options.run_s)
        gc.collect()
        gc.freeze()
        cluster.decisions.clear()
        cluster.admissions.clear()
        cluster.rounds.clear()
        cluster.completed, begun_s = 0, time.process_time()
        cluster.run(options.seconds)
        used_s = time.process_time() - begun_s
    print(
        json.dumps(
            {
                "decision": statistics.median(cluster.decisions) * 1e3,
                "longest": max(cluster.decisions) * 1e3,
                "rate": cluster.completed / options.seconds,
                "core": used_s / options.seconds,
                "admission": sum(cluster.admissions) / options.seconds,
                "round": statistics.median(cluster.rounds) * 1e3 if cluster.rounds else 0.0,
                "queued": len(cluster.core.state.queued),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
