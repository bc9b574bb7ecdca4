"""`windrow run`: one job on this machine, from the job file to the output."""

from __future__ import annotations

import errno
import shlex
import sys
from typing import TYPE_CHECKING, Any

from windrow.cli import exit_codes
from windrow.cli.messages import YELLOW, coloured, leave_closed_terminal, report, say
from windrow.cli.options.run_options import RunOptions
from windrow.cli.running.code_change import asker
from windrow.cli.running.interrupts import Interrupts
from windrow.common import garbage_collector
from windrow.common.quantities import counted, duration
from windrow.storage.credentials import hide_credentials

if TYPE_CHECKING:
    from windrow.cli.display import Display
    from windrow.cli.display.preparation import Preparation
    from windrow.embedded.session import Session
    from windrow.sdk.job import Job
    from windrow.spec import LoadedJob
    from windrow.spec.one_line.job_file import MadeJob
    from windrow.spec.reading.problems import Problem


LOOK_PATIENCE_S = 1.0


def run_command(options: RunOptions, session: Session | None) -> int:
    """Run the job file. `session`: the state folder, if it is open. Returns the exit code."""
    # Scripts run as the same user, and could read the environment of this process.
    hide_credentials()
    interrupts = Interrupts()
    run = _Run(options, session, interrupts)
    try:
        try:
            code = run.run()
            run.forget()
            return code
        except (KeyboardInterrupt, OSError) as error:
            # A closed terminal shows as SIGHUP or as a failed write, whichever comes first.
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise
            interrupts.disarm()
            unseen = leave_closed_terminal()
            code = run.interrupted()
            if run.has_ended and not unseen:
                run.forget()
            return code
        finally:
            interrupts.disarm()
            run.close()
    except BrokenPipeError:
        # The reader of the output is gone (`| head`). Python's flush at exit must not complain.
        sys.stdout = None
        return exit_codes.INTERRUPTED
    except Exception as error:
        return report(error, options.form)


