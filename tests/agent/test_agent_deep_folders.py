"""What an agent does with folders that scripts have nested: as deep as they like, and deeper than a path may be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from nested_folders import DEPTH, LONG, WALKED, few_calls, nest, opened
from windrow.common.removal import discard_tree
from windrow.common.trees import entries_below
from windrow.rpc.v1 import work_pb2 as work
from windrow.storage.errors import StorageError
from windrow_agent.environments.cache import _size
from windrow_agent.fetch_process import trees
from windrow_agent.fetch_process.messages import Part
from windrow_agent.fetch_process.transfers import Transfers, _give
from windrow_agent.sandbox import job_users
from windrow_agent.sandbox.access_lists import give_access, give_tree, take_back
from windrow_agent.sandbox.confinement import public
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import Step
from windrow_agent.workers.output_folder import OutputFolder

USER = job_users.AUTO_JOB_USERS[-1]
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "f"
    made.mkdir()
    yield made
    discard_tree(made)


def owners(folder: Path) -> set[int]:
    with opened(folder) as descriptor:
        return {entry.status.st_uid for entry in entries_below(descriptor)}


@NEEDS_ROOT
def test_access_is_given_and_taken_back_however_deep(folder: Path) -> None:
    assert give_access(str(folder), USER)
    nest(folder, DEPTH, LONG)
    give_tree(folder, USER)
    assert owners(folder) == {USER}
    os.chown(folder, os.geteuid(), os.getegid())
    with few_calls():
        take_back(str(folder), USER)
    assert owners(folder) == {os.geteuid()}
    with opened(folder) as descriptor:
        lists = {
            name
            for entry in entries_below(descriptor)
            if entry.is_folder
            for below in [os.open(entry.name, os.O_RDONLY, dir_fd=entry.holder)]
            for name in [*os.listxattr(below), os.close(below)]
            if name
        }
    assert lists == set()


@NEEDS_ROOT
def test_what_a_user_of_a_job_has_left_for_all_goes_however_deep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = folder / "left"
    place.mkdir()
    nest(place, WALKED)
    os.chown(place, USER, USER)
    monkeypatch.setattr(job_users, "_FOR_ALL", [str(folder)])
    with few_calls():
        job_users._remove_from_places_for_all(USER)
    assert list(folder.iterdir()) == []


@NEEDS_ROOT
def test_copies_for_a_user_are_closed_until_all_are_its_own(folder: Path) -> None:
    """Else it would put a link in the place of a file, which would become its own."""
    (folder / "data").write_text("x")
    secret = folder / "secret"
    secret.write_text("root's")
    copies = folder / "copies"

    async def fetch() -> list[int]:
        task = asyncio.create_task(
            Transfers().fetch(copies, [Part(str(folder / "data"), 1, "", f"{n}/data") for n in range(200)],
                              writable=True, user=USER)
        )  # fmt: skip
        seen = []
        while not task.done():
            if copies.exists() and (status := copies.stat()).st_uid != USER:
                seen.append(status.st_mode & 0o777)
            await asyncio.sleep(0)
        await task
        return seen

    seen = asyncio.run(fetch())
    assert seen and set(seen) == {0o700}
    assert owners(copies) == {USER} and copies.stat().st_uid == USER
    (copies / "0" / "data").unlink()
    (copies / "0" / "data").symlink_to(secret)
    _give(copies, USER - 1)
    assert owners(copies) == {USER - 1} and secret.stat().st_uid == 0


def test_side_inputs_are_listed_however_deep_and_links_lead_round_no_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = nest(folder, WALKED)
    (folder / "d" / "loop").symlink_to(folder)
    with few_calls():
        name, parts = trees.parts_below(str(folder))
    assert name == "f" and len(parts) == files
    # Each of these leads to the next in two ways: to more than anybody could list.
    for number in range(20):
        (folder / "chain" / str(number)).mkdir(parents=True)
        for way in "ab":
            (folder / "chain" / str(number) / way).symlink_to(folder / "chain" / str(number + 1))
    monkeypatch.setattr(trees, "FILES_MAX", 1_000)
    with pytest.raises(StorageError, match="more than 1,000 files and folders"):
        trees.parts_below(str(folder))


def test_an_environment_is_measured_however_deep(folder: Path) -> None:
    nest(folder, WALKED)
    (folder / "d" / "more").write_text("four")
    with few_calls():
        assert _size(folder) == 4


def test_settings_of_the_system_are_given_however_deep(folder: Path) -> None:
    nest(folder, WALKED)
    with few_calls():
        assert public(str(folder), []) == ([str(folder)], True)
        (folder / "d" / "d" / "key").touch(0o600)
        found, is_all = public(str(folder), [])
    assert sorted(found) == sorted([str(folder / "file"), str(folder / "d" / "d" / "d")]) and not is_all


def test_outputs_that_are_nested_too_deep_are_refused(folder: Path) -> None:
    made = OutputFolder(folder / "worker", [work.StoredOutput(name="made", address="s3://bucket/out")])
    nest(Path(made.places["made"]), WALKED)
    with few_calls():
        assert len(made.list_files().new) == WALKED // 10
    nest(Path(made.places["made"]), DEPTH, LONG)
    assert made.list_files().refused.startswith("The script has nested folders in its output deeper than a path")


def test_nothing_is_left_of_a_step_whose_files_are_removed_twice_at_once(folder: Path) -> None:
    """When its work is removed, its logs may be with the master already, and its folder is removed, too."""
    for _ in range(10):
        step = Step.open(work.StepSpec(step_id=1), folder, "node-1", 1, 0, Lineage())
        nest(step.scratch, DEPTH)
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda remove: remove(), [step.drop_work, step.drop, step.drop_work]))
        assert not step.folder.exists()


def test_what_is_made_for_a_step_that_is_gone_goes_with_it(folder: Path) -> None:
    """Its code arrived late, say."""
    step = Step.open(work.StepSpec(step_id=1), folder, "node-1", 1, 0, Lineage())
    step.drop()
    for remove in (step.drop_work, step.drop_code):
        (step.folder / "code").mkdir(parents=True)
        remove()
        assert not step.folder.exists()
