"""`windrow state check` names every kind of damage, and `state salvage` leaves out what fails its check value."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from damage_jobs import FILES_SCRIPT, UNTIL, Keys, Reuse
from embedded_run import WINDROW
from file_damage import change_rows, cut, flip, flip_middle
from windrow_master.files.checked_records import RecordWriter
from windrow_master.files.upload_lists import UploadedFile, write_file
from windrow_master.salvage.__main__ import main
from windrow_master.state_folder.opening import StateFolder
from windrow_master.store.errors import StoreBroken
from windrow_master.store.sqlite.check_values import (
    ALLOCATION,
    ASSET,
    CHECK,
    FLEET,
    QUEUE,
    TOKEN,
    WHOLE_ROWS,
    with_crc,
)

ASSET_ROW = (1, "table", "1", "uri_file", "/data/t", 1, "", b"{}", 1.5, None, "", "", "", "")
TOKEN_ROW = ("ab" * 32, "ann", 1, 1, "default", 1.5, 2.5, None, None, None)
QUEUE_ROW = ("default", b"{}", 1, 1.5, "")
FLEET_ROW = ("site", b"[]", "host, process 1", "ab", 1.5, b"[]", 0, "", None, 0)
ALLOCATION_ROW = ("site-cpu-x1", "site", "cpu", "17", 3, "", 1.5, 2.5, 3.5, None, None, "", "")


class Checked(Reuse):
    """A run that has ended, and one that was killed in the middle, which reuses its command; an item fails in both."""

    name = "checked"
    script = FILES_SCRIPT.replace("    rows = []\n", "    rows = []\n    assert not mini_batch[0].endswith('3')\n")

    def step(self, **changes: object) -> str:
        # A retry might wait behind the items that the gate holds up.
        job = super().step(**{"settings": "error_threshold: -1", "size": 1, **changes})
        return job.replace("max_retries: 1", "max_retries: 0")

    def is_in_the_middle(self) -> bool:
        counters = self.counters()
        # All that the gate lets pass: else rows that are written, and not yet committed, may stand in the segment.
        return len(counters) == 4 and counters[-1]["failed"] + counters[-1]["succeeded"] == UNTIL


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """State folders: of `Checked`, with an asset and a list of an upload, and of a run over sorted rows."""
    kept = {}
    for kind in (Checked, Keys):
        job = kind(tmp_path_factory.mktemp(kind.name) / "job")
        job.run_options = ("--datastore", f"lake={job.folder}", "--python", sys.executable) if kind is Checked else ()
        job.prepare()
        job.interrupt()
        kept[kind.name] = job.state
        (job.state / "reserve").unlink(missing_ok=True)
    state = kept["checked"]
    for table, columns, row in (
        ("asset", ASSET, ASSET_ROW),
        ("token", TOKEN, TOKEN_ROW),
        ("queue", QUEUE, QUEUE_ROW),
        ("fleet", FLEET, FLEET_ROW),
        ("allocation", ALLOCATION, ALLOCATION_ROW),
    ):
        values = ",".join("?" * (len(row) + 1))
        change_rows(state / "windrow.db", f"INSERT INTO {table} ({columns}, {CHECK}) VALUES ({values})", with_crc(row))
    (state / "uploads").mkdir(exist_ok=True)
    with (state / "uploads" / ("a" * 64)).open("wb") as file:
        out = RecordWriter(file)
        for name in (b"one", b"two"):
            write_file(out, UploadedFile(name, bytes(32), 7))
    return kept


def copied(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "state", symlinks=True))


def found_in(state: Path) -> list[str]:
    answer = main(["check", str(state)])
    assert not answer["trouble"], answer
    return [f"{where}: {what}" for where, what in answer["damage"]]


@pytest.mark.parametrize("kind", ["checked", "keys"])
def test_a_folder_that_is_sound_is_silent(runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    before = contents(runs[kind])
    assert found_in(runs[kind]) == []
    told = main(["export", str(runs[kind]), str(tmp_path / "out")])
    assert told["notes"] == []
    assert contents(runs[kind]) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Of all files but those that SQLite makes for readers."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("windrow.db-"))
    return {str(path): path.read_bytes() for path in files}


ONE = "rowid = (SELECT max(rowid) FROM {table})"


@pytest.mark.parametrize(
    ("table", "column", "value", "words"),
    [
        ("job", "message", "'x'", ["job_key 2", "no master starts", "salvage takes its name"]),
        ("job_document", "document", "CAST(document || ' ' AS BLOB)", ["job_key 2", "of job '", "salvage saves"]),
        ("step", "message", "'x'", ["step_id 4", "step 'score' of job '", "salvage saves"]),
        ("step_document", "paths", "CAST(paths || ' ' AS BLOB)", ["step_id 4", "of step 'score' of job '"]),
        ("segment", "length", "length + 1", ["segment_id", "of step 'score' of job '", "salvage saves"]),
        ("output", "rows", "rows + 1", ["path '/", "a step that writes there fails"]),
        ("node", "message", "'x'", ["node_id", "no master starts"]),
        ("asset", "type", "'mltable'", ["kind 1", "cannot be used"]),
        ("token", "role", "role + 1", ["digest '", "no master starts"]),
        ("queue", "revision", "revision + 1", ["name 'default'", "no master starts"]),
        ("ledger", "useful_us", "useful_us + 1", ["job_key ", "usage cannot be shown"]),
        ("counted", "value", "value + 1", ["name 'step_id'", "no master starts"]),
        ("master", "lease_prefix", "lease_prefix + 1", ["incarnation 2", "no master starts"]),
        (
            "mini_batch",
            "item_first",
            "item_first + 1",
            ["step 4, mini-batch 47", "belongs to step 'score' of job", "--since"],
        ),
        ("attempt", "elapsed_us", "elapsed_us + 1", ["lease_id", "of step 'score' of job '"]),
        ("attempt", "message", "message || 'x'", ["lease_id", "of step 'score' of job '"]),
        ("item_outcome", "item_count", "item_count + 1", ["id ", "items that failed of step 'score' of job '"]),
        ("item_outcome", "message", "message || 'x'", ["id ", "items that failed of step 'score' of job '"]),
    ],
)
def test_a_row_that_does_not_have_its_check_value(
    runs: dict[str, Path], tmp_path: Path, table: str, column: str, value: str, words: list[str]
) -> None:
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", f"UPDATE {table} SET {column} = {value} WHERE {ONE.format(table=table)}")
    found = found_in(state)
    assert any(
        one.startswith(f"windrow.db, table {table}, ")
        and "check value it was written with" in one
        and all(word in one for word in words)
        for one in found
    ), found


def test_a_damaged_row_of_each_table_means_something(runs: dict[str, Path], tmp_path: Path) -> None:
    """What a master says of damage leads to the check: it must not fail over the damage itself."""
    state = copied(runs["checked"], tmp_path)
    for table in WHOLE_ROWS:
        change_rows(state / "windrow.db", f"UPDATE {table} SET {CHECK} = {CHECK} + 1")
    found = found_in(state)
    for table in WHOLE_ROWS:
        assert any(one.startswith(f"windrow.db, table {table}, ") for one in found), table


def test_the_code_of_a_step_that_has_not_ended_is_missed(runs: dict[str, Path], tmp_path: Path) -> None:
    """That of steps that have ended may have been collected."""
    state = copied(runs["checked"], tmp_path)
    for archive in (state / "artifacts").iterdir():
        archive.unlink()
    (found,) = found_in(state)
    assert "/artifacts/" in found and "it is gone; it is the code of step 'score' of job 'job-" in found, found


def test_a_newer_schema_is_not_called_sound(runs: dict[str, Path], tmp_path: Path) -> None:
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", "PRAGMA user_version = 1000")
    (found,) = found_in(state)
    assert "windrow.db: it has schema 1000" in found and "newer version" in found


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM mini_batch WHERE key = (SELECT max(key) FROM mini_batch)", ["48 rows were written", "47 are"]),
        ("DELETE FROM mini_batch WHERE key & 4294967295 = 5", ["mini-batches 5 to 5 are missing"]),
        ("DELETE FROM step WHERE step_id = 3", ["2 rows were written there, and 1 are found"]),
        ("DELETE FROM job_document WHERE job_key = 2", ["its document is missing"]),
    ],
)
def test_numbers_of_rows_that_do_not_agree(
    runs: dict[str, Path], tmp_path: Path, statement: str, words: list[str]
) -> None:
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", statement)
    found = found_in(state)
    assert all(any(word in one for one in found) for word in words), found


@pytest.mark.parametrize(
    ("kind", "pattern", "how", "words"),
    [
        ("checked", "jobs/*/steps/4/recipes", flip_middle, ["recipe of mini-batch ", "fails its checksum", "--since"]),
        ("checked", "jobs/*/steps/4/recipes", flip_middle, ["bytes fail their checksum", "step 'score' of job '"]),
        ("checked", "jobs/*/steps/4/recipes", Path.unlink, ["it is gone"]),
        ("checked", "jobs/*/steps/4/places", lambda path: flip(path, 20), ["1 record fails its", "run again"]),
        ("checked", "jobs/*/steps/4/segments/*", flip_middle, ["rows of mini-batch ", "fail their checksum"]),
        ("checked", "artifacts/*", flip_middle, ["its content has the sha256", "uploads it again"]),
        ("checked", "uploads/*", flip_middle, ["record 1 fails its checksum", "they run again"]),
        ("checked", "uploads/*", cut, ["record 1 fails its checksum, or is cut off"]),
        ("checked", "reuse/listings/*", flip_middle, ["fails its checksum", "are read again"]),
        ("checked", "reuse/made/*.json", flip_middle, ["its checksum does not match", "run again"]),
        ("checked", "jobs/*/steps/*/reuse.json", flip_middle, ["its checksum does not match", "not reused"]),
        ("checked", "jobs/*/logs/.reports.json", flip_middle, ["its checksum does not match", "written again"]),
        ("checked", "jobs/*/logs/*/nodes.json", flip_middle, ["its checksum does not match", "an agent's logs"]),
        ("checked", "jobs/*/run.json", flip_middle, ["its checksum does not match", "cannot be retried"]),
        ("checked", "datastores.json", flip_middle, ["its checksum does not match", "--datastore"]),
        ("checked", "embedded.json", flip_middle, ["its checksum does not match", "refused"]),
        ("checked", "untold", flip_middle, ["its checksum does not match", "starts from the beginning"]),
        ("checked", "agent/incarnation.json", flip_middle, ["its checksum does not match", "only the recorded ones"]),
        ("keys", "jobs/*/steps/*/listing", flip_middle, ["bytes fail their checksum", "to step 'score'"]),
        ("keys", "jobs/*/steps/*/rows/*[!s]", flip_middle, ["fails its checksum", "mini-batches there fail"]),
        ("keys", "jobs/*/steps/*/rows/*.sums", flip_middle, [".sums: it fails its checksum"]),
    ],
)
def test_a_file_that_fails_its_checksum(
    runs: dict[str, Path], tmp_path: Path, kind: str, pattern: str, how: Callable[[Path], None], words: list[str]
) -> None:
    # The reader of sorted rows names them by their place, so this state is damaged where it is, and mended.
    state = runs[kind] if "rows/" in pattern else copied(runs[kind], tmp_path)
    path = sorted(state.glob(pattern))[-1]
    content = path.read_bytes()
    how(path)
    try:
        found = found_in(state)
    finally:
        path.write_bytes(content)
    assert any(one.startswith(str(path)) and all(word in one for word in words) for one in found), found


def saved(state: Path, out: Path) -> tuple[dict[str, object], list[str], dict[str, list[str]]]:
    """What is told; the rows of the second run's step; what is told of the missing mini-batches, by number."""
    told = main(["export", str(state), str(out)])
    (job,) = (one for one in told["jobs"] if one["state"] == "running")
    place = out / job["job"] / "score"
    with (place / "missing.csv").open(newline="") as file:
        missing = {row[0]: row[1:] for row in csv.reader(file)}
    return told, (place / "rows.txt").read_text().splitlines(), missing


