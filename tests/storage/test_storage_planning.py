"""The planner over a store: the first mini-batch before the listing has ended, and no page listed twice."""

from __future__ import annotations

import io
import threading
import urllib.parse
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from planner_process import Planner
from s3_server import BUCKET, Exchange, Proxy, S3Server, clean_environment

OBJECTS = 2500


@pytest.fixture(scope="module")
def prefix(server: S3Server) -> str:
    """Three pages of objects, in folders whose names sort otherwise as texts than as paths."""
    names = [f"{folder}/{number:04d}" for folder in ("a", "a-b", "a b") for number in range(OBJECTS // 3)]
    for name in names:
        server.put(f"planning/{name}", "x")
    return f"s3://{BUCKET}/planning"


def started(proxy: Proxy, folder: Path, address: str, checkpoint: Any = None, **more: Any) -> Planner:
    """A planner process over a store."""
    environment = clean_environment(proxy.url, folder)
    return Planner(folder, address, "uri_folder", 7, checkpoint, environment=environment, **more)


def plan(proxy: Proxy, folder: Path, address: str, checkpoint: Any = None, **more: Any) -> dict[str, Any]:
    """Plan to the end; the last checkpoint."""
    planner = started(proxy, folder, address, checkpoint, **more)
    while (said := planner.message()) is not None:
        checkpoint = said[0]["to"]
    planner.close()
    return dict(checkpoint)


def names_in(folder: Path) -> list[str]:
    return [item.partition("\n")[0] for item in (folder / "recipes").read_text().split("\0")[:-1]]


def test_a_planner_that_is_killed_goes_on_where_it_was(proxy: Proxy, tmp_path: Path, prefix: str) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    end = plan(proxy, whole, prefix)
    names = names_in(whole)
    assert names == sorted(names, key=lambda name: name.split("/")) and len(names) == OBJECTS // 3 * 3
    first = started(proxy, parts, prefix)
    said = first.message()
    assert said is not None
    message = said[0]
    first.close(kill=True)
    proxy.requests.clear()
    assert plan(proxy, parts, prefix, message["to"])["mini_batches"] == end["mini_batches"]
    assert (parts / "recipes").read_bytes() == (whole / "recipes").read_bytes()
    # The first page is not asked for again.
    after = message["to"]["position"]["frontier"]["name"].partition("\n")[0]
    listed = [urllib.parse.unquote_plus(request) for request in proxy.requests if "list-type" in request]
    assert after and any(after in request for request in listed)
    assert not [
        request for request in listed if "prefix=planning/a/&" in f"{request}&" and "start-after" not in request
    ]


def test_the_first_mini_batch_comes_before_the_listing_has_ended(proxy: Proxy, tmp_path: Path, prefix: str) -> None:
    let_go = threading.Event()

    def fault(exchange: Exchange) -> None:
        if "list-type" in exchange.path and "continuation-token" in exchange.path:
            let_go.wait(600)

    proxy.fault = fault
    planner = started(proxy, tmp_path, prefix)
    said = planner.message()
    assert said is not None and said[1] and not said[0]["to"]["done"]
    let_go.set()
    while (following := planner.message()) is not None:
        said = following
    planner.close()
    assert said[0]["to"]["done"] and said[0]["to"]["items"] == OBJECTS // 3 * 3


STEP_OF_KEYS = "extract_columns_from_partition_format: '/{group}/{name}'"


@pytest.mark.parametrize("steps", [f"[{{{STEP_OF_KEYS}}}]", f"[{{read_delimited: {{}}}}, {{{STEP_OF_KEYS}}}]"])
def test_groups_go_on_where_a_killed_planner_was(proxy: Proxy, server: S3Server, tmp_path: Path, steps: str) -> None:
    """By what it has listed: nothing is listed again, nor is the MLTable file read."""
    for number in range(90):
        server.put(f"groups/data/{number % 30}/{number}", "a\n1\n")
    server.put("groups/MLTable", f"paths: [{{folder: ./data}}]\ntransformations: {steps}\n")
    address = f"s3://{BUCKET}/groups"
    given = {"name": "data", "type": "mltable", "path": address, "mode": "direct"}
    more: dict[str, Any] = {"inputs": [given], "partition_keys": ["group"]}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    end = plan(proxy, whole, address, **more)
    assert end["mini_batches"] == 30
    first = started(proxy, parts, address, **more)
    said = first.message()
    assert said is not None and not said[0]["to"]["done"]
    first.close(kill=True)
    proxy.requests.clear()
    assert plan(proxy, parts, address, said[0]["to"], **more) == end
    assert (parts / "recipes").read_bytes() == (whole / "recipes").read_bytes()
    assert not [request for request in proxy.requests if "list-type" in request or "MLTable" in request]


@pytest.mark.parametrize("how", ["counted", "sorted"])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_that_are_read_while_planning_never_have_a_file(
    proxy: Proxy, server: S3Server, tmp_path: Path, kind: str, how: str
) -> None:
    """A planner that is killed then leaves none behind."""
    table = pyarrow.table({"n": range(300), "key": ["a", "b", "c"] * 100})
    sink = io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(table, sink)
    else:
        pyarrow.parquet.write_table(table, sink, row_group_size=100)
    server.put(f"rows-{how}-{kind}/data/x.{kind}", sink.getvalue())
    step = "read_delimited" if kind == "csv" else "read_parquet"
    steps = f"transformations: [{step}, {{filter: col('n') > 1}}]"
    server.put(f"rows-{how}-{kind}/MLTable", f"paths: [{{folder: ./data}}]\n{steps}\n")
    scratch, rows = tmp_path / "scratch", tmp_path / "rows"
    scratch.mkdir()
    seen: list[list[str]] = []

    def fault(exchange: Exchange) -> None:
        if exchange.command == "GET" and exchange.key.endswith(f".{kind}"):
            seen.append([path.name for folder in (scratch, rows) if folder.exists() for path in folder.iterdir()])

    proxy.fault = fault
    more: dict[str, Any] = {"partition_keys": ["key"]} if how == "sorted" else {"exact_row_index": True}
    environment = {**clean_environment(proxy.url, tmp_path), "TMPDIR": str(scratch)}
    address = f"s3://{BUCKET}/rows-{how}-{kind}"
    planner = Planner(
        tmp_path / "step", address, "mltable", 500, environment=environment, rows_folder=str(rows), **more
    )
    items = 0
    while (said := planner.message()) is not None:
        assert said[0]["type"] == "group", said
        items = said[0]["to"]["items"]
    planner.close()
    assert items == 298
    assert len(seen) > 1 and {name for names in seen for name in names} <= {"rows.arrow", "sort"}
