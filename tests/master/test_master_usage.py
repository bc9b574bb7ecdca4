"""`windrow usage`: of a served master, for whom it is, what it costs, and that it outlives jobs; and of runs here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from served_tls import SecureMaster, windrow_of
from windrow import Client
from windrow.errors import UsageError
from windrow.rpc.contexts import Access
from windrow_command import windrow
from windrow_master.core.ids import JobKey
from windrow_master.core.records import Dirty, LedgerRow
from windrow_master.files.state_files import StateFiles
from windrow_master.reports import usage
from windrow_master.store.sqlite.store import SqliteStore

HOUR_US = 3_600_000_000
EPOCH = date(1970, 1, 1)
TODAY = datetime.now(UTC).date()


def spent(key: int, ago: int, project: str, pool: str, user: str, *hours: float) -> LedgerRow:
    """What a job has spent on a day so many days ago."""
    day = (TODAY - EPOCH).days - ago
    return LedgerRow(JobKey(key), day, project, pool, f"job-{key}", user, *(int(one * HOUR_US) for one in hours))


ROWS = [
    spent(1, 1, "vision", "gpu", "ann", 10, 1, 0.5, 0.25, 0.25, 2, 20),
    spent(1, 1, "vision", "", "ann", 4, 0, 0, 0, 0, 0, 3),
    spent(2, 2, "web", "big,gpu", "bob", 5),
    spent(3, 30, "web", "", "bob", 100),
]
"""The second is of a node that was away for a while: its attempts took longer than it has reported workers."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMaster]:
    found = SecureMaster(tmp_path_factory.mktemp("usage"))
    with found.serving():
        pass
    store = SqliteStore.open(StateFiles(found.state).database)
    store.commit(Dirty(ledger=ROWS), [], [])
    store.close()
    with found.serving():
        yield found


def done(master: SecureMaster, *arguments: str, token: str = "") -> str:
    ended = windrow_of(master, "usage", *arguments, token=token or master.token("client-token"))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(master: SecureMaster, *arguments: str) -> str:
    ended = windrow_of(master, "usage", *arguments, token=master.token("client-token"))
    assert ended.returncode == 2 and not ended.stdout, ended
    return ended.stderr


def test_text_shows_hours_by_project(master: SecureMaster) -> None:
    lines = [line.split() for line in done(master).splitlines()]
    kinds = ["USEFUL", "RETRIED", "LOST", "PREEMPTED", "CANCELLED", "INIT", "IDLE", "TOTAL"]
    assert lines[:3] == [
        ["PROJECT", *kinds],
        ["vision", "14.0", "1.0", "0.5", "0.2", "0.2", "2.0", "5.0", "23.0"],
        ["web", "5.0", *["0.0"] * 6, "5.0"],
    ]
    week_ago = TODAY - timedelta(days=7)
    assert " ".join(lines[3]) == f"In worker-hours, from {week_ago} to {TODAY} (UTC)."
    assert "No worker time was spent from 2020-01-01 to 2020-01-02" in done(
        master, "--since", "2020-01-01", "--until", "2020-01-02"
    )


def test_csv_has_a_row_for_each_value_of_the_keys(master: SecureMaster) -> None:
    told = list(csv.reader(io.StringIO(done(master, "--by", "user,pool", "--by", "day", "--format", "csv"))))
    kinds = ["useful_s", "retried_s", "lost_s", "preempted_s", "cancelled_s", "init_s", "idle_s", "total_s"]
    yesterday, before = str(TODAY - timedelta(days=1)), str(TODAY - timedelta(days=2))
    assert told[0] == ["user", "pool", "day", *kinds]
    assert [row[:4] + row[-2:] for row in told[1:]] == [
        ["ann", "", yesterday, "14400.000", "0.000", "14400.000"],
        ["ann", "gpu", yesterday, "36000.000", "21600.000", "72000.000"],
        ["bob", "big,gpu", before, "18000.000", "0.000", "18000.000"],
    ]


def test_prices_by_pool_make_money(master: SecureMaster) -> None:
    file = master.data / "prices.yml"
    file.write_text("default: 0.5\ngpu: 2\nbig: 3\n")
    told = json.loads(done(master, "--prices", "prices.yml", "--format", "json"))
    assert [(one["project"], one["cost"]) for one in told["usage"]] == [("vision", 42.0), ("web", 15.0)]
    assert "pool" not in told["usage"][0] and told["last_day"] == str(TODAY)
    text = done(master, "--by", "job", "--since", "60d", "--prices", "prices.yml").splitlines()
    assert [line.split()[0] + " " + line.split()[-1] for line in text[1:4]] == [
        "job-1 42.00",
        "job-2 15.00",
        "job-3 50.00",
    ]
    file.write_text("gpu: much\n")
    assert "prices.yml:1:6" in refused(master, "--prices", "prices.yml")


def test_a_token_of_a_project_sees_what_that_has_spent_alone(master: SecureMaster) -> None:
    with Client(access=master.access) as client:
        _, secret = client.tokens.create("vic", "view", project="vision")
        assert [one.project for one in client.queues.usage(["project"], project="web")] == ["web"]
    with Client(access=Access(master.address, master.ca, secret)) as client:
        assert [one.project for one in client.queues.usage(["project"], since=date(2000, 1, 1))] == ["vision"]
        assert client.queues.usage(["project"], project="web") == []
        (all_of_it,) = client.queues.usage()
        assert (all_of_it.project, all_of_it.useful_s) == (None, 14 * 3600.0)
        with pytest.raises(UsageError, match="not added up by 'node'"):
            client.queues.usage(["node"])


def test_keys_and_times_that_mean_nothing_are_refused(master: SecureMaster) -> None:
    assert "not added up by 'node'" in refused(master, "--by", "project,node")
    assert "--since soon is not a time" in refused(master, "--since", "soon")
    assert "--until 2026-13-01 is not a time" in refused(master, "--until", "2026-13-01")


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "windrow.db")
    store.commit(Dirty(ledger=ROWS), [], [])
    monkeypatch.setattr(usage, "ROWS_MAX", 2)
    assert len(usage.usage_of(store.reader(), 0, 1 << 31, by=[usage.Key.PROJECT])) == 2
    with pytest.raises(usage.TooManyRows):
        usage.usage_of(store.reader(), 0, 1 << 31, by=[usage.Key.JOB])
    store.close()


def test_runs_on_this_machine_have_a_usage_also_after_their_job_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in "abc":
        (tmp_path / "data" / name).write_text(name)
    (tmp_path / "script.py").write_text("def run(mini_batch):\n    return [1 for _ in mini_batch]\n")

    def told(*arguments: str) -> str:
        ended = windrow(*arguments, cwd=tmp_path)
        assert ended.returncode == 0, ended
        return ended.stdout

    told("run", "script.py", "data", "-o", "out.txt", "--environments", "own")
    (used,) = json.loads(told("usage", "--by", "job", "--format", "json"))["usage"]
    assert used["useful_s"] > 0 and used["init_s"] > 0
    parts = (used[f"{kind}_s"] for kind in ("useful", "retried", "lost", "preempted", "cancelled", "init", "idle"))
    assert used["total_s"] == pytest.approx(sum(parts))
    told("job", "delete", used["job"])
    assert json.loads(told("usage", "--by", "job", "--format", "json"))["usage"] == [used]
