"""Power is cut at moments of a run of real processes, over files of every family (`power_trials`)."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_run import WINDROW
from power_trace import Disk, can_trace, changes_below, tracing
from power_trials import PowerTrials
from windrow_master.files.errors import StateUnusable
from windrow_master.files.state_files import StateFiles
from windrow_master.state_folder.opening import StateFolder

SEED = 1
CHECKED = 120
RUN_ON = 4

pytestmark = pytest.mark.skipif(not can_trace(), reason="what processes write is traced by strace, which is not here")


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PowerTrials]:
    with contextlib.closing(PowerTrials(tmp_path_factory.mktemp("power"))) as made:
        yield made


def test_the_run_writes_files_of_every_family(trials: PowerTrials) -> None:
    families = trials.families
    expected = (
        *("windrow.db-wal", "windrow.db-journal", "audit.jsonl", "artifacts/*", "uploads/*", "removed/*", "reserve"),
        *("jobs/*/steps", "reuse/made/*", "store/outputs/*/score/rows", "backup.json", "served/*/state/windrow.db"),
        *("agent-one/code/*", "incarnation.json", "agent-one/staged/*"),
        *("store/outputs/*/score/files", "agent-one/steps/*/outputs/*"),
    )
    lacking = [part for part in expected if not any(part in family for family in families)]
    assert not lacking, "\n".join(families)


def test_what_a_power_cut_leaves_is_sound_and_has_what_was_acknowledged(trials: PowerTrials) -> None:
    wrong = [verdict for number in range(CHECKED) if (verdict := trials.trial(number, SEED, runs_on=False)).wrong]
    assert not wrong


@pytest.mark.parametrize("number", range(RUN_ON))
def test_after_a_power_cut_jobs_end_with_the_exact_output(trials: PowerTrials, number: int) -> None:
    of = len(trials.families)
    verdict = trials.trial(number * of // RUN_ON, SEED, runs_on=True)
    assert not verdict.wrong, verdict


WRITES = """
import os, sqlite3, sys
root = sys.argv[1]
folder = os.open(root, os.O_RDONLY)
with open(root + "/unsynced", "wb") as file:
    file.write(b"x" * 5000)
with open(root + "/partial", "wb") as file:
    file.write(b"whole" * 1000)
    file.flush()
    os.fsync(file.fileno())