class _Run:
    """One `windrow run`."""

    def __init__(self, options: RunOptions, session: Session | None, interrupts: Interrupts) -> None:
        self._options = options
        self._session = session
        self._interrupts = interrupts
        self._display: Display | None = None
        self._job: Job | None = None
        self._document: dict[str, Any] | None = None
        self._warned: set[str] = set()
        self._notes: tuple[Problem, ...] = ()
        self._told = ""
        self._continued = False
        self._preparation: Preparation | None = None
        self._held_up_by = 0
        """Mini-batches of other jobs that run on this session's node when the job has ended."""

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended, not only this command."""
        return self._document is not None

    def run(self) -> int:
        """Run the job, from its file to the summary."""
        from windrow.cli.display.preparation import Preparation

        if self._options.form != "json" and not self._options.no_progress:
            self._preparation = Preparation(say)
        self._stage(f"Reading {self._options.job_file or 'the options'} …")
        loaded = self._load() if self._options.job_file else None
        session = self._opened()
        if session.interpreter and loaded is not None:
            from windrow.embedded.job_interpreter import check_job_interpreter

            check_job_interpreter(session.interpreter, loaded, builds=session.builds_environments)
        if loaded is not None:
            self._tell_environments(session, loaded)
        self._job, self._document = self._follow(session, loaded)
        if self._held_up_by:
            from windrow.embedded.supervisor import DRAIN_GRACE_S

            running = counted(self._held_up_by, "running mini-batch")
            self._say(
                f"This run has ended. First, {running} of other runs in this state folder may finish, for at most "
                f"{duration(DRAIN_GRACE_S)}. Ctrl-C twice ends at once."
            )
        self.close()
        return self._tell_end(self._job, self._document)

    def close(self) -> None:
        """End master, agent and display. May be called again."""
        self._end_preparation()
        try:
            if self._display is not None:
                self._display.end()
        finally:
            if self._session is not None:
                # Without a job there is nothing to wait for.
                self._session.close(
                    now=self._job is None, hurry=lambda: self._interrupts.hurried, drained=self._look_again
                )
                self._session = None

    def forget(self) -> None:
        """Note that the end has been reported, so that the next equal command begins a new run."""
        from windrow.embedded import unreported_run

        if sys.stdout is not None:
            sys.stdout.flush()
        if self._job is not None:
            unreported_run.forget(self._options.state, self._job.job_id)

    def interrupted(self) -> int:
        """After the first Ctrl-C: let running mini-batches finish, keep the state, and say how to continue."""
        if self._display is not None:
            self._display.end()
        attached = self._session is not None and self._session.attached
        if self._job is not None and not attached:
            running = self._job.mini_batches.leased
            what = f" ({running:,} leased)" if running else ""
            self._say(f"Stopping when the running mini-batches{what} are finished. Ctrl-C again ends at once.")
        owner = self._session.owner_pid if self._session is not None else 0
        self.close()
        if self._job is not None and self._document is not None:
            return self._tell_end(self._job, self._document)
        if attached:
            self._say(f"The run continues in process {owner}; the same command shows it again.")
        else:
            items = self._job.items if self._job is not None else None
            done = (
                f" {items.done:,} of {counted(items.total, 'item')} are done."
                if items is not None and items.total
                else ""
            )
            self._say(
                f"Interrupted.{done} The state is kept in {self._options.state}. Continue with: {self._same_command()}"
            )
        if self._options.form == "json":
            from windrow.cli.display.jsonlines import emit

            emit("end", job=self._job.to_dict() if self._job else None, outputs=[], exit_code=exit_codes.INTERRUPTED)
        return exit_codes.INTERRUPTED

    def _look_again(self) -> None:
        """Ask the master once more about an interrupted run, for what the drain has added.

        If nothing is left to run, wait a moment for the job's end: its rows are being gathered.
        """
        if self.has_ended or self._job is None or self._session is None or self._interrupts.hurried:
            return
        from windrow.errors import WindrowError
        from windrow.sdk.client import Client

        try:
            with Client(self._session.address, patience_s=LOOK_PATIENCE_S) as client:
                self._job = client.get(self._job.job_id)
                if not any(
                    step.mini_batches.queued or step.state in ("waiting", "running") for step in self._job.steps
                ):
                    self._job = client.end_of(self._job.job_id, timeout_s=LOOK_PATIENCE_S)
                if self._job.state.ended:
                    self._document = client.document(self._job.job_id)
        except WindrowError:
            pass  # the master has ended; report what was seen last

    def _load(self) -> LoadedJob:
        from windrow.sdk.session_client import SessionAssets
        from windrow.spec import JobFileError, load_job

        job_file = self._options.job_file
        if self._options.is_script:
            from windrow.cli.running.one_line import keep, make

            made = make(self._options)
            job_file, self._told = keep(made, self._options, self._opened().folder), _told(made)
        datastores = self._session.datastores if self._session is not None else ()
        assets = SessionAssets(self._opened)
        try:
            loaded = load_job(
                job_file,
                self._options.sets,
                datastores=datastores,
                assets=assets.open,
                sets_folder=self._options.sets_folder,
            )
        except JobFileError as error:
            if not self._options.is_script:
                raise
            from windrow.cli.display.typed_words import typed_problems

            raise JobFileError(typed_problems(error.problems, self._options)) from error
        finally:
            assets.close()
        if self._options.is_script:
            from windrow.cli.display.typed_words import typed_problems

            warnings, notes = (typed_problems(found, self._options) for found in (loaded.warnings, loaded.notes))
            job = loaded.job._replace(warnings=tuple(map(str, warnings)))
            loaded = loaded._replace(job=job, warnings=warnings, notes=notes)
        from windrow.sdk.code_change import refuse_without_earlier_job

        refuse_without_earlier_job(loaded, self._options.code_change, self._options.since)
        if self._options.exact_row_index:
            loaded = loaded.with_exact_row_index()
        from windrow.spec.reading.problems import grouped

        for line in grouped(loaded.warnings):
            self._say(f"{coloured('warning:', YELLOW, sys.stderr)} {line}")
        self._warned.update(map(str, loaded.warnings))
        self._notes = loaded.notes
        return loaded

    def _opened(self) -> Session:
        if self._session is None:
            self._session = self._options.open_session()
        return self._session

    def _tell_environments(self, session: Session, loaded: LoadedJob) -> None:
        """Tell of steps that ask for an environment and do not get one."""
        if session.builds_environments:
            return
        names = [step.name for step in loaded.job.steps if step.environment is not None]
        if names:
            why = "--python" if self._options.python else "--environments own"
            python = session.interpreter or "the Python of the process that serves this state folder"
            # It was asked for, so it is no warning.
            self._say(f"{why}: no environment is built for {', '.join(names)}; scripts run in {python}.")

    def _remember_options(self, session: Session, job_id: str) -> None:
        from windrow.embedded import remembered_options

        options = self._options
        python = session.interpreter if options.python else None
        remembered_options.remember(options.state, job_id, python, options.environments, options.datastores)

    def _follow(self, session: Session, loaded: LoadedJob | None) -> tuple[Job, dict[str, Any]]:
        """Begin or continue the run, and follow it to its end, even if the master or its owner ends."""
        from windrow.embedded.session import OwnerGone
        from windrow.sdk.session_client import connect

        seq = 0
        while True:
            if self._job is None:
                self._stage(f"Waiting until the master over {session.folder} answers …")
            client = connect(session)
            try:
                if self._job is None:
                    self._stage("Packing the code and submitting the job …")
                    self._job = self._begin(client, session, loaded)
                    self._remember_options(session, self._job.job_id)
                return self._watch(client, session, self._job.job_id, seq)
            except OwnerGone as gone:
                self._say(str(gone))
                if session.take_over():
                    self._say("This process runs the master and the agent from now on.")
                # A new incarnation may restart its count of changes.
                seq = 0
            finally:
                client.close()

    def _begin(self, client: Any, session: Session, loaded: LoadedJob | None) -> Job:
        from windrow.errors import RunChanged
        from windrow.sdk.run_choice import begin, retry

        options = self._options
        if loaded is None or options.retried:
            begun = retry(client, options.retried, loaded, session.folder)
        else:
            try:
                begun = begin(
                    client,
                    loaded,
                    session.folder,
                    restart=options.restart,
                    keep_rows=options.keep_rows,
                    since=options.since,
                    code_change=options.code_change,
                    ask=asker(quiet=options.form == "json", begin=self._end_preparation),
                )
            except RunChanged as error:
                if not options.is_script:
                    raise
                from windrow.cli.display.typed_words import typed

                job_file = loaded.job.job_file
                told = str(error).replace(job_file, f"{options.job_file} into {options.output}")
                raise RunChanged(typed(told, {"job_file": job_file})) from error
        self._end_preparation()
        from windrow.cli.display.choice import make_display

        self._display = make_display(options.form, quiet=options.no_progress)
        self._display.begin(begun.job, continued=begun.continued)
        if self._told:
            self._say(self._told)
        self._continued = begun.continued
        listed = [step.start_time for step in begun.job.parallel.steps if step.start_time is not None]
        if begun.continued and listed and not begun.job.state.ended and not options.retried:
            from windrow.cli.tables import local_time

            self._say(
                f"Its input is what was listed at {local_time(min(listed))}; what is new since is not in it. --restart "
                "begins a new run, which lists it again."
            )
        if begun.is_first:
            from windrow.spec.earlier_results import NO_LAST

            self._say(NO_LAST)
        if session.attached:
            self._say(f"Attached to the windrow process {session.owner_pid}, which serves {session.folder}.")
        if begun.job.state.ended:
            self._say("This run has already finished, while no command followed it. To run it again, use --restart.")
        if loaded is not None and not begun.job.state.ended:
            from windrow.cli.display.tolerance import tolerance_note

            steps = [step._asdict() for step in loaded.job.steps]
            if note := tolerance_note({"steps": steps}, tolerate=options.tolerate or options.strict):
                self._say(note)
        for other in begun.others:
            self._say(
                f"The unfinished run {other.job_id} ({other.display_name}) of this state folder continues as well."
            )
        return begun.job

    def _watch(self, client: Any, session: Session, job_id: str, seq: int) -> tuple[Job, dict[str, Any]]:
        from windrow.cli.display.follower import Follower

        garbage_collector.resume()
        assert self._display is not None
        follower = Follower(client, job_id, after_seq=seq, warned=self._warned)
        if session.supervisor is not None:
            session.supervisor.listen(follower.tell)
        try:
            job = follower.run(self._display, session.failure)
            if session.supervisor is not None:
                self._held_up_by = sum(node.leases for node in client.list_nodes())
            return job, client.document(job_id)
        finally:
            self._job = follower.last or self._job
            self._warned = follower.warned
            follower.close()

    def _tell_end(self, job: Job, document: dict[str, Any]) -> int:
        from pathlib import Path

        from windrow.cli.display import summary
        from windrow.cli.options.master_choice import master_options

        code = summary.exit_code(job, document, strict=self._options.strict, tolerate=self._options.tolerate)
        if self._options.form == "json":
            from windrow.cli.display.jsonlines import emit

            places = summary.output_places(job, document) if job.state.succeeded else []
            emit("end", job=job.to_dict(), outputs=places, exit_code=code)
        else:
            options = master_options(None, Path(self._options.state))
            from windrow.spec.reading.problems import grouped

            summary.print_summary(job, document, options=options, here=True, continued=self._continued)
            for line in grouped(self._notes):
                say(f"note: {line}")
        if self._options.notify:
            from windrow.cli.display.notify import notify

            notify(self._options.notify, job, code)
        return code

    def _say(self, message: str) -> None:
        if self._options.form == "json":
            from windrow.cli.display.jsonlines import emit

            emit("notice", message=message)
        elif self._display is not None:
            self._display.notice(message)
        else:
            say(message)

    def _stage(self, words: str) -> None:
        """What is done before the job begins; told if it lasts."""
        if self._preparation is not None:
            self._preparation.stage(words)

    def _end_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.end()
            self._preparation = None

    def _same_command(self) -> str:
        arguments = [argument for argument in sys.argv[1:] if argument not in ("--restart",)]
        return f"windrow {shlex.join(arguments)}"


def _told(made: MadeJob) -> str:
    return "\n".join([made.told, *(f"Note: {note}" for note in made.notes)])
