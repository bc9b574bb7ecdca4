"""The agent at work: real workers over real sockets, a scripted master on the other side."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import grpc
import pytest
from agent_rig import ECHO, Rig, eventually, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import node_pb2 as node
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.leases.lease import Lease
from windrow_agent.supervision.distributor import packet_of
from windrow_agent.workers.process import PACKET_RECIPE_MAX

IDLE = node.WORKER_PHASE_IDLE


@scenario
async def test_mini_batches_come_back_with_their_rows(rig: Rig) -> None:
    await rig.serve(ECHO)
    await rig.master.until(lambda: STEP in rig.master.capacities)
    ids = rig.master.assign(300, recipe=b"file-%d")
    await rig.master.until(lambda: rig.master.done(ids))
    for lease_id in ids:
        (completion,) = rig.master.completions[lease_id]
        assert completion.cause == work.CAUSE_UNSPECIFIED
        assert completion.rows == f"row of file-{lease_id}\n".encode()
        assert completion.rows_crc32 == zlib.crc32(completion.rows)
        assert (completion.item_count, completion.result_count, completion.row_count) == (1, 1, 1)
        assert completion.process_number in (0, 1)
    await rig.master.until(lambda: rig.master.heartbeats and rig.master.heartbeats[-1].lease_count == 0)
    beat = rig.master.heartbeats[-1]
    assert beat.lease_digest == 0 and beat.usage.memory_used_bytes > 0 and len(beat.workers) == 2


@scenario
async def test_workers_start_before_any_work_and_capacity_grows_with_pace(rig: Rig) -> None:
    await rig.serve(
        "def run(mini_batch):\n"
        "    if int(mini_batch[0]) <= 300:\n"
        "        raise ValueError('broken')\n"
        "    return mini_batch\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    assert rig.master.capacities[STEP].workers == 2
    assert rig.master.capacities[STEP].leases_max == 2, "one a slot until it is known how long they take"
    await rig.master.until(lambda: rig.master.heartbeats and len(rig.master.heartbeats[-1].workers) == 2)
    ids = rig.master.assign(300, recipe=b"%d")
    await rig.master.until(lambda: rig.master.done(ids))
    assert rig.master.capacities[STEP].leases_max == 2, "what fails at once says nothing of the others"
    ids = rig.master.assign(200, recipe=b"%d")
    await rig.master.until(lambda: rig.master.done(ids))
    await rig.master.until(lambda: rig.master.capacities[STEP].leases_max >= 100)


@scenario
async def test_the_same_assignment_twice_runs_once(rig: Rig) -> None:
    await rig.serve(
        "import os\ndef run(mini_batch):\n    print('ran', mini_batch[0], flush=True)\n    return mini_batch\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (lease_id,) = rig.master.assign(1)
    rig.master.send(
        rpc.WorkResponse(
            assignments=[
                work.StepAssignments(step_id=STEP, generation=1, assignments=[work.Assignment(lease_id=lease_id)])
            ]
        )
    )
    after = rig.master.assign(5)
    await rig.master.until(lambda: rig.master.done([lease_id, *after]))
    assert len(rig.master.completions[lease_id]) == 1


@scenario
async def test_large_rows_are_staged_and_named(rig: Rig) -> None:
    rig.master.upload_errors = [grpc.StatusCode.UNAVAILABLE]
    await rig.serve("def run(mini_batch):\n    return ['x' * 1000] * 3000\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done(ids))
    for lease_id in ids:
        (completion,) = rig.master.completions[lease_id]
        rows = rig.master.uploads[completion.staged_segment]
        assert rows == (b"x" * 1000 + b"\n") * 3000
        assert (completion.rows, completion.rows_length, completion.rows_crc32) == (b"", len(rows), zlib.crc32(rows))
    assert not list((rig.root / "agent" / "staged").iterdir())


@scenario
async def test_rows_that_are_refused_again_and_again_keep_no_others_back(rig: Rig) -> None:
    await rig.serve("def run(mini_batch):\n    return ['x' * 1000] * 3000\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    refused = rig.master.assign(2)
    rig.master.uploads_refused.update(refused)
    await rig.master.until(lambda: rig.master.uploads_begun >= 2)
    others = rig.master.assign(2)
    await rig.master.until(lambda: rig.master.done(others))
    assert not any(i in rig.master.completions for i in refused)
    rig.master.uploads_refused.clear()
    await rig.master.until(lambda: rig.master.done(refused))


@pytest.mark.parametrize("damage", ["gone", "unreadable"])
def test_rows_that_this_node_has_lost_are_a_fault_of_the_node(damage: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve("def run(mini_batch):\n    return ['x' * 1000] * 3000\n")
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        lost = [1, 2]
        rig.master.uploads_refused.update(lost)
        assert rig.master.assign(2) == lost
        await rig.master.until(lambda: rig.master.uploads_begun >= 2)
        await eventually(lambda: len(list((rig.root / "agent" / "staged").iterdir())) == 2)
        for rows in (rig.root / "agent" / "staged").iterdir():
            rows.unlink()
            if damage == "unreadable":
                rows.symlink_to("/proc/self/mem")  # opens; its first byte cannot be read
        await rig.master.until(lambda: rig.master.done(lost))
        for lease_id in lost:
            (completion,) = rig.master.completions[lease_id]
            assert (completion.cause, completion.staged_segment) == (work.CAUSE_NODE_FAULT, "")
            assert "could not be read on this node" in completion.message
        after = rig.master.assign(2)
        await rig.master.until(lambda: rig.master.done(after))
        assert all(rig.master.completions[i][0].staged_segment for i in after)

    run()


@scenario
async def test_a_recipe_of_forty_thousand_files_arrives_whole(rig: Rig) -> None:
    await rig.serve("def run(mini_batch):\n    return [len(mini_batch), mini_batch[-1]]\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    recipe = b"\0".join(b"/some/folder/of/images/image-%06d.png" % number for number in range(40_000))
    ids = rig.master.assign(4, recipe=recipe.replace(b"%d", b""))
    await rig.master.until(lambda: rig.master.done(ids))
    for lease_id in ids:
        assert rig.master.completions[lease_id][0].rows == b"40000\n/some/folder/of/images/image-039999.png\n"
    assert not list((rig.root / "agent").glob("steps/*/scratch/*/recipe-*"))


@scenario
async def test_unread_work_moves_to_an_idle_worker(rig: Rig) -> None:
    """The first mini-batch hangs in one worker until all others, also those in its channel, were done elsewhere."""
    gate = rig.root / "gate"
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    while mini_batch[0] == 'slow' and not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    return mini_batch\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    warm = rig.master.assign(200)
    await rig.master.until(lambda: rig.master.done(warm))
    slow = rig.master.assign(1, recipe=b"slow")
    rest = rig.master.assign(40)
    await rig.master.until(lambda: rig.master.done(rest))
    assert not rig.master.done(slow)
    gate.touch()
    await rig.master.until(lambda: rig.master.done(slow))


@scenario
async def test_what_stands_first_begins_first_in_each_idle_worker(rig: Rig) -> None:
    """The longest mini-batches are assigned first: none of them waits behind another while a worker runs short ones."""
    gate, order = rig.root / "gate", rig.root / "order"
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    with open({str(order)!r}, 'a') as file: file.write(mini_batch[0] + '\\n')\n"
        f"    while int(mini_batch[0]) in (201, 202) and not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    return mini_batch\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    warm = rig.master.assign(200, recipe=b"%d")
    await rig.master.until(lambda: rig.master.done(warm))
    ids = rig.master.assign(40, recipe=b"%d")
    await rig.master.until(lambda: len(order.read_text().split()) >= 202)
    assert sorted(order.read_text().split()[200:]) == ["201", "202"]
    gate.touch()
    await rig.master.until(lambda: rig.master.done(ids))


@scenario
async def test_recalled_leases_come_back_unless_they_run(rig: Rig) -> None:
    gate = rig.root / "gate"
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    print('running', mini_batch[0], flush=True)\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
        "    return mini_batch\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(6)
    await rig.master.until(lambda: any(b.workers and b.workers[0].lease_id == ids[0] for b in rig.master.heartbeats))
    rig.master.send(rpc.WorkResponse(recalls=[rpc.StepRecall(step_id=STEP, count=2, kept_lease_ids=ids[5:])]))
    await rig.master.until(lambda: set(rig.master.released) == set(ids[3:5]))  # those that would begin last
    rig.master.send(rpc.WorkResponse(recalls=[rpc.StepRecall(step_id=STEP, count=100)]))
    await rig.master.until(lambda: set(rig.master.released) == set(ids[1:]))
    gate.touch()
    await rig.master.until(lambda: rig.master.done(ids[:1]))
    assert rig.master.completions.keys() == {ids[0]}


@scenario
async def test_a_revoked_lease_is_killed_and_its_neighbours_run(rig: Rig) -> None:
    await rig.serve(
        "import time\n"
        "def run(mini_batch):\n"
        "    time.sleep(3600 if mini_batch[0] == 'hang' else 0)\n"
        "    return mini_batch\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (hanging,) = rig.master.assign(1, recipe=b"hang")
    rest = rig.master.assign(5)
    await rig.master.until(lambda: any(b.workers and b.workers[0].lease_id == hanging for b in rig.master.heartbeats))
    rig.master.send(rpc.WorkResponse(revoked_lease_ids=[hanging]))
    await rig.master.until(lambda: rig.master.released == [hanging])
    await rig.master.until(lambda: rig.master.done(rest))
    assert hanging not in rig.master.completions
    assert {rig.master.completions[i][0].process_number for i in rest} == {1}


@scenario
async def test_an_exclusive_lease_runs_alone(rig: Rig) -> None:
    marks = rig.root / "marks"
    marks.mkdir()
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    mark = os.path.join({str(marks)!r}, str(os.getpid()))\n"
        "    open(mark, 'w').close()\n"
        "    time.sleep(0.002)\n"
        f"    seen = len(os.listdir({str(marks)!r}))\n"
        "    os.remove(mark)\n"
        "    return [seen]\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    before = rig.master.assign(30)
    alone = rig.master.assign(3, exclusive=True)
    after = rig.master.assign(30)
    await rig.master.until(lambda: rig.master.done([*before, *alone, *after]))
    assert [rig.master.completions[i][0].rows for i in alone] == [b"1\n"] * 3


@scenario
async def test_an_exclusive_lease_runs_though_its_step_has_no_slot(rig: Rig) -> None:
    """Nothing else is begun while it waits, so the other steps' workers must make room for it."""
    await rig.serve(ECHO, slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.step(rig.script(ECHO, "other"), step_id=STEP + 1)
    await rig.master.until(lambda: STEP + 1 in rig.master.capacities)
    mine = rig.master.assign(3)
    (exclusive,) = rig.master.assign(1, step_id=STEP + 1, exclusive=True)
    after = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done([*mine, exclusive, *after]))


