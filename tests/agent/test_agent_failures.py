"""Workers that die, hang, flood, fork and misbehave: each told apart, none costing anybody else's mini-batch."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from pathlib import Path

import pytest
from agent_rig import ECHO, Rig, eventually, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


BAD_RUNS = [
    ("import os\nos._exit(7)", work.CAUSE_CRASH, "exit code 7 in run()"),
    ("import sys\nsys.exit(3)", None, ""),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", work.CAUSE_CRASH, "SIGSEGV"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", work.CAUSE_CRASH, "SIGKILL"),
    ("import ctypes\nctypes.string_at(0)", work.CAUSE_CRASH, "SIGSEGV"),
    ("import time\ntime.sleep(3600)", work.CAUSE_TIMEOUT, "retry_settings.timeout"),
    (
        # As the leader of its session, where the agent has a terminal, it cannot.
        "import contextlib, os\nwith contextlib.suppress(PermissionError):\n"
        "    os.setpgid(0, os.getpgid(os.getppid()))\nwhile True: pass",
        work.CAUSE_TIMEOUT,
        "retry_settings.timeout",
    ),
    ("while True: pass", work.CAUSE_TIMEOUT, "retry_settings.timeout"),
    ("raise KeyError('k')", work.CAUSE_EXCEPTION, "KeyError"),
    ("return None", work.CAUSE_BAD_RETURN, "list"),
    ("import os\nos.closerange(3, 100000)\nreturn []", None, ""),
    ("import os, sys\nsys.stderr.write('last words')\nsys.stderr.flush()\nos.abort()", work.CAUSE_CRASH, "SIGABRT"),
]


@pytest.mark.parametrize(("body", "cause", "words"), BAD_RUNS, ids=[body.splitlines()[-1] for body, _, _ in BAD_RUNS])
def test_a_bad_run_is_charged_to_its_mini_batch_alone(
    body: str, cause: work.Cause.ValueType | None, words: str
) -> None:
    indented = "".join(f"        {line}\n" for line in body.splitlines())

    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(
            f"def run(mini_batch):\n    if mini_batch[0] == 'bad':\n{indented}    return mini_batch\n",
            spec={"run_s": 1},
            slots=1,
        )
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        before = rig.master.assign(3)
        (bad,) = rig.master.assign(1, recipe=b"bad")
        after = rig.master.assign(5)
        await rig.master.until(lambda: rig.master.done([*before, bad, *after]))
        for i in [*before, *after]:
            assert [c.cause for c in rig.master.completions[i]] == [work.CAUSE_UNSPECIFIED]
        (completion,) = rig.master.completions[bad]
        assert completion.item_count == 1
        if cause is not None:
            assert completion.cause == cause, completion
            assert words in completion.message
        if "last words" in body:
            assert "last words" in completion.detail
        assert not rig.master.failures

    run()


WHERE = [
    ("import time; time.sleep(3600)", work.CAUSE_TIMEOUT, "was killed at"),
    ("import ctypes; ctypes.string_at(0)", work.CAUSE_CRASH, "SIGSEGV"),
    (
        "import concurrent.futures as f, time; f.ThreadPoolExecutor(1).submit(time.sleep, 3600).result()",
        work.CAUSE_TIMEOUT,
        "was killed at",
    ),
]


@pytest.mark.parametrize(("body", "cause", "words"), WHERE, ids=["hang", "crash", "thread"])
def test_where_the_script_hung_or_crashed_is_told_with_its_own_line(
    body: str, cause: work.Cause.ValueType, words: str
) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(
            f"def deeper():\n    {body}\n\ndef run(mini_batch):\n    deeper()\n", spec={"run_s": 1}, slots=1
        )
        await rig.master.until(lambda: rig.master.capacities.get(STEP))
        ids = rig.master.assign(1)
        await rig.master.until(lambda: rig.master.done(ids))
        (completion,) = rig.master.completions[ids[0]]
        assert completion.cause == cause
        assert words in completion.message and ".py, line 2" in completion.message
        assert "line 2 in deeper" in completion.detail and "line 5 in run" in completion.detail
        assert "windrow_worker" not in completion.detail
        # Files of the script by their path in its folder, not in the agent's copy.
        assert re.search(r'  File "\w+\.py", line 2 in deeper', completion.detail), completion.detail

    run()


@scenario
async def test_a_load_that_never_ends_is_a_timeout(rig: Rig) -> None:
    """Loading is ours, so the script makes it hang from within, as a file system that does not answer would."""
    await rig.serve(
        "import time\n"
        "from windrow_worker.loading import FileLoader\n"
        "load = FileLoader.load\n"
        "def slow(self, recipe):\n"
        "    if recipe == b'hang': time.sleep(3600)\n"
        "    return load(self, recipe)\n"
        "FileLoader.load = slow\n" + ECHO,
        spec={"load_s": 1},
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (hanging,) = rig.master.assign(1, recipe=b"hang")
    rest = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done([hanging, *rest]))
    (completion,) = rig.master.completions[hanging]
    assert completion.cause == work.CAUSE_TIMEOUT
    assert "--task_overhead_timeout" in completion.message
    assert (completion.run_us, completion.item_count) == (0, 1)
    assert {rig.master.completions[i][0].cause for i in rest} == {work.CAUSE_UNSPECIFIED}


@scenario
async def test_a_worker_that_dies_over_large_rows_leaves_no_files(rig: Rig) -> None:
    await rig.serve(
        "class Rows(list):\n"
        "    def __iter__(self):\n"
        "        for number in range(100_000):\n"
        "            if number == 50_000:\n"
        "                import os; os._exit(9)\n"
        "            yield 'x' * 100\n"
        "def run(mini_batch):\n"
        "    return Rows([0] * 100_000)\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    assert rig.master.completions[ids[0]][0].cause == work.CAUSE_CRASH
    await eventually(lambda: not list((rig.root / "agent").glob("steps/*/scratch/process000/*")))


async def a_failing_shutdown(rig: Rig, shutdown: str, said: str) -> None:
    """It is told when the step has ended, and again when that is asked again."""
    await rig.serve(f"{ECHO}\ndef shutdown():\n    {shutdown}\n", slots=1, spec={"load_s": 1})
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    for times in (1, 2):
        rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
        await rig.master.until(lambda times=times: len(rig.master.ended) == times)
    for ended in rig.master.ended:
        assert (ended.step_id, ended.unsaved, ended.shutdown_failures) == (STEP, "", 1)
        assert "process000" in ended.shutdown_failure and said in ended.shutdown_failure


@scenario
async def test_a_shutdown_that_raises_is_told_and_in_the_error_log(rig: Rig) -> None:
    await a_failing_shutdown(rig, "raise OSError('the model store is gone')", "OSError: the model store is gone")
    await rig.master.until(lambda: b"the model store is gone" in rig.master.logs[rpc.LOG_KIND_ERROR, 0])


@scenario
async def test_a_shutdown_that_ends_its_process_is_told(rig: Rig) -> None:
    await a_failing_shutdown(rig, "import os; os._exit(7)", "exit code 7 in shutdown()")


@scenario
async def test_a_shutdown_that_does_not_end_is_told(rig: Rig) -> None:
    await a_failing_shutdown(
        rig, "import time; time.sleep(600)", "shutdown() took longer than 1 s (--task_overhead_timeout)"
    )


@scenario
async def test_workers_killed_again_and_again_lose_nothing(rig: Rig) -> None:
    """Killed at any moment of start, load, run and return: each lease ends once, and only crashes are run again."""
    await rig.serve("import time\ndef run(mini_batch):\n    time.sleep(0.002)\n    return mini_batch\n")
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    open_ = rig.master.assign(300)
    pid = rig.agents[0].process.pid if rig.agents[0].process else 0
    tries = 0
    while open_:
        # The next kill comes when some more are done, wherever the workers are then.
        wanted = min(len(open_), random.randint(1, 60))
        ids = open_
        await rig.master.until(lambda ids=ids, wanted=wanted: sum(i in rig.master.completions for i in ids) >= wanted)
        victims = children(pid)
        if victims and tries < 12:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(victims), signal.SIGKILL)
        tries += 1
        if rig.master.done(open_):
            crashed = [i for i in open_ if rig.master.completions[i][0].cause == work.CAUSE_CRASH]
            assert all(len(rig.master.completions[i]) == 1 for i in open_)
            open_ = rig.master.assign(len(crashed)) if crashed else []
    good = [c for [c] in rig.master.completions.values() if c.cause == work.CAUSE_UNSPECIFIED]
    assert len(good) == 300
    assert not rig.master.released
    await rig.master.until(lambda: rig.master.heartbeats[-1].lease_count == 0)


@scenario
async def test_killed_workers_cost_one_try_each_and_are_replaced(rig: Rig) -> None:
    gate = rig.root / "gate"
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.005)\n"
        "    return [os.getpid()]\n"
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(8)
    running: dict[int, int] = {}

    def both_run() -> bool:
        running.clear()
        for worker in rig.master.heartbeats[-1].workers if rig.master.heartbeats else ():
            if worker.lease_id:
                running[worker.lease_id] = worker.process_number
        return len(running) == 2

    await rig.master.until(both_run)
    assert rig.agents[0].process is not None
    for pid in children(rig.agents[0].process.pid):
        os.kill(pid, signal.SIGKILL)
    await rig.master.until(lambda: rig.master.done(running))
    gate.touch()
    await rig.master.until(lambda: rig.master.done(ids))
    charged = {i for i in ids if rig.master.completions[i][0].cause == work.CAUSE_CRASH}
    assert charged == set(running)
    assert {rig.master.completions[i][0].process_number for i in ids if i not in charged} <= {2, 3}


def children(pid: int) -> list[int]:
    """Child processes."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


