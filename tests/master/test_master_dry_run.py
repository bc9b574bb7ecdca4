"""The process that answers dry runs: its limits, and state folders that it must not touch."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opened_store import open_store
from windrow.spec import DataInput, EffectiveJob, EffectiveStep, StepOutput
from windrow_master.dry_run.existing_state import ExistingState, Unreadable

FILES = 100


def a_job(data: Path, *, output: str | None = None, name: str | None = None) -> EffectiveJob:
    step = EffectiveStep(
        name="score",
        code_digest="0" * 64,
        entry_script="score.py",
        inputs={"data": DataInput("uri_folder", "ro_mount", str(data))},
        input_data=("data",),
        outputs={"rows": StepOutput("uri_file", "rw_mount", output)},
        append_row_to="rows",
        mini_batch_size=1,
    )
    return EffectiveJob(job_file="/job.yml", steps=(step,), name=name, experiment_name="exp")


def asked(folder: Path, job: EffectiveJob, **changes: Any) -> dict[str, Any]:
    """The answer to a question."""
    limits = {"seconds": 30, "mini_batches": 1000, "disk_bytes": 1 << 30, "recipes": 2, **changes.pop("limits", {})}
    question = {
        "document": job.to_json(),
        "state": str(folder / "state"),
        "outputs": str(folder / "state" / "outputs"),
        "datastores": {},
        "divided": ["score"],
        "since": "",
        "limits": limits,
        **changes,
    }
    command = [sys.executable, "-P", "-m", "windrow_master.dry_run"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(question).encode() + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    process.stdin.close()
    # By the end of its standard input, where that was sooner.
    assert process.wait(timeout=240) in (0, -signal.SIGTERM)
    process.stdout.close()
    return answer


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of files."""
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number:03d}").write_text("x" * number)
    return folder


def test_counts_beyond_a_limit_are_at_least(tmp_path: Path, data: Path) -> None:
    division = asked(tmp_path, a_job(data), limits={"mini_batches": 20})["steps"]["score"]["division"]
    assert division["stopped"] and not division["complete"]
    assert 20 <= division["mini_batches"] < FILES
    assert division["items"] == division["mini_batches"]
    assert [first["bytes"] for first in division["first"]] == [0, 1]


def test_a_whole_division_is_exact(tmp_path: Path, data: Path) -> None:
    answer = asked(tmp_path, a_job(data))
    division = answer["steps"]["score"]["division"]
    assert (division["mini_batches"], division["complete"], division["stopped"]) == (FILES, True, "")
    assert answer["job_id"] == "exp-<time>"
    assert answer["steps"]["score"]["append_row"].startswith(str(tmp_path / "state" / "outputs" / "exp-<time>"))
    assert not (tmp_path / "state").exists()


def test_it_ends_when_nobody_waits_any_more(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-P", "-m", "windrow_master.dry_run"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=240) == 0


def test_a_state_that_was_not_closed_and_has_lost_its_index_is_left_alone(tmp_path: Path, data: Path) -> None:
    live = tmp_path / "live"
    store = open_store(live)
    # As a copy of a live folder would be: the log, without what leads into it.
    state = tmp_path / "state"
    state.mkdir()
    for name in ("windrow.db", "windrow.db-wal"):
        shutil.copy(live / name, state / name)
    store.close()
    before = sorted(path.name for path in state.iterdir())
    with pytest.raises(Unreadable, match="was not closed cleanly"):
        ExistingState(state).outputs_at("/x")
    answer = asked(tmp_path, a_job(data, name="mine"))
    assert answer["job_id"] == "mine" and "was not closed cleanly" in answer["notes"][0]
    assert sorted(path.name for path in state.iterdir()) == before


def test_a_live_state_and_a_closed_one_are_read(tmp_path: Path) -> None:
    state = tmp_path / "state"
    store = open_store(state)
    assert ExistingState(state).free_name("mine") == "mine"
    store.close()
    before = sorted(path.name for path in state.iterdir())
    assert list(ExistingState(state).outputs_at("/x")) == []
    assert sorted(path.name for path in state.iterdir()) == before
    (state / "windrow.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(Unreadable):
        ExistingState(state).outputs_at("/x")
