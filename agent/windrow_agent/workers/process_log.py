"""What a worker process did, line by line: `sys/node/<node>/processNNN.txt`
(docs/reference/azure-ml/parallel-job.md#logs).

Mini-batches get a line each if they are long enough that its cost does not matter. Shorter ones are only counted, with
a line now and then. All of them are listed in `sys/job_report/processed_mini-batches.csv`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache

from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.leases.lease import Lease
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.frames import FrameType, Result

LISTED_FROM_S = 0.005
"""Mini-batches that take less on average are only counted, except the first LISTED_FIRST of a process."""
LISTED_FIRST = 100


class ProcessLog:
    """The log of one worker."""

    __slots__ = ("_counted", "_counted_us", "_file", "_lines", "_listed")

    def __init__(self, file: CapturedFile) -> None:
        self._file = file
        self._lines: list[str] = []
        self._counted = self._counted_us = 0
        self._listed = 0

    @property
    def lists_each(self) -> bool:
        """Whether each mini-batch still gets a line, however short it is."""
        return self._listed < LISTED_FIRST

    def begin(
        self, name: str, node_id: str, pid: int, python: str, job_id: str, step_name: str, notes: Iterable[str] = ()
    ) -> None:
        """The process has been started. `notes`: what its sandbox does, and what it does not."""
        self._say(
            utc_now(),
            f"{name} begins: node {node_id} ({node_address()}), pid {pid}, {python}; step {step_name} of job {job_id}",
        )
        for note in notes:
            self._say(utc_now(), f"sandbox: {note}")
        self.write()

    def add(self, lease: Lease, result: Result, failed_by: str) -> None:
        """Adds a finished mini-batch; `write` writes it. `failed_by`: its cause, "" for none."""
        ok = 0 if result.type == FrameType.FAILED else min(result.result_count, result.item_count)
        self._tell(
            utc(result.start_unix_us),
            lease,
            failed_by or "done",
            (result.item_count, ok, result.elapsed_us, result.cpu_us, result.run_us),
        )

    def add_death(self, lease: Lease, completion: work.Completion, failed_by: str) -> None:
        """Adds the mini-batch over which the process died."""
        figures = (completion.item_count, 0, completion.elapsed_us, completion.cpu_us, completion.run_us)
        self._tell(utc(completion.start_unix_us), lease, failed_by, figures)

    def count(self, finished: int, elapsed_us: int) -> None:
        """Counts finished mini-batches."""
        self._counted += finished
        self._counted_us += elapsed_us

    def flush(self) -> None:
        """Writes how many mini-batches have been counted since the last time, if any."""
        if self._counted:
            self._say(
                utc_now(),
                f"{self._counted} short mini-batches done, {self._counted_us / 1e6:.6f} s; each is in "
                "sys/job_report/processed_mini-batches.csv when the step has ended",
            )
            self._counted = self._counted_us = 0
        self.write()

    def end(self, how: str) -> None:
        """The process is gone."""
        self.flush()
        self._say(utc_now(), f"ended: {how}")
        self.write()

    def write(self) -> None:
        """Writes the lines that have gathered. If the disk is full or broken, only these lines are lost."""
        if self._lines:
            self._file.write("".join(self._lines).encode("utf-8", "backslashreplace"))
            self._lines.clear()

    def _tell(self, moment: str, lease: Lease, how: str, figures: tuple[int, int, int, int, int]) -> None:
        items, ok, elapsed_us, cpu_us, run_us = figures
        self._listed += 1
        self._say(
            moment,
            f"mini-batch {lease.mini_batch_index}, try {lease.attempt}: {how}; total {items}, succeeded {ok}, failed "
            f"{items - ok}; duration {elapsed_us / 1e6:.6f} s, process time {cpu_us / 1e6:.6f} s, run method "
            f"{run_us / 1e6:.6f} s",
        )

    def _say(self, moment: str, text: str) -> None:
        self._lines.append(f"{moment} {text}\n")


def utc(us: int) -> str:
    """A time in µs since 1970, in the format of logs."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_now() -> str:
    """The current time, in the format of logs."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@cache
def node_address() -> str:
    """The address from which this node reaches others. Nothing is sent, and no name is looked up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
