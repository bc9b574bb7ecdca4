"""Masters that vanish, come back, forget and are replaced; agents that are killed, drained and started twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from agent_rig import ECHO, Rig, eventually, scenario
from scripted_master import STEP
from test_agent_failures import alive, children
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

GATED = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while not os.path.exists({gate!r}): time.sleep(0.005)\n"
    "    return [mini_batch[0]]\n"
)


def gated(rig: Rig) -> tuple[str, Path]:
    gate = rig.root / "gate"
    return GATED.format(gate=str(gate)), gate


@scenario
async def test_an_agent_waits_for_its_master(rig: Rig) -> None:
    rig.master.step(rig.script(ECHO))
    await rig.agent()
    log = rig.root / "agent" / "agent.log"
    await eventually(lambda: log.exists() and "no session with a master" in log.read_text())
    await rig.master.start()
    await rig.master.until(lambda: rig.master.hellos)


@scenario
async def test_what_finishes_while_the_master_is_away_is_delivered_once_it_is_back(rig: Rig) -> None:
    script, gate = gated(rig)
    await rig.serve(script)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(4)
    await rig.master.until(
        lambda: sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2 if rig.master.heartbeats else 0
    )
    await rig.master.stop()
    gate.touch()
    log = rig.root / "agent" / "agent.log"
    await eventually(lambda: log.read_text().count("no session") >= 2)
    rig.master.incarnation = 2
    await rig.master.start()
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    assert {lease.lease_id for lease in rig.master.hellos[1].held_leases} == set(ids)
    assert {lease.generation for lease in rig.master.hellos[1].held_leases} == {1}
    assert list(rig.master.hellos[1].step_ids) == [STEP]
    await rig.master.until(lambda: rig.master.done(ids))
    assert rig.master.downloads == 1, "the code is still there"
    assert {rig.master.completions[i][0].process_number for i in ids} <= {0, 1}, "the workers are still there"


@scenario
async def test_an_upload_broken_by_the_masters_end_is_done_again(rig: Rig) -> None:
    rig.master.uploads_hang = True
    await rig.serve("def run(mini_batch):\n    return ['x' * 1000] * 3000\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.uploads_begun >= 2)
    await rig.master.stop()
    rig.master.uploads_hang = False
    await rig.master.start()
    await rig.master.until(lambda: rig.master.done(ids))
    assert all(len(rows) == 3_003_000 for rows in rig.master.uploads.values())
    assert len(rig.master.uploads) == 3


@scenario
async def test_unacknowledged_results_are_sent_again_on_each_stream(rig: Rig) -> None:
    rig.master.acknowledge = False
    await rig.serve(ECHO)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(10)
    await rig.master.until(lambda: rig.master.done(ids))
    rig.master.reopen = True
    await rig.master.until(lambda: all(len(rig.master.completions[i]) == 2 for i in ids))
    assert {lease.lease_id for lease in rig.master.hellos[-1].held_leases} == set(ids)
    rig.master.acknowledge = True
    rig.master.accept(ids, work.VERDICT_SUPERSEDED)
    await rig.master.until(lambda: rig.master.heartbeats[-1].lease_count == 0)
    for i in ids:
        first, second = rig.master.completions[i]
        assert first == second


@scenario
async def test_a_node_that_is_unknown_registers_again(rig: Rig) -> None:
    await rig.serve(ECHO)
    await rig.master.until(lambda: rig.master.heartbeats)
    rig.master.unknown = True
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    first, second = rig.master.registrations
    assert first.node_incarnation == second.node_incarnation


@scenario
async def test_sessions_that_break_again_and_again_are_a_series(rig: Rig) -> None:
    """So that the pauses between them grow, though the master has answered each time."""
    await rig.serve(ECHO)
    for opened in range(1, 6):
        await rig.master.until(lambda opened=opened: len(rig.master.hellos) == opened)  # type: ignore[misc]
        rig.master.reopen = True
    lines = [json.loads(line) for line in (rig.root / "agent" / "agent.log").read_text().splitlines()]
    failures = [line["failures"] for line in lines if "disagree about the leases" in line["event"]]
    assert failures == [1, 2, 3, 4]


@scenario
async def test_a_master_of_an_earlier_state_is_served_without_what_it_does_not_know(rig: Rig) -> None:
    """A state that was brought back from a backup counts its incarnations, and its steps, from where it was."""
    rig.master.incarnation = 5
    await rig.serve(ECHO)
    # Not the hello: the step comes after it.
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    await rig.master.stop()
    rig.master.incarnation = 4
    rig.master.foreign_step_ids = [7]
    rig.master.specs.clear()
    await rig.master.start()
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    assert [held.step_id for held in rig.master.registrations[-1].held_steps] == [7]
    assert not rig.master.hellos[-1].step_ids and not rig.master.hellos[-1].held_leases


@scenario
async def test_a_second_node_of_the_same_name_waits_and_says_so(rig: Rig) -> None:
    rig.master.register_error = (grpc.StatusCode.ALREADY_EXISTS, errors.NODE_ALREADY_LIVE)
    await rig.master.start()
    agent = await rig.agent()
    await rig.master.until(lambda: len(rig.master.registrations) >= 4)
    stderr = (rig.root / "agent.stderr").read_text()
    assert "NODE_ALREADY_LIVE" in stderr
    rig.master.register_error = None
    await rig.master.until(lambda: rig.master.hellos)
    assert agent.process is not None and agent.process.returncode is None


@scenario
async def test_a_killed_agent_takes_its_workers_along_and_its_successor_says_so(rig: Rig) -> None:
    script, gate = gated(rig)
    agent = await rig.serve(script)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.assign(4)
    await rig.master.until(
        lambda: rig.master.heartbeats and sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2
    )
    assert agent.process is not None
    workers = children(agent.process.pid)
    await agent.kill()
    second = await rig.agent()
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    assert not any(map(alive, workers))
    first, again = rig.master.registrations[0], rig.master.registrations[-1]
    assert again.replaced_incarnation == first.node_incarnation != again.node_incarnation
    assert not rig.master.hellos[1].held_leases
    gate.touch()
    ids = rig.master.assign(4)
    await rig.master.until(lambda: rig.master.done(ids))
    assert second.process is not None and second.process.returncode is None


@scenario
async def test_strays_of_a_killed_agent_are_ended_before_it_registers_again(rig: Rig) -> None:
    """Children of workers do not die with the agent. An innocent process with a look-alike mark survives."""
    pids = rig.root / "pids"
    agent = await rig.serve(
        "import subprocess, time\n"
        "def run(mini_batch):\n"
        "    same = subprocess.Popen(['sleep', '3600'])\n"
        "    own = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        "    bare = subprocess.Popen(['sleep', '3600'], env={})\n"
        f"    open({str(pids)!r} + '.new', 'w').write(f'{{same.pid}} {{own.pid}} {{bare.pid}}')\n"
        "    import os\n"
        f"    os.rename({str(pids)!r} + '.new', {str(pids)!r})\n"
        "    time.sleep(3600)\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.assign(1)
    await rig.master.until(pids.exists)
    left = [int(pid) for pid in pids.read_text().split()]
    innocent = await asyncio.create_subprocess_exec("sleep", "3600", env={"WINDROW_WORKER": "somebody.1"})
    await agent.kill()
    try:
        await rig.agent()
        await rig.master.until(lambda: len(rig.master.hellos) == 2)
        assert not any(map(alive, left[:2]))
        assert alive(innocent.pid)
    finally:
        innocent.kill()
        await innocent.wait()
        for pid in left:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@scenario
async def test_two_agents_cannot_share_a_folder(rig: Rig) -> None:
    first = await rig.serve(ECHO)
    second = await rig.agent()
    assert await second.wait() == 1
    assert first.process is not None
    stderr = (rig.root / "agent.stderr").read_text()
    assert f"process {first.process.pid}" in stderr and "--folder" in stderr


@scenario
async def test_sigterm_finishes_what_runs_hands_back_the_rest_and_leaves(rig: Rig) -> None:
    script, gate = gated(rig)
    agent = await rig.serve(script + "def shutdown():\n    open({!r}, 'a').write('x')\n".format(str(rig.root / "down")))
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(10)
    await rig.master.until(
        lambda: rig.master.heartbeats and sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2
    )
    running = {w.lease_id for w in rig.master.heartbeats[-1].workers}
    agent.signal(signal.SIGTERM)
    await rig.master.until(lambda: rig.master.draining)
    await rig.master.until(lambda: set(rig.master.released) == set(ids) - running)
    late = rig.master.assign(2)
    await rig.master.until(lambda: set(late) <= set(rig.master.released))
    assert not rig.master.completions
    gate.touch()
    assert await agent.wait() == 0
    assert set(rig.master.completions) == running
    assert (rig.root / "down").read_text() == "xx"


@scenario
async def test_after_the_grace_period_running_work_is_handed_back(rig: Rig) -> None:
    script, _ = gated(rig)
    agent = await rig.serve(script, drain_grace_s=0.2)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(3)
    await rig.master.until(
        lambda: rig.master.heartbeats and sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2
    )
    rig.master.send(rpc.WorkResponse(drain=True))
    assert await agent.wait() == 0
    assert set(rig.master.released) == set(ids)
    assert not rig.master.completions


@scenario
async def test_a_second_signal_ends_at_once(rig: Rig) -> None:
    script, _ = gated(rig)
    agent = await rig.serve(script)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.assign(2)
    await rig.master.until(
        lambda: rig.master.heartbeats and sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2
    )
    assert agent.process is not None
    workers = children(agent.process.pid)
    agent.signal(signal.SIGTERM)
    await rig.master.until(lambda: rig.master.draining)
    agent.signal(signal.SIGINT)
    assert await agent.wait() == 0
    assert not any(map(alive, workers))


@scenario
async def test_a_drain_without_work_is_quick_and_without_a_master_possible(rig: Rig) -> None:
    agent = await rig.serve(ECHO)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    await rig.master.stop()
    agent.signal(signal.SIGTERM)
    assert await agent.wait() == 0


@scenario
async def test_what_is_handed_out_before_the_master_hears_of_the_drain_is_handed_back(rig: Rig) -> None:
    rig.master.answers_drain = False
    agent = await rig.serve(ECHO)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    agent.signal(signal.SIGTERM)
    await rig.master.until(lambda: rig.master.draining)
    ids = rig.master.assign(3)
    await rig.master.until(lambda: set(ids) <= set(rig.master.released))
    rig.master.send(rpc.WorkResponse(drain=True))
    assert await agent.wait() == 0


@scenario
async def test_on_master_lost_stop_ends_what_runs_when_its_lease_is_over(rig: Rig) -> None:
    script, _ = gated(rig)
    rig.master.lease_ttl_s = 2
    agent = await rig.serve(script, on_master_lost="stop")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.assign(2)
    await rig.master.until(
        lambda: rig.master.heartbeats and sum(1 for w in rig.master.heartbeats[-1].workers if w.lease_id) == 2
    )
    assert agent.process is not None
    workers = children(agent.process.pid)
    await rig.master.stop()
    await eventually(lambda: not any(map(alive, workers)))
    await rig.master.start()
    await rig.master.until(lambda: len(rig.master.hellos) == 2)
    assert not rig.master.hellos[1].held_leases


@scenario
async def test_rows_beyond_memory_wait_on_disk_and_stop_new_work(rig: Rig) -> None:
    rig.master.acknowledge = False
    await rig.serve(
        "import time\ndef run(mini_batch):\n    time.sleep(0.02)\n    return ['x' * 100_000]\n",
        slots=1,
        memory_rows_bytes_max=300_000,
        held_rows_bytes_max=1_000_000,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(30)
    await rig.master.until(lambda: rig.master.capacities[STEP].leases_max == 0)
    await rig.master.until(lambda: len(rig.master.completions) >= 10)
    assert len(rig.master.completions) < 30
    rig.master.acknowledge = True
    rig.master.reopen = True
    await rig.master.until(lambda: rig.master.done(ids))
    assert {rig.master.completions[i][-1].rows for i in ids} == {b"x" * 100_000 + b"\n"}


class Relay:
    """Between an agent, by TCP, and the master's socket. What is stalled takes bytes and passes none on."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stalled_until = 0
        """Connections with a lower number are stalled."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Yields the address."""
        async with await asyncio.start_server(self._connect, "127.0.0.1", 0) as server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stall(self) -> None:
        """As an outage does to connections: they are open, and nothing comes through. New ones are well."""
        self._stalled_until = self._connections

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, self._connections = self._connections, self._connections + 1
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._pass_on(number, source, target)))

    async def _pass_on(self, number: int, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 16):
                if number >= self._stalled_until:
                    target.write(data)
                    await target.drain()
        finally:
            target.close()


@scenario
async def test_a_connection_that_has_stopped_is_left_for_one_that_goes_through(rig: Rig) -> None:
    script, gate = gated(rig)
    rig.master.step(rig.script(script))
    await rig.master.start()
    relay = Relay(rig.master.address.removeprefix("unix:"))
    async with relay.open() as address:
        await rig.agent(master_addresses=[address])
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        ids = rig.master.assign(4)
        await rig.master.until(lambda: rig.master.heartbeats)
        relay.stall()
        await rig.master.until(lambda: len(rig.master.hellos) == 2)
        assert "the connection has stalled" in (rig.root / "agent" / "agent.log").read_text()
        assert {lease.lease_id for lease in rig.master.hellos[1].held_leases} == set(ids)
        gate.touch()
        await rig.master.until(lambda: rig.master.done(ids))
