"""`windrow job logs`: one file, workers, a mini-batch, all failures, several files as they grow."""

from __future__ import annotations

import heapq
import re
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

from windrow.cli import exit_codes
from windrow.cli.jobs.files import print_log, tail_of
from windrow.cli.jobs.stream import stands_still, tell_stands_still
from windrow.cli.messages import DIM, RED, YELLOW, coloured, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import JobOrStep, Master, Output, OutputForm, State, open_client
from windrow.cli.tables import out, print_json, print_table
from windrow.common.quantities import counted
from windrow.errors import NotFound, UsageError
from windrow.sdk.job_names import with_step

if TYPE_CHECKING:
    from windrow.sdk.client import Client, LogFile

FOLLOW_S = 0.5
SETTLE_S = 1.5
"""After the end of a job, agents may still push its last logs."""
FAILURES_SHOWN = 100
READ_BYTES_MAX = 64 << 20
"""Per file, when many are searched."""

_ENTRY = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z) (.*)")
_WORKER = re.compile(r"(?:(?P<node>[^/]+)/)?(?:process)?(?P<number>\d+)")


class Choice(NamedTuple):
    """Which logs to show. `process`: for example `process003`, or empty for all."""

    step: str = ""
    node: str = ""
    process: str = ""
    mini_batch: int | None = None

    @property
    def given(self) -> bool:
        """Whether anything was chosen."""
        return self != Choice()

    def files(self, client: Client, job_id: str) -> list[LogFile]:
        """The chosen log files. Raises NotFound."""
        found = client.logs(job_id, step=self.step, node=self.node, mini_batch=self.mini_batch)
        if self.process:
            found = [file for file in found if file.path.rpartition("/")[2].partition(".")[0] == self.process]
        return found


class Failure(NamedTuple):
    """One entry of the error logs. `time`: as written there (UTC).

    Not the `Failure` of `windrow.rpc`, which is a failed call.
    """

    time: str
    step: str
    worker: str
    head: str
    detail: str


def make_choice(step: str | None, node: str | None, worker: str | None, mini_batch: int | None) -> Choice:
    """The choice that the options describe. Raises UsageError."""
    process = ""
    if worker is not None:
        found = _WORKER.fullmatch(worker)
        if found is None:
            raise UsageError(f"--worker {worker}: write NODE/process003, or process003 for any node.")
        if found["node"] and node and found["node"] != node:
            raise UsageError(f"--worker {worker} is not on --node {node}. Leave one of them out.")
        node, process = found["node"] or node, f"process{int(found['number']):03d}"
    return Choice(step or "", node or "", process, mini_batch)


def print_failures(client: Client, job_id: str, choice: Choice, *, tail: int | None, as_json: bool) -> int:
    """Print the failures with their tracebacks, newest last."""
    if choice.step:
        names = [step.name for step in client.get(job_id).steps]
        if choice.step not in names:
            raise NotFound(f"Job {job_id} has no step named {choice.step!r}. Its steps: {', '.join(names)}.")
    limit = tail or FAILURES_SHOWN
    total = 0

    def matching() -> Iterator[Failure]:
        nonlocal total
        for failure in _failures(client, job_id, choice.files(client, job_id)):
            if choice.mini_batch is None or _mentions(failure.head, choice.mini_batch):
                total += 1
                yield failure

    found = sorted(heapq.nlargest(limit, matching()))
    if as_json:
        print_json([failure._asdict() for failure in found])
    else:
        for failure in found:
            out(coloured(f"{failure.time} {failure.step} {failure.worker}: {failure.head}", RED, sys.stdout))
            _print_detail(failure.detail)
    if total > len(found):
        say(f"These are the newest {len(found):,} of {total:,}; --tail N shows more.")
    elif not total and not as_json:
        what = f"mini-batch {choice.mini_batch} of job {job_id}" if choice.mini_batch is not None else f"job {job_id}"
        out(f"The logs of {what} show no failure.")
    return exit_codes.DONE


