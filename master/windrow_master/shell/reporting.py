"""Writes the reports of jobs, while they run and when they have ended.

A job passes through these states here: running (looked at every TICK_S) -> ended -> reported. A retried job begins
again; reports of its earlier end that are still being written are finished first.

1. No commit waits for a report, and no report that cannot be written fails a job: the problem is noted, and the report
   is left out.
2. A marker beside the reports names the end of the job that they describe, and the length of each. If a master died
   before it wrote the marker, or a loss of power took what was not synced, the next master writes all reports again.
3. The tables of a step, which may have millions of rows, are begun together with its output: all attempts are over by
   then.
4. Whoever reads the logs of an ended job waits until its reports are there (`settled`), and so does the end of the
   master (`close`).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import JobRow
from windrow_master.core.states import ENDED_JOBS, StepState
from windrow_master.files.errors import StateError
from windrow_master.files.state_files import StateFiles
from windrow_master.store.protocol import StoreReader

if TYPE_CHECKING:
    from windrow_master.reports.facts import JobFacts, StepFacts
    from windrow_master.reports.live import LiveLogs

TICK_S = 2.0
FIRST_S = 2.0
"""Nothing is looked at before: at the very start of a run, each millisecond delays the first `run()`."""
RECOVERED_JOBS = 50
"""The number of newest jobs that a new master checks for missing reports."""
MARKER = ".reports.json"
PROBLEMS_MAX = 20


class Reporter:
    """Writes the reports of all jobs of a master, in its own threads. Call its methods on the event loop's thread."""

    def __init__(
        self, reader: StoreReader, incarnation: int, files: StateFiles, *, embedded: bool, clock: Any = time.time
    ) -> None:
        """`embedded`: the commands that reports suggest name the state folder. `clock`: seconds since 1970."""
        self._reader = reader
        self._incarnation = incarnation
        self._files = files
        self._options = f" --state {shlex.quote(str(files.folder))}" if embedded else ""
        self._clock = clock
        self._since = clock()
        self._live: LiveLogs | None = None
        self._live_thread = ThreadPoolExecutor(1, "live-logs")
        self._threads = ThreadPoolExecutor(2, "reports")
        # A thread of its own, because the end of a job waits for its tables.
        self._table_thread = ThreadPoolExecutor(1, "report-tables")
        self._tables: dict[StepId, Future[list[str]]] = {}
        self._ending: dict[JobKey, asyncio.Task[None]] = {}
        self._ended_before: dict[JobKey, asyncio.Task[None]] = {}
        """For jobs that run again: the task that still writes the reports of their earlier end."""
        self._copied: dict[JobKey, list[tuple[Path, str]]] = {}
        """For jobs whose logs were copied to the root: what to copy once more, for logs that agents send later."""
        self._problems: dict[JobKey, list[str]] = {}
        self._closed = False
        self._recovery: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None

    def start(self, running: Callable[[], Iterable[JobKey]]) -> None:
        """Start looking at jobs. `running()` returns those that have not ended; it is called on the event loop's
        thread."""
        self._ticker = asyncio.create_task(self._look_again_and_again(running))

    def running(self, job_key: JobKey) -> None:
        """Note that a job runs: if it had ended before, it will end again."""
        ending = self._ending.pop(job_key, None)
        if ending is not None and not ending.done():
            self._ended_before[job_key] = ending

    def begin_step(self, step_id: StepId, logs: Path, job_file: str) -> None:
        """Begin the tables of a step whose attempts are all over and durable. `job_file`: of its job."""
        if self._closed:
            return  # the next master makes the output again, and the tables with it
        self._tables[step_id] = self._table_thread.submit(self._write_tables, step_id, logs, job_file, settled=True)

    def end_job(self, job_key: JobKey, first: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Write the reports of a job that has durably ended, after the tasks in `first`. May be repeated."""
        if job_key not in self._ending and not self._closed:
            before = self._ended_before.pop(job_key, None)
            waits_for = [*first] if before is None else [*first, before]
            self._ending[job_key] = asyncio.create_task(self._end(job_key, waits_for))

    async def settled(self, job_key: JobKey) -> None:
        """Wait until the reports of an ended job are written, or have failed."""
        await asyncio.shield(self._recover())
        ending = self._ending.get(job_key)
        if ending is not None:
            await asyncio.shield(ending)

    def problems_of(self, job_key: JobKey) -> list[str]:
        """Messages about reports of a job that could not be written."""
        return list(self._problems.get(job_key, ()))

    async def close(self) -> None:
        """Finish the reports that have started, and end the threads."""
        if self._ticker is not None:
            self._ticker.cancel()
        await self._recover()
        self._closed = True
        await asyncio.gather(*self._ending.values(), *self._ended_before.values(), return_exceptions=True)
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        if self._copied:
            self._copy_late()
        for threads in (self._live_thread, self._threads, self._table_thread):
            threads.shutdown()

    # While jobs run

    async def _look_again_and_again(self, running: Callable[[], Iterable[JobKey]]) -> None:
        await asyncio.sleep(FIRST_S)
        await self._recover()
        loop = asyncio.get_running_loop()
        while True:
            if job_keys := list(running()):
                await loop.run_in_executor(self._live_thread, self._look, job_keys)
            if self._copied:
                await loop.run_in_executor(self._threads, self._copy_late)
            await asyncio.sleep(TICK_S)

    def _look(self, job_keys: list[JobKey]) -> None:
        for job_key in job_keys:
            try:
                self._lines().look(job_key)
            except Exception as error:
                # Whatever the error is, the next look may succeed, and other jobs must not suffer.
                self._note(job_key, "the progress overview", error)

    def _lines(self) -> LiveLogs:
        if self._live is None:
            from windrow_master.reports.live import LiveLogs

            self._live = LiveLogs(self._reader, self._incarnation, self._logs_of, self._clock, self._since)
        return self._live

    # At the end of a job

    async def _recover(self) -> None:
        """Write, once, the reports that an earlier master did not finish."""
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._recover_once())
        await self._recovery

    async def _recover_once(self) -> None:
        loop = asyncio.get_running_loop()
        for job in await loop.run_in_executor(self._threads, self._unreported):
            say(logging.INFO, "reports are written again", job=job.job_id)
            self.end_job(job.job_key)

    def _unreported(self) -> list[JobRow]:
        try:
            jobs = self._reader.jobs_newest_first(RECOVERED_JOBS)
        except StateError as error:
            say(logging.WARNING, "the master could not check for missing reports of earlier jobs", reason=str(error))
            return []
        return [job for job in jobs if job.state in ENDED_JOBS and not self._is_reported(job)]

    async def _end(self, job_key: JobKey, first: list[asyncio.Task[Any]]) -> None:
        if first:
            await asyncio.wait(first)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._live_thread, self._end_lines, job_key)
            await loop.run_in_executor(self._threads, self._write_all, job_key)
            if self._ending.get(job_key) is not asyncio.current_task():
                # The job runs again. Its results were removed before these were written, so remove these as well.
                await loop.run_in_executor(self._threads, self._remove_results, job_key)
        except Exception as error:
            # A bug, or the store is gone. The job has ended all the same.
            self._note(job_key, "the reports", error)

    def _end_lines(self, job_key: JobKey) -> None:
        try:
            self._lines().end(job_key)
        except (OSError, StateError) as error:
            self._note(job_key, "the progress overview", error)

    def _write_all(self, job_key: JobKey) -> None:
        from windrow_master.reports.facts import read_facts
        from windrow_master.reports.readme import job_readme
        from windrow_master.reports.results import job_result
        from windrow_master.reports.whole_files import write_whole

        row = self._reader.job_by_key(job_key)
        if row is None:
            return
        logs = self._logs_of(row.job_id)
        job = read_facts(self._reader, row, logs, self._options)
        for step in job.steps:
            self._write_step(job, step)
        names = tuple(step.name for step in job.steps)
        self._try(
            job_key, logs / "readme.txt", lambda path: write_whole(path, job_readme(names, job.command("job logs")))
        )
        self._try(job_key, logs / "job_result.txt", lambda path: write_whole(path, job_result(job, self._reader)))
        for step in job.steps:
            if step.settings.get("copy_logs_to_parent"):
                self._copy_to_parent(job, step)
        self._try(job_key, logs / MARKER, lambda path: write_note(path, _marker(row, logs, names)))

    def _remove_results(self, job_key: JobKey) -> None:
        from windrow_master.reports.live import remove_results

        row = self._reader.job_by_key(job_key)
        if row is not None:
            remove_results(self._logs_of(row.job_id))

    def _write_step(self, job: JobFacts, step: StepFacts) -> None:
        from windrow_master.reports.readme import step_readme
        from windrow_master.reports.results import step_error, step_result
        from windrow_master.reports.whole_files import write_whole

        job_key, logs = job.row.job_key, step.logs
        if step.row.start_time is not None:
            tables = self._tables.pop(step.row.step_id, None)
            # These tables are missing, or belong to an output that was given up: rows were lost, and mini-batches ran
            # again.
            if tables is None or step.row.state != StepState.COMPLETED:
                settled = step.row.state == StepState.COMPLETED
                tables = self._table_thread.submit(
                    self._write_tables, step.row.step_id, logs, step.job_file, settled=settled
                )
            for problem in tables.result():
                self._keep_problem(job_key, problem)
        self._try(job_key, logs / "readme.txt", lambda path: write_whole(path, step_readme(step.name)))
        self._try(
            job_key, logs / "job_result.txt", lambda path: write_whole(path, step_result(job, step, self._reader))
        )
        error = logs / "job_error.txt"
        if step.row.state == StepState.FAILED:
            self._try(job_key, error, lambda path: write_whole(path, step_error(job, step)))
        else:
            self._try(job_key, error, lambda path: path.unlink(missing_ok=True))

    def _write_tables(self, step_id: StepId, logs: Path, job_file: str, *, settled: bool) -> list[str]:
        """Write the tables made from the attempts of a step; return messages about those that failed."""
        from windrow_master.reports.mini_batch_tables import write_processed, write_summaries
        from windrow_master.reports.node_folders import other_names
        from windrow_master.reports.script_errors import write_script_errors

        problems: list[str] = []
        try:
            folders = other_names(logs)
        except OSError:
            folders = {}
        tables = logs / "sys" / "job_report"
        for path, write in (
            (
                tables / "processed_mini-batches.csv",
                lambda path: write_processed(self._reader, step_id, folders, path),
            ),
            (
                tables / "process_summary.csv",
                lambda path: write_summaries(self._reader.worker_totals_of(step_id), folders, path.parent),
            ),
            (
                logs / "user" / "error.txt",
                lambda path: write_script_errors(
                    self._reader, step_id, folders, path, settled=settled, job_file=job_file
                ),
            ),
        ):
            try:
                write(path)
            except (OSError, StateError) as error:
                problems.append(_problem(path, error))
        return problems

    def _copy_to_parent(self, job: JobFacts, step: StepFacts) -> None:
        from windrow_master.reports.parent_copies import copy_to_parent

        prefix = f"{step.name}." if len(job.steps) > 1 else ""
        self._try(job.row.job_key, step.logs.parent, lambda path: copy_to_parent(step.logs, path, prefix))
        self._copied.setdefault(job.row.job_key, []).append((step.logs, prefix))

    def _copy_late(self) -> None:
        """Copy logs to the root again: agents send the last of them after a job has ended."""
        from windrow_master.reports.parent_copies import copy_to_parent

        for job_key in list(self._copied):
            for logs, prefix in self._copied.pop(job_key):
                self._try(job_key, logs.parent, partial(copy_to_parent, logs, prefix=prefix))

    def _is_reported(self, job: JobRow) -> bool:
        logs = self._logs_of(job.job_id)
        try:
            marker = read_note(logs / MARKER) or {}
            return (marker["generation"], marker["seq"]) == (job.generation, job.seq) and all(
                (logs / name).stat().st_size == length for name, length in marker["files"].items()
            )
        except (NoteDamaged, OSError, LookupError):
            return False

    def _try(self, job_key: JobKey, path: Path, write: Callable[[Path], object]) -> None:
        try:
            write(path)
        except (OSError, StateError) as error:
            self._keep_problem(job_key, _problem(path, error))

    def _note(self, job_key: JobKey, what: str, error: BaseException) -> None:
        self._keep_problem(job_key, f"{what[:1].upper()}{what[1:]} could not be written: {error}")

    def _keep_problem(self, job_key: JobKey, problem: str) -> None:
        known = self._problems.setdefault(job_key, [])
        if problem not in known and len(known) < PROBLEMS_MAX:
            say(logging.WARNING, "a report could not be written", job=job_key, reason=problem)
            known.append(problem)

    def _logs_of(self, job_id: str) -> Path:
        return self._files.logs(job_id)


def _problem(path: Path, error: BaseException) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return (
        f"The report {path} could not be written: {reason}. This does not affect the job. Free some space, or "
        "give the master's user write permission there."
    )


def _marker(job: JobRow, logs: Path, step_names: tuple[str, ...]) -> dict[str, Any]:
    """The marker: which end of the job the reports describe, and how long each report is."""
    wanted = ["job_result.txt", "readme.txt"]
    for name in step_names:
        wanted += [f"{name}/job_result.txt", f"{name}/sys/job_report/processed_mini-batches.csv"]
    files = {name: (logs / name).stat().st_size for name in wanted if (logs / name).is_file()}
    return {"generation": job.generation, "seq": job.seq, "files": files}