def test_salvage_leaves_out_a_mini_batch_whose_record_is_damaged(runs: dict[str, Path], tmp_path: Path) -> None:
    _, whole, _ = saved(runs["checked"], tmp_path / "whole")
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", "UPDATE mini_batch SET row_count = row_count + 1 WHERE key = 4 << 32 | 1")
    told, rows, missing = saved(state, tmp_path / "out")
    assert rows == [row for row in whole if not row.startswith("f00001 ")]
    assert missing["1"][1] == "its record in the database does not have its check value"
    assert any("left out 1 mini-batch without a sound record" in note for note in told["notes"]), told  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE step SET name = 'other' WHERE step_id = 4",
        "UPDATE segment SET name = 'other', length = 0 WHERE step_id = 4",
        "UPDATE segment SET name = '../../x.rows', step_id = 9 WHERE step_id = 4",
        "UPDATE output SET rows = rows + 1",
    ],
)
def test_rows_are_saved_though_the_records_around_them_are_damaged(
    runs: dict[str, Path], tmp_path: Path, statement: str
) -> None:
    _, whole, _ = saved(runs["checked"], tmp_path / "whole")
    assert len(whole) > 5
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", statement)
    told, rows, _ = saved(state, tmp_path / "out")
    assert rows == whole
    assert any("was left out" in note for note in told["notes"]), told  # type: ignore[attr-defined]