def print_mini_batch(client: Client, job_id: str, choice: Choice, *, as_json: bool) -> int:
    """Print what the logs say about one mini-batch."""
    assert choice.mini_batch is not None
    files = choice.files(client, job_id)
    if not files:
        name = f"{choice.step}/{choice.mini_batch}" if choice.step else choice.mini_batch
        raise NotFound(
            f"The logs of job {job_id} do not mention mini-batch {choice.mini_batch}. It has not started, or does not "
            f"exist. `windrow mb show {job_id} {name}` shows its state."
        )
    lines = [
        (file.path, line)
        for file in files
        if "/sys/node/" in file.path and file.path.endswith(".txt")
        for line in _lines(client, job_id, file)
        if _mentions(line, choice.mini_batch)
    ]
    failures = [failure for failure in _failures(client, job_id, files) if _mentions(failure.head, choice.mini_batch)]
    others = [file for file in files if "/user/" in file.path and "/user/error/" not in file.path]
    if as_json:
        print_json(
            {
                "attempts": [{"path": path, "line": line} for path, line in lines],
                "failures": [failure._asdict() for failure in failures],
                "files": [{"path": file.path, "length": file.length} for file in files],
            }
        )
        return exit_codes.DONE
    for path, line in sorted(lines, key=lambda found: found[1]):
        out(f"{_source(path)}: {line}", whole=True)
    for failure in sorted(failures):
        out(coloured(f"{failure.time} {failure.step} {failure.worker}: {failure.head}", RED, sys.stdout))
        _print_detail(failure.detail)
    if others:
        out("What its workers wrote, for all their mini-batches:")
        for file in others:
            out(f"  {file.path}  ({counted(file.length, 'byte')})")
    return exit_codes.DONE


def print_chosen(client: Client, job_id: str, choice: Choice, *, tail: int | None) -> int:
    """Print the text files of the chosen workers, one after another."""
    files = [
        file
        for file in choice.files(client, job_id)
        if file.length and ("/user/" in file.path or "/sys/node/" in file.path) and not file.path.endswith(".profile")
    ]
    if not files:
        raise NotFound(
            f"Job {job_id} has no logs of that worker or node yet. `windrow job logs {job_id}` lists all logs."
        )
    for file in files:
        out(coloured(f"==> {file.path} <==", YELLOW, sys.stdout))
        print_log(client, job_id, file.path, follow=False, tail=tail)
        out("")
    return exit_codes.DONE


class Followed:
    """Several logs as they grow, each line with its source, until the job has ended."""

    def __init__(self, job_id: str, choice: Choice, tail: int | None) -> None:
        """`tail`: start with this many lines of each file, or with all if None."""
        self._job_id = job_id
        self._choice = choice
        self._tail = tail
        self._offsets: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}
        self._ended_at: float | None = None

    def run(self, client: Client) -> int:
        """Print lines as they come; return the exit code."""
        while True:
            job = client.get(self._job_id)
            grown = self._print_new(client)
            if stands_still(client, job):
                return tell_stands_still(client, job)
            if job.state.ended:
                now = time.monotonic()
                if self._ended_at is None or grown:
                    self._ended_at = now
                if now - self._ended_at >= SETTLE_S:
                    break
            time.sleep(FOLLOW_S)
        for path, rest in list(self._rests.items()):
            if rest:
                self._print(path, b"\n")
        return exit_codes.DONE

    def _print_new(self, client: Client) -> bool:
        grown = False
        for file in self._choice.files(client, self._job_id):
            if not _is_followed(file.path):
                continue
            if self._tail is not None:
                self._offsets[file.path], last = tail_of(client, self._job_id, file.path, self._tail)
                self._print(file.path, b"".join(last))
                continue
            offset = self._offsets.get(file.path, 0)
            if file.length > offset:
                grown = True
                for chunk in client.read_log(self._job_id, file.path, offset=offset):
                    offset += len(chunk)
                    self._print(file.path, chunk)
                    self._offsets[file.path] = offset
        self._tail = None
        return grown

    def _print(self, path: str, content: bytes) -> None:
        *whole, self._rests[path] = (self._rests.get(path, b"") + content).split(b"\n")
        source = coloured(f"{_source(path)} |", DIM, sys.stdout)
        for line in whole:
            out(f"{source} {line.decode('utf-8', 'replace')}", whole=True)


def _is_followed(path: str) -> bool:
    """Whether a file holds what scripts write, or the progress of steps, and is not a copy (--copy_logs_to_parent)."""
    parts = path.split("/")
    return (len(parts) == 5 and parts[1] == "user") or (
        len(parts) == 2 and parts[1].startswith("job_progress_overview.")
    )


