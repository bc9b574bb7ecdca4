"""What stands beside an output when its step is finished."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from windrow_master.core.commands import FinishStep
from windrow_master.core.ids import JobKey, StepId
from windrow_master.shell.finishing import Finish, Finisher
from windrow_master.shell.preparation import StepPaths
from windrow_master.store.sqlite import SqliteStore


@pytest.mark.parametrize(("generation", "left"), [(1, True), (2, False)])
def test_a_retry_that_mended_all_takes_the_list_of_failed_items_away(
    tmp_path: Path, generation: int, left: bool
) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "failed_items.csv").write_text("item,cause\n")
    folder = tmp_path / "step"
    folder.mkdir()
    (folder / "recipes").touch()
    store = SqliteStore.open(tmp_path / "state", 1 << 20)
    finisher = Finisher(store.reader(), store.record_output, store.incarnation)
    paths = StepPaths({}, {"rows": str(output)}, None)
    work = Finish(
        JobKey(1),
        "job-1",
        StepId(1),
        "score",
        True,
        generation,
        None,
        "text",
        b"{}",
        False,
        paths,
        folder,
        tmp_path / "logs",
    )
    command = asyncio.run(finisher.finish(work, lambda postponed: None))
    assert command == FinishStep(StepId(1), generation, "")
    assert (output / "failed_items.csv").exists() == left
    assert len(list(output.iterdir())) == left
    finisher.close()
    store.close()