def test_salvage_names_items_only_from_recipes_that_are_sound(runs: dict[str, Path], tmp_path: Path) -> None:
    state = copied(runs["checked"], tmp_path)
    (recipes,) = state.glob("jobs/*/steps/4/recipes")
    content = recipes.read_bytes()
    recipes.write_bytes(content.replace(b"f00040", b"f00041"))
    _, _, missing = saved(state, tmp_path / "out")
    assert missing["40"][2] == "(not known: the recipe of this mini-batch is damaged)"
    assert missing["41"][2].endswith("f00041")


def test_damage_of_every_kind_at_once_is_told_to_the_end(runs: dict[str, Path], tmp_path: Path) -> None:
    """One finding does not hide the others."""
    state = copied(runs["checked"], tmp_path)
    change_rows(state / "windrow.db", "UPDATE job SET message = 'x'")
    change_rows(state / "windrow.db", "UPDATE attempt SET cpu_us = cpu_us + 1")
    for path in state.glob("artifacts/*"):
        flip_middle(path)
    found = found_in(state)
    for part in ("table job,", "table attempt,", "/artifacts/"):
        assert any(part in one for one in found), (part, json.dumps(found, indent=1)[:4000])


def fill(folder: Path) -> Path:
    """Leave no room on a file system but for names."""
    path = folder / "filling"
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return path


