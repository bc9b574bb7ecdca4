"""Interrupts of a program that calls Windrow, one or several, at any moment: no process is left behind, and the same
call goes on.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import windrow
from embedded_run import EmbeddedRun, wait_until
from windrow.embedded import state_folder
from windrow.errors import MasterFailed

Make = Callable[..., EmbeddedRun]

PROGRAM = """\
import os, signal, sys, threading, time
import windrow

GATE = {gate!r}

def gated(x):
    while not os.path.exists(GATE):
        time.sleep(0.005)
    return x

def call():
    return windrow.map(gated, range(6), workers=2, mini_batch_size=1, progress=False)
"""
"""What its parts do is in the tests."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def program(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that calls `gated`, whose items wait for the file `gate`."""
    whole = PROGRAM.format(gate=str(folder / "gate")) + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-c", whole], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def processes_of(folder: Path) -> list[str]:
    """The commands of Windrow's processes over a folder's state."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "windrow_master" in command and str(folder) in command:
            found.append(command)
    return found


@pytest.mark.parametrize("first", ["started", "published", "running"])
def test_after_two_interrupts_nothing_is_left_and_the_same_call_goes_on(folder: Path, first: str) -> None:
    """They come right after a process has started, while its address is published, and while the agent drains."""
    said = program(
        folder,
        f"""
        from windrow.embedded import process, session, supervisor

        main = threading.current_thread()

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)

        def after(owner, name, times):
            \"\"\"Interrupt right after a function of Windrow has been called in the main thread.\"\"\"
            real = getattr(owner, name)
            def wrapped(*given, **named):
                found = real(*given, **named)
                if threading.current_thread() is main and left:
                    left.pop()
                    for _ in range(times):
                        interrupt()
                return found
            left = [1]
            setattr(owner, name, wrapped)

        if {first!r} == "started":
            after(supervisor, "spawn", 2)
        elif {first!r} == "published":
            after(session.Session, "_publish", 2)
        else:
            def show(job):
                if job.mini_batches.leased:
                    interrupt()
            after(process.Process, "wait", 1)
        try:
            if {first!r} == "running":
                windrow.map(gated, range(6), workers=2, mini_batch_size=1, progress=False, on_progress=show)
            else:
                call()
        except KeyboardInterrupt as error:
            assert type(error) is KeyboardInterrupt  # by which Python ends as the signal does
            print(error)
        children = open(f"/proc/self/task/{{threading.get_native_id()}}/children").read()
        print("left:", children)
        open(GATE, "w").close()
        print(call())
        """,
    )
    assert said.returncode == 0, said.stderr
    told, rest = said.stdout.split("\n", 1)
    assert rest == "left: \n[0, 1, 2, 3, 4, 5]\n"
    if first == "running":
        kept = f"What is done is kept in {folder}/.windrow; the same call continues the run."
        assert re.fullmatch(rf"The run \S+ was interrupted with 0 of \d items done\. {re.escape(kept)}", told)
    else:
        assert told == "The run was interrupted before its job began. The same call begins it."


def test_interrupts_at_many_moments_leave_nothing_behind(folder: Path) -> None:
    said = program(
        folder,
        """
        from windrow.embedded import state_folder

        def send(times):
            for pause in times:
                if ended.wait(pause):
                    return
                os.kill(os.getpid(), signal.SIGINT)

        def short(x):
            threading.Event().wait(0.05)
            return x

        def call():
            return windrow.map(short, range(40), workers=2, mini_batch_size=1, progress=False)

        for first in (0.05, 0.15, 0.3, 0.5, 0.9):
            for more in ([], [0.002], [0.03, 0.03]):
                ended = threading.Event()
                sender = threading.Thread(target=send, args=([first, *more],))
                try:
                    sender.start()
                    try:
                        call()
                    finally:
                        ended.set()
                except KeyboardInterrupt:
                    pass
                try:
                    sender.join()
                    for _ in range(100):
                        pass
                except KeyboardInterrupt:
                    sender.join()
                children = open(f"/proc/self/task/{threading.get_native_id()}/children").read()
                assert not children, (first, more, children)
                assert not state_folder.is_owned(os.path.abspath(".windrow")), (first, more)
        print(call() == list(range(40)))
        """,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout == "True\n"
    wait_until(lambda: not processes_of(folder), "no process is left")


def test_a_call_does_not_wait_for_an_agent_that_is_given_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the one whose agent it was, nor one beside it."""
    monkeypatch.setattr("windrow.sdk.client.WATCH_TIMEOUT_S", 0.5)
    run = make("import threading\ndef run(mini_batch):\n    threading.Event().wait()\n")
    raised: list[BaseException] = []

    def agent_pid() -> int | None:
        return (state_folder.read_endpoint(str(run.state)) or {}).get("agent_pid")

    def call() -> None:
        try:
            windrow.run(run.folder / "job.yml", state=run.state, progress=False)
        except BaseException as error:
            raised.append(error)

    calls = [threading.Thread(target=call)]
    calls[0].start()
    wait_until(agent_pid, "an agent")
    calls.append(threading.Thread(target=call))
    calls[1].start()
    killed: set[int] = set()

    def kill() -> bool:
        agent = agent_pid()
        if agent is not None and agent not in killed:
            killed.add(agent)
            os.kill(agent, signal.SIGKILL)
        return not any(one.is_alive() for one in calls)

    wait_until(kill, "both calls have ended")
    assert [type(error) for error in raised] == [MasterFailed, MasterFailed]
    assert all("The private agent died" in str(error) for error in raised)
