"""Google's stores, by the API they share with S3 (listings by page, reads by range, uploads in parts). A server of
Google's own cannot be had here: what signs and authenticates their requests is not tested.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake
from s3_server import BUCKET, Exchange, Proxy
from storage_job import CONTENTS, TABLE, StorageJob
from test_storage_script_outputs import WRITE, made, write

SIGNATURE = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@pytest.fixture
def google(job: StorageJob, proxy: Proxy) -> StorageJob:
    """The job's processes know the server as Google's, and have no credentials but these."""

    def as_the_server_reads_it(exchange: Exchange) -> None:
        # It wants a signature of S3's, which it does not check, and the bucket's name as it is.
        del exchange.headers["Authorization"]
        exchange.headers["Authorization"] = SIGNATURE
        exchange.path = exchange.path.replace(BUCKET.replace("-", "%2D"), BUCKET, 1)

    proxy.fault = as_the_server_reads_it
    job.environment = {
        "STORAGE_EMULATOR_HOST": proxy.url,
        "AWS_ENDPOINT_URL": None, "AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None,
    }  # fmt: skip
    return job


def gs_url(job: StorageJob) -> str:
    return f"gs://{BUCKET}/{job.prefix}"


def test_files_and_rows_of_a_google_store(google: StorageJob) -> None:
    for name in ("a.txt", "b/ü 😀.txt", "b-c.txt"):
        google.put(f"data/{name}", f"content of {name}")
    google.write(
        CONTENTS,
        f"{{type: uri_folder, path: '{gs_url(google)}/data'}}",
        rows=f"{{type: uri_file, path: '{gs_url(google)}/out/rows.txt'}}",
    )
    code, text = google.run()
    assert code == 0, text + google.agent_log()
    assert google.server.get(f"{google.prefix}/out/rows.txt").decode().splitlines() == [
        "a.txt=content of a.txt", "ü 😀.txt=content of b/ü 😀.txt", "b-c.txt=content of b-c.txt",
    ]  # fmt: skip


def test_a_table_of_a_google_store_is_read_by_ranges(google: StorageJob, proxy: Proxy, tmp_path: Path) -> None:
    lines = "".join(f'{number},"row {number}"\n' for number in range(3000))
    google.put("data/part.csv", "number,text\n" + lines)
    google.write(TABLE, f"{{type: mltable, path: '{gs_url(google)}/data'}}", size="10kb")
    rows = google.run_well().decode().splitlines()
    assert [row.split()[0] for row in rows] == [str(number) for number in range(3000)]
    assert proxy.whole_reads == []


def test_what_scripts_write_goes_to_a_google_store(google: StorageJob) -> None:
    """Small files whole, large ones in parts."""
    script = WRITE.replace(" + name)", ' + name + "." * (int(name) * (9 << 20)))')
    write(google, script, files=2, outputs=f"made: {{path: '{gs_url(google)}/out'}}")
    google.run_well()
    assert made(google) == {"00": b"made of 00", "01": b"made of 01" + b"." * (9 << 20)}


def test_a_delta_table_of_a_google_store(google: StorageJob, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pyarrow.table({"number": range(100)}))
    google.server.upload(tmp_path / "table", f"{google.prefix}/a b/table")
    steps = "transformations: [read_delta_lake]\n"
    (tmp_path / "MLTable").write_text(f"paths: [{{folder: '{gs_url(google)}/a b/table'}}]\n{steps}")
    google.write(TABLE, f"{{type: mltable, path: '{tmp_path}'}}")
    assert google.run_well() == b"".join(b"%d %d\n" % (number, 2 * number) for number in range(100))
