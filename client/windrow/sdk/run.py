"""`windrow.run("job.yml")`: a whole run on this machine, from a notebook or a script."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.quantities import counted
from windrow.embedded import interrupts, state_folder, unreported_run
from windrow.embedded.job_interpreter import check_job_interpreter
from windrow.embedded.session import OwnerGone, Session, open_session
from windrow.sdk.arguments import check_callable, check_choice, check_mapping, check_path, check_texts, whole
from windrow.sdk.code_change import CHOICES, refuse_without_earlier_job
from windrow.sdk.ending import need_good_end, state_option
from windrow.sdk.job import Job, id_of
from windrow.sdk.job_warnings import JobWarnings
from windrow.sdk.private_master import give_way
from windrow.sdk.progress_bar import ProgressBar, open_bar
from windrow.sdk.python_words import python_words
from windrow.sdk.results import RowsFile, need_succeeded, read_frame, rows_file, rows_files, rows_of
from windrow.sdk.run_choice import Begun, begin
from windrow.sdk.session_client import SessionAssets, connect

if TYPE_CHECKING:
    import pandas as pd

    from windrow.sdk.client import Client
    from windrow.spec import LoadedJob

READ_BYTES = 1 << 20
_EMPTY: Mapping[str, str] = MappingProxyType({})


class Run(NamedTuple):
    """A run that has ended. `job`: its last state. `rows`: the files that hold its rows.

    Example:
        ended = windrow.run("job.yml")
        print(ended.job.items.failed, "items failed")
        for row in ended.results():
            print(row)
    """

    job: Job
    rows: tuple[RowsFile, ...]
    document: dict[str, Any]

    @property
    def succeeded(self) -> bool:
        """Whether the outputs are complete. Failures may have been tolerated: see `job.items.failed`."""
        return self.job.state.succeeded

    def results(self, output: str | None = None) -> Iterator[str]:
        """The rows in order, without line ends. Raises JobFailed, NotFound, UsageError."""
        place = self._rows_file(output)
        return rows_of(self._chunks(place), place)

    def to_dataframe(self, output: str | None = None, **read_csv: Any) -> pd.DataFrame:
        """The rows as a DataFrame; `read_csv`: keyword arguments of `pandas.read_csv` that override."""
        place = self._rows_file(output)
        return read_frame(self._chunks(place), place, read_csv)

    def __repr__(self) -> str:
        """The run in one line: its job, and where the rows are."""
        places = ", ".join(file.place for file in self.rows) if self.succeeded else ""
        return f"<Run of {self.job!r}{': rows in ' if places else ''}{places}>"

    def _repr_html_(self) -> str:
        """How notebooks show the run: its job, and where the rows are."""
        from html import escape

        from windrow.sdk.job_html import job_html

        places = ", ".join(f"<code>{escape(file.place)}</code>" for file in self.rows)
        return job_html(self.job) + (f"<div>Rows: {places}</div>" if places and self.succeeded else "")

    def _rows_file(self, output: str | None) -> RowsFile:
        need_succeeded(self.job)
        return rows_file(self.job, self.document, output)

    @staticmethod
    def _chunks(place: RowsFile) -> Iterator[bytes]:
        with Path(place.place).open("rb") as file:
            while chunk := file.read(READ_BYTES):
                yield chunk


@python_words()
def run(
    path: str | os.PathLike[str],
    *,
    sets: Sequence[str] = (),
    state: str | os.PathLike[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    environments: str | None = None,
    slots: int | None = None,
    datastores: Mapping[str, str | os.PathLike[str]] = _EMPTY,
    restart: bool = False,
    keep_rows: bool = False,
    since: str | Job = "",
    code_change: str = "ask",
    on_progress: Callable[[Job], None] = lambda job: None,
    check: bool = True,
    progress: bool = True,
) -> Run:
    """Run a job file on this machine, with a private master and agent, and return when it has ended.

    It does what `windrow run` does: it continues an unfinished equal run of the folder `state` (by default
    $WINDROW_STATE, else .windrow), and an interrupt keeps what is done. `python`: interpreter for the script.
    `environments`: "build" those that steps ask for, or "own" to run all scripts in one Python (implied by
    `python`); by default $WINDROW_ENVIRONMENTS, else "build". `slots`: number of workers. `datastores`: by name, a
    folder or an address in storage. `since`, `code_change`: as of `Client.submit`; "ask" refuses a run whose code
    has changed. `on_progress`: called at each change. `check`: raise JobFailed if the job fails or is cancelled; if
    False, see `Run.succeeded`. `progress`: show a bar on a terminal, or a card in a notebook. What the job warns of are
    Python warnings (JobWarning), each once. After an interrupt, KeyboardInterrupt says what is kept. Raises
    windrow.spec.JobFileError, JobFailed, RunChanged, StateFolderError, UsageError, MasterFailed.

    Example:
        run = windrow.run("job.yml", sets=["jobs.score.mini_batch_size=50"])
        frame = run.to_dataframe()
    """
    check_path("path", path)
    check_texts("sets", sets)
    for name, place in {"state": state, "python": python}.items():
        if place is not None:
            check_path(name, place)
    if environments is not None:
        check_choice("environments", environments, ("build", "own"))
    slots = None if slots is None else whole("slots", slots)
    check_mapping("datastores", datastores)
    check_callable("on_progress", on_progress)
    check_choice("code_change", code_change, CHOICES)
    since_id = id_of(since)
    state = state_folder.default() if state is None else state
    bar = open_bar(progress, state_option(state))
    warnings = JobWarnings()
    choose = partial(begin, restart=restart, keep_rows=keep_rows, since=since_id, code_change=code_change)
    seen = _Seen(state)
    try:
        with interrupts.held() as held:
            # The two processes import what they need while the job file is read here.
            session = open_session(
                os.fspath(state),
                with_agent=True,
                python=os.fspath(python) if python else None,
                environments=environments,
                slots=slots,
                datastores=[f"{name}={os.fspath(place)}" for name, place in datastores.items()],
                make_room=give_way,
            )
            try:
                try:
                    held.release()
                    loaded = _loaded(session, path, sets)
                    refuse_without_earlier_job(loaded, code_change, since_id)
                    warnings.tell_file(loaded.warnings)
                    ended = _follow(session, loaded, choose, on_progress, bar, seen)
                finally:
                    held.hold()
            except BaseException as error:
                # After a first interrupt, all others wait, also if it came just before `hold`.
                seen.other_pid = session.owner_pid if session.attached and session.owner_pid != os.getpid() else 0
                if isinstance(error, KeyboardInterrupt):
                    bar.stopping(seen.stopping)
                session.close(hurry=lambda: held.hurried)
                bar.interrupted(seen.label, seen.kept)
                raise
            finally:
                try:
                    bar.end()
                finally:
                    session.close(hurry=lambda: held.hurried)
    except KeyboardInterrupt as interrupt:
        if interrupt.args:
            raise  # by a program that says itself why
        # Of this class itself: a program that it ends is ended by the signal, as shells expect.
        raise KeyboardInterrupt(f"{seen.what} {seen.kept}") from None
    warnings.skip(ended.job.job_id, loaded.warnings)
    warnings.tell(ended.job)
    if check and not ended.succeeded:
        need_good_end(ended.job, state_option(state))
    return ended


class _Seen:
    """What is known of a run when it is interrupted, and the words for it."""

    def __init__(self, state: str | os.PathLike[str]) -> None:
        """`state`: the state folder."""
        self._state = state
        self.job: Job | None = None
        self.other_pid = 0
        """The process that runs it, if it is not this session."""

    @property
    def label(self) -> str:
        """The state that a card shows; empty if that of the job is still right."""
        return "" if self.other_pid else "Interrupted"

    @property
    def what(self) -> str:
        """What was interrupted, and how far it was."""
        if self.job is None:
            return "The run was interrupted before its job began."
        items = self.job.items
        done = f" with {items.done:,} of {counted(items.total, 'item')} done" if items.total else ""
        return f"The run {self.job.job_id} was interrupted{done}."

    @property
    def stopping(self) -> str:
        """What happens until it is interrupted."""
        if self.other_pid:
            return self.kept
        return "Stopping when the running mini-batches are finished. Another interrupt ends them at once."

    @property
    def kept(self) -> str:
        """What is left, and how to go on."""
        if self.other_pid and self.job is not None:
            return f"It continues in process {self.other_pid}; the same call follows it again."
        if self.job is None:
            return "The same call begins it."
        if self.job.state.ended:
            show = f"windrow job show {self.job.job_id}{state_option(self._state)}"
            return f"The job had ended by then, and is {self.job.state.words}. To see it: {show}"
        return f"What is done is kept in {Path(self._state).absolute()}; the same call continues the run."


def _loaded(session: Session, path: str | os.PathLike[str], sets: Sequence[str]) -> LoadedJob:
    """The job file, checked against the registry and the Python of an open session."""
    from windrow.spec import load_job

    assets = SessionAssets(lambda: session)
    try:
        loaded = load_job(path, sets, datastores=session.datastores, assets=assets.open)
    finally:
        assets.close()
    if session.interpreter:
        check_job_interpreter(session.interpreter, loaded, builds=session.builds_environments)
    return loaded


def _follow(
    session: Session,
    loaded: LoadedJob,
    choose: Callable[[Client, LoadedJob, str], Begun],
    on_progress: Callable[[Job], None],
    bar: ProgressBar,
    seen: _Seen,
) -> Run:
    seq = 0
    while True:
        client = connect(session)
        try:
            if seen.job is None:
                seen.job = choose(client, loaded, session.folder).job
            job_id = seen.job.job_id
            bar.begin(client, job_id, is_new=True)
            for job in client.progress(job_id, after_seq=seq):
                seq, seen.job = job.seq, job
                bar.show(job)
                on_progress(job)
            job = client.get(job_id)
            document = client.document(job_id)
            unreported_run.forget(session.folder, job_id)
            return Run(job, tuple(rows_files(job, document)), document)
        except OwnerGone:
            session.take_over()
        finally:
            client.close()
