"""The local folder for outputs in a store: what counts as new, and that nothing leads out of it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.fetch_process.messages import Save
from windrow_agent.fetch_process.saves import Changed, Saves
from windrow_agent.workers.output_folder import OutputFolder


@pytest.fixture
def folder(tmp_path: Path) -> OutputFolder:
    return OutputFolder(tmp_path / "worker", [work.StoredOutput(name="made", address="s3://bucket/out")])


def new(folder: OutputFolder) -> dict[str, str]:
    """Addresses of what is new, by name; it counts as saved."""
    listing = folder.list_files()
    assert not listing.refused
    folder.saved(listing)
    return {save.name: save.address for save in listing.new}


def test_what_is_new_or_has_changed(folder: OutputFolder) -> None:
    place = Path(folder.places["made"])
    assert new(folder) == {}
    (place / "a").write_text("1")
    (place / "b").mkdir()
    (place / "b" / "c").write_text("2")
    assert new(folder) == {"made/a": "s3://bucket/out/a", "made/b/c": "s3://bucket/out/b/c"}
    assert new(folder) == {}
    (place / "a").write_text("3")  # as long as it was
    assert list(new(folder)) == ["made/a"]
    (place / "a").rename(place / "d")
    assert list(new(folder)) == ["made/d"]
    (place / "d").unlink()
    assert new(folder) == {}


def test_many_changes_right_after_a_look_are_all_seen(folder: OutputFolder) -> None:
    """However coarse the clock is by which files are stamped."""
    file = Path(folder.places["made"]) / "a"
    for number in range(200):
        file.write_text(f"{number:03d}")
        assert list(new(folder)) == ["made/a"], number


def test_what_init_left_is_owed_until_it_is_saved(folder: OutputFolder) -> None:
    place = Path(folder.places["made"])
    (place / "of init").write_text("1")
    folder.owe(folder.list_files())
    (place / "of run").write_text("1")
    folder.passed_over(folder.list_files())
    assert list(new(folder)) == ["made/of init"]
    assert new(folder) == {}


def save(folder: OutputFolder, one: Save) -> None:
    asyncio.run(Saves().save(folder.place, folder.device, [one]))


@pytest.mark.parametrize("link", ["the file", "its folder", "the root"])
def test_what_has_become_a_link_is_not_read(folder: OutputFolder, link: str) -> None:
    """The one who saves has credentials in its environment; a script may try to have that saved."""
    place = Path(folder.places["made"])
    (place / "environ").write_text("1")
    (one,) = folder.list_files().new
    if link == "the file":
        (place / "environ").unlink()
        (place / "environ").symlink_to("/proc/self/environ")
    elif link == "its folder":
        shutil.rmtree(place)
        place.symlink_to("/proc/self")
    else:
        shutil.rmtree(folder.root)
        folder.root.symlink_to("/proc")
        one = one._replace(name="self/environ")
    with pytest.raises(Changed):
        save(folder, one)
    # Nor with the stamp of what stands there now.
    status = Path("/proc/self/environ").stat()
    with pytest.raises(Changed):
        save(folder, one._replace(inode=status.st_ino, size=status.st_size, ctime_ns=status.st_ctime_ns))


def test_nothing_is_listed_where_a_link_leads_that_is_in_place_of_the_folder(
    folder: OutputFolder, tmp_path: Path
) -> None:
    (tmp_path / "secrets" / "made").mkdir(parents=True)
    (tmp_path / "secrets" / "made" / "token").write_text("secret")
    folder.root.rename(tmp_path / "aside")
    folder.root.symlink_to(tmp_path / "secrets")
    listing = folder.list_files()
    assert not listing.new and f"{folder.root} is a link, and Windrow follows no link" in listing.refused


def test_a_folder_of_the_agent_may_lie_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "agent").symlink_to("disk")
    folder = OutputFolder(tmp_path / "agent" / "worker", [work.StoredOutput(name="made", address="s3://bucket/out")])
    (Path(folder.places["made"]) / "a").write_text("1")
    assert new(folder) == {"made/a": "s3://bucket/out/a"}


def test_what_is_written_meanwhile_is_not_saved(folder: OutputFolder) -> None:
    file = Path(folder.places["made"]) / "a"
    file.write_text("1")
    (one,) = folder.list_files().new
    file.write_text("22")
    with pytest.raises(Changed, match="made/a changed"):
        save(folder, one)


def test_one_file_in_place_of_the_folder_goes_to_the_address_of_the_output(folder: OutputFolder) -> None:
    (folder.root / "made").rmdir()
    assert folder.list_files().new == []
    (folder.root / "made").write_text("one")
    assert [(save.name, save.address) for save in folder.list_files().new] == [("made", "s3://bucket/out")]
