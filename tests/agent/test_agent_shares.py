"""A node that is shared out by its master: which workers it starts, which make room, and how."""

from __future__ import annotations

from agent_rig import ECHO, Rig, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

OTHER = STEP + 1


def share(rig: Rig, reclaim_after_s: float = 30.0, **workers: int) -> None:
    """Tell the node how many workers its steps should have: `first` and `other`."""
    steps = {"first": STEP, "other": OTHER}
    shares = rpc.NodeShares(
        steps=[rpc.StepShare(step_id=steps[name], workers=count) for name, count in workers.items() if count]
    )
    shares.reclaim_after.FromMilliseconds(int(reclaim_after_s * 1000))
    rig.master.send(rpc.WorkResponse(shares=shares))


def workers_of(rig: Rig, step_id: int) -> int:
    """As the last heartbeat told."""
    return sum(worker.step_id == step_id for worker in rig.master.heartbeats[-1].workers)


async def serve_two(rig: Rig, text: str, slots: int) -> None:
    """An agent with two steps: the first one's script is `text`."""
    rig.master.step(rig.script(ECHO, "other"), step_id=OTHER)
    await rig.serve(text, slots=slots)


WAITING = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while mini_batch[0] == 'wait' and not os.path.exists(GATE): time.sleep(0.01)\n"
    "    return mini_batch\n"
)


@scenario
async def test_workers_are_started_and_make_room_as_the_master_says(rig: Rig) -> None:
    await serve_two(rig, ECHO, slots=2)
    share(rig, first=2)
    await rig.master.until(lambda: rig.master.heartbeats and workers_of(rig, STEP) == 2)
    await rig.master.until(lambda: OTHER in rig.master.capacities and not rig.master.capacities[OTHER].leases_max)
    share(rig, first=1, other=1)
    await rig.master.until(lambda: (workers_of(rig, STEP), workers_of(rig, OTHER)) == (1, 1))
    ids = [*rig.master.assign(5), *rig.master.assign(5, step_id=OTHER)]
    await rig.master.until(lambda: rig.master.done(ids))
    share(rig, other=2)
    await rig.master.until(lambda: (workers_of(rig, STEP), workers_of(rig, OTHER)) == (0, 2))
    assert not rig.master.failures


@scenario
async def test_a_worker_that_makes_room_finishes_what_it_runs_and_the_rest_is_given_back(rig: Rig) -> None:
    gate = rig.root / "gate"
    await serve_two(rig, WAITING.replace("GATE", repr(str(gate))), slots=1)
    share(rig, first=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    running, *rest = rig.master.assign(4, recipe=b"wait")
    await rig.master.until(lambda: any(b.workers and b.workers[0].lease_id == running for b in rig.master.heartbeats))
    share(rig, other=1)
    await rig.master.until(lambda: set(rig.master.released) == set(rest), "what it has not begun")
    other = rig.master.assign(1, step_id=OTHER)
    gate.touch()
    await rig.master.until(lambda: rig.master.done([running, *other]))
    assert rig.master.completions[running][0].cause == work.CAUSE_UNSPECIFIED


@scenario
async def test_a_worker_that_does_not_make_room_in_time_is_killed_and_nobody_is_charged(rig: Rig) -> None:
    await serve_two(rig, WAITING.replace("GATE", "'/nonexistent'"), slots=1)
    share(rig, first=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (running,) = rig.master.assign(1, recipe=b"wait")
    await rig.master.until(lambda: any(b.workers and b.workers[0].lease_id == running for b in rig.master.heartbeats))
    share(rig, 0.3, other=1)
    other = rig.master.assign(1, step_id=OTHER)
    await rig.master.until(lambda: rig.master.done(other))
    assert rig.master.released == [running] and running not in rig.master.completions
    (cut_short,) = rig.master.cut_short
    assert cut_short.lease_id == running and cut_short.elapsed_us > 300_000
    assert not rig.master.failures


@scenario
async def test_a_worker_whose_place_nobody_waits_for_is_not_killed(rig: Rig) -> None:
    gate = rig.root / "gate"
    await serve_two(rig, WAITING.replace("GATE", repr(str(gate))), slots=2)
    share(rig, first=2)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(2, recipe=b"wait")
    await rig.master.until(
        lambda: any({worker.lease_id for worker in b.workers} == set(ids) for b in rig.master.heartbeats)
    )
    share(rig, 0.1, first=1)
    beats = len(rig.master.heartbeats)
    await rig.master.until(lambda: len(rig.master.heartbeats) > beats + 2, "time enough to kill it")
    gate.touch()
    await rig.master.until(lambda: rig.master.done(ids))


@scenario
async def test_a_new_stream_hears_how_many_workers_there_are(rig: Rig) -> None:
    await serve_two(rig, ECHO, slots=3)
    share(rig, first=1, other=2)
    await rig.master.until(lambda: rig.master.heartbeats and (workers_of(rig, STEP), workers_of(rig, OTHER)) == (1, 2))
    hellos = len(rig.master.hellos)
    rig.master.reopen = True
    await rig.master.until(lambda: len(rig.master.hellos) > hellos)
    hello = rig.master.hellos[-1]
    assert dict(zip(hello.step_ids, hello.step_workers, strict=True)) == {STEP: 1, OTHER: 2}
