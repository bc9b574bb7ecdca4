"""Data that a client brings along to a master which does not see it: the same output as on one machine, whatever breaks
on the way."""

from __future__ import annotations

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import windrow
from embedded_run import DEADLINE_S, WINDROW, wait_until
from served import Served
from upload_bench import FILES, MLTABLE, TABLES, Laptop, Relay, finished, uploads_of
from windrow.errors import UsageError, WindrowError
from windrow.transfer.local_data import PLACED, UPLOADING, UploadMoment
from windrow_master.crash_points import POINTS, VARIABLE


@pytest.mark.parametrize(
    ("kind", "path", "files"),
    [
        ("uri_folder", "./data", FILES),
        ("uri_folder", "file:data", FILES),
        ("uri_file", "./data/a.txt", FILES),
        ("mltable", "./data", TABLES),
        ("mltable", "data/one.csv", TABLES),
        ("mltable", "./data", {"MLTable": MLTABLE} | {f"parts/{name}": rows for name, rows in TABLES.items()}),
        ("mltable", "./data/MLTable", {"MLTable": MLTABLE, "parts/one.csv": TABLES["one.csv"], "not/a.csv": b"x"}),
    ],
    ids=["folder", "folder_url", "file", "tables", "table", "mltable", "mltable_file"],
)
def test_the_output_is_that_of_one_machine(
    served: Served, tmp_path: Path, kind: str, path: str, files: dict[str, bytes]
) -> None:
    laptop = Laptop(tmp_path / "laptop", files, kind, path)
    served.start_agent("one")
    created = laptop.run("job", "create", "job.yml", "--name", "first", WINDROW_MASTER=served.address)
    assert created.returncode == 0, created.stderr
    assert created.stdout.strip() == "first"
    assert "Uploaded" in created.stderr
    assert "of inputs.data" in created.stderr
    assert "of inputs.side" in created.stderr
    assert finished(served, "first") == laptop.embedded_output()
    with served.client() as client:
        document = client.document("first")
    placed = {name: given["path"] for name, given in document["steps"][0]["inputs"].items()}
    assert all(where.startswith(f"{served.datastore}/uploads/") for where in placed.values())
    again = laptop.run("job", "create", "job.yml", "--format", "json", WINDROW_MASTER=served.address)
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    assert len(uploads_of(served)) == 2


