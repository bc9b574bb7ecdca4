"""`windrow mb bundle` and the replay of what it writes: elsewhere, without the job, its data and its code."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from client_workspace import Workspace
from windrow.cli.mini_batches.bundles import open_bundle
from windrow.errors import UsageError
from windrow.storage.recipe_files import below, local_files, only

SCRIPT = """\
import argparse, os, sys

def init():
    global key
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-key", default="")
    parser.add_argument("--model", default="")
    parsed = parser.parse_args()
    key = parsed.api_key
    if parsed.model:
        assert open(parsed.model).read() == "weights"

def run(mini_batch):
    texts = [open(path).read() for path in mini_batch]
    if "raise" in texts:
        raise ValueError(f"bad item; key {key}, {os.environ.get('SERVICE_TOKEN')}, {os.environ.get('PLAIN')}")
    return texts
"""
TABLE = """\
def run(table):
    if (table["number"] == 13).any():
        raise ValueError(f"unlucky rows {list(table['number'])}")
    return table
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Workspace:
    """A folder that knows nothing of the job."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Workspace(folder)


def files_job(tmp_path: Path, size: int = 5, model: str = "", **settings: str) -> Workspace:
    """A run of which one item of five has failed."""
    folder = tmp_path / "here"
    folder.mkdir()
    workspace = Workspace(folder)
    workspace.write(["a", "b", "raise", "c", "d"], name="name: files", mini_batch_size=size)
    (workspace.folder / "code" / "score.py").write_text(SCRIPT)
    if model:
        data = "      data: ${{parent.inputs.data}}\n"
        text = workspace.job_file.read_text()
        workspace.job_file.write_text(text.replace(data, f"{data}      model: {{type: uri_file, path: {model}}}\n"))
    sets = [
        part for name, value in settings.items() for part in ("--set", f"jobs.score.{name.replace('__', '.')}={value}")
    ]
    done = workspace.run("run", "job.yml", "--no-progress", *sets)
    assert done.returncode == 0, done.stderr
    return workspace


def bundled(workspace: Workspace, *arguments: str) -> str:
    done = workspace.run("mb", "bundle", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def moved(workspace: Workspace, elsewhere: Workspace, name: str) -> Path:
    """The bundle in another folder, when everything of the job is gone."""
    bundle = elsewhere.folder / "bundle.zip"
    shutil.copy(workspace.folder / name, bundle)
    shutil.rmtree(workspace.folder)
    return bundle


def test_a_failed_item_runs_elsewhere_when_the_job_is_gone(tmp_path: Path, elsewhere: Workspace) -> None:
    workspace = files_job(tmp_path)
    told = bundled(workspace, "files")
    assert told.startswith("files-score-0-2.zip: mini-batch 0 of step score, 5 B.")
    moved(workspace, elsewhere, "files-score-0-2.zip")
    done = elsewhere.run("mb", "replay", "bundle.zip")
    assert done.returncode == 1
    assert "ValueError: bad item" in done.stderr and "(1 item)" in done.stderr
    assert sorted(path.name for path in elsewhere.folder.iterdir()) == ["bundle.zip", "code", "data"], "nothing is left"
    code = elsewhere.folder / "repaired"
    code.mkdir()
    (code / "score.py").write_text("def run(mini_batch):\n    return [open(path).read() for path in mini_batch]\n")
    done = elsewhere.run("mb", "replay", "bundle.zip", "--code", "repaired")
    assert (done.returncode, "raise" in done.stderr) == (0, True)


def test_a_whole_mini_batch_or_one_of_its_items(tmp_path: Path, elsewhere: Workspace) -> None:
    workspace = files_job(tmp_path)
    bundled(workspace, "files", "0", "-o", "whole.zip")
    bundled(workspace, "files", "0", "--item", "3", "-o", "one.zip")
    with zipfile.ZipFile(workspace.folder / "whole.zip") as whole, zipfile.ZipFile(workspace.folder / "one.zip") as one:
        assert sum(name.startswith("data/") for name in whole.namelist()) == 5
        assert next(name for name in one.namelist() if name.startswith("data/")).endswith("item003.txt")
        assert "windrow mb replay whole.zip --pdb" in whole.read("README.txt").decode()
        assert "ValueError: bad item" in whole.read("traceback.txt").decode()
    shutil.copy(workspace.folder / "one.zip", elsewhere.folder)
    moved(workspace, elsewhere, "whole.zip")
    assert elsewhere.run("mb", "replay", "bundle.zip").returncode == 1
    assert elsewhere.run("mb", "replay", "bundle.zip", "--item", "3").returncode == 0
    none = elsewhere.run("mb", "replay", "bundle.zip", "--item", "99")
    assert none.returncode == 2 and "--item 99: there is no such item. The mini-batch has" in none.stderr
    assert elsewhere.run("mb", "replay", "one.zip").returncode == 0
    assert workspace.run  # it is gone


def test_rows_of_a_table_run_elsewhere(tmp_path: Path, elsewhere: Workspace) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    workspace = Workspace(folder)
    (folder / "numbers.csv").write_text("number\n" + "".join(f"{number}\n" for number in range(40)))
    (folder / "double.py").write_text(TABLE)
    done = workspace.run("run", "double.py", "numbers.csv", "-o", "out.csv", "--mini-batch-size", "50", "--tolerate")
    assert done.returncode == 0, done.stderr
    told = bundled(workspace, "last")
    moved(workspace, elsewhere, told.partition(":")[0])
    done = elsewhere.run("mb", "replay", "bundle.zip")
    assert done.returncode == 1
    assert "ValueError: unlucky rows [13]" in done.stderr


def test_secrets_stay_out_and_are_taken_from_where_it_runs(tmp_path: Path, elsewhere: Workspace) -> None:
    (tmp_path / "weights").write_text("weights")
    workspace = files_job(
        tmp_path,
        task__program_arguments="--api-key hidden2 --model ${{inputs.model}}",
        environment_variables__SERVICE_TOKEN="hidden1",
        environment_variables__PLAIN="shown",
        model=str(tmp_path / "weights"),
    )
    told = bundled(workspace, "files", "0", "-o", "b.zip")
    assert "without SERVICE_TOKEN, --api-key" in told
    (tmp_path / "weights").unlink()
    with zipfile.ZipFile(workspace.folder / "b.zip") as archive:
        for name in archive.namelist():
            assert b"hidden" not in archive.read(name), name
        assert "Left out, because they look like secrets: SERVICE_TOKEN, --api-key" in (
            archive.read("README.txt").decode()
        )
    moved(workspace, elsewhere, "b.zip")
    done = elsewhere.run("mb", "replay", "bundle.zip", SERVICE_TOKEN="mine")
    assert "The bundle is without SERVICE_TOKEN, --api-key" in done.stderr
    assert "bad item; key left-out, mine, shown" in done.stderr, "the model was there, too"


def test_much_data_stays_where_it_is(tmp_path: Path, elsewhere: Workspace) -> None:
    workspace = files_job(tmp_path)
    (workspace.folder / "data" / "item002.txt").write_text("raise" + "x" * 2_000_000)
    told = bundled(workspace, "files", "0", "-o", "b.zip", "--data-mb", "1")
    assert "without its data (they are 2.0 MB, more than --data-mb 1)" in told
    shutil.copy(workspace.folder / "b.zip", elsewhere.folder)
    assert elsewhere.run("mb", "replay", "b.zip").returncode == 0, "the paths are the same here"
    bundle = moved(workspace, elsewhere, "b.zip")
    done = elsewhere.run("mb", "replay", bundle.name)
    assert done.returncode == 1 and "What it reads is not on this machine" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("files", "0", "-o", "b.tar"), "must end in .zip"),
        (("files", "--item", "1"), "are for one mini-batch"),
        (("files", "0", "--item", "9"), "there is no item 9"),
        (("files", "0", "-o", "no/such/folder/b.zip"), "cannot be written"),
        (("files", "77"), "no mini-batch 77"),
    ],
)
def test_what_cannot_be_bundled_is_told(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    workspace = files_job(tmp_path)
    done = workspace.run("mb", "bundle", *arguments)
    assert done.returncode != 0 and words in done.stderr
    assert not list(workspace.folder.glob("*.zip*")) and not list(workspace.folder.glob(".*partial*"))


def test_a_job_without_failures_has_nothing_to_bundle(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write(["a"], name="name: good")
    assert workspace.run("run", "job.yml", "--no-progress").returncode == 0
    assert "Nothing of job good has failed" in bundled(workspace, "good")


def rewritten(source: Path, target: Path, change: str) -> None:
    """A copy of a bundle with something wrong."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data, name = old.read(info), info.filename
            if change == "missing" and name.startswith("data/"):
                continue
            if change == "longer" and name.startswith("data/"):
                data += b"!"
            if change == "newer" and name == "bundle.json":
                data = json.dumps({**json.loads(data), "format": 99, "windrow_version": "9.9"}).encode()
            if change == "escapes" and name == "bundle.json":
                document = json.loads(data)
                document["files"][0]["path"] = "/../../../escaped"
                data = json.dumps(document).encode()
            if change == "escapes" and name.startswith("data/"):
                name = "data/../../../escaped"
            new.writestr(name, data)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("missing", "is not complete"),
        ("longer", "is damaged"),
        ("newer", "was made by Windrow 9.9"),
        ("escapes", "is damaged"),
        ("cut", "is not a bundle, or is damaged"),
        ("flipped", "is not a bundle, or is damaged"),
    ],
)
def test_a_bundle_with_something_wrong_runs_nothing(
    tmp_path: Path, elsewhere: Workspace, change: str, words: str
) -> None:
    workspace = files_job(tmp_path)
    bundled(workspace, "files", "0", "--item", "2", "-o", "b.zip")
    source, target = workspace.folder / "b.zip", elsewhere.folder / "b.zip"
    whole = source.read_bytes()
    if change == "cut":
        target.write_bytes(whole[: len(whole) // 2])
    elif change == "flipped":
        with zipfile.ZipFile(source) as archive:
            info = archive.getinfo("code.tar")
        at = info.header_offset + info.compress_size // 2
        target.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
    else:
        rewritten(source, target, change)
    done = elsewhere.run("mb", "replay", "b.zip")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("escaped"))


def test_a_flipped_bit_is_found_or_changes_nothing_that_runs(tmp_path: Path) -> None:
    workspace = files_job(tmp_path)
    bundled(workspace, "files", "0", "-o", "b.zip")
    whole = (workspace.folder / "b.zip").read_bytes()

    def contents(name: str, data: bytes) -> dict[str, bytes]:
        """What is unpacked, by its path."""
        folder = tmp_path / name
        folder.mkdir()
        (tmp_path / f"{name}.zip").write_bytes(data)
        open_bundle(tmp_path / f"{name}.zip", folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    expected = contents("whole", whole)
    refused = 0
    for at in range(0, len(whole), max(1, len(whole) // 400)):
        flipped = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        try:
            assert contents(f"flipped{at}", flipped) == expected
        except UsageError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("key", ["step", "assignment", "inputs", "files", "secrets", "format", "item", "items"])
def test_a_document_of_another_form_is_no_bundle(tmp_path: Path, key: str) -> None:
    workspace = files_job(tmp_path)
    bundled(workspace, "files", "0", "-o", "b.zip")
    with zipfile.ZipFile(workspace.folder / "b.zip") as old, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == "bundle.json":
                document = json.loads(data)
                assert document[key] != "?"
                data = json.dumps({**document, key: "?"}).encode()
            other.writestr(info.filename, data)
    done = workspace.run("mb", "replay", str(tmp_path / "other.zip"))
    words = "was made by Windrow" if key == "format" else "is not a bundle, or is damaged"
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_local_paths_of_every_kind_of_recipe_move_below_a_folder() -> None:
    files = {"kind": "files", "root": "/data"}
    absolute = {"kind": "files", "root": ""}
    table = {"kind": "table"}
    recipes = [
        (files, b"a/1\0b/2"),
        (absolute, b"/x/1\0/y/2"),
        (table, json.dumps({"file": "/t.csv", "begin": 0, "end": 9}).encode()),
        (table, json.dumps({"parts": [{"file": "/t.csv"}, {"file": "s3://bucket/u.csv"}]}).encode()),
        ({"kind": "inputs", "inputs": [table, files]}, b"1\0a/1"),
    ]
    for reader, recipe in recipes:
        before = list(local_files(reader, recipe))
        assert before
        assert list(local_files(*below(reader, recipe, "/there"))) == [b"/there" + path for path in before]
    remote = {"kind": "files", "root": "s3://bucket"}
    assert below(remote, b"a\n3 x", "/there") == (remote, b"a\n3 x")
    assert only(files, b"a/1\0b/2", 1) == b"b/2"
    assert only({"kind": "inputs", "inputs": [table, files]}, b"1\0a\0b", 0) == b"1\0a"
    assert only(table, b"{}", 0) is None
