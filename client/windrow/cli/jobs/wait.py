"""`windrow job wait`: waits until jobs have ended."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.display import summary
from windrow.cli.display.jsonlines import emit
from windrow.cli.display.notify import notify
from windrow.cli.jobs.stream import stands_still, tell_stands_still
from windrow.cli.messages import say
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, Notify, Output, OutputForm, State, Strict, Tolerate, open_client
from windrow.cli.tables import out
from windrow.common.quantities import duration, first_few
from windrow.sdk.job_names import only_job

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.job import Job

BAD_FIRST = (
    exit_codes.JOB_FAILED,
    exit_codes.INTERRUPTED,
    exit_codes.CANCELLED,
    exit_codes.TOLERATED_FAILURES,
    exit_codes.DONE,
)
"""The exit code of several jobs is the first of these that one of them has."""
JOBS_SHOWN = 5


@command(epilog="Example: windrow job wait last --timeout 3600 && echo done")
def wait(
    jobs: Annotated[
        list[str],
        Argument(
            metavar="JOB...",
            help="The jobs: names, unambiguous beginnings of names, or last for the newest.",
            autocompletion=completion.job_names,
        ),
    ],
    timeout: Annotated[
        float | None,
        Option(
            "--timeout", min=0, metavar="S", help="Give up after this many seconds, with exit code 124. Jobs continue."
        ),
    ] = None,
    strict: Strict = False,
    tolerate: Tolerate = False,
    targets: Notify = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Wait until jobs have ended, with one line for each that ends.

    The exit code is the job's, as of `windrow job stream`; of several jobs, that of one that failed, else of one that
    was interrupted, else of one that was cancelled. Ctrl-C stops waiting, not the jobs.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    codes = set()
    with open_client(master, state) as client:
        found = {job.job_id: job for job in (client.find(only_job(name)) for name in jobs)}
        still = [job for job in found.values() if stands_still(client, job)]
        for job in still:
            codes.add(tell_stands_still(client, job))
        left = found.keys() - {job.job_id for job in still}
        ends = _watched(client, left)
        while left:
            try:
                end = ends.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                say(_late(left, timeout or 0.0))
                return exit_codes.TIMED_OUT
            if isinstance(end, Exception):
                raise end
            left.remove(end.job_id)
            document = client.document(end.job_id)
            code = summary.exit_code(end, document, strict=strict, tolerate=tolerate)
            codes.add(code)
            if output is OutputForm.JSON:
                places = summary.output_places(end, document) if end.state.succeeded else []
                emit("end", job=end.to_dict(), outputs=places, exit_code=code)
            else:
                out(summary.end_line(end))
            notify(targets or (), end, code)
    return next(code for code in BAD_FIRST if code in codes)


def _watched(client: Client, job_ids: Collection[str]) -> queue.SimpleQueue[Job | Exception]:
    """Watch each job in a thread; return the queue of their ends, and of what went wrong."""
    ends: queue.SimpleQueue[Job | Exception] = queue.SimpleQueue()

    def watch(job_id: str) -> None:
        try:
            ends.put(client.end_of(job_id))
        except Exception as error:  # the main thread reports it, whatever it is
            ends.put(error)

    for job_id in job_ids:
        threading.Thread(target=watch, args=(job_id,), name=f"watch-{job_id}", daemon=True).start()
    return ends


def _late(job_ids: Collection[str], timeout_s: float) -> str:
    names = sorted(job_ids)
    return (
        f"Not ended within {duration(timeout_s)}: {first_few(names, JOBS_SHOWN)}. To wait longer, repeat the "
        "command with a larger --timeout."
    )
