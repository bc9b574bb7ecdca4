"""What stands beside an output when its step is finished."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from windrow_master.core.commands import FinishStep
from windrow_master.core.ids import JobKey, StepId
from windrow_master.shell.finishing import Finish, Finisher
from windrow_master.shell.preparation import StepPaths
from windrow_master.store.rows import OutputRow
from windrow_master.store.sqlite import SqliteStore

LIST = "item,cause\n"
OTHER = JobKey(7)


@pytest.mark.parametrize(
    ("writer", "rows_writer", "left"),
    [
        pytest.param(None, None, True, id="nobody of ours"),
        pytest.param(JobKey(1), None, False, id="an earlier generation"),
        pytest.param(OTHER, None, True, id="a job with another output in the same folder"),
        pytest.param(OTHER, OTHER, False, id="an earlier run into the same output"),
    ],
)
def test_a_step_without_failures_takes_away_what_was_listed_of_its_output(
    tmp_path: Path, writer: JobKey | None, rows_writer: JobKey | None, left: bool
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    listed = output / "failed_items.csv"
    listed.write_text(LIST)
    folder = tmp_path / "step"
    (folder / "segments").mkdir(parents=True)
    (folder / "recipes").touch()
    store = SqliteStore.open(tmp_path / "state", 1 << 20)

    def record(path: Path, job: JobKey | None, size: int, mtime_ns: int) -> None:
        if job is not None:
            store.record_output(OutputRow(str(path), job, StepId(1), 1, 1, size, "", mtime_ns, 0))

    record(listed, writer, len(LIST), listed.stat().st_mtime_ns)
    record(output / "rows.txt", rows_writer, 0, 0)
    finisher = Finisher(store.reader(), store.record_output, store.incarnation)
    paths = StepPaths({}, {"rows": str(output / "rows.txt")}, str(output / "rows.txt"))
    work = Finish(
        JobKey(1),
        "job-1",
        StepId(1),
        "score",
        True,
        1,
        None,
        "text",
        b"{}",
        False,
        paths,
        folder,
        tmp_path / "logs",
    )
    command = asyncio.run(finisher.finish(work, lambda postponed: None))
    assert command == FinishStep(StepId(1), 1, "")
    assert listed.exists() == left
    assert {path.name for path in output.iterdir()} == {"rows.txt", *(["failed_items.csv"] if left else [])}
    finisher.close()
    store.close()
