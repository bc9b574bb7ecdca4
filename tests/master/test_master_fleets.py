"""Fleets over a real master: its program is fenced and bounded, and what it said outlives restarts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from served_tls import SecureMaster, joining, wait_until, write_job
from windrow import Client
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2, agent_service_pb2_grpc, fleet_service_pb2_grpc
from windrow.rpc.v1 import fleet_service_pb2 as pb

OLD, NEW = "aa11", "bb22"
GPU = pb.FleetGroup(name="gpu", pool="gpu", provider="slurm", shape=pb.AgentShape(slots=8, gpus=2), max=20)
Stub = fleet_service_pb2_grpc.FleetServiceStub


@pytest.fixture
def master(tmp_path: Path) -> Iterator[SecureMaster]:
    with SecureMaster(tmp_path).serving() as serving:
        yield serving


@contextmanager
def fleets_of(master: SecureMaster, token: str = "") -> Iterator[Stub]:
    with master.channel(token or master.token("client-token")) as channel:
        yield Stub(channel)


def sync(
    fleets: Stub, incarnation: str = NEW, *reports: pb.AllocationReport, fleet: str = "cluster", **more: Any
) -> pb.SyncFleetResponse:
    groups = more.pop("groups", [GPU])
    return fleets.SyncFleet(
        pb.SyncFleetRequest(
            fleet=fleet,
            program_incarnation=incarnation,
            program=f"host (process {incarnation})",
            groups=groups,
            reports=reports,
            **more,
        )
    )


def begin(fleets: Stub, *names: str, incarnation: str = NEW, group: str = "gpu") -> None:
    begun = [pb.Allocation(name=name, group=group) for name in names]
    fleets.BeginAllocations(
        pb.BeginAllocationsRequest(fleet="cluster", program_incarnation=incarnation, allocations=begun)
    )


def report(name: str, state: pb.AllocationState, **more: str) -> pb.AllocationReport:
    return pb.AllocationReport(name=name, group="gpu", state=state, **more)


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    failure = errors.read_failure(caught.value)
    return failure.code, failure.reason, failure.message


def states_of(fleets: Stub, name: str = "cluster") -> dict[str, int]:
    return {one.name: one.state for one in fleets.GetFleet(pb.GetFleetRequest(name=name)).allocations}


def register(master: SecureMaster, **more: str) -> agent_service_pb2.RegisterResponse:
    with master.channel() as channel:
        request = agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i", **more)
        request.resources.slots = 8
        request.labels["pool"] = "gpu"
        return agent_service_pb2_grpc.AgentServiceStub(channel).Register(request, metadata=joining(master))


def test_what_a_fleet_has_asked_for_outlives_a_restart_and_so_does_who_has_it(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), fleets_of(master) as fleets:
        sync(fleets, OLD)
        begin(fleets, "gpu-1", "gpu-2", "gpu-3", incarnation=OLD)
        begin(fleets, "gpu-1", incarnation=OLD)
        answer = sync(
            fleets,
            NEW,
            report("gpu-1", pb.ALLOCATION_STATE_QUEUED, engine_id="4711", reason="Priority"),
            report("gpu-3", pb.ALLOCATION_STATE_FAILED, reason="InvalidAccount"),
        )
        assert [(one.name, one.engine_id, one.reason) for one in answer.allocations] == [
            ("gpu-1", "4711", "Priority"),
            ("gpu-2", "", ""),
        ]
        assert answer.allocations[0].HasField("queue_time") and not answer.allocations[0].HasField("start_time")
        fleets.UpdateFleet(pb.UpdateFleetRequest(name="cluster", bounds=[pb.GroupBounds(group="gpu", max=4)]))
        before = fleets.GetFleet(pb.GetFleetRequest(name="cluster"))
    with master.serving(), fleets_of(master) as fleets:
        code, reason, why = refused(lambda: sync(fleets, OLD))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "FLEET_TAKEN") and f"process {NEW}" in why
        assert refused(lambda: begin(fleets, "gpu-9", incarnation=OLD))[1] == "FLEET_TAKEN"
        after = fleets.GetFleet(pb.GetFleetRequest(name="cluster"))
        assert before.fleet.HasField("silent_ms") and not after.fleet.HasField("silent_ms")
        before.fleet.ClearField("silent_ms")
        assert after == before and {one.name for one in after.allocations} == {"gpu-1", "gpu-2", "gpu-3"}
        (group,) = after.fleet.groups
        assert (group.max, group.max_set, group.HasField("min_set"), after.fleet.revision) == (20, 4, False, 1)
        assert sync(fleets, NEW).fleet.groups[0].max_set == 4
        (summary,) = fleets.ListFleets(pb.ListFleetsRequest()).fleets
        counted = {(one.group, one.state): one.count for one in summary.counts}
        assert counted == {
            ("gpu", pb.ALLOCATION_STATE_BEGUN): 1,
            ("gpu", pb.ALLOCATION_STATE_QUEUED): 1,
            ("gpu", pb.ALLOCATION_STATE_FAILED): 1,
        }
    lines = [json.loads(line) for line in (master.state / "audit.jsonl").read_text().splitlines()]
    assert [line["call"] for line in lines if "Fleet" in line["call"]] == [
        "FleetService/SyncFleet",
        "FleetService/UpdateFleet",
    ]
    assert "max: 4" in lines[-1]["on"]["bounds"]["gpu"] and lines[-1]["on"]["name"] == "cluster"
    (taken,) = (line for line in lines if line["call"] == "FleetService/SyncFleet")
    assert (taken["who"], taken["on"]["name"], taken["on"]["before"]) == ("setup", "cluster", f"host (process {OLD})")


def test_a_paused_fleet_begins_nothing_and_a_fleet_in_use_is_not_forgotten(master: SecureMaster) -> None:
    with fleets_of(master) as fleets:
        assert refused(lambda: begin(fleets, "gpu-1"))[:2] == (grpc.StatusCode.NOT_FOUND, "FLEET_NOT_FOUND")
        sync(fleets)
        begin(fleets, "gpu-1")
        paused = fleets.UpdateFleet(pb.UpdateFleetRequest(name="cluster", paused=True)).fleet
        assert (paused.paused, paused.paused_by, paused.revision) == (True, "setup", 1)
        code, reason, why = refused(lambda: begin(fleets, "gpu-2"))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "FLEET_PAUSED")
        assert "windrow fleet resume cluster" in why
        for _ in range(2):
            fleets.UpdateFleet(pb.UpdateFleetRequest(name="cluster", paused=False))
        assert sync(fleets).fleet.revision == 3
        begin(fleets, "gpu-2")
        delete = pb.DeleteFleetRequest(name="cluster")
        assert refused(lambda: fleets.DeleteFleet(delete))[:2] == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "FLEET_IN_USE",
        )
        assert refused(lambda: fleets.UpdateFleet(pb.UpdateFleetRequest(name="other")))[1] == "FLEET_NOT_FOUND"
        assert refused(lambda: fleets.GetFleet(pb.GetFleetRequest(name="other")))[1] == "FLEET_NOT_FOUND"
        bounds = [pb.GroupBounds(group="cpu", min=1)]
        change = pb.UpdateFleetRequest(name="cluster", bounds=bounds)
        assert refused(lambda: fleets.UpdateFleet(change))[1] == "GROUP_NOT_FOUND"
        change = pb.UpdateFleetRequest(name="cluster", bounds=[pb.GroupBounds(group="gpu", min=21)])
        assert refused(lambda: fleets.UpdateFleet(change))[:2] == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "FLEET_INVALID",
        )


def test_a_fleet_without_program_and_allocations_is_forgotten(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), fleets_of(master) as fleets:
        sync(fleets)
        begin(fleets, "gpu-1")
    # A new master has not heard of its program.
    with master.serving(), fleets_of(master) as fleets:
        delete = pb.DeleteFleetRequest(name="cluster")
        assert "1 allocation of the fleet cluster has not ended" in refused(lambda: fleets.DeleteFleet(delete))[2]
        sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_CANCELLED))
    with master.serving(), fleets_of(master) as fleets:
        fleets.DeleteFleet(delete)
        assert not fleets.ListFleets(pb.ListFleetsRequest()).fleets
    with master.serving(), fleets_of(master) as fleets:
        assert not fleets.ListFleets(pb.ListFleetsRequest()).fleets
        sync(fleets, OLD)
        assert not states_of(fleets)


def broken(**more: Any) -> pb.FleetGroup:
    group = pb.FleetGroup()
    group.CopyFrom(GPU)
    group.MergeFrom(pb.FleetGroup(**more))
    return group


@pytest.mark.parametrize(
    ("fleet", "incarnation", "groups", "reports"),
    [
        ("a/b", NEW, [], []),
        ("f" * 65, NEW, [], []),
        ("cluster", "not hexadecimal", [], []),
        ("cluster", "a" * 65, [], []),
        ("cluster", NEW, [GPU] * 101, []),
        ("cluster", NEW, [GPU, GPU], []),
        ("cluster", NEW, [broken(name="a b")], []),
        ("cluster", NEW, [broken(pool="a b")], []),
        ("cluster", NEW, [broken(provider="A b")], []),
        ("cluster", NEW, [broken(min=21)], []),
        ("cluster", NEW, [broken(max=10_001)], []),
        ("cluster", NEW, [broken(shape=pb.AgentShape(slots=float("nan")))], []),
        ("cluster", NEW, [broken(shape=pb.AgentShape(slots=-1))], []),
        ("cluster", NEW, [broken(shape=pb.AgentShape(slots=1e9))], []),
        ("cluster", NEW, [broken(shape=pb.AgentShape(gpus=2_000_000))], []),
        ("cluster", NEW, [broken(price_per_hour=float("inf"))], []),
        ("cluster", NEW, [GPU], [report("GPU-1", pb.ALLOCATION_STATE_QUEUED)]),
        ("cluster", NEW, [GPU], [report("a" * 41, pb.ALLOCATION_STATE_QUEUED)]),
        ("cluster", NEW, [GPU], [report("gpu-1", pb.ALLOCATION_STATE_UNSPECIFIED)]),
        ("cluster", NEW, [GPU], [report("gpu-1", pb.ALLOCATION_STATE_QUEUED, engine_id="4" * 257)]),
        ("cluster", NEW, [GPU], [report("gpu-1", pb.ALLOCATION_STATE_QUEUED)] * 1_001),
    ],
)
def test_what_no_fleet_says_is_refused_and_nothing_of_it_is_kept(
    master: SecureMaster,
    fleet: str,
    incarnation: str,
    groups: list[pb.FleetGroup],
    reports: list[pb.AllocationReport],
) -> None:
    with fleets_of(master) as fleets:
        code, reason, _ = refused(lambda: sync(fleets, incarnation, *reports, fleet=fleet, groups=groups))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FLEET_INVALID")
        assert not fleets.ListFleets(pb.ListFleetsRequest()).fleets


def test_long_words_of_an_engine_are_cut_and_wrong_dates_left_out(master: SecureMaster) -> None:
    group = broken(status=pb.FleetGroupStatus(wanted=2**32 - 1, reason="long " * 10_000))
    group.status.retry_time.seconds = 1 << 60
    with fleets_of(master) as fleets:
        answer = sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_QUEUED, reason="x" * 100_000), groups=[group])
    (group,) = answer.fleet.groups
    assert len(group.status.reason) == len(answer.allocations[0].reason) == 2_000
    assert group.status.wanted == 1_000_000 and not group.status.HasField("retry_time")


def test_everyone_sees_why_an_agent_failed_and_nobody_the_secrets_in_its_log(master: SecureMaster) -> None:
    words = "Its log ends in: postgres://ann:hunter2hunter2@db/x was refused"
    group = pb.FleetGroup()
    group.CopyFrom(GPU)
    group.status.reason = group.status.failure = words
    with fleets_of(master) as fleets:
        sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_FAILED, reason=words), groups=[group])
        shown = fleets.GetFleet(pb.GetFleetRequest(name="cluster"))
    assert "hunter2" not in str(shown)
    assert str(shown).count("was refused") == 3


def test_the_log_of_an_agent_is_for_those_who_see_all_projects(tmp_path: Path) -> None:
    words = "exit code 1\nstep of vision/secret-job: /data/ann.csv"
    with SecureMaster(tmp_path).serving() as master, fleets_of(master) as fleets:
        with Client(access=master.access) as client:
            token = client.tokens.create("audio", "view", project="audio")[1]
        group = broken(status=pb.FleetGroupStatus(reason=words, failure=words))
        sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_FAILED, reason=words), groups=[group])
        whole = fleets.GetFleet(pb.GetFleetRequest(name="cluster"))
        (whole_summary,) = fleets.ListFleets(pb.ListFleetsRequest()).fleets
        with fleets_of(master, token) as of_audio:
            shown = of_audio.GetFleet(pb.GetFleetRequest(name="cluster"))
            (summary,) = of_audio.ListFleets(pb.ListFleetsRequest()).fleets
        # What the program remembers of failures stays whole, whoever has looked.
        assert sync(fleets, groups=[group]).fleet.groups[0].status.failure == words
    assert [one.reason for one in whole.allocations] == [words]
    assert [one.reason for one in shown.allocations] == ["exit code 1"]
    for fleet, seen in (
        (whole.fleet, words),
        (whole_summary.fleet, words),
        (shown.fleet, "exit code 1"),
        (summary.fleet, "exit code 1"),
    ):
        assert [(one.status.reason, one.status.failure) for one in fleet.groups] == [(seen, seen)]


def test_the_name_of_an_allocation_belongs_to_one_fleet_and_group_and_is_used_once(master: SecureMaster) -> None:
    cpu = pb.FleetGroup(name="cpu", provider="slurm", shape=pb.AgentShape(slots=8), max=20)
    with fleets_of(master) as fleets:
        sync(fleets, groups=[GPU, cpu])
        begin(fleets, "gpu-1")
        assert refused(lambda: begin(fleets, "gpu-1", group="cpu"))[1] == "FLEET_INVALID"
        assert refused(lambda: begin(fleets, "gpu-2", group="tpu"))[1] == "FLEET_INVALID"
        theirs = report("gpu-1", pb.ALLOCATION_STATE_QUEUED)
        assert refused(lambda: sync(fleets, OLD, theirs, fleet="other"))[1] == "FLEET_INVALID"
        sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_LOST), groups=[GPU, cpu])
        code, reason, why = refused(lambda: begin(fleets, "gpu-1"))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FLEET_INVALID") and "has ended" in why
        # One that is refused refuses all of its call.
        assert refused(lambda: begin(fleets, "gpu-5", "gpu-1"))[1] == "FLEET_INVALID"
        assert states_of(fleets) == {"gpu-1": pb.ALLOCATION_STATE_LOST}


def test_no_more_allocations_are_begun_than_a_master_keeps(master: SecureMaster) -> None:
    with fleets_of(master) as fleets:
        sync(fleets)
        for first in range(0, 10_000, 1_000):
            begin(fleets, *(f"gpu-{number}" for number in range(first, first + 1_000)))
        code, reason, why = refused(lambda: begin(fleets, "gpu-0", "gpu-one-more"))
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_ALLOCATIONS") and "10,000" in why
        begin(fleets, "gpu-0")
        sync(fleets, NEW, report("gpu-7", pb.ALLOCATION_STATE_CANCELLED))
        begin(fleets, "gpu-one-more")


def test_an_agent_joins_its_allocation_and_an_ended_one_admits_nobody(tmp_path: Path) -> None:
    master = SecureMaster(tmp_path)
    with master.serving(), fleets_of(master) as fleets:
        sync(fleets)
        begin(fleets, "gpu-1")
        register(master, allocation="gpu-1")
        (one,) = sync(fleets).allocations
        assert (one.state, one.node_id, one.is_alive, one.is_busy, one.is_leaving) == (
            pb.ALLOCATION_STATE_STARTED,
            "n1",
            True,
            False,
            False,
        )
        assert one.HasField("join_time")
        with Client(access=master.access) as client:
            (node,) = client.list_nodes()
            assert node.allocation == "gpu-1"
    with master.serving(), fleets_of(master) as fleets:
        # The node has not been heard of by this master: its allocation is still known.
        assert sync(fleets).allocations[0].is_alive
        answer = sync(fleets, NEW, report("gpu-1", pb.ALLOCATION_STATE_PREEMPTED, reason="PreemptedByOthers"))
        assert not answer.allocations
        with Client(access=master.access) as client:
            assert not list(client.list_nodes())
        code, reason, why = refused(lambda: register(master, allocation="gpu-1"))
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "ALLOCATION_ENDED")
        assert "preempted (PreemptedByOthers)" in why and "windrow fleet show cluster" in why
        register(master, allocation="unheard-of")
        (found,) = sync(fleets, NEW, report("unheard-of", pb.ALLOCATION_STATE_STARTED)).allocations
        assert (found.state, found.node_id, found.is_alive) == (pb.ALLOCATION_STATE_STARTED, "n1", True)
        assert refused(lambda: register(master, allocation="Not a name"))[1] == "NODE_INVALID"


def test_a_job_that_waits_is_a_demand(master: SecureMaster) -> None:
    with fleets_of(master) as fleets, Client(access=master.access) as client:
        assert not sync(fleets).demands
        client.submit(write_job(master.data / "job"))
        wait_until(lambda: any(one.ready for one in sync(fleets).demands), "the mini-batch is ready")
        (demand,) = sync(fleets).demands
        assert (demand.pool, demand.ready, demand.ready_unmeasured, demand.workers_max) == ("", 1, 1, 1)
        assert (demand.worker.slots, demand.worker.gpus, demand.gpu_share, demand.ready_seconds) == (1, 0, 0, 0)


def test_whoever_only_looks_takes_nothing_and_hears_what_a_program_would(master: SecureMaster) -> None:
    looks = pb.SyncFleetRequest(fleet="cluster", groups=[GPU], look_only=True)
    with fleets_of(master) as fleets:
        unknown = fleets.SyncFleet(looks)
        assert not unknown.HasField("fleet") and not unknown.allocations
        assert not fleets.ListFleets(pb.ListFleetsRequest()).fleets
        sync(fleets, OLD)
        begin(fleets, "a1", incarnation=OLD)
        looked = fleets.SyncFleet(looks)
        assert [one.name for one in looked.allocations] == ["a1"]
        assert looked.fleet.program == f"host (process {OLD})"
        # The program still has it, and hears the same.
        heard = sync(fleets, OLD)
        assert (heard.demands, heard.others) == (looked.demands, looked.others)