os.rename(root + "/partial", root + "/renamed")
os.mkdir("below", dir_fd=folder)
out = os.open("below/copy", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
source = os.open(root + "/renamed", os.O_RDONLY)
os.copy_file_range(source, out, 2000, offset_src=1000)
os.pwrite(out, b"at", 100)
os.ftruncate(out, 150)
os.link(root + "/renamed", root + "/below/linked")
if sys.argv[2] == "synced":
    os.fsync(out), os.fsync(os.open(root + "/below", os.O_RDONLY)), os.fsync(folder)
"""


@pytest.mark.parametrize("synced", ["synced", "not"])
def test_a_traced_disk_is_what_was_written_and_loses_only_what_was_not_synced(tmp_path: Path, synced: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(root)
    subprocess.run([*tracing(tmp_path / "trace"), sys.executable, "-c", WRITES, str(root), synced], check=True)
    for change in changes_below(root, [tmp_path / "trace"]):
        disk.apply(change)
    names = set()
    for seed in range(40):
        left = tmp_path / f"left-{seed}"
        disk.leave(left, random.Random(seed))
        found = {str(path.relative_to(left)): path.read_bytes() for path in left.rglob("*") if path.is_file()}
        names.update(found)
        for name in ("renamed", "partial", "below/linked"):
            assert found.get(name, b"whole" * 1000) == b"whole" * 1000, "its content was synced"
        if synced == "synced":
            assert {"renamed", "below/copy", "below/linked"} <= found.keys()
            assert found["below/copy"] == (root / "below" / "copy").read_bytes()
    assert ("partial" in names) == (synced == "not"), "the old name"
    assert "unsynced" in names


def test_a_commit_that_was_acknowledged_outlives_every_cut(tmp_path: Path) -> None:
    """SQLite's own writes are traced as well."""
    root = tmp_path / "root"
    root.mkdir()
    before = Disk(root)
    program = (
        "import os, sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1] + '/db', isolation_level=None)\n"
        "database.execute('PRAGMA journal_mode = WAL'), database.execute('PRAGMA synchronous = FULL')\n"
        "database.execute('CREATE TABLE t (n)')\n"
        "for number in range(10):\n"
        "    database.execute('INSERT INTO t VALUES (?)', (number,))\n"
        "    os.close(os.open(sys.argv[1] + f'/told-{number}', os.O_CREAT))\n"
        "os._exit(0)"
    )
    subprocess.run([*tracing(tmp_path / "trace"), sys.executable, "-c", program, str(root)], check=True)
    told = 0
    for number, change in enumerate(changes_below(root, [tmp_path / "trace"])):
        before.apply(change)
        told += "told-" in change.path
        if not told:
            continue
        left = tmp_path / f"left-{number}"
        before.leave(left, random.Random(number))
        with sqlite3.connect(left / "db") as database:
            found = [row[0] for row in database.execute("SELECT n FROM t ORDER BY n")]
        assert found[:told] == list(range(told)) and len(found) <= told + 1
    assert told == 10


SETUP = [sys.executable, "-m", "windrow_master.setup", "--folder"]
SETUP_CUTS = 40
SETUP_REPEATED = 3


def contents(folder: Path) -> dict[str, bytes]:
    """The files that have their names."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("more", [(), ("--new-tokens",)], ids=["first", "new tokens"])
def test_certificates_and_tokens_are_there_whole_once_setup_has_ended(tmp_path: Path, more: tuple[str, ...]) -> None:
    root = tmp_path / "root"
    root.mkdir()
    folder = root / "keys"
    if more:
        subprocess.run([*SETUP, str(folder)], check=True, stdout=subprocess.DEVNULL)
    earlier, before = contents(folder), Disk(root)
    command = [*tracing(tmp_path / "trace"), *SETUP, str(folder), *more]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    written, changes = contents(folder), changes_below(root, [tmp_path / "trace"])
    assert written.keys() >= {"authority/authority.pem", "authority/join-token", "client/client-token"}
    assert (written != earlier) and len(changes) > 20
    chance = random.Random(SEED)
    cuts = [*sorted(chance.sample(range(len(changes)), SETUP_CUTS)), *[len(changes)] * 20]
    disk, applied = before, 0
    for number, cut in enumerate(cuts):
        for change in changes[applied:cut]:
            disk.apply(change)
        applied = cut
        left = tmp_path / f"left-{number}"
        disk.leave(left, random.Random(number))
        found = contents(left / "keys")
        for name, content in found.items():
            assert content in (written.get(name), earlier.get(name)), f"{name} is neither the old nor the new one"
        assert found.keys() >= earlier.keys(), "nothing that was there is gone"
        if cut == len(changes):
            assert found == written, sorted(written.keys() - found.keys())
        elif number % (SETUP_CUTS // SETUP_REPEATED) == 0:
            subprocess.run([*SETUP, str(left / "keys"), *more], check=True, stdout=subprocess.DEVNULL)
            assert contents(left / "keys").keys() == written.keys()


RESTORE_CUTS = 40


def test_a_restore_is_whole_once_it_has_ended_and_otherwise_begun_again(tmp_path: Path) -> None:
    source, backup, root = tmp_path / "source", tmp_path / "backup", tmp_path / "root"
    root.mkdir()
    StateFolder.open(source, 0).close()
    (source / "jobs" / "one").mkdir(parents=True)
    (source / "jobs" / "one" / "file").write_bytes(b"content" * 1000)
    subprocess.run([WINDROW, "backup", str(backup), "--state", str(source)], check=True, stdout=subprocess.DEVNULL)
    before = Disk(root)
    restore = [WINDROW, "restore", str(backup), "--state"]
    traced = [*tracing(tmp_path / "trace"), *restore, str(root / "state")]
    subprocess.run(traced, check=True, stdout=subprocess.DEVNULL)
    written, changes = contents(root / "state"), changes_below(root, [tmp_path / "trace"])
    assert "windrow.db" in written and len(changes) > 5, written
    cuts = [*sorted(random.Random(SEED).choices(range(len(changes)), k=RESTORE_CUTS)), *[len(changes)] * 20]
    applied = again = 0
    for number, cut in enumerate(cuts):
        for change in changes[applied:cut]:
            before.apply(change)
        applied = cut
        left = tmp_path / f"left-{number}"
        before.leave(left, random.Random(number))
        state = left / "state"
        found = contents(state) if state.is_dir() else {}
        if cut == len(changes):
            assert found == written
        elif state.is_dir() and StateFiles(state).unfinished_restore.exists():
            # No master takes it for whole, and the next restore does not mind what is there.
            with pytest.raises(StateUnusable):
                StateFolder.open(state, 0)
            if again < SETUP_REPEATED:
                again += 1
                subprocess.run([*restore, str(state)], check=True, stdout=subprocess.DEVNULL)
                assert contents(state).keys() == written.keys()
        else:
            assert not found.keys() - {"lock"} or found.keys() >= written.keys(), found.keys()
    assert again
