"""Signals: an orderly end keeps the state, the same command goes on, and who stands still a while loses nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from embedded_run import WINDROW, EmbeddedRun, check_counts, check_words, wait_until

Make = Callable[..., EmbeddedRun]

SEEN = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    name = os.path.basename(mini_batch[0])\n"
    "    while int(name[1:]) >= {free} and not os.path.exists(os.environ['SEEN'] + '/../gate'):\n"
    "        time.sleep(0.01)\n"
    "    with open(os.path.join(os.environ['SEEN'], name), 'ab') as seen:\n"
    "        seen.write(b'x')\n"
    "    return [name]\n"
)


def gated_run(make: Make, files: int, free: int, script: str = SEEN) -> EmbeddedRun:
    """A run whose script notes each execution. From the file with the number `free` on, all wait for the gate."""
    run = make(script.format(free=free), files=files)
    seen = run.folder / "seen"
    seen.mkdir()
    job = run.folder / "job.yml"
    job.write_text(
        job.read_text().replace("    task:\n", f"    environment_variables: {{SEEN: '{seen}'}}\n    task:\n")
    )
    return run


def open_gate(run: EmbeddedRun) -> None:
    (run.folder / "gate").touch()


def executions(run: EmbeddedRun) -> int:
    return sum(path.stat().st_size for path in (run.folder / "seen").iterdir())


def check_output(run: EmbeddedRun, files: int) -> None:
    assert run.output.read_text() == "".join(f"f{number:05d}\n" for number in range(files))
    assert check_counts(run)["items_ok"] == files


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_drains_and_the_same_command_goes_on(make: Make, number: signal.Signals) -> None:
    run = gated_run(make, 60, 20)
    process = run.start()
    wait_until(lambda: run.committed() >= 10, "some of the job")
    process.send_signal(number)
    wait_until(lambda: drains(run), "the agent drains")
    open_gate(run)
    code, text = run.finish()
    assert code == 130, text
    check_words(text, ["Interrupted.", "of 60 items are done", "The state is kept in .windrow", "windrow run job.yml"])
    assert run.strays() == []
    done = run.committed()
    assert 10 <= done < 60
    # What ran when the signal came was finished and counted.
    assert executions(run) == done
    assert not run.output.exists()
    code, text = run.run()
    assert code == 0, text
    check_words(text, [f"{done} mini-batches done before"])
    check_output(run, 60)
    assert executions(run) == 60


def test_a_signal_while_the_last_mini_batches_run_tells_how_the_run_ended(make: Make) -> None:
    wait = "    while not os.path.exists(os.environ['SEEN'] + '/../gate'): time.sleep(0.01)\n"
    run = gated_run(make, 2, 2, script=SEEN.replace("    return", wait + "    return"))
    process = run.start()
    wait_until(lambda: executions(run) == 2, "the last mini-batches run")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: drains(run), "the agent drains")
    open_gate(run)
    code, text = run.finish()
    assert code == 0, text
    check_words(text, ["Stopping when the running mini-batches", "Completed: 2 items in 2 mini-batches"])
    assert "Interrupted" not in text
    check_output(run, 2)
    # The end has been told: the same command begins a new run.
    code, text = run.run()
    assert code == 0 and "has already finished" not in text, text
    assert executions(run) == 4


def test_a_closed_terminal_drains_and_the_same_command_goes_on(make: Make) -> None:
    run = gated_run(make, 60, 20)
    # Whoever holds the terminal's other end is killed: the kernel hangs the terminal up.
    holder = subprocess.Popen(
        [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", WINDROW, "run", "job.yml"],
        cwd=run.folder,
        env={**os.environ, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_until(lambda: run.committed() >= 10, "some of the job")
    holder.kill()
    holder.wait()
    wait_until(lambda: drains(run), "the agent drains")
    open_gate(run)
    wait_until(lambda: not run.strays(), "no process is left")
    done = run.committed()
    assert 10 <= done < 60
    assert executions(run) == done, "what ran was finished"
    code, text = run.run()
    assert code == 0, text
    check_output(run, 60)
    assert executions(run) == 60


def test_a_second_signal_ends_at_once(make: Make) -> None:
    run = gated_run(make, 6, 0)
    process = run.start()
    wait_until(lambda: len(run.pids("worker")) == 2, "workers")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: drains(run), "the agent drains")
    process.send_signal(signal.SIGINT)
    code, text = run.finish()
    assert code == 130, text
    check_words(text, ["Ctrl-C again ends at once", "Interrupted."])
    assert run.strays() == []


@pytest.mark.parametrize("role", ["master", "agent"])
def test_standing_still_for_three_seconds_costs_nothing(make: Make, role: str) -> None:
    run = gated_run(make, 40, 20)
    run.start()
    wait_until(lambda: run.committed() >= 10, "some of the job")
    (pid,) = run.pids(role)
    with stopped(pid):
        open_gate(run)
        time.sleep(3.2)  # the time itself is what is tested
    code, text = run.finish()
    assert code == 0, text
    check_output(run, 40)
    assert executions(run) == 40
    assert check_counts(run)["retries"] == 0


def test_results_of_an_agent_that_was_away_too_long_are_refused(make: Make) -> None:
    """It stood still for longer than its leases live: they are others' by then, and count once."""
    run = gated_run(make, 30, 6)
    run.start()
    wait_until(lambda: run.committed() >= 4, "some of the job")
    (pid,) = run.pids("agent")
    with stopped(pid):
        open_gate(run)
        wait_until(lambda: "Silent for longer" in lost_nodes(run), "the master gives the node up")
    code, text = run.finish()
    assert code == 0, text
    check_output(run, 30)
    assert "completions not counted" in (run.state / "agent" / "agent.log").read_text()
    # The lost node is charged to nobody.
    counters = check_counts(run)
    assert set(counters["failed_attempts"]) <= {"10"}  # type: ignore[call-overload]


def lost_nodes(run: EmbeddedRun) -> str:
    """The events of lost nodes that the store holds."""
    with contextlib.closing(sqlite3.connect(f"file:{run.state / 'windrow.db'}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT message FROM event WHERE kind = 'node_lost'").fetchall()
    return " ".join(row[0] if isinstance(row[0], str) else row[0].decode() for row in rows)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process stands still for as long as the context lasts."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def drains(run: EmbeddedRun) -> bool:
    """Whether the agent begins nothing any more."""
    return "draining" in (run.state / "agent" / "agent.log").read_text()
