"""Azure's stores, by addresses of all spellings, over a server of our own after their public reference."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from azure_server import AzureServer
from deltalake import write_deltalake
from storage_job import CONTENTS, TABLE, StorageJob
from test_storage_script_outputs import WRITE, write


@pytest.fixture
def azure() -> Iterator[AzureServer]:
    server = AzureServer()
    yield server
    assert server.refused == []
    server.stop()


@pytest.fixture
def azure_job(job: StorageJob, azure: AzureServer) -> StorageJob:
    """Its processes reach that server, with a key, and know no other store."""
    job.environment = {
        "AZURE_STORAGE_ENDPOINT": azure.url, "AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"key").decode(),
        "AWS_ENDPOINT_URL": None, "AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None,
    }  # fmt: skip
    return job


@pytest.mark.parametrize(
    "root", ["abfss://box@account.dfs.core.windows.net", "wasbs://box@account.blob.core.windows.net", "az://box"]
)
def test_files_and_rows_of_an_azure_store(azure_job: StorageJob, azure: AzureServer, root: str) -> None:
    if root == "az://box":
        azure_job.environment["AZURE_STORAGE_ACCOUNT_NAME"] = "account"
    names = ["a/z.txt", "a-1.txt", "a.txt", "b c/ü 😀.txt", "b/100%.txt"]
    for name in names:
        azure.put(f"box/data/{name}", f"content of {name}".encode())
    azure_job.write(
        CONTENTS,
        f"{{type: uri_folder, path: '{root}/data'}}",
        rows=f"{{type: uri_file, path: '{root}/out/rows.txt'}}",
        size=2,
    )
    code, text = azure_job.run()
    assert code == 0, text + azure_job.agent_log()
    rows = azure.blobs["box/out/rows.txt"].content.decode().splitlines()
    # In the order of the parts of their paths, over several pages of the listing.
    want = ["a/z.txt", "a-1.txt", "a.txt", "b/100%.txt", "b c/ü 😀.txt"]
    assert rows == [f"{name.rpartition('/')[2]}=content of {name}" for name in want]


def test_a_table_of_an_azure_store_is_read_by_ranges(azure_job: StorageJob, azure: AzureServer) -> None:
    lines = "".join(f'{number},"row {number}"\n' for number in range(3000))
    azure.put("box/data/part.csv", ("number,text\n" + lines).encode())
    url = "abfss://box@account.dfs.core.windows.net/data"
    azure_job.write(TABLE, f"{{type: mltable, path: '{url}'}}", size="10kb")
    rows = azure_job.run_well().decode().splitlines()
    assert [row.split()[0] for row in rows] == [str(number) for number in range(3000)]
    reads = [request for request in azure.requests if request.startswith("GET box/data/part.csv")]
    assert reads and all("bytes=" in request for request in reads)


def test_what_scripts_write_goes_to_an_azure_store(azure_job: StorageJob, azure: AzureServer) -> None:
    """Small files whole, large ones in blocks."""
    script = WRITE.replace(" + name)", ' + name + "." * (int(name) * (9 << 20)))')
    write(azure_job, script, files=2, outputs="made: {path: 'abfss://box@account.dfs.core.windows.net/out'}")
    azure_job.run_well()
    assert azure.blobs["box/out/00"].content == b"made of 00"
    assert azure.blobs["box/out/01"].content == b"made of 01" + b"." * (9 << 20)
    assert not [name for name in azure.blobs if name.endswith(".tmp")]


@pytest.mark.parametrize("root", ["abfss://box@account.dfs.core.windows.net", "az://box"])
def test_a_delta_table_of_an_azure_store(azure_job: StorageJob, azure: AzureServer, tmp_path: Path, root: str) -> None:
    if root == "az://box":
        azure_job.environment["AZURE_STORAGE_ACCOUNT_NAME"] = "account"
    write_deltalake(str(tmp_path / "table"), pyarrow.table({"number": range(100)}))
    for path in (tmp_path / "table").rglob("*.*"):
        azure.put(f"box/a b/{path.relative_to(tmp_path)}", path.read_bytes())
    steps = "transformations: [read_delta_lake]\n"
    (tmp_path / "MLTable").write_text(f"paths: [{{folder: '{root}/a b/table'}}]\n{steps}")
    azure_job.write(TABLE, f"{{type: mltable, path: '{tmp_path}'}}")
    assert azure_job.run_well() == b"".join(b"%d %d\n" % (number, 2 * number) for number in range(100))
