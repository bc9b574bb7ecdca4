"""The work on files with Dask's distributed client, on a local cluster of single-threaded processes."""

from __future__ import annotations

import functools

from dask.distributed import Client, LocalCluster

from benchmarks.peers import arguments
from benchmarks.work import batch_work


def task(stamps: str, work: str, paths: list[str]) -> list[str]:
    batch_work.stamp_into(stamps)
    return batch_work.stamped(batch_work.WORK[work], paths)


def main() -> None:
    wanted = arguments.parse()
    with (
        LocalCluster(n_workers=wanted.workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        futures = client.map(functools.partial(task, wanted.stamps, wanted.work), list(arguments.mini_batches(wanted)))
        arguments.write_rows(client.gather(futures), wanted.output)


if __name__ == "__main__":
    main()
