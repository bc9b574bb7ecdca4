"""Links of users and operators lead to outputs, and those of scripts nowhere; out of the datastores, no link leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from windrow.common.beneath import LinkRefused
from windrow_master.output_places import OutputPlaces, OutsideRoots
from windrow_master.roots import Roots
from windrow_master.step_paths import StepPaths


class Disk:
    """A datastore under a link of the operator, with a link of a user below it; and a secret beside it."""

    def __init__(self, folder: Path) -> None:
        self.secret = folder / "secret"
        self.secret.mkdir()
        self.real = folder / "disk"
        (self.real / "mine" / "results").mkdir(parents=True)
        self.store = folder / "store"
        self.store.symlink_to(self.real)
        (self.store / "link").symlink_to(self.real / "mine")
        self.default = folder / "outputs"
        self.default.mkdir()
        roots = Roots([self.store, self.default])
        self.places = OutputPlaces(self.default, [str(self.store)], roots)

    def begun(self, *outputs: Path) -> StepPaths:
        """The paths of a step that begins now."""
        paths = self.places.remember(StepPaths({}, {str(n): str(path) for n, path in enumerate(outputs)}, None))
        assert StepPaths.from_json(paths.to_json()) == paths
        return paths


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path.resolve())


def test_links_of_users_and_operators_are_followed(disk: Disk) -> None:
    output = disk.store / "link" / "results" / "new"
    paths = disk.begun(output)
    with disk.places.make(output, paths) as folder:
        assert folder.path == disk.real / "mine" / "results" / "new"
    with disk.places.folder(output, paths) as folder:
        assert folder.path == disk.real / "mine" / "results" / "new"
    with disk.places.holder(output, paths) as (folder, name):
        assert (folder.path, name) == (disk.real / "mine" / "results", "new")


def test_an_operator_may_move_a_datastore_and_leave_a_link(disk: Disk) -> None:
    output = disk.store / "results"
    paths = disk.begun(output)
    disk.places.make(output, paths).close()
    moved = disk.real.with_name("moved")
    disk.real.rename(moved)
    disk.store.unlink()
    disk.store.symlink_to(moved)
    later = OutputPlaces(disk.default, [str(disk.store)], Roots([disk.store]))
    with later.folder(output, paths) as folder:
        assert folder.path == moved / "results"


@pytest.mark.parametrize("what", ["output", "its folder"])
def test_a_link_that_is_laid_after_the_step_has_begun_leads_nowhere(disk: Disk, what: str) -> None:
    output = disk.store / "link" / "results" / "new"
    paths = disk.begun(output)
    disk.places.make(output, paths).close()
    replaced = disk.real / "mine" / "results" / ("new" if what == "output" else "")
    replaced.rename(disk.real / "aside")
    (disk.secret / "new").mkdir()
    replaced.symlink_to(disk.secret)
    for deed in (disk.places.make, disk.places.folder, disk.places.output):
        with pytest.raises(LinkRefused, match=f"{replaced} is a link"):
            deed(output, paths)
    assert not list((disk.secret / "new").iterdir())


def test_a_link_in_the_default_folder_is_never_followed(disk: Disk) -> None:
    (disk.default / "job").symlink_to(disk.real)
    output = disk.default / "job" / "mine"
    with pytest.raises(LinkRefused, match="job is a link"):
        disk.places.make(output, disk.begun(output))


def test_a_link_out_of_the_datastores_is_refused_when_the_folder_is_opened(disk: Disk) -> None:
    (disk.store / "out").symlink_to(disk.secret)
    output = disk.store / "out" / "new"
    paths = disk.begun(output)
    with pytest.raises(OutsideRoots, match="secret/new is outside the datastores of this master"):
        disk.places.make(output, paths)
    assert not list(disk.secret.iterdir())
    (disk.secret / "new").mkdir()
    with pytest.raises(OutsideRoots):
        disk.places.folder(output, paths)


def test_a_step_of_an_earlier_version_follows_the_links_above_its_outputs(disk: Disk) -> None:
    output = disk.store / "link" / "results"
    paths = StepPaths({}, {"out": str(output)}, None)
    with disk.places.folder(output, paths) as folder:
        assert folder.path == disk.real / "mine" / "results"
    output.rename(disk.real / "aside")
    (disk.real / "mine" / "results").symlink_to(disk.secret)
    with pytest.raises(LinkRefused):
        disk.places.folder(output, paths)