def _source(path: str) -> str:
    """The short source of a line: `score vm/process000 stdout`."""
    parts = path.split("/")
    if len(parts) < 4:
        return f"{parts[0]} overview" if "overview" in parts[-1] else path
    kind = {"entry_script_log": "log", "node": "sys"}.get(parts[2], parts[2])
    return f"{parts[0]} {parts[3]}/{parts[-1].partition('.')[0]} {kind}"


def _failures(client: Client, job_id: str, files: Iterable[LogFile]) -> Iterator[Failure]:
    for file in files:
        parts = file.path.split("/")
        if parts[1:3] != ["user", "error"] or len(parts) != 5:
            continue
        worker = f"{parts[3]}/{parts[4].partition('.')[0]}"
        time_, head, detail = "", "", list[str]()
        for line in _lines(client, job_id, file):
            begins = _ENTRY.fullmatch(line)
            if begins is None:
                detail.append(line)
                continue
            if head:
                yield Failure(time_, parts[0], worker, head, "\n".join(detail).rstrip())
            time_, head, detail = begins[1], begins[2], []
        if head:
            yield Failure(time_, parts[0], worker, head, "\n".join(detail).rstrip())


def _lines(client: Client, job_id: str, file: LogFile) -> Iterator[str]:
    rest = b""
    start = max(0, file.length - READ_BYTES_MAX)
    for chunk in client.read_log(job_id, file.path, offset=start):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def _mentions(line: str, mini_batch: int) -> bool:
    return re.search(rf"\bmini-batch {mini_batch}, try \d", line) is not None


def _print_detail(detail: str) -> None:
    for line in detail.splitlines():
        out(f"    {line}")


@command(
    epilog="Example: windrow job logs digits-20260501-101500-ab12 --failed",
)
def logs(
    job: JobOrStep,
    path: Annotated[str | None, Argument(metavar="PATH", help="Log file to print [default: list all].")] = None,
    follow: Annotated[
        bool,
        Option("--follow", "-f", help="Keep printing until the job ends; without PATH: all that scripts write."),
    ] = False,
    tail: Annotated[
        int | None, Option("--tail", min=1, metavar="N", help="Only the last N lines; with --failed: failures.")
    ] = None,
    failed: Annotated[bool, Option("--failed", help="All failures with their tracebacks, newest last.")] = False,
    mini_batch: Annotated[
        int | None, Option("--mini-batch", min=0, metavar="N", help="Only what concerns this mini-batch.")
    ] = None,
    worker: Annotated[str | None, Option("--worker", metavar="NODE/process003", help="Only this worker.")] = None,
    node: Annotated[str | None, Option("--node", metavar="NODE", help="Only this node.")] = None,
    step: Annotated[str | None, Option("--step", metavar="STEP", help="Only this step.")] = None,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """List or print the log files of a job, or its failures."""
    job, step = with_step(job, step)
    choice = make_choice(step, node, worker, mini_batch)
    if path is not None and (failed or choice.given):
        raise UsageError(
            "PATH names one file. Leave it out, or leave out --failed, --mini-batch, --worker, --node and the step."
        )
    if failed and follow:
        raise UsageError("--failed prints the failures so far and ends. Leave out --follow.")
    several = worker is not None or node is not None
    if path is None and tail is not None and not (follow or failed or several):
        raise UsageError(
            f"--tail needs the name of a log file (`windrow job logs {job}` lists them), or --follow, --failed, "
            "--worker or --node."
        )
    as_json = output is OutputForm.JSON
    with open_client(master, state) as client:
        found = client.find(job)
        job = found.job_id
        if follow and path is None:
            return Followed(job, choice, tail).run(client)
        if path is not None:
            return print_log(client, job, path, follow=follow, tail=tail)
        if failed:
            return print_failures(client, job, choice, tail=tail, as_json=as_json)
        if mini_batch is not None:
            return print_mini_batch(client, job, choice, as_json=as_json)
        if several and not as_json:
            return print_chosen(client, job, choice, tail=tail)
        files = choice.files(client, job)
    if output is OutputForm.JSON:
        print_json([{"path": file.path, "length": file.length} for file in files])
    elif not files:
        out(f"Job {job} has no log files{'' if found.state.ended else ' yet'}.")
    else:
        print_table((">BYTES", "PATH"), [(f"{file.length:,}", file.path) for file in files])
    return exit_codes.DONE
