"""The work on files with Ray tasks, a bounded number at a time, as Ray's own design patterns advise."""

from __future__ import annotations

import logging
import os

import ray

from benchmarks.peers import arguments
from benchmarks.work import batch_work

IN_FLIGHT = 1000


@ray.remote(max_retries=3)  # type: ignore[untyped-decorator,unused-ignore]
def task(stamps: str, work: str, paths: list[str]) -> list[str]:
    batch_work.stamp_into(stamps)
    return batch_work.stamped(batch_work.WORK[work], paths)


def main() -> None:
    wanted = arguments.parse()
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    ray.init(
        num_cpus=wanted.workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        runtime_env=environment,
    )  # fmt: skip
    pending: list[ray.ObjectRef[list[str]]] = []
    rows: list[list[str]] = []
    for paths in arguments.mini_batches(wanted):
        pending.append(task.remote(wanted.stamps, wanted.work, paths))
        if len(pending) == IN_FLIGHT:
            rows.extend(ray.get(pending[: IN_FLIGHT // 2]))
            del pending[: IN_FLIGHT // 2]
    rows.extend(ray.get(pending))
    arguments.write_rows(rows, wanted.output)
    ray.shutdown()


if __name__ == "__main__":
    main()
