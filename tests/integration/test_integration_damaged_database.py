"""A state folder whose database was damaged: told by the one message, or without effect; and what can be saved."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import windrow_command
from cluster_commands import ServedCluster
from embedded_run import EmbeddedRun, wait_until
from file_damage import bring_in_the_log, change_rows, flip_middle
from windrow import Client
from windrow.errors import RequestRefused

FILES = 120
SCRIPT = """\
import os, time
def run(mini_batch):
    (path,) = mini_batch
    while path > os.environ['DATA_END'] and not os.path.exists(os.environ['GATE']):
        time.sleep(0.01)
    return [os.path.basename(path) + ' ' + 'x' * 50]
"""
EXPECTED = [f"f{number:05d} {'x' * 50}" for number in range(FILES)]
SEED = 20_261
PAGE = 4096
TOLD = "is damaged: "


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedRun:
    """A run that was killed when two thirds of its mini-batches were done: SQLite's log is not in the database yet."""
    folder = tmp_path_factory.mktemp("damage") / "job"
    settings = f"environment_variables: {{GATE: {folder}/gate, DATA_END: {folder}/data/f00079}}"
    run = EmbeddedRun(folder, SCRIPT, FILES, settings=settings)
    run.start()
    wait_until(lambda: run.committed() >= 80, "80 mini-batches are done")
    run.kill_all()
    return run


