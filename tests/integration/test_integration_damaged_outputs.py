"""Rows that Windrow has written, and that are not that any more: never read by a later step, never taken for whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_commands import ServedCluster
from embedded_run import WINDROW, EmbeddedRun, check_words, wait_until
from file_damage import append, cut, flip

JOB = """\
type: pipeline
jobs:
  make:
    type: parallel
    mini_batch_size: "2"
    input_data: ${{inputs.data}}
    inputs: {data: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_folder}}
    task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
  use:
    type: parallel
    mini_batch_size: "1"
    input_data: ${{inputs.rows}}
    inputs: {rows: {type: uri_folder, path: "${{parent.jobs.make.outputs.rows}}"}}
    outputs: {result: {type: uri_file, path: ./out.txt}}
    task: {type: run_function, code: ./code, entry_script: use.py, append_row_to: "${{outputs.result}}"}
"""
MAKE = "import os\ndef run(mini_batch):\n    return [os.path.basename(path) for path in mini_batch]\n"
USE = """\
import os, time

def run(mini_batch):
    open({begun!r}, "w").close()
    while os.path.exists({gate!r}):
        time.sleep(0.01)
    return [line for path in mini_batch for line in open(path).read().splitlines()]
"""
FILES = 20
EXPECTED = "".join(f"f{number:05d}\n" for number in range(FILES))


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[EmbeddedRun]:
    """A run all of whose processes were killed while its second step was about to read what the first one made."""
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    gate.touch()
    run = EmbeddedRun(tmp_path / "job", MAKE, FILES)
    (run.folder / "job.yml").write_text(JOB)
    (run.folder / "code" / "use.py").write_text(USE.format(gate=str(gate), begun=str(begun)))
    run.start()
    wait_until(begun.exists, "the second step has begun")
    run.kill("cli", "master", "agent")
    run.finish()
    wait_until(lambda: not run.strays(), "all processes are gone")
    gate.unlink()
    yield run
    assert run.process is not None
    if run.process.poll() is None:
        run.process.kill()
        run.process.communicate()


def rows_of(run: EmbeddedRun) -> Path:
    (found,) = run.state.glob("outputs/*/make/rows/parallel_run_step.txt")
    return found


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: list[tuple[Callable[[Path], None], str]] = [
    (lambda path: flip(path, 3), "its content does not have the sha256 of what was written"),
    (zero, "its content does not have the sha256 of what was written"),
    (cut, "it holds 139 bytes, and 140 were written"),
    (append, "it holds 149 bytes, and 140 were written"),
    (Path.unlink, "it is gone"),
]


@pytest.mark.parametrize(("damage", "how"), DAMAGES, ids=["flipped", "zeroed", "cut", "longer", "gone"])
def test_a_step_does_not_read_what_another_has_not_written(
    stopped: EmbeddedRun, damage: Callable[[Path], None], how: str
) -> None:
    rows = rows_of(stopped)
    damage(rows)
    code, text = stopped.run()
    assert code != 0, text
    check_words(text, [f"{rows} is damaged: {how}", "'use'", "windrow job retry"])
    assert not stopped.output.exists()


def test_rows_that_come_back_are_read_by_a_retry(stopped: EmbeddedRun) -> None:
    rows = rows_of(stopped)
    whole = rows.read_bytes()
    flip(rows, 3)
    assert stopped.run()[0] != 0
    rows.write_bytes(whole)
    (job,) = (path.name for path in (stopped.state / "jobs").iterdir())
    retried = subprocess.run(
        [WINDROW, "job", "retry", job], cwd=stopped.folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert stopped.output.read_text() == EXPECTED


def test_rows_that_are_as_they_were_are_read(stopped: EmbeddedRun) -> None:
    code, text = stopped.run()
    assert code == 0, text
    assert stopped.output.read_text() == EXPECTED


def test_a_download_of_rows_that_were_not_written_never_stands_under_its_name(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    cluster.create("nightly")
    cluster.check_done("nightly")
    whole = cluster.output.read_bytes()
    flip(cluster.output, 10)
    download = ("job", "download", "nightly", "--to", "got", "--output-name", "result")
    asked = cluster.run(*download)
    assert asked.returncode != 0
    check_words(asked.stderr, [f"{cluster.output} is damaged", "does not have the sha256"])
    assert not [path for path in (cluster.folder / "got").rglob("*") if path.is_file() and path.name[0] != "."]
    cluster.output.write_bytes(whole)
    asked = cluster.run(*download)
    assert asked.returncode == 0, asked.stderr
    assert [path.read_bytes() for path in (cluster.folder / "got").rglob("*") if path.is_file()] == [whole]
