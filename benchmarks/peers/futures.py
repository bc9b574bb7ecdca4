"""The work on files with concurrent.futures.ProcessPoolExecutor."""

from __future__ import annotations

import functools
from concurrent.futures import ProcessPoolExecutor

from benchmarks.peers import arguments
from benchmarks.work import batch_work


def main() -> None:
    wanted = arguments.parse()
    work = functools.partial(batch_work.stamped, batch_work.WORK[wanted.work])
    with ProcessPoolExecutor(wanted.workers, initializer=batch_work.stamp_into, initargs=(wanted.stamps,)) as pool:
        arguments.write_rows(pool.map(work, arguments.mini_batches(wanted)), wanted.output)


if __name__ == "__main__":
    main()
