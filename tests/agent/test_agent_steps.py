"""Steps that end on a node, come back to it, and are replaced there by a later generation."""

from __future__ import annotations

import shutil

from agent_rig import ECHO, Rig, eventually, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node
from windrow.rpc.v1 import work_pb2 as work

DYING = "import os\ndef run(mini_batch):\n    return mini_batch if mini_batch[0] == 'item' else os._exit(7)\n"


async def ended(rig: Rig) -> None:
    """The step's workers end, and the master hears of it."""
    told = len(rig.master.ended)
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
    await rig.master.until(lambda: len(rig.master.ended) > told)


@scenario
async def test_a_step_that_comes_back_keeps_its_folder_when_its_former_logs_are_brought(rig: Rig) -> None:
    """With the same generation: some of its rows were lost, and it goes on."""
    await rig.serve(DYING, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    first = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(first))
    rig.master.logs_may_come.clear()
    await ended(rig)
    rig.master.send(rpc.WorkResponse(steps=rig.master.specs.values()))
    again = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(again))
    steps = rig.root / "agent" / "steps"
    folders = len(list(steps.iterdir()))
    rig.master.logs_may_come.set()
    await eventually(lambda: len(list(steps.iterdir())) < folders, "the former folder is gone")
    deadly = rig.master.assign(1, recipe=b"deadly")
    after = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done([*deadly, *after]))
    assert [rig.master.completions[i][0].cause for i in after] == [work.CAUSE_UNSPECIFIED]
    assert not rig.master.failures


STOPPING = [node.WORKER_PHASE_STOPPING]
HANGING = "import time\ndef run(mini_batch):\n    return mini_batch\ndef shutdown():\n    time.sleep(3600)\n"
FAILING = HANGING.replace("time.sleep(3600)", "raise OSError('no model store')")


@scenario
async def test_a_step_that_is_ending_is_replaced_at_once_and_not_told_of(rig: Rig) -> None:
    await rig.serve(HANGING, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    used = []
    for generation in (1, 2, 3):
        (lease_id,) = rig.master.assign(1)
        await rig.master.until(lambda lease_id=lease_id: rig.master.done([lease_id]))
        used.append(rig.master.completions[lease_id][0].process_number)
        rig.master.heartbeats.clear()
        rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
        await rig.master.until(lambda: STOPPING in [[w.phase for w in beat.workers] for beat in rig.master.heartbeats])
        rig.master.step(
            rig.script(ECHO if generation == 3 else HANGING, f"code{generation}"), generation=generation + 1
        )
    last = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(last))
    assert len(set(used)) == 3, "the number of a process is its own"
    assert not rig.master.ended
    await ended(rig)
    assert [(end.generation, end.shutdown_failures) for end in rig.master.ended] == [(4, 0)]


@scenario
async def test_the_end_of_an_earlier_generation_leaves_the_one_that_came_with_it(rig: Rig) -> None:
    """While an agent is slow to read, the end of a step and its next offer are merged into one message."""
    await rig.serve(ECHO, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    spec = work.StepSpec()
    spec.CopyFrom(rig.master.specs[STEP])
    spec.generation = 2
    rig.master.specs[STEP] = spec
    rig.master.send(rpc.WorkResponse(steps=[spec], ended_step_ids=[STEP], ended_step_generations=[1]))
    await rig.master.until(lambda: rig.master.ended)
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    assert not rig.master.released
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP], ended_step_generations=[2]))
    await rig.master.until(lambda: len(rig.master.ended) == 2)
    assert [(end.generation, end.asked_generation) for end in rig.master.ended] == [(0, 1), (2, 2)]


@scenario
async def test_how_a_step_ended_is_told_until_it_comes_back(rig: Rig) -> None:
    await rig.serve(FAILING, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    for generation in (1, 2):
        ids = rig.master.assign(1)
        await rig.master.until(lambda ids=ids: rig.master.done(ids))
        await ended(rig)
        await ended(rig)
        if generation == 1:
            rig.master.step(rig.script(ECHO, "repaired"), generation=2)
    assert [(end.generation, end.shutdown_failures) for end in rig.master.ended] == [(1, 1), (1, 1), (2, 0), (0, 0)]


@scenario
async def test_logs_of_the_node_go_on_where_the_former_generation_has_left_them(rig: Rig) -> None:
    spec = {"environment": work.Environment(), "resource_monitor_interval": 1}
    await rig.serve(ECHO, slots=1, spec=spec)
    usage = rig.master.logs[rpc.LOG_KIND_NODE_RESOURCES, 0]
    build = rig.master.logs[rpc.LOG_KIND_ENVIRONMENT, 0]
    await rig.master.until(lambda: usage and build)
    await ended(rig)
    await eventually(lambda: not list((rig.root / "agent" / "steps").iterdir()), "the last logs are brought")
    first_usage, first_build = bytes(usage), bytes(build)
    rig.master.step(rig.script(ECHO, "repaired"), generation=2, **spec)
    await rig.master.until(lambda: usage != first_usage and build != first_build)
    assert usage.startswith(first_usage) and usage.count(b"Utc Time") == 1
    assert build == 2 * first_build


@scenario
async def test_what_keeps_a_node_from_serving_a_step_has_a_number_of_its_own(rig: Rig) -> None:
    """It must not be written over the logs of a worker of the former generation."""
    await rig.serve("def run(mini_batch):\n    raise OSError('no disk')\n", slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    error = rig.master.logs[rpc.LOG_KIND_ERROR, 0]
    await rig.master.until(lambda: b"no disk" in error)
    rig.master.step(rig.script(ECHO, "lost"), generation=2, code_digest="0" * 64)
    await rig.master.until(lambda: rig.master.failures)
    number = rig.master.failures[0].process_number
    await rig.master.until(lambda: b"no code archive" in rig.master.logs[rpc.LOG_KIND_ERROR, number])
    assert number == 1 and b"no disk" in error


@scenario
async def test_code_that_is_gone_from_the_node_is_not_blamed_on_the_interpreter(rig: Rig) -> None:
    await rig.serve(DYING, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    await rig.master.until(
        lambda: any(worker.phase == node.WORKER_PHASE_IDLE for beat in rig.master.heartbeats for worker in beat.workers)
    )
    (code,) = (rig.root / "agent").glob("steps/*/code")
    shutil.rmtree(code)
    rig.master.assign(1, recipe=b"deadly")
    await rig.master.until(lambda: rig.master.failures)
    failure = rig.master.failures[0]
    assert failure.cause == work.CAUSE_NODE_FAULT
    assert str(code) in failure.message and "interpreter" not in failure.message