def test_data_that_the_master_has_is_not_sent_again_and_what_changed_is(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", FILES)
    with served.client() as client:
        for change, sent in ((None, {"inputs.data", "inputs.side"}), (None, set()), ("a.txt", {"inputs.data"})):
            if change:
                (laptop.folder / "data" / change).write_text("other")
            moments: list[UploadMoment] = []
            client.submit(laptop.job, on_upload=moments.append)
            assert {moment.key for moment in moments if moment.phase == PLACED and moment.done} == sent
            assert {moment.key for moment in moments if moment.phase == UPLOADING} == sent


def test_data_may_be_the_code_folder(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", {}, path="./code")
    served.start_agent("one")
    with served.client() as client:
        for name in ("first", "second"):
            client.submit(laptop.job, name=name)
    assert finished(served, "first") == finished(served, "second") == laptop.embedded_output()


def test_a_folder_that_both_see_is_not_uploaded(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    laptop = Laptop(tmp_path / "laptop", FILES)
    served = Served(tmp_path / "there", laptop.folder)
    served.start_master()
    try:
        moments: list[UploadMoment] = []
        with served.client() as client:
            job = client.submit(laptop.job, on_upload=moments.append, sets=["jobs.score.outputs.result.path=rows.txt"])
            (step,) = client.document(job.job_id)["steps"]
        assert moments == []
        assert step["inputs"]["data"]["path"] == str(laptop.folder / "data")
        assert step["outputs"]["result"]["path"] == str(laptop.folder / "rows.txt")
        assert uploads_of(served) == []
    finally:
        served.close()


BIG = {f"part{number}": bytes([number]) * (3 << 20) for number in range(4)}


def test_an_upload_over_a_connection_that_breaks_goes_on(served: Served, tmp_path: Path) -> None:
    files = {name: content * 3 for name, content in BIG.items()}
    laptop = Laptop(tmp_path / "laptop", files)
    relay = Relay(served.address, [12 << 20, 14 << 20])
    moments: list[UploadMoment] = []
    try:
        with windrow.Client(relay.address, patience_s=DEADLINE_S) as client:
            client.submit(laptop.job, name="broken", on_upload=moments.append)
    finally:
        relay.close()
    assert relay.breaks == 2
    total = sum(map(len, files.values()))
    (data,) = (moment for moment in moments if moment.key == "inputs.data" and moment.phase == PLACED)
    # What was on its way at a break is sent again: some megabytes, as the kernel buffers them. An upload that begins
    # anew twice sends 26 more.
    assert total <= data.done < total + (20 << 20)
    served.start_agent("one")
    assert finished(served, "broken") == laptop.embedded_output()


def test_a_killed_client_goes_on_where_it_stopped(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", BIG)
    relay = Relay(served.address, [7 << 20], silent=True)
    command = [WINDROW, "job", "create", "job.yml", "--master", relay.address]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=laptop.folder, stdout=said, stderr=said)
    try:
        artifacts = served.state / "artifacts"

        def received() -> int:
            return sum(path.stat().st_size for path in artifacts.glob("*.partial"))

        wait_until(lambda: relay.breaks == 1 and received() >= 5 << 20, "the middle of the upload")
    finally:
        process.kill()
        process.wait()
        relay.close()
    moments: list[UploadMoment] = []
    with served.client() as client:
        client.submit(laptop.job, name="again", on_upload=moments.append)
    first = next(moment for moment in moments if moment.phase == UPLOADING and moment.key == "inputs.data")
    assert first.done >= 5 << 20
    (data,) = (moment for moment in moments if moment.key == "inputs.data" and moment.phase == PLACED)
    assert data.done <= 8 << 20
    served.start_agent("one")
    assert finished(served, "again") == laptop.embedded_output()


@pytest.mark.parametrize("point", sorted(point for point in POINTS if point.startswith("place.")))
def test_a_master_that_is_killed_while_it_unpacks(tmp_path: Path, point: str) -> None:
    laptop = Laptop(tmp_path / "laptop", FILES)
    (tmp_path / "there" / "store").mkdir(parents=True)
    served = Served(tmp_path / "there", tmp_path / "there" / "store")
    served.start_master(**{VARIABLE: point})
    try:
        with served.client() as client, ThreadPoolExecutor(1) as thread:
            submission = thread.submit(client.submit, laptop.job, name="killed")
            served.wait_master_killed()
            assert len(uploads_of(served)) == 1
            served.start_master()
            submission.result(DEADLINE_S)
        served.start_agent("one")
        assert finished(served, "killed") == laptop.embedded_output()
        wait_until(lambda: not any(name.startswith(".") for name in uploads_of(served)), "nothing is left over")
        assert len(uploads_of(served)) == 2
    finally:
        served.close()


def test_a_master_that_is_told_to_end_while_it_unpacks_leaves_nothing(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", {f"{number:05d}": b"x" for number in range(6_000)})
    with served.client() as client, ThreadPoolExecutor(1) as thread:
        submission = thread.submit(client.submit, laptop.job)
        wait_until(lambda: any(name.startswith(".") for name in uploads_of(served)), "it is being unpacked")
        assert served.master is not None
        served.master.send_signal(signal.SIGTERM)
        assert served.master.wait(DEADLINE_S) == 0
        assert not any(name.startswith(".") for name in uploads_of(served))
        served.start_master()
        submission.result(DEADLINE_S)
    assert len(uploads_of(served)) == 2


def test_a_full_datastore_is_told_and_the_upload_kept(tmp_path: Path, small_disk: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", BIG)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(16 << 20))
    (tmp_path / "there").mkdir()
    served = Served(tmp_path / "there", small_disk)
    served.start_master()
    try:
        with served.client() as client:
            with pytest.raises(WindrowError, match=r"cannot unpack.*No space left"):
                client.submit(laptop.job)
            assert uploads_of(served) == []
            ballast.unlink()
            moments: list[UploadMoment] = []
            client.submit(laptop.job, on_upload=moments.append)
        assert not [moment for moment in moments if moment.key == "inputs.data" and moment.phase == UPLOADING]
    finally:
        served.close()


def test_a_master_without_a_default_datastore_says_so_before_anything_is_read(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", FILES)
    from windrow.spec import load_job
    from windrow.transfer.local_data import upload_data

    with served.client() as client, pytest.raises(UsageError, match="no datastore named default"):
        upload_data(client.connection, load_job(laptop.job, embedded=False), {"other": "/data"}, lambda moment: None)


def test_a_file_that_changes_while_it_is_sent_is_named(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", BIG)

    def meddle(moment: UploadMoment) -> None:
        if moment.phase == UPLOADING and moment.key == "inputs.data":
            (laptop.folder / "data" / "part3").write_bytes(b"changed")

    with served.client() as client, pytest.raises(UsageError, match=r"inputs\.data: .*part3 was changed while"):
        client.submit(laptop.job, on_upload=meddle)


def test_results_of_files_that_were_sent_before_are_taken_over(served: Served, tmp_path: Path) -> None:
    laptop = Laptop(tmp_path / "laptop", {f"f{at}": b"text" for at in range(10)})
    served.start_agent("one")

    def submit(name: str) -> tuple[bytes, int]:
        """The output of the next night, and how many of its items ran."""
        created = laptop.run(
            "job", "create", "job.yml", "--since", "last", "--name", name, WINDROW_MASTER=served.address
        )
        assert created.returncode == 0, created.stderr
        rows = finished(served, name)
        with served.client() as client:
            ended = client.get(name)
            assert not ended.warnings, "what is taken over is a note"
            assert name == "first" or "are taken over" in ended.notes[0]
            return rows, ended.items.ran

    rows, ran = submit("first")
    assert ran == 10
    assert submit("second") == (rows, 0)
    (laptop.folder / "data" / "f3").write_bytes(b"changed")
    (laptop.folder / "data" / "f8").unlink()
    (laptop.folder / "data" / "new").write_bytes(b"new")
    os.utime(laptop.folder / "data" / "f0", (0, 0))
    rows, ran = submit("third")
    assert ran == 4, "f2 and f3, what is left of f8 and f9, and the new one"
    assert sorted(rows.splitlines()) == sorted(laptop.embedded_output().splitlines())
    assert submit("fourth")[1] == 0