@pytest.mark.parametrize("room", [0, 150_000])
def test_salvage_on_a_full_disk_leaves_nothing_and_says_why(runs: dict[str, Path], small_disk: Path, room: int) -> None:
    """Of what lacks a part, nobody must think that it is all there was."""
    filling = fill(small_disk)
    with filling.open("r+b") as file:
        file.truncate(filling.stat().st_size - room)
    out = small_disk / "saved"
    told = main(["export", str(runs["checked"]), str(out)])
    assert str(out) in told["trouble"] and "its disk is full" in told["trouble"], told
    assert sorted(small_disk.iterdir()) == [filling]
    filling.unlink()
    told = main(["export", str(runs["checked"]), str(out)])
    assert (told["trouble"], told["notes"]) == ("", [])
    assert json.loads((out / "salvage.json").read_text())["jobs"]


def test_a_check_without_room_for_a_copy_finds_nothing_sound(
    runs: dict[str, Path], small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(small_disk)
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    answer = main(["check", str(runs["checked"])])
    assert "not enough space for a copy of the database" in answer["trouble"] and "TMPDIR" in answer["trouble"], answer


def test_a_database_of_which_no_copy_can_be_read_is_not_sound(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise StoreBroken("malformed database schema")

    monkeypatch.setattr("windrow_master.salvage.__main__.SavedDatabase", refuse)
    assert any("its tables cannot be read: malformed" in found for found in found_in(runs["checked"]))


def half_made(folder: Path, kind: str) -> Path:
    """A state folder as a loss of power leaves it while its database is made."""
    folder.mkdir()
    (folder / "lock").touch()
    if kind == "empty":
        (folder / "windrow.db").touch()
    else:
        with contextlib.closing(sqlite3.connect(folder / "windrow.db", isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL").fetchone()
    return folder


@pytest.mark.parametrize("kind", ["empty", "without tables"])
def test_a_database_that_was_not_completed_is_told_in_plain_words(kind: str, tmp_path: Path) -> None:
    state = half_made(tmp_path / "state", kind)
    before = contents(state)
    command = [WINDROW, "state", "check", str(state)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0 and not told.stderr, told
    assert "windrow.db has no tables yet" in told.stdout and "Nothing is lost" in told.stdout
    assert "Start the run or master again" in told.stdout
    answer = main(["export", str(state), str(tmp_path / "out")])
    assert answer["trouble"].startswith("There is nothing to save: ") and not (tmp_path / "out").exists()
    assert contents(state) == before
    # What it says is true.
    StateFolder.open(state, 0).close()
    assert found_in(state) == []


@pytest.mark.parametrize("kind", ["empty", "without tables"])
def test_a_database_without_tables_that_a_master_has_used_is_damaged(kind: str, tmp_path: Path) -> None:
    state = half_made(tmp_path / "state", kind)
    (state / "lock").write_text('{"incarnation": 3}')
    (found,) = found_in(state)
    assert "it is empty, though" in found or "it has no tables, although it was in use" in found
    assert main(["export", str(state), str(tmp_path / "out")])["notes"]
