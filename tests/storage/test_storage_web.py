"""Files of web servers, which can do more or less: tables by parts, servers that give none, and what has changed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from storage_job import CONTENTS, TABLE, StorageJob, wait_until
from web_server import WebServer, web_server
from windrow_command import windrow

ROWS = 3000


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as web:
        yield web


def table(kind: str) -> bytes:
    if kind == "jsonl":
        return "".join(f'{{"number": {at}}}\n' for at in range(ROWS)).encode()
    if kind == "csv":
        return ("number\n" + "".join(f"{at}\n" for at in range(ROWS))).encode()
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"number": range(ROWS)}), sink, row_group_size=1000)
    return sink.getvalue()


def write(job: StorageJob, web: WebServer, kind: str, *, size: str = "4kb", settings: str = "") -> None:
    """A job over one table of the server."""
    web.files[f"/a%20b.{kind}"] = table(kind)
    job.write(TABLE, f"{{type: mltable, path: '{web.url}/a%20b.{kind}'}}", size=size, settings=settings)


def rows() -> bytes:
    return b"".join(b"%d %d\n" % (at, 2 * at) for at in range(ROWS))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("marks", ["etag", "time", "none"])
def test_tables_are_read_by_parts(job: StorageJob, web: WebServer, kind: str, marks: str) -> None:
    web.etags, web.times = marks == "etag", marks == "time"
    write(job, web, kind)
    assert job.run_well() == rows()
    assert len(web.reads) > 3 and all(asked for _, asked in web.reads)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_tables_of_a_server_that_gives_no_parts(job: StorageJob, web: WebServer, kind: str) -> None:
    """The same mini-batches; that each costs a whole read is told."""
    web.ranges = False
    write(job, web, kind)
    code, text = job.run()
    assert code == 0 and job.rows.read_bytes() == rows(), text
    shown = windrow("job", "show", text.split()[1], cwd=job.folder)
    assert "its web server does not support range requests" in shown.stdout, shown


@pytest.mark.parametrize("kind", ["csv", "uri_file", "empty"])
def test_a_server_that_answers_no_head(job: StorageJob, web: WebServer, kind: str) -> None:
    web.heads = False
    if kind == "csv":
        write(job, web, kind)
        assert job.run_well() == rows()
    else:
        web.files["/x"] = b"1" if kind == "uri_file" else b""
        job.write(CONTENTS, f"{{type: uri_file, path: '{web.url}/x'}}")
        assert job.run_well() == b"x=%b\n" % web.files["/x"]


@pytest.mark.parametrize("kind", ["mltable", "uri_file"])
def test_a_file_of_unknown_length_is_refused_when_it_is_listed(job: StorageJob, web: WebServer, kind: str) -> None:
    web.lengths = False
    web.files["/a.csv"] = table("csv")
    job.write(TABLE, f"{{type: {kind}, path: '{web.url}/a.csv'}}")
    code, text = job.run()
    assert code == 1 and "does not report its length" in text and f"{web.url}/a.csv" in text, text


@pytest.mark.parametrize("entry", ["folder: .", "folder: parts/", "pattern: ./*.csv"])
def test_an_mltable_file_of_a_server_names_each_file(job: StorageJob, web: WebServer, entry: str) -> None:
    """A server lists nothing. Told by what the file says, not by an address that nobody wrote."""
    web.files["/t/MLTable"] = f"paths: [{{{entry}}}]\ntransformations: [read_delimited]\n".encode()
    job.write(TABLE, f"{{type: mltable, path: '{web.url}/t/MLTable'}}")
    code, text = job.run()
    assert code == 1 and f'{web.url}/t/MLTable:1: "{entry.split()[1]}" is on a web server' in text, text
    assert "cannot be listed. Name each `file:`" in text


WAITS = """\
import os, time

def run(table):
    open(os.environ["BEGUN"], "a").close()
    while not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.01)
    return table
"""


@pytest.mark.parametrize("ranges", [True, False], ids=["parts", "no parts"])
@pytest.mark.parametrize("mark", ["etag", "time", "size"])
def test_what_changes_between_planning_and_reading(
    job: StorageJob, web: WebServer, tmp_path: Path, mark: str, ranges: bool
) -> None:
    """Told by whatever the server tells of its content; by length alone where that is all."""
    web.ranges, web.etags, web.times = ranges, mark == "etag", mark == "time"
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    variables = f"environment_variables: {{BEGUN: '{begun}', GO_ON: '{go_on}'}}"
    write(job, web, "csv", size="1kb", settings=f"{variables}\n    max_concurrency_per_instance: 1")
    (job.folder / "code" / "entry.py").write_text(WAITS)
    process = job.start("--strict")
    wait_until(begun.exists, "the first run()")
    old = web.files["/a%20b.csv"]
    web.files["/a%20b.csv"] = old + b"3000\n" if mark == "size" else old.replace(b"1", b"2")
    go_on.touch()
    text, _ = process.communicate(timeout=240)
    assert process.returncode in (1, 3) and "has changed since it was listed" in text, text
    found = job.rows.read_bytes().splitlines() if job.rows.exists() else []
    # Nothing of the new content is among the rows: what was fetched before is the old one.
    assert found == [b"%d" % at for at in range(len(found))] and len(found) < ROWS


def test_a_file_of_a_server_that_gives_no_parts(job: StorageJob, web: WebServer) -> None:
    web.ranges = False
    web.files["/some%20file.txt"] = b"from the web"
    job.write(CONTENTS, f"{{type: uri_file, path: '{web.url}/some%20file.txt'}}")
    assert job.run_well() == b"some file.txt=from the web\n"
