"""The promise: any process may die at any moment, and the output is byte for byte that of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, wait_until

FILES = 500
SCRIPT = """\
import os, time

def run(mini_batch):
    time.sleep(0.005)
    half = os.path.join(os.environ["SEEN"], "..", "half")
    while os.path.exists(half) and int(os.path.basename(mini_batch[0])[1:]) >= 250:
        time.sleep(0.005)
    held = os.path.join(os.environ["SEEN"], "..", "held")
    while os.path.isdir(held) and not os.path.exists(os.path.join(held, "over")):
        open(os.path.join(held, str(os.getpid())), "w").close()
        time.sleep(0.005)
    with open(os.path.join(os.environ["SEEN"], os.path.basename(mini_batch[0])), "ab") as seen:
        seen.write(b"x")
    return [os.path.basename(path) + " " + open(path).read() for path in mini_batch]
"""
EXPECTED = "".join(f"f{number:05d} {number}\n" for number in range(FILES)).encode()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedRun]:
    seen = tmp_path / "seen"
    seen.mkdir()
    run = EmbeddedRun(tmp_path / "job", SCRIPT, FILES, settings=f"environment_variables: {{SEEN: {seen}}}")
    yield run
    if run.process is not None and run.process.poll() is None:
        run.process.kill()
        run.process.communicate()
    wait_until(lambda: not run.strays(), f"no stray process: {run.strays()}")


def half_of(run: EmbeddedRun) -> Path:
    """While this file is there, the job does not get beyond its half, however slow the machine is to kill it."""
    return run.folder.parent / "half"


def executions(run: EmbeddedRun) -> int:
    return sum(path.stat().st_size for path in (run.folder.parent / "seen").iterdir())


def check_output(run: EmbeddedRun, code: int, text: str) -> None:
    assert code == 0, text
    assert run.output.read_bytes() == EXPECTED, text
    (counters,) = run.counters()
    assert counters["succeeded"] == counters["planned"] == FILES
    assert counters["items_ok"] == counters["items_total"] == FILES
    assert counters["failed"] == counters["cancelled"] == counters["items_failed"] == 0


def test_undisturbed_every_mini_batch_runs_once(embedded: EmbeddedRun) -> None:
    code, text = embedded.run()
    check_output(embedded, code, text)
    assert executions(embedded) == FILES
    assert f"Output: {embedded.output}" in text.splitlines()[-1]


@pytest.mark.parametrize(
    "victims",
    [("worker",), ("agent",), ("master",), ("master", "agent"), ("master", "agent", "worker")],
    ids="+".join,
)
def test_killed_in_the_middle_the_job_goes_on_by_itself(embedded: EmbeddedRun, victims: tuple[str, ...]) -> None:
    half_of(embedded).touch()
    embedded.start()
    wait_until(lambda: embedded.committed() >= FILES // 5, "a fifth of the job")
    embedded.kill(*victims)
    half_of(embedded).unlink()
    code, text = embedded.finish()
    check_output(embedded, code, text)


def test_a_killed_worker_costs_one_extra_execution(embedded: EmbeddedRun) -> None:
    half_of(embedded).touch()
    embedded.start()
    wait_until(lambda: embedded.committed() >= FILES // 5, "a fifth of the job")
    # In the middle of run(): between two mini-batches, its death would cost none.
    held = embedded.folder.parent / "held"
    held.mkdir()
    half_of(embedded).unlink()
    (victim, *_) = wait_until(lambda: [path.name for path in held.iterdir()], "a worker in run()")
    os.kill(int(victim), signal.SIGKILL)
    (held / "over").touch()
    code, text = embedded.finish()
    check_output(embedded, code, text)
    # The script notes an execution after its work: the one that was killed is not seen.
    assert executions(embedded) == FILES
    (counters,) = embedded.counters()
    assert counters["retries"] == 1


def test_a_killed_command_continues_where_it_was(embedded: EmbeddedRun) -> None:
    half_of(embedded).touch()
    embedded.start()
    wait_until(lambda: embedded.committed() >= FILES // 4, "a quarter of the job")
    embedded.kill("cli")
    assert embedded.process is not None
    embedded.process.communicate()
    wait_until(lambda: not embedded.strays(), "master, agent and workers end with the command that started them")
    done = embedded.committed()
    assert done < FILES
    half_of(embedded).unlink()
    code, text = embedded.run()
    check_output(embedded, code, text)
    # What was committed is not run again; what was in flight may be.
    assert executions(embedded) <= FILES + 300


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_at_random(embedded: EmbeddedRun, seed: int) -> None:
    chance = random.Random(seed)
    embedded.start()
    marks = sorted(chance.sample(range(10, FILES - 20), 4))
    for mark in marks:
        wait_until(lambda mark=mark: embedded.committed() >= mark, f"{mark} mini-batches")  # type: ignore[misc]
        victims = chance.sample(("worker", "agent", "master"), chance.randint(1, 3))
        if not embedded.kill(*victims, unless_ended=True):
            break  # a slow machine sees the last mark only when the job is over
    code, text = embedded.finish()
    check_output(embedded, code, text)
