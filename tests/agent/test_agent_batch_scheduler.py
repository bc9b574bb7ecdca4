"""An agent in a job of a batch scheduler: whoever ends the job sends SIGTERM to all of its processes, in any order."""

from __future__ import annotations

import os
import signal

import pytest
from agent_rig import AgentProcess, Rig, eventually, scenario
from test_agent_failures import alive
from windrow.rpc.v1 import work_pb2 as work

WAITS = """\
import os, time

def run(mini_batch):
    with open("{path}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("{path}.new", "{path}")
    time.sleep(3600)
"""


async def _at_work(rig: Rig) -> tuple[AgentProcess, int, list[int]]:
    """An agent with one worker in run(): the agent, the worker's process, and the leases, of which one has begun."""
    path = rig.root / "pid"
    agent = await rig.serve(WAITS.format(path=path), slots=1)
    ids = rig.master.assign(2)
    await eventually(path.exists, "the worker is in run()")
    return agent, int(path.read_text()), ids


@pytest.mark.parametrize("first", ["agent", "worker"])
def test_a_job_that_is_ended_with_all_its_processes_charges_nothing(first: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        agent, worker, ids = await _at_work(rig)
        if first == "agent":
            agent.signal(signal.SIGTERM)
            await rig.master.until(lambda: rig.master.draining, "the agent drains")
            os.kill(worker, signal.SIGTERM)
        else:
            os.kill(worker, signal.SIGTERM)
            await eventually(lambda: not alive(worker), "the worker is dead")
            agent.signal(signal.SIGTERM)
        assert await agent.wait() == 0
        assert sorted(rig.master.released) == sorted(ids)
        assert not rig.master.completions and not rig.master.failures

    run()


@scenario
async def test_a_worker_alone_that_is_sent_sigterm_is_charged(rig: Rig) -> None:
    _, worker, ids = await _at_work(rig)
    os.kill(worker, signal.SIGTERM)
    await rig.master.until(lambda: rig.master.completions, "a completion")
    ((begun, (completion, *_)),) = rig.master.completions.items()
    assert begun in ids
    assert completion.cause == work.CAUSE_CRASH and "SIGTERM" in completion.message
