"""JobService on nodes: cordoned, drained, removed, listed, over the real store."""

from __future__ import annotations

from pathlib import Path

import grpc
from master_bench import MasterBench, drive
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import agent_service_pb2, job_service_pb2, node_pb2, run_files_pb2
from windrow_master.core import commands
from windrow_master.core.ids import NodeId, StepId
from windrow_master.identity.principals import Principal, set_caller
from windrow_master.rpc.agent_service import CREDENTIAL_KEY
from windrow_master.store.records import Role


async def joined(bench: MasterBench, name: str) -> grpc.aio.StreamStreamCall:
    """A node registers and opens its Work stream."""
    admitted = await bench.agents.Register(agent_service_pb2.RegisterRequest(node_id=name, node_incarnation="i"))
    work = bench.agents.Work(metadata=[(CREDENTIAL_KEY, admitted.node_credential)])
    await work.write(agent_service_pb2.WorkRequest(hello=agent_service_pb2.WorkHello()))
    await until(bench, name, node_pb2.NODE_STATE_READY)
    return work


async def until(bench: MasterBench, name: str, state: int) -> None:
    """Wait until a node is in a state."""
    while [node.state for node in await listed(bench) if node.node_id == name] != [state]:
        pass


async def listed(bench: MasterBench) -> list[node_pb2.Node]:
    """All nodes."""
    return list((await bench.jobs.ListNodes(job_service_pb2.ListNodesRequest())).nodes)


async def refusal(call: grpc.aio.UnaryUnaryCall) -> tuple[grpc.StatusCode, str]:
    """Code and reason of a call that must be refused."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        failure = read_failure(error)
        return failure.code, failure.reason
    raise AssertionError("the call was not refused")


def test_what_another_project_s_job_did_on_a_node_is_not_told(tmp_path: Path) -> None:
    """Its message may name its files. That the node is set aside concerns everybody."""

    async def scenario(bench: MasterBench) -> None:
        await joined(bench, "n1")
        job_id = await bench.submitted()
        state = bench.writer.core.state
        (step_id,) = (step.step_id for step in state.steps.values())
        node = state.nodes[NodeId("n1")]
        node.aside_for[step_id] = f"Set aside for step 'work' of {job_id}: /secret/table.csv is bad."
        node.message, node.last_fault = (
            "10 attempts in a row failed because of this node.",
            (step_id, "no /secret/disk"),
        )

        def told(principal: Principal) -> str:
            set_caller(principal)
            (view,) = bench.nodes.nodes()
            return view.message

        for sees in (Principal(), Principal("ann", Role.VIEW, "default"), Principal("all", Role.VIEW)):
            assert "/secret/table.csv" in told(sees) and "/secret/disk" in told(sees)
        for role in (Role.VIEW, Role.SUBMIT, Role.OPERATE):
            assert told(Principal("bob", role, "other")) == (
                "10 attempts in a row failed because of this node. Set aside for a step of another project."
            )
        # A step that is gone is nobody's but the operator's.
        node.last_fault = (StepId(999), "no /secret/disk")
        assert "/secret/disk" not in told(Principal("ann", Role.VIEW, "default"))
        assert "/secret/disk" in told(Principal("all", Role.VIEW))

    drive(tmp_path, scenario)


def test_a_node_from_its_cordon_to_its_removal(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        def cordon(cordoned: bool) -> grpc.aio.UnaryUnaryCall:
            return bench.jobs.CordonNode(job_service_pb2.CordonNodeRequest(node_id="n1", cordoned=cordoned))

        work = await joined(bench, "n1")
        node = (await cordon(True)).node
        assert (node.state, node.cordoned) == (node_pb2.NODE_STATE_READY, True)
        assert [row.cordoned for row in bench.store.reader().nodes()] == [1], "durable when it is answered"
        assert not (await cordon(False)).node.cordoned
        remove = job_service_pb2.RemoveNodeRequest(node_id="n1")
        connected = (grpc.StatusCode.FAILED_PRECONDITION, "NODE_CONNECTED")
        assert await refusal(bench.jobs.RemoveNode(remove)) == connected
        node = (await bench.jobs.DrainNode(job_service_pb2.DrainNodeRequest(node_id="n1"))).node
        assert (node.state, node.cordoned) == (node_pb2.NODE_STATE_DRAINING, True)
        assert await refusal(bench.jobs.RemoveNode(remove)) == connected
        await work.write(agent_service_pb2.WorkRequest(draining=True))
        await work.done_writing()
        assert await work.read() is grpc.aio.EOF
        await until(bench, "n1", node_pb2.NODE_STATE_LOST)
        (node,) = await listed(bench)
        assert (node.message, node.cordoned) == ("Left.", True)
        await bench.jobs.RemoveNode(remove)
        assert await listed(bench) == [] and bench.store.reader().nodes() == []

    drive(tmp_path, scenario)


def test_the_one_node_of_a_run_on_this_machine_is_not_set_aside(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        await joined(bench, "n1")
        private = (grpc.StatusCode.FAILED_PRECONDITION, "NODE_PRIVATE")
        assert await refusal(bench.jobs.DrainNode(job_service_pb2.DrainNodeRequest(node_id="n1"))) == private
        cordon = job_service_pb2.CordonNodeRequest(node_id="n1", cordoned=True)
        assert await refusal(bench.jobs.CordonNode(cordon)) == private
        assert not (await listed(bench))[0].cordoned

    drive(tmp_path, scenario, embedded=True)


def test_a_name_that_nobody_has_is_refused(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        unknown = (grpc.StatusCode.NOT_FOUND, "NODE_UNKNOWN")
        jobs = bench.jobs
        assert await refusal(jobs.DrainNode(job_service_pb2.DrainNodeRequest(node_id="n1"))) == unknown
        assert await refusal(jobs.CordonNode(job_service_pb2.CordonNodeRequest(node_id="n1"))) == unknown
        assert await refusal(jobs.RemoveNode(job_service_pb2.RemoveNodeRequest(node_id=""))) == unknown

    drive(tmp_path, scenario)


def test_nothing_is_changed_while_nothing_can_be_written(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        await joined(bench, "n1")
        bench.writer.read_only_reason = "The disk is full."
        for command in (
            commands.DrainNode(NodeId("n1")),
            commands.CordonNode(NodeId("n1"), True),
            commands.RemoveNode(NodeId("n1")),
        ):
            assert (await bench.writer.submit(command)).reason == "STORAGE_FULL"
        bench.writer.read_only_reason = ""
        assert not (await listed(bench))[0].cordoned

    drive(tmp_path, scenario)


def test_what_scripts_hand_in_waits_while_nothing_can_be_written(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        admitted = await bench.agents.Register(agent_service_pb2.RegisterRequest(node_id="n1", node_incarnation="i"))
        bench.writer.read_only_reason = "The disk is full."
        head = run_files_pb2.KeepFilesHead(run=run_files_pb2.RunOfScript(step_id=1))
        call = bench.agents.KeepFiles(
            iter([run_files_pb2.KeepFilesRequest(head=head)]), metadata=[(CREDENTIAL_KEY, admitted.node_credential)]
        )
        assert await refusal(call) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")

    drive(tmp_path, scenario)
