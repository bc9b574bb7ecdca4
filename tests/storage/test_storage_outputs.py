"""Rows that go to a store: whole or not at all, and never over what somebody else has written."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
import yaml
from s3_server import BUCKET, Exchange, Proxy
from storage_job import CONTENTS, StorageJob, wait_until

ECHO = "import os\ndef run(m):\n    return [os.path.basename(m[0]) + 'x' * 1000]\n"


def write(job: StorageJob, files: int = 3, *, rows: str = "rows.csv", script: str = ECHO) -> None:
    for number in range(files):
        job.put(f"data/{number:02d}", "x")
    job.write(
        script,
        f"{{type: uri_folder, path: {job.url}/data}}",
        rows=f"{{type: uri_file, path: '{job.url}/out/{rows}'}}",
    )


def expected(files: int = 3) -> bytes:
    return b"".join(b"%02d%s\n" % (number, b"x" * 1000) for number in range(files))


def test_rows_go_to_a_store(job: StorageJob) -> None:
    write(job)
    code, text = job.run()
    assert code == 0, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == expected()
    # The same job again replaces what it has written itself.
    (job.folder / "code" / "entry.py").write_text(ECHO.replace("1000", "10"))
    code, text = job.run()
    assert code == 0, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == expected().replace(b"x" * 1000, b"x" * 10)
    assert not list(job.state.rglob("assembled/*"))


def test_what_somebody_else_has_written_is_left_alone(job: StorageJob) -> None:
    write(job)
    job.put("out/rows.csv", "somebody's own")
    code, text = job.run()
    assert code == 1, text
    assert "was not written by Windrow" in text and f"{job.url}/out/rows.csv" in text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == b"somebody's own"


def test_what_was_changed_since_is_left_alone(job: StorageJob) -> None:
    write(job)
    assert job.run()[0] == 0
    job.put("out/rows.csv", expected())
    code, text = job.run()
    assert code == 1 and "was changed since Windrow wrote it" in text, text


def test_a_bucket_that_is_not_there_is_told_before_any_work(job: StorageJob) -> None:
    write(job)
    text = (job.folder / "job.yml").read_text().replace(f"s3://{BUCKET}/{job.prefix}/out", "s3://no-such-bucket/out")
    (job.folder / "job.yml").write_text(text)
    code, said = job.run()
    assert code == 1 and "no-such-bucket" in said and "does not exist" in said, said
    assert "0 of" in said or "mini-batch" not in said


def test_an_upload_that_fails_is_tried_again(job: StorageJob, proxy: Proxy) -> None:
    failures = iter(range(3))

    def fault(exchange: Exchange) -> None:
        if exchange.command == "PUT" and next(failures, None) is not None:
            exchange.answer(503)

    proxy.fault = fault
    job.endpoint = proxy.url
    write(job)
    code, text = job.run()
    assert code == 0, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == expected()


@pytest.mark.parametrize("point", ["upload.recorded", "upload.uploaded"])
def test_a_master_that_dies_while_it_uploads(job: StorageJob, point: str) -> None:
    write(job)
    job.environment["WINDROW_CRASH_POINT"] = point
    assert job.run()[0] == 5
    # Nobody makes it crash any more: the same command goes on.
    del job.environment["WINDROW_CRASH_POINT"]
    code, text = job.run()
    assert code == 0, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == expected()


def test_a_step_reads_what_another_has_written_to_a_store(job: StorageJob) -> None:
    write(job)
    text = (job.folder / "job.yml").read_text()
    second = text[text.index("  score:") :].replace("  score:", "  again:").replace("out/rows.csv", "out/again.csv")
    second = second.replace(
        f"{{type: uri_folder, path: {job.url}/data}}", "{type: uri_file, path: '${{parent.jobs.score.outputs.rows}}'}"
    )
    (job.folder / "job.yml").write_text(text + second)
    (job.folder / "code" / "entry.py").write_text(CONTENTS)
    code, said = job.run()
    assert code == 0, said
    assert (
        job.server.get(f"{job.prefix}/out/again.csv")
        == b"rows.csv=" + b"".join(b"%02d=x\n" % number for number in range(3)) + b"\n"
    )


def test_where_failed_items_are_listed_is_told_for_each_step(job: StorageJob) -> None:
    """Beside rows in a folder, in the logs for those in a store."""
    write(job, script="def run(m):\n    assert not m[0].endswith('01')\n    return m\n")
    step = yaml.safe_load((job.folder / "job.yml").read_text())["jobs"]["score"]
    step["retry_settings"] = {"max_retries": 0}
    step["task"]["code"] = str(job.folder / "code")
    near = {**step, "outputs": {"rows": {"type": "uri_file", "path": "./near.txt"}}}
    (job.folder / "job.yml").write_text(json.dumps({"type": "pipeline", "jobs": {"near": near, "far": step}}))
    code, text = job.run("--tolerate")
    assert code == 0, text
    listed = text.splitlines()[-1].partition("listed in ")[2].partition(". Output")[0]
    files = [Path(file) for file in listed.split(", ")]
    for file in files:
        assert [row.split(",")[1] for row in file.read_text().splitlines()] == ["cause", "exception"]
    assert files[0] == job.folder / "near.failed_items.csv"
    assert files[1].parts[-3:] == ("logs", "far", "failed_items.csv")


GATED = """\
import os, time

def run(mini_batch):
    name = os.path.basename(mini_batch[0])
    while name > "00" and os.path.exists({gate!r}):
        time.sleep(0.01)
    return [name + "x" * 1000]
"""


def end_after_the_backup(job: StorageJob) -> None:
    """A run that is unfinished in the backup of its state, and whose output stands when that is brought back."""
    gate = job.folder / "gate"
    gate.touch()
    write(job, script=GATED.format(gate=str(gate)))
    running = job.start("--slots", "1")
    wait_until(lambda: succeeded(job) == 1, "the first mini-batch is done")
    running.send_signal(signal.SIGINT)
    running.communicate()
    shutil.copytree(job.state, job.folder / "backup", symlinks=True)
    gate.unlink()
    assert job.run()[0] == 0
    shutil.rmtree(job.state)
    (job.folder / "backup").rename(job.state)


def succeeded(job: StorageJob) -> int:
    if not (job.state / "windrow.db").exists():
        return 0
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(f"file:{job.state}/windrow.db?mode=ro", uri=True)) as database,
    ):
        return int(database.execute("SELECT count(*) FROM mini_batch WHERE state = 2").fetchone()[0])
    return 0


def test_a_run_that_had_ended_after_the_backup_ends_again_over_its_own_object(job: StorageJob, proxy: Proxy) -> None:
    end_after_the_backup(job)
    job.endpoint = proxy.url
    code, text = job.run()
    assert code == 0, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == expected()
    assert not [request for request in proxy.requests if request.startswith(("PUT", "POST"))], "not written once more"
    # It is Windrow's own from now on.
    (job.folder / "code" / "entry.py").write_text(ECHO)
    code, text = job.run()
    assert code == 0, text


def test_an_object_that_was_changed_after_the_backup_is_left_alone_and_the_way_on_is_told(job: StorageJob) -> None:
    end_after_the_backup(job)
    job.put("out/rows.csv", "somebody's own")
    code, text = job.run()
    assert code == 1, text
    assert "was not written by Windrow from this state folder" in text, text
    assert job.server.get(f"{job.prefix}/out/rows.csv") == b"somebody's own"
