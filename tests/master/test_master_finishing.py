"""What stands beside an output when its step is finished."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from obstore.store import MemoryStore
from opened_store import open_store
from windrow_master.core.commands import FinishStep
from windrow_master.core.ids import JobKey, StepId
from windrow_master.files.state_files import StepFiles
from windrow_master.output_places import OutputPlaces
from windrow_master.shell.finishing import Finish, Finisher, failed_items_paths
from windrow_master.step_paths import StepPaths
from windrow_master.store.records import AssetRow, OutputRow

LIST = "item,cause\n"
OTHER = JobKey(7)


def finish_of(tmp_path: Path, outputs: dict[str, str], append_row: str | None) -> Finish:
    """A step without failures, whose recipes are empty."""
    files = StepFiles(tmp_path / "step")
    files.folder.mkdir(exist_ok=True)
    files.recipes.touch()
    paths = StepPaths({}, outputs, append_row)
    logs = tmp_path / "logs"
    return Finish(
        job_key=JobKey(1),
        job_id="job-1",
        step_id=StepId(1),
        step_name="score",
        only_step=True,
        generation=1,
        header=None,
        row_format="text",
        missing="",
        reader=b"{}",
        has_failures=False,
        paths=paths,
        files=files,
        logs=logs,
    )


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
    logged = tmp_path / "logs/failed_items.csv"
    logged.parent.mkdir()
    logged.write_text(LIST)
    (tmp_path / "step/segments").mkdir(parents=True)
    store = open_store(tmp_path / "state")

    def record(path: Path, job: JobKey | None, size: int, mtime_ns: int) -> None:
        if job is not None:
            store.record_output(OutputRow(str(path), job, StepId(1), 1, 1, size, "", mtime_ns, 0))

    record(listed, writer, len(LIST), listed.stat().st_mtime_ns)
    record(output / "rows.txt", rows_writer, 0, 0)
    finisher = Finisher(store.reader(), store.record_output, store.incarnation, OutputPlaces(tmp_path, [], None))
    rows = str(output / "rows.txt")
    command = asyncio.run(finisher.finish(finish_of(tmp_path, {"rows": rows}, rows), lambda postponed: None))
    assert command == FinishStep(StepId(1), 1, "")
    assert listed.exists() == left and not logged.exists()
    assert {path.name for path in output.iterdir()} == {"rows.txt", *(["failed_items.csv"] if left else [])}
    finisher.close()
    store.close()


class SlowObjects(MemoryStore):
    """A store to which the step is abandoned while it takes an object, or when it has taken it."""

    abandon: Callable[[], None]
    half_way: bool

    def put(self, path: str, file: IO[bytes], **options: Any) -> Any:  # type: ignore[override]
        if self.half_way:
            self.abandon()
        put = super().put(path, file, **options)
        self.abandon()
        return put


@pytest.mark.parametrize("half_way", [True, False])
def test_the_output_of_a_step_that_is_abandoned_meanwhile_is_neither_uploaded_nor_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_way: bool
) -> None:
    work = finish_of(tmp_path, {"rows": "s3://bucket/rows.csv"}, "s3://bucket/rows.csv")
    asset = AssetRow(1, "rows", "", "uri_file", "s3://bucket/rows.csv", True, "", b"{}", 0.0)
    staged = tmp_path / "step/segments/staged-1-0.rows"
    staged.parent.mkdir(parents=True)
    staged.touch()
    registered: list[AssetRow] = []

    def register(row: AssetRow) -> str:
        registered.append(row)
        return ""

    store = open_store(tmp_path / "state")
    finisher = Finisher(
        store.reader(), store.record_output, store.incarnation, OutputPlaces(tmp_path, [], None), register
    )
    objects = SlowObjects()
    objects.abandon, objects.half_way = lambda: finisher.abandon(StepId(1)), half_way
    monkeypatch.setattr("windrow_master.output.remote.open_store", lambda root: objects)
    command = asyncio.run(finisher.finish(replace(work, assets=(asset,)), lambda postponed: None))
    assert command is None and not registered
    assert staged.exists(), "it may be of the generation that comes next"
    assert [found["path"] for found in objects.list().collect()] == ([] if half_way else ["rows.csv"])
    assert not list((tmp_path / "step/assembled").iterdir())
    finisher.close()
    store.close()


@pytest.mark.parametrize(
    ("outputs", "append_row", "listed"),
    [
        ({"rows": "a/rows.csv"}, "a/rows.csv", "a/failed_items.csv"),
        ({"rows": "folder"}, "folder/parallel_run_step.txt", "failed_items.csv"),
        ({"models": "a/folder"}, None, "a/failed_items.csv"),
        ({"models": "folder/inner", "all": "folder"}, None, "failed_items.csv"),
        ({"rows": "folder/rows.csv", "models": "folder"}, "folder/rows.csv", "failed_items.csv"),
        ({"models": "a/folder", "rows": "a/rows.csv"}, "a/rows.csv", "a/failed_items.csv"),
        ({"one": "a/one.bin"}, None, "a/failed_items.csv"),
        ({}, None, "step/failed_items.csv"),
        ({"rows": "s3://bucket/rows.csv"}, "s3://bucket/rows.csv", "logs/failed_items.csv"),
        ({"models": "s3://bucket/models"}, None, "logs/failed_items.csv"),
    ],
)
def test_failed_items_are_listed_beside_an_output_and_never_in_a_folder_of_data(
    tmp_path: Path, outputs: dict[str, str], append_row: str | None, listed: str
) -> None:
    for folder in ("a/folder", "folder/inner"):
        (tmp_path / folder).mkdir(parents=True)

    def placed(path: str) -> str:
        return path if "://" in path else str(tmp_path / path)

    places = {name: placed(path) for name, path in outputs.items()}
    work = finish_of(tmp_path, places, placed(append_row) if append_row else None)
    assert failed_items_paths(work)[0] == tmp_path / listed


class HeldFinisher(Finisher):
    """Outputs of the project `bad` are written when `go_on` is set: their folder hangs until then."""

    go_on: threading.Event

    def _finish_once(self, work: Finish, stop: threading.Event) -> Any:
        if work.project == "bad":
            self.go_on.wait()
        return FinishStep(work.step_id, work.generation, "")


def test_outputs_of_a_project_whose_folders_hang_hold_up_no_other(tmp_path: Path) -> None:
    store = open_store(tmp_path / "state")
    places = OutputPlaces(tmp_path, [], None)
    finisher = HeldFinisher(store.reader(), store.record_output, store.incarnation, places)
    finisher.go_on = threading.Event()
    work = finish_of(tmp_path, {}, None)

    async def run() -> None:
        bad = [
            asyncio.create_task(finisher.finish(replace(work, step_id=StepId(number), project="bad"), lambda _: None))
            for number in range(10)
        ]
        try:
            good = replace(work, step_id=StepId(99), project="good")
            assert await finisher.finish(good, lambda _: None) == FinishStep(StepId(99), 1, "")
            assert not any(task.done() for task in bad)
        finally:
            finisher.go_on.set()
        assert await asyncio.gather(*bad) == [FinishStep(StepId(number), 1, "") for number in range(10)]

    asyncio.run(run())
    finisher.close()
    store.close()
