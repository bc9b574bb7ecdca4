"""`windrow job download`, and what `windrow job logs` prints of one file."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from windrow.cli import exit_codes
from windrow.cli.jobs.stream import stands_still, tell_stands_still
from windrow.cli.messages import RawOutput, is_colourful, say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import JobName, Master, Output, OutputForm, State, open_client
from windrow.cli.tables import out, print_json
from windrow.common.quantities import counted, size
from windrow.errors import NotFound
from windrow.sdk.job_names import only_job
from windrow.transfer.fetch_places import fetch_paths, fetch_places, shown

if TYPE_CHECKING:
    from windrow.sdk.client import Client

REDRAW_S = 0.2
TAIL_READ_BYTES = 1 << 20


@command(epilog="Example: windrow job download digits-20260501-101500-ab12 --to results")
def download(
    job: JobName,
    to: Annotated[
        Path | None,
        Option(
            "--to",
            "-p",
            metavar="DIR",
            help="Target folder [default: an output's relative path in the job file, else a folder named like the "
            "job].",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        Option("--output-name", metavar="OUTPUT", help="Only this output, or STEP.OUTPUT. Repeatable."),
    ] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Download a job's outputs. A download that broke off continues where it stopped."""
    with open_client(master, state) as client:
        return download_outputs(
            client, client.find(only_job(job)).job_id, to, name or [], as_json=output is OutputForm.JSON
        )


class _Received:
    """Counts received bytes, and shows the number on one line of a terminal."""

    def __init__(self) -> None:
        self.bytes = 0
        self._began = time.monotonic()
        self._shown_at = 0.0
        self._live = is_colourful(sys.stderr)

    def add(self, count: int) -> None:
        """Count received bytes."""
        self.bytes += count
        now = time.monotonic()
        if self._live and now - self._shown_at >= REDRAW_S:
            self._shown_at = now
            per_s = self.bytes / max(now - self._began, 0.001)
            sys.stderr.write(f"\r\x1b[K{size(self.bytes)}, {size(int(per_s))}/s")
            sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._live and self._shown_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def download_outputs(client: Client, job_id: str, folder: Path | None, outputs: list[str], *, as_json: bool) -> int:
    """Download outputs into a folder, each below its name; without a folder, to the places in the job file."""
    if folder is None and not as_json:
        _tell_elsewhere(client.document(job_id), job_id, outputs)
    received = _Received()
    try:
        files = client.download(job_id, folder, outputs=outputs or None, on_bytes=received.add)
    finally:
        received.end()
    if as_json:
        print_json({"job_id": job_id, "files": [str(file) for file in files], "bytes": received.bytes})
    elif not files:
        out(f"The outputs of {job_id} are empty: there is nothing to fetch.")
    elif len(files) == 1:
        out(f"Fetched {shown(files[0])} ({size(received.bytes)})")
    else:
        into = str(folder) if folder is not None else shown(Path(os.path.commonpath([file.parent for file in files])))
        out(f"Fetched {counted(len(files), 'file')} ({size(received.bytes)}) into {into}")
    return exit_codes.DONE


def _tell_elsewhere(document: Mapping[str, Any], job_id: str, outputs: list[str]) -> None:
    """Say which outputs cannot go where the job file places them, where they go instead, and why."""
    places = fetch_places(document, job_id)
    for name, path in fetch_paths(document, job_id).items():
        if name in places or (outputs and name not in outputs):
            continue
        job_file = document.get("job_file", "")
        if os.path.isfile(job_file):  # noqa: PTH113  as `fetch_places` looks
            why = f"{job_file} does not name the path {path} as that of an output, or it is no place below that folder"
        else:
            why = f"The job file {job_file} is not on this machine"
        say(f"{why}: the output {name} goes to {Path(job_id) / name}. To put it elsewhere, use --to DIR.")


def print_log(client: Client, job_id: str, path: str, *, follow: bool, tail: int | None) -> int:
    """Print a log file's bytes as they are; on a terminal, without control of it."""
    offset, last = 0, deque[bytes]()
    job = client.get(job_id) if follow else None
    left = job is not None and stands_still(client, job)
    follow = follow and not left
    if tail is not None:
        offset, last = tail_of(client, job_id, path, tail)
    stdout = RawOutput()
    for line in last:
        stdout.write(line)
    stdout.flush()
    if tail is None or follow:
        for chunk in client.read_log(job_id, path, offset=offset, follow=follow):
            stdout.write(chunk)
            stdout.flush()
    if job is not None and left:
        return tell_stands_still(client, job)
    return exit_codes.DONE


def tail_of(client: Client, job_id: str, path: str, lines: int) -> tuple[int, deque[bytes]]:
    """The last lines of a log, and the offset after them. Reads backwards from the end, as far as needed."""
    length = next((file.length for file in client.logs(job_id) if file.path == path), None)
    if length is None:
        raise NotFound(f"Job {job_id} has no log file {path!r}. `windrow job logs {job_id}` lists them.")
    back = TAIL_READ_BYTES
    while True:
        start = max(0, length - back)
        content = b"".join(client.read_log(job_id, path, offset=start))
        found = content.splitlines(keepends=True)
        if len(found) > lines or start == 0:
            return start + len(content), deque(found[-lines:])
        back *= 8
