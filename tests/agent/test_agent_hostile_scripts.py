"""Scripts that attack their agent: it outlives them, each costs its own mini-batch, and the message says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from agent_rig import Rig, eventually, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

HOST = """\
import gc, os, struct, sys, time
from windrow_worker.protocol import frames
host = [one for one in gc.get_objects() if type(one).__name__ == 'Host'][0]
page = host._configuration.page_path
scratch = host._configuration.scratch_folder
def send(side=b'', kind=3, header=b'', rows=b'', flags=0, start=0, elapsed=0, run=0, cpu=0, rss=0, length=None, crc=0):
    lease = struct.unpack_from('<QBxxxIQQQQII', open(page, 'rb').read())[3]
    length = len(rows) if length is None else length
    figures = (lease, 1, 1, 1 if rows else 0, crc, start, elapsed, run, cpu, rss, length, len(side))
    frame = frames.FRAME.pack(frames.MAGIC, len(header), kind, flags, 0, *figures) + header + side + rows
    while frame:
        frame = frame[os.write(host._results._fd, frame):]
    time.sleep(600)
"""
"""The begin of a script that knows the process that it runs in."""


def attack(body: str) -> str:
    """A script that attacks over the mini-batch `bad`."""
    return f"{HOST}def run(mini_batch):\n    if mini_batch == ['bad']:\n        {body}\n    return mini_batch\n"


async def charged(rig: Rig) -> work.Completion:
    """The completion of a mini-batch over which the script attacks; one before it and two behind it go well."""
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (before,) = rig.master.assign(1)
    (bad,) = rig.master.assign(1, recipe=b"bad")
    after = rig.master.assign(2)
    await rig.master.until(lambda: rig.master.done([before, bad, *after]))
    for i in [before, *after]:
        assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED]
    (completion,) = rig.master.completions[bad]
    # The agent did not end in between.
    assert len(rig.master.registrations) == 1 and not rig.master.failures and not rig.master.released
    return completion


@pytest.mark.parametrize(
    "spoil", ["os.truncate(page, 0)", "os.truncate(page, 20)", "open(page, 'wb').write(b'x' * 64)"]
)
@pytest.mark.parametrize("then", ["time.sleep(600)", "os._exit(0)"])
def test_a_script_that_spoils_its_page_is_charged_and_does_not_end_the_agent(spoil: str, then: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(attack(f"{spoil}\n        {then}"), slots=1)
        completion = await charged(rig)
        assert completion.cause == work.CAUSE_CRASH
        assert "page" in completion.message and "cut or overwritten" in completion.message

    run()


@scenario
async def test_a_script_that_cuts_its_page_as_it_starts_is_at_fault_itself(rig: Rig) -> None:
    await rig.serve(f"{HOST}def init():\n    os.truncate(page, 0)\n    time.sleep(600)\ndef run(b):\n    return b\n")
    await rig.master.until(lambda: rig.master.failures)
    assert rig.master.failures[0].cause == work.CAUSE_INIT_FAILED
    assert "cut or overwritten" in rig.master.failures[0].message


CANNOT_BE = [
    ("send(start=1 << 62)", "a result that cannot be true: it says that it began 4611686018427387904 µs after 1970"),
    ("send(start=-1, kind=4)", "a result that cannot be true: it says that it began -1 µs after 1970"),
    ("send(elapsed=(1 << 64) - 1)", "it says that it took 18446744073709551615 µs"),
    ("send(elapsed=3600 * 10 ** 6, kind=4)", "it says that it took 3600000000 µs"),
    ("send(run=3600 * 10 ** 6)", "it says that it was in run() for 3600000000 µs"),
    ("send(cpu=(1 << 64) - 1)", "it says that it used the processor for"),
    ("send(rss=(1 << 64) - 1)", "KiB of memory"),
    ("send(length=(1 << 64) - 1, flags=1, rows=b'/x')", "bytes of rows"),
    ("send(side=b'[' * (9 << 20))", "a side document of 9437184 bytes"),
    ("send(header=b'h' * (25 << 20))", "a frame of 26214"),
]


@pytest.mark.parametrize(("body", "words"), CANNOT_BE)
def test_a_result_that_cannot_be_true_costs_its_own_mini_batch(body: str, words: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(attack(body), slots=1)
        completion = await charged(rig)
        assert completion.cause == work.CAUSE_CRASH
        assert words in completion.message

    run()


@scenario
async def test_a_long_list_of_failed_items_is_cut_and_fits_into_a_message(rig: Rig) -> None:
    await rig.serve(
        attack("send(b'{\"failed\":[' + b','.join([b'[0,1,0,1E9,1E9]'] * 500_000) + b']}')"),
        slots=1,
    )
    completion = await charged(rig)
    assert len(completion.failed_items) == 50_000


@scenario
async def test_a_script_that_says_again_and_again_that_its_init_failed_is_counted_once(rig: Rig) -> None:
    await rig.serve(
        HOST.replace("while frame", "frame *= 500\n    while frame") + "def init():\n    send(b'{}', kind=2)\n"
        "def run(b):\n    return b\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP) and rig.master.capacities[STEP].given_up)
    assert len(rig.master.failures) == 3


DEEP = (
    "def deep(at):\n"
    "    os.chdir(at)\n"
    "    for _ in range(3000):\n"
    "        os.mkdir('d'); os.chdir('d')\n"
    "    os.chdir('/')\n"
)
"""A script that makes folders in each other."""


@scenario
async def test_deep_folders_that_a_script_leaves_are_removed_and_do_not_end_the_agent(rig: Rig) -> None:
    await rig.serve(f"{DEEP}{attack('deep(os.getcwd())')}", slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1, recipe=b"bad")
    await rig.master.until(lambda: rig.master.done(ids))
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
    await rig.master.until(lambda: rig.master.ended)
    await eventually(lambda: not list((rig.root / "agent" / "steps").iterdir()), "the folder of the step is gone")
    assert len(rig.master.registrations) == 1


@scenario
async def test_deep_folders_in_place_of_rows_fail_that_mini_batch(rig: Rig) -> None:
    body = "deep(scratch); time.sleep = print; send(flags=1, rows=os.fsencode(scratch + '/d') + b'\\0', length=5)"
    await rig.serve(f"{DEEP}{attack(body)}", slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (bad,) = rig.master.assign(1, recipe=b"bad")
    after = rig.master.assign(2)
    await rig.master.until(lambda: rig.master.done([bad, *after]))
    (completion,) = rig.master.completions[bad]
    assert completion.cause == work.CAUSE_OUTPUT_FAILED and "not a plain file" in completion.message
    await eventually(lambda: not list((rig.root / "agent" / "staged").iterdir()), "nothing is left")


ASK = """
import json, socket
def connected():
    folder, name = os.path.split(host._configuration.requests_path)
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(f'/proc/self/fd/{at}/{name}')
    os.close(at)
    return asking