def windrow(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")}
    return windrow_command.windrow(*map(str, arguments), cwd=cwd, environment=kept)


@pytest.fixture
def state(stopped: EmbeddedRun, tmp_path: Path) -> Path:
    """A copy of it, of its own for each test."""
    return Path(shutil.copytree(stopped.state, tmp_path / "state", symlinks=True))


def whole(state: Path) -> None:
    """The database is in its one file."""
    with contextlib.closing(sqlite3.connect(state / "windrow.db")) as database:
        bring_in_the_log(database)


def zero_a_page(content: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(content) // PAGE) * PAGE
    content[at : at + PAGE] = bytes(PAGE)


def cut(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def append(content: bytearray, chance: random.Random) -> None:
    content += chance.randbytes(chance.randrange(1, 3 * PAGE))


def swap_pages(content: bytearray, chance: random.Random) -> None:
    one, other = (number * PAGE for number in chance.sample(range(len(content) // PAGE), 2))
    page = content[one : one + PAGE]
    content[one : one + PAGE] = content[other : other + PAGE]
    content[other : other + PAGE] = page


def overwrite_header(content: bytearray, chance: random.Random) -> None:
    content[:100] = chance.randbytes(100)


Damage = Callable[[bytearray, random.Random], None]
DAMAGES: list[Damage] = [zero_a_page, cut, append, swap_pages, overwrite_header]


def damage(path: Path, how: Damage, seed: int) -> None:
    content = bytearray(path.read_bytes())
    how(content, random.Random(seed))
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", DAMAGES, ids=lambda how: how.__name__)
def test_a_damaged_database_is_told_or_is_without_effect(
    stopped: EmbeddedRun, state: Path, how: Damage, seed: int
) -> None:
    """At the next start. What cannot be told is either not read, or put right by what is in the log."""
    whole(state)
    before = rows_of(state)
    damage(state / "windrow.db", how, SEED + seed)
    listed = windrow("job", "list", "--state", state, cwd=stopped.folder)
    said = listed.stdout + listed.stderr
    if listed.returncode == 0:
        assert rows_of(state) == before
    else:
        assert TOLD in said and "windrow state salvage" in said, said
        assert "Nothing acknowledged is lost" not in said and "started again" not in said
        assert '"the state is damaged"' in (state / "master.log").read_text()


def rows_of(state: Path) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(state / "windrow.db")) as database:
        found = database.execute("SELECT * FROM mini_batch ORDER BY key").fetchall()
        found += database.execute("SELECT * FROM attempt ORDER BY lease_id").fetchall()
        found += database.execute("SELECT * FROM step_document JOIN job_document ORDER BY step_id, job_key").fetchall()
    return found


Change = Callable[[Path], None]


def remove(*names: str) -> Change:
    def change(state: Path) -> None:
        for name in names:
            (state / name).unlink()

    return change


def empty(name: str) -> Change:
    return lambda state: os.truncate(state / name, 0)


def statement(text: str) -> Change:
    def change(state: Path) -> None:
        with contextlib.closing(sqlite3.connect(state / "windrow.db", isolation_level=None)) as database:
            database.execute(text)

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (remove("windrow.db"), "it is missing, though there is windrow.db-wal"),
        (remove("windrow.db", "windrow.db-wal", "windrow.db-shm"), "it is missing, though there is jobs/"),
        (remove("windrow.db-wal"), "windrow.db-wal is missing, and"),
        (empty("windrow.db"), "it is empty, though"),
        (empty("windrow.db-wal"), "windrow.db-wal is empty, and"),
        (lambda state: flip_middle(state / "windrow.db-wal"), "windrow.db-wal"),
        (statement("DELETE FROM master"), "it records 0 starts of a master, but its folder has seen 1"),
        (statement("PRAGMA application_id = 7"), "its tables are Windrow's, but its mark is 0x7"),
        (statement("PRAGMA user_version = 2"), "it is marked as schema 2, but its tables are those of schema"),
        (
            statement("PRAGMA user_version = 1048576"),
            "it is marked as schema 1048576, but its tables are those of schema",
        ),
    ],
)
def test_what_the_files_show_is_told_everywhere(stopped: EmbeddedRun, state: Path, change: Change, what: str) -> None:
    change(state)
    job = stopped.folder / "job.yml"
    for command in (
        ("job", "list", "--state", state),
        ("run", job, "--state", state),
        ("state", "check", state),
    ):
        ran = windrow(*command, cwd=stopped.folder)
        said = " ".join((ran.stdout + ran.stderr).split())
        assert ran.returncode != 0 and what in said, said
        assert "windrow state salvage" in said, said


def test_a_sound_folder_is_found_sound(stopped: EmbeddedRun, state: Path) -> None:
    found = windrow("state", "check", state, cwd=stopped.folder)
    assert (found.returncode, "sound" in found.stdout) == (0, True), found.stdout + found.stderr
    assert "every checksum is correct" in windrow("doctor", "--deep", "--state", state, cwd=stopped.folder).stdout


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", [zero_a_page, swap_pages, overwrite_header, cut], ids=lambda how: how.__name__)
def test_salvage_saves_every_row_that_was_not_hit(stopped: EmbeddedRun, state: Path, how: Damage, seed: int) -> None:
    """What is saved is right, and in order; with the list of what is missing it adds up."""
    whole(state)
    committed = stopped.committed()
    damage(state / "windrow.db", how, SEED + seed)
    out = state.parent / "saved"
    saved = windrow("state", "salvage", state, "--to", out, "--format", "json", cwd=stopped.folder)
    told = json.loads(saved.stdout)
    files = list(out.glob("*/*/rows.txt"))
    rows = files[0].read_text().splitlines() if files else []
    positions = [EXPECTED.index(row) for row in rows]
    assert positions == sorted(set(positions))
    assert len(rows) == committed or told["notes"], told
    if how is overwrite_header:
        assert len(rows) == committed
    if how is zero_a_page:
        # A page holds at most so many mini-batches.
        assert not rows or len(rows) >= committed - 90


def test_salvage_leaves_out_rows_whose_checksum_fails_and_lists_them(stopped: EmbeddedRun, state: Path) -> None:
    (segment,) = state.glob("jobs/*/steps/*/segments/*.rows")
    content = bytearray(segment.read_bytes())
    row = content.index(EXPECTED[5].encode())
    content[row + 10] ^= 1
    segment.write_bytes(content)
    out = state.parent / "saved"
    saved = windrow("state", "salvage", state, "--to", out, cwd=stopped.folder)
    assert saved.returncode == 1 and "left out the rows of 1 mini-batch: unreadable" in saved.stdout, saved
    (step,) = (path.parent for path in out.glob("*/*/rows.txt"))
    assert EXPECTED[5] not in (step / "rows.txt").read_text().splitlines()
    assert '5,1,"its rows cannot be read, or fail their checksum"' in (step / "missing.csv").read_text()
    assert len(list((out / "artifacts").glob("*.tar"))) == 1 and list(out.glob("*/job.json"))
    checked = windrow("state", "check", state, cwd=stopped.folder)
    assert checked.returncode == 1 and "rows of mini-batch 5 cannot be read" in checked.stdout


def test_without_a_database_segments_are_saved_as_they_are(stopped: EmbeddedRun, state: Path) -> None:
    for path in state.glob("windrow.db*"):
        path.unlink()
    out = state.parent / "saved"
    saved = windrow("state", "salvage", state, "--to", out, cwd=stopped.folder)
    assert saved.returncode == 1 and "segments are copied as they are" in saved.stdout, saved.stdout + saved.stderr
    (segment,) = out.glob("*/*/segments/*.rows")
    assert EXPECTED[0] in segment.read_text()


def test_a_served_master_stands_still_with_the_reason(cluster: ServedCluster) -> None:
    """It stays, so that no supervisor starts it again and again, and whoever asks is told why."""
    cluster.create("nightly")
    cluster.processes["master"].terminate()
    cluster.processes["master"].wait(60)
    damage(cluster.state / "windrow.db", overwrite_header, SEED)
    master = cluster.start(
        "master",
        *("master", "--state", str(cluster.state), "--listen", cluster.address),
        *("--datastore", f"here={cluster.folder}", "--join-token-file", str(cluster.token_file("right"))),
    )
    wait_until(lambda: '"ready": false' in cluster.said("master"), "the master stands still")
    for command in (("node", "list"), ("job", "list"), ("job", "show", "nightly")):
        asked = cluster.run(*command)
        assert asked.returncode != 0 and TOLD in asked.stderr and "windrow state salvage" in asked.stderr, asked
    assert cluster.run("health").returncode == 1
    cluster.start("one", *cluster.agent("one", "right"))
    log = cluster.folder / "folder-one" / "agent.log"
    wait_until(lambda: log.exists() and "STATE_DAMAGED" in log.read_text(), "the agent knows why")
    assert master.poll() is None
    master.terminate()
    assert master.wait(240) == 3


def test_a_database_that_is_damaged_while_a_master_serves(cluster: ServedCluster) -> None:
    """Met by a reader: the master takes nothing more, and says why; who asked for the job is told."""
    cluster.create("nightly")
    database = cluster.state / "windrow.db"
    whole(cluster.state)
    content = database.read_bytes()
    database.write_bytes(content[:PAGE] + bytes(len(content) - PAGE))

    def told() -> str:
        asked = cluster.run("job", "show", "nightly")
        return asked.stderr if asked.returncode != 0 and TOLD in asked.stderr else ""

    wait_until(told, "the damage is told")
    wait_until(lambda: '"ready": false' in cluster.said("master"), "the master stands still")
    assert told()


def test_a_row_that_is_damaged_is_told_to_who_asks_for_it_while_the_master_goes_on(cluster: ServedCluster) -> None:
    """Of a job that has ended: served and offline tell the same; nothing else is held up."""
    cluster.start_agent("one")
    cluster.create("nightly")
    cluster.check_done("nightly")
    database = cluster.state / "windrow.db"
    change_rows(database, "UPDATE step_document SET paths = CAST(paths || ' ' AS BLOB)")
    told = "windrow.db, table step_document, step_id 1 is damaged: the row does not have the check value"
    show, logs, retry = ("job", "show", "nightly"), ("job", "logs", "nightly"), ("job", "retry", "nightly")
    with Client(cluster.address) as client, pytest.raises(RequestRefused) as raised:
        client.get("nightly")
    assert raised.value.reason == "STATE_DAMAGED" and told in str(raised.value)
    for command in (show, logs, retry):
        asked = cluster.run(*command)
        assert asked.returncode != 0 and told in asked.stderr and "windrow state salvage" in asked.stderr, asked
        assert "Traceback" not in asked.stderr
    assert cluster.run("health").returncode == 0
    (cluster.folder / "job.yml").write_text((cluster.folder / "job.yml").read_text().replace("out.txt", "two.txt"))
    cluster.output = cluster.folder / "two.txt"
    cluster.create("another")
    cluster.check_done("another")
    cluster.processes["master"].terminate()
    assert cluster.processes["master"].wait(240) == 0
    for command in (show, logs):
        asked = windrow(*command, "--state", str(cluster.state), cwd=cluster.folder)
        assert asked.returncode != 0 and told in asked.stderr, asked
        assert "Traceback" not in asked.stderr
    change_rows(database, "UPDATE job SET message = 'x' WHERE job_id = 'nightly'")
    for command in (("job", "list"), show, logs):
        asked = windrow(*command, "--state", str(cluster.state), cwd=cluster.folder)
        assert asked.returncode != 0 and "table job, job_key 1 is damaged" in asked.stderr, asked