@scenario
async def test_results_that_gather_while_their_worker_dies_count(rig: Rig) -> None:
    # With so much before it, and so little a result, a worker is listened to only now and then.
    calls = rig.root / "calls"
    await rig.serve(
        "import os, time\n"
        "def run(mini_batch):\n"
        f"    with open({str(calls)!r}, 'a') as file: file.write(mini_batch[0] + '\\n')\n"
        "    time.sleep(0.01)\n"
        "    if mini_batch[0] == '70': os._exit(3)\n"
        "    return mini_batch\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(140, recipe=b"%d")
    await rig.master.until(lambda: rig.master.done(ids))
    causes = {i: [completion.cause for completion in rig.master.completions[i]] for i in ids}
    assert causes == {i: [work.CAUSE_CRASH if i == 70 else work.CAUSE_UNSPECIFIED] for i in ids}
    assert sorted(map(int, calls.read_text().split())) == ids, "none ran twice"


@scenario
async def test_children_that_outlive_their_worker_are_ended(rig: Rig) -> None:
    """In its process group or in a session of their own: nothing of a dead worker goes on."""
    pids = rig.root / "pids"
    await rig.serve(
        "import os, subprocess, sys\n"
        "def run(mini_batch):\n"
        "    same = subprocess.Popen(['sleep', '3600'])\n"
        "    own = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"    open({str(pids)!r}, 'a').write(f'{{same.pid}} {{own.pid}}\\n')\n"
        "    os._exit(5)\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(2)
    await rig.master.until(lambda: rig.master.done(ids))
    left = [int(pid) for pid in pids.read_text().split()]
    assert len(left) == 4
    await rig.master.until(lambda: rig.master.heartbeats[-1:] and not any(map(alive, left)))


@scenario
async def test_a_worker_that_prints_without_end_neither_blocks_nor_fills_the_disk(rig: Rig) -> None:
    await rig.serve(
        "import os\n"
        "def run(mini_batch):\n"
        "    line = b'y' * 1023 + b'\\n'\n"
        "    for _ in range(300): os.write(1, line * 1024)\n"
        "    print('the end', flush=True)\n"
        "    return mini_batch\n",
        slots=1,
    )
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    ids = rig.master.assign(1)
    await rig.master.until(lambda: rig.master.done(ids))
    assert rig.master.completions[ids[0]][0].cause == work.CAUSE_UNSPECIFIED
    (path,) = (rig.root / "agent").glob("steps/*/logs/user/stdout/node-1/process000.stdout.txt")
    await rig.master.until(lambda: path.stat().st_blocks * 512 <= 64 << 20)
    assert path.stat().st_size > 300 << 20


INITS = [
    ("def init():\n    raise RuntimeError('no model')\n", work.CAUSE_INIT_FAILED, "no model"),
    ("def init():\n    import os\n    os._exit(4)\n", work.CAUSE_INIT_FAILED, "exit code 4 in init()"),
    ("import missing_module\n", work.CAUSE_INIT_FAILED, "missing_module"),
    ("this is no Python\n", work.CAUSE_INIT_FAILED, ""),
]


@pytest.mark.parametrize(("head", "cause", "words"), INITS, ids=["raises", "exits", "import", "syntax"])
def test_a_step_that_cannot_start_is_given_up_after_three_tries_a_worker(
    head: str, cause: work.Cause.ValueType, words: str
) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        await rig.serve(head + ECHO)
        await rig.master.until(lambda: len(rig.master.failures) >= 6)
        await rig.master.until(lambda: rig.master.capacities[STEP].given_up)
        assert rig.master.capacities[STEP].leases_max == 0
        assert len(rig.master.failures) == 6
        assert {failure.cause for failure in rig.master.failures} == {cause}
        assert all(words in failure.message + failure.detail for failure in rig.master.failures)
        assert "starts no more workers" in rig.master.failures[-1].message
        assert sorted(failure.process_number for failure in rig.master.failures) == list(range(6))
        ids = rig.master.assign(3)
        await rig.master.until(lambda: set(rig.master.released) >= set(ids))

    run()


@scenario
async def test_failures_that_the_master_has_not_acknowledged_are_sent_again_on_the_next_stream(rig: Rig) -> None:
    rig.master.acknowledge = False
    await rig.serve("def init():\n    raise RuntimeError('no')\ndef run(b):\n    return b\n", slots=1)
    await rig.master.until(lambda: len(rig.master.failures) == 3 and rig.master.capacities[STEP].leases_max == 0)
    first = list(rig.master.failures)
    assert [failure.number for failure in first] == [1, 2, 3]
    rig.master.acknowledge = True
    rig.master.reopen = True
    await rig.master.until(lambda: len(rig.master.failures) == 6)
    assert rig.master.failures[3:] == first
    rig.master.capacities.clear()
    rig.master.reopen = True
    await rig.master.until(lambda: len(rig.master.hellos) == 3 and STEP in rig.master.capacities)
    assert len(rig.master.failures) == 6


@scenario
async def test_an_older_state_hears_again_why_a_step_was_given_up(rig: Rig) -> None:
    rig.master.incarnation = 5
    await rig.serve("def init():\n    raise RuntimeError('no')\ndef run(b):\n    return b\n", slots=1)
    await rig.master.until(lambda: STEP in rig.master.capacities and rig.master.capacities[STEP].given_up)
    assert len(rig.master.failures) == 3
    await rig.master.stop()
    rig.master.incarnation = 4
    await rig.master.start()
    await rig.master.until(lambda: len(rig.master.failures) == 4)
    assert "starts no more workers" in rig.master.failures[3].message
    assert rig.master.failures[3].number == 4


@scenario
async def test_a_missing_interpreter_is_said_clearly(rig: Rig) -> None:
    await rig.serve(ECHO, python="/no/such/python", slots=1)
    await rig.master.until(lambda: rig.master.failures)
    failure = rig.master.failures[0]
    assert failure.cause == work.CAUSE_NODE_FAULT
    assert "/no/such/python" in failure.message and "--python" in failure.message


@scenario
async def test_a_broken_interpreter_is_said_clearly(rig: Rig) -> None:
    broken = rig.root / "python"
    broken.write_text("#!/bin/sh\necho 'no encodings here' >&2\nexit 1\n")
    broken.chmod(0o755)
    await rig.serve(ECHO, python=str(broken), slots=1)
    await rig.master.until(lambda: len(rig.master.failures) >= 3)
    failure = rig.master.failures[0]
    assert failure.cause == work.CAUSE_NODE_FAULT
    assert "exit code 1 while the interpreter started" in failure.message and "no encodings here" in failure.detail


@scenario
async def test_missing_code_is_said_clearly(rig: Rig) -> None:
    await rig.serve(ECHO, spec={"code_digest": "0" * 64})
    await rig.master.until(lambda: rig.master.failures)
    assert "no code archive" in rig.master.failures[0].message


@scenario
async def test_damaged_code_is_refused(rig: Rig) -> None:
    spec = rig.master.step(rig.script(ECHO))
    archive = rig.master.archives[spec.code_digest]
    content = bytearray(archive.read_bytes())
    content[-20] ^= 1
    archive.write_bytes(content)
    await rig.master.start()
    await rig.agent()
    await rig.master.until(lambda: rig.master.failures)
    assert "damaged" in rig.master.failures[0].message
    assert not list((rig.root / "agent" / "code").iterdir())


@scenario
async def test_a_start_that_leaves_no_words_is_in_the_error_log(rig: Rig) -> None:
    await rig.serve("import os\ndef init():\n    os._exit(3)\n" + ECHO, slots=1)
    await rig.master.until(lambda: rig.master.failures)
    errors = rig.master.logs[rpc.LOG_KIND_ERROR, 0]
    await rig.master.until(lambda: b"exit code 3 in init()" in errors)
