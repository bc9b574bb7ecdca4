"""The work on files with multiprocessing.Pool."""

from __future__ import annotations

import functools
import multiprocessing

from benchmarks.peers import arguments
from benchmarks.work import batch_work


def main() -> None:
    wanted = arguments.parse()
    work = functools.partial(batch_work.stamped, batch_work.WORK[wanted.work])
    with multiprocessing.Pool(wanted.workers, batch_work.stamp_into, (wanted.stamps,)) as pool:
        arguments.write_rows(pool.imap(work, arguments.mini_batches(wanted)), wanted.output)


if __name__ == "__main__":
    main()
