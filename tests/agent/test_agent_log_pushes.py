"""Logs on their way to the master: every byte of them, once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from agent_rig import Rig, scenario
from scripted_master import ScriptedMaster
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow_agent.link import Link
from windrow_agent.outgoing.metrics_first import MetricsFirst
from windrow_agent.session.log_pushes import LogPushes
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import Step


async def admitted(master: ScriptedMaster) -> Link:
    """A connection over which a node is admitted."""
    await master.start()
    link = Link(master.address, None)
    response = await link.agent.Register(rpc.RegisterRequest(node_id="node-1"))
    link.credential = response.node_credential
    return link


@scenario
async def test_two_pushes_at_a_time_bring_every_byte_once(rig: Rig) -> None:
    """As at the end of an agent, when the last logs are brought while they still are every half second."""
    spec = rig.master.step(rig.script(""))
    link = await admitted(rig.master)
    ended = Step.open(spec, rig.root, "node-1", 1, 0, Lineage())
    written = b"".join(b"%07d\n" % number for number in range(1 << 20))
    log = ended.log_file(rpc.LOG_KIND_STDOUT, 0)
    log.path.parent.mkdir(parents=True)
    log.path.write_bytes(written)
    steps: Any = SimpleNamespace(steps={}, ended_steps=SimpleNamespace(ended=[ended]))

    async def drop(step: Step) -> None:
        steps.ended_steps.ended.remove(step)
        step.drop()

    steps.drop = drop

    async def linked() -> Link:
        return link

    pushes = LogPushes(steps, MetricsFirst(), cast("Any", linked))
    await asyncio.gather(pushes.push(), pushes.push_all())
    assert rig.master.logs[rpc.LOG_KIND_STDOUT, 0] == written
    assert not steps.ended_steps.ended and not ended.folder.exists()
    await link.close()
