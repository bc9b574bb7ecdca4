"""Agents that run in allocations of a fleet, whose engine ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from cluster_commands import ServedCluster
from embedded_run import stored_attempts, wait_until
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import fleet_service_pb2_grpc


class Program:
    """A fleet's program, as far as the master sees it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = fleet_service_pb2_grpc.FleetServiceStub(channel)
        self._group = pb.FleetGroup(name="group", provider="slurm", shape=pb.AgentShape(slots=2), max=4)

    def sync(self, *reports: pb.AllocationReport) -> pb.SyncFleetResponse:
        return self._stub.SyncFleet(
            pb.SyncFleetRequest(
                fleet="fleet", program_incarnation="aa", program="here", groups=[self._group], reports=reports
            )
        )

    def begin(self, name: str) -> None:
        self._stub.BeginAllocations(
            pb.BeginAllocationsRequest(
                fleet="fleet", program_incarnation="aa", allocations=[pb.Allocation(name=name, group="group")]
            )
        )

    def report(self, name: str, state: pb.AllocationState, reason: str = "") -> None:
        self.sync(pb.AllocationReport(name=name, group="group", state=state, reason=reason))

    def allocation(self, name: str) -> pb.Allocation:
        found = self._stub.GetFleet(pb.GetFleetRequest(name="fleet")).allocations
        return next(one for one in found if one.name == name)


@pytest.fixture
def program(cluster: ServedCluster) -> Iterator[Program]:
    with grpc.insecure_channel(cluster.address) as channel:
        made = Program(channel)
        made.sync()
        yield made


@contextmanager
def held(cluster: ServedCluster, program: Program) -> Iterator[Path]:
    """An agent in the allocation `one` runs mini-batches that wait for a gate, and are held for so long that they count
    as started. Afterwards, another agent does all the work, and nobody has paid.
    """
    program.begin("one")
    cluster.start_agent("taken", "--allocation", "one")
    gate = cluster.folder / "gate"
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: len(stored_attempts(cluster.state)) >= 2, "leases old enough to be written down")
    one = program.allocation("one")
    assert (one.node_id, one.is_alive, one.is_busy) == ("taken", True, True)
    assert "ALLOCATION" in cluster.run("node", "list").stdout and cluster.node("taken")["allocation"] == "one"
    yield gate
    gate.touch()
    cluster.start_agent("other")
    step = cluster.check_done("nightly")
    assert (step["failed_attempts"], step["retries"]) == ({}, 0)
    assert set(stored_attempts(cluster.state)) == {("PREEMPTED", "preempted")}


def test_a_killed_agent_whose_allocation_was_preempted_is_charged_to_nobody(
    cluster: ServedCluster, program: Program
) -> None:
    with held(cluster, program):
        cluster.processes["taken"].kill()
        cluster.processes["taken"].wait()
        program.report("one", pb.ALLOCATION_STATE_PREEMPTED, "PreemptMode=CANCEL")
        assert cluster.node("taken") == {}
        assert cluster.job("nightly")["steps"][0]["mini_batches"]["leased"] == 0
        cluster.start("again", *cluster.agent("taken", "right"), "--allocation", "one")
        assert cluster.processes["again"].wait(240) == 2
        assert "allocation one of the fleet fleet is preempted (PreemptMode=CANCEL)" in cluster.said("again")
    told = cluster.run("job", "explain", "nightly")
    assert told.returncode == 0


def test_the_word_of_the_engine_may_come_after_the_loss(cluster: ServedCluster, program: Program) -> None:
    with held(cluster, program):
        cluster.processes["taken"].kill()
        cluster.processes["taken"].wait()
        wait_until(lambda: cluster.job("nightly")["steps"][0]["failed_attempts"] != {}, "the loss is noticed")
        program.report("one", pb.ALLOCATION_STATE_EXPIRED, "TIMEOUT")


def test_an_agent_ends_whose_allocation_has_ended_though_it_still_runs(
    cluster: ServedCluster, program: Program
) -> None:
    with held(cluster, program):
        program.report("one", pb.ALLOCATION_STATE_CANCELLED)
        assert cluster.node("taken") == {}
        assert cluster.processes["taken"].wait(240) == 2
        assert "The allocation one of the fleet fleet is cancelled" in cluster.said("taken")


def test_an_agent_that_leaves_completes_its_allocation(cluster: ServedCluster, program: Program) -> None:
    program.begin("one")
    cluster.start_agent("idles", "--allocation", "one", "--exit-idle", "2s")
    assert program.allocation("one").state == pb.ALLOCATION_STATE_STARTED
    assert cluster.processes["idles"].wait(240) == 0
    one = program.allocation("one")
    assert (one.state, one.reason, one.is_alive) == (pb.ALLOCATION_STATE_COMPLETED, "Its agent has left.", False)
    assert not program.sync().allocations
