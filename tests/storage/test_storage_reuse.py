"""Digests of what lies in a store: by its marks of content."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from s3_server import BUCKET, S3Server, clean_environment


class Asker:
    """Asks processes that may reach the server for digests of the test's own keys."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._prefix = f"reuse/{folder.name}"
        self._environment = clean_environment(server.url, folder)

    def put(self, name: str, body: str) -> None:
        self._server.put(f"{self._prefix}/{name}", body)

    def digest(self, path: str = "", type_: str = "uri_folder") -> str:
        """What is told of a place, an address or below the test's own keys: a digest, or why there is none."""
        url = path if ":" in path or path.startswith("/") else f"s3://{BUCKET}/{self._prefix}/{path}".rstrip("/")
        request = {
            "cache": str(self._folder / "listings"),
            "datastores": {"ours": f"s3://{BUCKET}/{self._prefix}"},
            "roots": [str(self._folder), f"s3://{BUCKET}/{self._prefix}"],
            "places": {"it": (type_, url)},
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "windrow_master.reuse"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.read())
        process.stdin.close()
        process.stdout.close()
        assert process.wait() == 0
        return str(answer.get("why") or answer["digests"]["it"])


@pytest.fixture
def asker(server: S3Server, tmp_path: Path) -> Asker:
    return Asker(server, tmp_path)


def test_another_content_in_a_store_is_another_digest(asker: Asker) -> None:
    seen = []
    for name, body in (("data/a", "1"), ("data/a", "2"), ("data/sub/b", "1"), ("data/a", "2")):
        asker.put(name, body)
        seen.append(asker.digest("data"))
    assert len(set(seen)) == 3 and seen[-1] == seen[-2]


def test_an_object_with_the_name_of_a_folder_hides_nothing_in_it(asker: Asker) -> None:
    asker.put("data", "")
    asker.put("data/a", "1")
    before = asker.digest("data")
    asker.put("data/a", "2")
    changed = asker.digest("data")
    asker.put("data", "more")
    assert len({before, changed, asker.digest("data")}) == 3


def test_a_pattern_of_a_table_in_a_store(asker: Asker, tmp_path: Path) -> None:
    (tmp_path / "MLTable").write_text(
        "paths: [{pattern: 'azureml://datastores/ours/paths/*.csv'}]\ntransformations: [read_delimited]\n"
    )
    asker.put("a.csv", "a\n1\n")
    before = asker.digest(str(tmp_path), "mltable")
    asker.put("a.csv", "a\n2\n")
    after = asker.digest(str(tmp_path), "mltable")
    assert len(before) == len(after) == 64 and before != after
    (tmp_path / "MLTable").write_text(
        f"paths: [{{pattern: 's3://{BUCKET}/*.csv'}}]\ntransformations: [read_delimited]\n"
    )
    assert "outside the datastores" in asker.digest(str(tmp_path), "mltable")