@scenario
async def test_steps_share_the_slots_and_idle_ones_give_way(rig: Rig) -> None:
    master = rig.master
    master.step(rig.script(ECHO, "one"), 1)
    master.step(rig.script(ECHO, "two"), 2, job_id="job-2")
    await master.start()
    await rig.agent()
    await master.until(lambda: {1, 2} <= master.capacities.keys())
    await master.until(lambda: [master.capacities[i].workers for i in (1, 2)] == [1, 1])
    ids = master.assign(50, step_id=1) + master.assign(50, step_id=2)
    await master.until(lambda: master.done(ids))
    # Only step 2 goes on: the other's slot becomes its own after a while.
    more: list[int] = []

    def feed() -> bool:
        if master.done(more):
            more[:] = master.assign(20, step_id=2)
        return master.capacities[2].workers == 2

    await master.until(feed)
    await master.until(lambda: master.done(more))


@scenario
async def test_an_ended_step_is_shut_down_and_its_code_dropped(rig: Rig) -> None:
    mark = rig.root / "shut"
    await rig.serve(f"{ECHO}\ndef shutdown():\n    open({str(mark)!r}, 'a').write('down\\n')\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(10)
    await rig.master.until(lambda: rig.master.done(ids))
    await rig.master.until(
        lambda: [w.phase for w in (rig.master.heartbeats or [rpc.HeartbeatRequest()])[-1].workers] == [IDLE] * 2
    )
    del rig.master.specs[STEP]
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
    await rig.master.until(lambda: rig.master.heartbeats and not rig.master.heartbeats[-1].workers)
    assert mark.read_text() == "down\ndown\n"
    await rig.master.until(lambda: not list((rig.root / "agent" / "steps").glob("*")))


@scenario
async def test_a_later_generation_replaces_code_and_workers(rig: Rig) -> None:
    await rig.serve("def run(mini_batch):\n    return ['old']\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    old = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done(old))
    rig.master.step(rig.script("def run(mini_batch):\n    return ['new']\n", "code2"), generation=2)
    new = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done(new))
    assert {rig.master.completions[i][0].rows for i in new} == {b"new\n"}
    assert min(rig.master.completions[i][0].process_number for i in new) >= 2


@scenario
async def test_a_worker_sees_what_it_should_and_no_more(rig: Rig) -> None:
    output = rig.root / "out" / "deep"
    rig.master.step(
        rig.script(
            "import os, sys, json\n"
            "def run(mini_batch):\n"
            "    return [json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:], os.getpgrp() == os.getpid(),\n"
            "                        open('/proc/self/cmdline').read(), sorted(os.listdir('.'))])]\n"
        ),
        arguments=["--model", "m 1"],
        environment_variables={"GREETING": "hello"},
        output_path=str(output),
        output_folders=[str(output / "extra")],
    )
    await rig.master.start()
    await rig.agent(join_token="very-secret-token", gpu_count=1, labels={"room": "2"})
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(8)
    await rig.master.until(lambda: rig.master.done(ids))
    registration = rig.master.registrations[0]
    assert rig.master.authorizations[0] == "Bearer very-secret-token"
    assert registration.resources.gpu_count == 1
    assert (dict(registration.labels), registration.resources.slots) == ({"room": "2"}, 2)
    gpus = {}
    for i in ids:
        completion = rig.master.completions[i][0]
        environment, cwd, arguments, leads, command, files = json.loads(completion.rows)
        text = json.dumps([environment, command])
        assert "very-secret-token" not in text and "credential" not in text
        assert environment["GREETING"] == "hello" and environment["AZUREML_RUN_ID"] == "job-1"
        assert environment["AZUREML_BI_OUTPUT_PATH"] == str(output)
        assert environment["AZ_BATCHAI_GPU_COUNT_FOUND"] == "1"
        gpus[completion.process_number] = environment.get("CUDA_VISIBLE_DEVICES")
        assert Path(cwd).name == "code" and "script.py" in files
        assert arguments == ["--model", "m 1"] and leads
    assert gpus.items() <= {0: "0", 1: None}.items()
    assert (output / "extra").is_dir()


@scenario
async def test_output_and_tracebacks_reach_the_master_as_logs(rig: Rig) -> None:
    await rig.serve(
        "import sys\n"
        "def run(mini_batch):\n"
        "    print('to stdout', mini_batch[0], flush=True)\n"
        "    print('to stderr', mini_batch[0], file=sys.stderr, flush=True)\n"
        "    if mini_batch[0] == 'bad': raise ValueError('no good')\n"
        "    return mini_batch\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1, recipe=b"fine") + rig.master.assign(1, recipe=b"bad")
    await rig.master.until(lambda: rig.master.done(ids))
    completion = rig.master.completions[ids[1]][0]
    assert completion.cause == work.CAUSE_EXCEPTION
    assert "no good" in completion.message and "Traceback" in completion.detail
    logs = rig.master.logs
    await rig.master.until(lambda: b"to stdout bad" in logs[rpc.LOG_KIND_STDOUT, 0])
    await rig.master.until(lambda: b"to stderr bad" in logs[rpc.LOG_KIND_STDERR, 0])
    await rig.master.until(lambda: b"no good" in logs[rpc.LOG_KIND_ERROR, 0])
    (path,) = (rig.root / "agent").glob("steps/*/logs/user/stdout/node-1/process000.stdout.txt")
    assert re.search("to stdout fine\nto stdout bad\n", path.read_text())


def test_a_long_recipe_is_written_through_no_link_of_a_script(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("untouched")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    lease = Lease(7, 1, 1, 0, 0, 1, b"x" * (PACKET_RECIPE_MAX + 1), 1)
    place = scratch / "recipe-0000000000000007"
    place.symlink_to(secret)
    packet_of(lease, scratch)
    assert secret.read_text() == "untouched"
    assert place.read_bytes() == lease.recipe and not place.is_symlink()
