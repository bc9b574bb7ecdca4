"""500 objects of a store that is far away, read by two jobs one after the other: with the data cache, and without."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import windrow

from benchmarks.measurement import Contender, Metric, Outcome, Row
from benchmarks.object_store import BUCKET, ObjectStore
from benchmarks.rows.file_work import check_rows
from benchmarks.served import Served
from benchmarks.waiting import wait_succeeded, wait_until
from benchmarks.windrow_job import files_job

COUNT = 500
SIZE = 256 << 10
LATENCY_S = 0.2
INPUT = f"s3://{BUCKET}/in"


def _contenders(folder: Path) -> list[Contender]:
    names = [f"{number:03d}" for number in range(COUNT)]
    objects = {f"in/{name}": name.encode() * (SIZE // 3) for name in names}

    def run_with(*options: str) -> Callable[[Path], Outcome]:
        def run(place: Path) -> Outcome:
            with ObjectStore(objects, LATENCY_S) as store:
                served = Served(
                    place, data=folder.parent, datastores={"far": f"s3://{BUCKET}"}, environment=store.environment
                )
                with served:
                    served.add_agent("near", slots=2, options=options)
                    with windrow.Client(served.address) as client:
                        wait_until(
                            "the node is ready", lambda: any(node.state == "ready" for node in client.list_nodes())
                        )
                        found: dict[str, float] = {}
                        for which in ("first", "second"):
                            before = store.reads
                            found[which] = _read(client, place / which, names)
                            found[f"{which}_gets"] = float(store.reads - before)
            return Outcome(found)

        return run

    return [Contender("Windrow, --data-cache 1GB", run_with("--data-cache", "1GB")), Contender("Windrow", run_with())]


def _read(client: windrow.Client, place: Path, names: list[str]) -> float:
    """Run a job over the objects; how long it took, in seconds."""
    place.mkdir()
    job = files_job(place, work="read_files", input_path=Path("unused"), mini_batch_size=10)
    file = job.folder / "job.yml"
    file.write_text(file.read_text().replace("path: unused", f"path: {INPUT}"))
    begun = time.monotonic()
    submitted = client.submit(file)
    wait_succeeded(client, submitted.job_id)
    took = time.monotonic() - begun
    check_rows(job.output, names)
    return took


ROW = Row(
    key="data_cache",
    title=f"{COUNT} objects of {SIZE >> 10} KB, {LATENCY_S * 1000:.0f} ms away, read by two jobs one after the other",
    aim="the second job reads nothing from the store, and is faster; the first is as fast as without a cache",
    metrics=[
        Metric("second", "second job", "s"),
        Metric("first", "first job", "s"),
        Metric("second_gets", "reads by the second job", "", 0),
        Metric("first_gets", "reads by the first job", "", 0),
    ],
    contenders=_contenders,
)