def asked(message):
    with connected() as asking:
        asking.send(message)
        return json.loads(asking.recv(200_000))
"""
"""What a script needs to ask its agent."""


@scenario
async def test_what_is_no_request_is_answered_and_leaves_nothing_in_the_log(rig: Rig) -> None:
    tags = b'{"do": "register", "name": "net", "tags": [1, 2]}'
    await rig.serve(
        f"{HOST}{ASK}def run(mini_batch):\n"
        f"    return [asked(message)['error'][:41] for message in (b'[' * 150_000, {tags!r})]\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    rows = rig.master.completions[ids[0]][0].rows
    assert rows.count(b"the agent does not understand the request") == 2, rig.master.completions
    assert b"Traceback" not in rig.agents[0].errors_path.read_bytes()


@scenario
async def test_idle_connections_of_one_worker_leave_room_for_others(rig: Rig) -> None:
    # The first worker keeps as many connections as it gets; the agent answers the other one.
    await rig.serve(
        f"{HOST}{ASK}kept = []\ndef run(mini_batch):\n"
        "    if mini_batch == ['hold']:\n"
        "        kept.extend(connected() for _ in range(300))\n"
        f"        open({str(rig.root / 'held')!r}, 'w').close()\n"
        "        time.sleep(600)\n"
        "    return [asked(b'3')['error']]\n",
        slots=2,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    rig.master.assign(1, recipe=b"hold")
    await eventually((rig.root / "held").exists)
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    assert b"does not understand" in rig.master.completions[ids[0]][0].rows


@scenario
async def test_a_stranger_that_asks_without_end_does_not_stop_the_agent(rig: Rig) -> None:
    # A grandchild that has left its parents: the agent cannot tell whose it is. It ends soon after the test.
    stranger = (
        "if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork() == 0:\n"
        "                end = time.monotonic() + 60\n"
        "                while time.monotonic() < end:\n"
        "                    try: connected().close()\n"
        "                    except OSError: pass\n"
        "            os._exit(0)\n"
        "        time.sleep(5)"
    )
    await rig.serve(f"{HOST}{ASK}{attack(stranger).removeprefix(HOST)}", slots=2)
    await charged(rig)
    log = (rig.root / "agent" / "agent.log").read_text()
    assert 1 <= log.count("is not of this worker asks") <= 12


ROWS_OF_THE_SCRIPT = [
    ("send(rows=b'row\\n', crc=5)", "do not have the checksum"),
    ("send(flags=1, rows=os.fsencode(scratch) + b'/none\\0', length=5)", "are not where its worker process has said"),
    ("send(flags=1, rows=os.fsencode(scratch) + b'/..\\0', length=5)", "are not where its worker process has said"),
    (
        "open(scratch + '/rows', 'w').write('12345'); "
        "send(flags=1, rows=os.fsencode(scratch) + b'/rows\\0', length=5, crc=9)",
        "not those that its worker process has announced",
    ),
]


@pytest.mark.parametrize(("body", "words"), ROWS_OF_THE_SCRIPT)
def test_rows_that_a_script_has_spoilt_are_no_fault_of_the_node(body: str, words: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(attack(f"time.sleep = print; {body}"), slots=1)
        completion = await charged(rig)
        assert completion.cause == work.CAUSE_OUTPUT_FAILED
        assert words in completion.message

    run()


SAYS_OF_ITSELF = [
    ('b\'{"cause":"node_fault","message":"no disk"}\'', work.CAUSE_OUTPUT_FAILED, "no disk. The agent could write"),
    ('b\'{"cause":"init_failed","message":"not mine"}\'', work.CAUSE_EXCEPTION, "not mine"),
    ('b\'{"cause":"preempted","message":"not mine"}\'', work.CAUSE_EXCEPTION, "not mine"),
]


@pytest.mark.parametrize(("side", "cause", "words"), SAYS_OF_ITSELF)
def test_a_script_that_names_a_cause_which_charges_nobody_is_charged(
    side: str, cause: work.Cause.ValueType, words: str
) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(attack(f"time.sleep = print; send({side}, kind=4)"), slots=1)
        completion = await charged(rig)
        assert completion.cause == cause
        assert words in completion.message

    run()


@scenario
async def test_a_script_whose_init_blames_the_node_is_not_believed(rig: Rig) -> None:
    blames = 'send(b\'{"cause":"node_fault","message":"no disk"}\', kind=2)'
    await rig.serve(f"{HOST}def init():\n    {blames}\ndef run(b):\n    return b\n", slots=1)
    await rig.master.until(lambda: rig.master.failures)
    assert (rig.master.failures[0].cause, rig.master.failures[0].message) == (work.CAUSE_INIT_FAILED, "no disk")


@scenario
async def test_a_daemon_that_has_wiped_its_environment_does_not_outlive_its_worker(rig: Rig) -> None:
    note = rig.root / "daemon"
    daemon = (
        "if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork() == 0:\n"
        f"                open({str(note)!r}, 'w').write(str(os.getpid()))\n"
        "                os.execve('/bin/sleep', ['sleep', '600'], {})\n"
        "            os._exit(0)\n"
        f"        while not os.path.exists({str(note)!r}) or not open({str(note)!r}).read(): time.sleep(0.01)"
    )
    await rig.serve(attack(daemon), slots=1, control_groups="off")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1, recipe=b"bad")
    await rig.master.until(lambda: rig.master.done(ids))
    pid = int(note.read_text())
    os.kill(pid, 0)  # it lives as long as its worker
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
    await rig.master.until(lambda: rig.master.ended)
    await eventually(lambda: not Path(f"/proc/{pid}").exists(), "the daemon is gone")
