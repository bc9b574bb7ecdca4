"""The single writer: only it changes the core, and only it decides when a reply may leave.

Commands that arrive in one turn of the event loop form a group: each is handled in turn, then `pick()` runs once. What
needs no durability (assignments, revocations) leaves at once. The rest waits for the commit of the group. While one
commit is on its way to disk, the groups that follow gather for the next one, so the number of syncs a second does not
depend on the number of mini-batches.

Invariants:
1. There is one commit at a time, in the order in which the rows became dirty.
2. A reply that promises anything durable leaves only after the commit that holds its rows.
3. A commit that was certainly rolled back (disk full or busy) is tried again, unchanged, until it succeeds. Meanwhile
   changes by clients are refused with the reason. After a full disk they stay refused until the reserve is taken again,
   which each commit and each tick tries.
4. Any other commit error ends the process. The next incarnation recovers from what is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from windrow.common.journal import Condition, say

from windrow_master.core import commands
from windrow_master.core.commands import Command, Moment
from windrow_master.core.core import Core
from windrow_master.core.effects import AFTER_COMMIT, Effect
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty
from windrow_master.core.refused import Refused
from windrow_master.core.states import JobState
from windrow_master.crash_points import reach
from windrow_master.shell.clock_watch import ClockWatch
from windrow_master.shell.committer import CommitPostponed, Committer
from windrow_master.shell.errors import CommandFailed
from windrow_master.shell.ticking import Ticker

VOLATILE = (
    commands.ExplainJob,
    commands.BeginWork,
    commands.HeartbeatNode,
    commands.OpenWork,
    commands.CloseWork,
    commands.SetCapacity,
    commands.NoteProgress,
    commands.ReleaseLeases,
    commands.Tick,
)
"""Commands whose replies promise nothing durable."""

CLIENT_CHANGES = (
    commands.SubmitJob,
    commands.CancelJob,
    commands.DrainNode,
    commands.CordonNode,
    commands.RemoveNode,
)
"""Commands that are refused while nothing can be committed, or space is short. AdoptJob is not among them: what it
adopts is durable already."""

LOUD_EVENTS = ("node_lost", "node_quarantined", "node_set_aside", "rows_lost", "shutdown_lost", "paused")
"""Kinds of events that may need somebody to act; they are logged as warnings."""

RETRY_COMMIT_S = 1.0


def moment() -> Moment:
    """The present moment, by both clocks."""
    return Moment(time.monotonic(), time.time())


class Writer:
    """Owns the core. Call `submit` on the event loop's thread only."""

    def __init__(
        self,
        core: Core,
        committer: Committer,
        carry_out: Callable[[list[Effect]], None],
        *,
        on_fatal: Callable[[BaseException], None],
        clock: ClockWatch | None = None,
    ) -> None:
        """`carry_out` takes effects in order; it must not raise or block. `on_fatal` must end the process. `clock`: for
        a master that serves.
        """
        self.core = core
        self.read_only_reason = ""
        self._committer = committer
        self._carry_out = carry_out
        self._clock = clock or ClockWatch()
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "committer")
        self._closed = False
        self._postponed = Condition(logging.ERROR, "nothing can be acknowledged at the moment", "writing again")
        self._short = Condition(
            logging.ERROR,
            "the disk is full: current work is finished, and new work is refused",
            "the disk has space again: new work is accepted",
        )
        # While nothing may begin, there may be nothing to commit either: then only ticks notice that there is room
        # again.
        self._ticker = Ticker(core, self.submit, moment, lambda: bool(committer.short_of_space))
        self._arrived: list[tuple[Command, asyncio.Future[Any]]] = []
        self._replies: list[tuple[asyncio.Future[Any], Any]] = []
        self._owed: list[Effect] = []
        self._in_flight: asyncio.Future[None] | None = None
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()

    @property
    def refusal(self) -> str:
        """Why clients cannot make changes now, and what to do; empty if they can."""
        return self.read_only_reason or self._committer.short_of_space

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Queue a command. The future gets its reply when the reply may leave, or raises CommandFailed: a bug in the
        core."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.refusal and isinstance(command, CLIENT_CHANGES):
            future.set_result(Refused("STORAGE_FULL", self.refusal))
            return future
        if not self._arrived:
            self._loop.call_soon(self._handle_group)
        self._arrived.append((command, future))
        return future

    def start(self) -> None:
        """Carry out the effects that the core owes after a recovery, and start ticking."""
        if (set_back := self._clock.begin()) is not None:
            self.core.handle(set_back, moment())
        self._owed.extend(self.core.take_effects())
        self._idle.clear()
        self._commit_if_idle()
        self._ticker.after([commands.Tick()])

    async def drain(self) -> None:
        """Wait until everything submitted is durable and answered."""
        while self._arrived or not self._idle.is_set():
            await asyncio.sleep(0)
            await self._idle.wait()

    async def close(self) -> None:
        """Finish the commit under way, and handle nothing more.

        Streams and calls that end with the server may still submit; their futures are cancelled.
        """
        self._closed = True
        self._ticker.close()
        self._clock.end()
        await self._loop.run_in_executor(None, self._thread.shutdown)

    def _handle_group(self) -> None:
        group, self._arrived = self._arrived, []
        if self._closed:
            for _, future in group:
                future.cancel()
            return
        now = moment()
        if (set_back := self._clock.look(now)) is not None:
            self.core.handle(set_back, now)
        for command, future in group:
            try:
                reply = self.core.handle(command, now)
            except Exception as error:
                reply = self._contain(command, error, now)
                if reply is commands.UNANSWERED:
                    if not future.done():
                        future.set_exception(CommandFailed(f"{type(command).__name__} raised {_cause_of(error)!r}"))
                    continue
            if isinstance(command, VOLATILE):
                if not future.done():
                    future.set_result(reply)
            else:
                self._replies.append((future, reply))
        self._pick(now)
        at_once: list[Effect] = []
        for effect in self.core.take_effects():
            (self._owed if type(effect) in AFTER_COMMIT else at_once).append(effect)
        if at_once:
            self._carry_out(at_once)
        if self._committer.short_of_space and any(isinstance(command, commands.Tick) for command, _ in group):
            taking = self._loop.run_in_executor(self._thread, self._committer.take_reserve)
            taking.add_done_callback(lambda _: self._tell_space())
        self._idle.clear()
        self._commit_if_idle()
        self._ticker.after(command for command, _ in group)

    def _pick(self, now: Moment) -> None:
        """Hand out leases. If that raises for a job, the job is paused, and the others get their leases."""
        try:
            self.core.pick(now)
        except Exception as error:
            if not isinstance(error, commands.StepsRaised):
                # Results of leases are still accepted. A restart rebuilds the queues.
                _report(error, "handing out leases raised, and no job can be blamed: restart the master")
                return
            for step_id, at_step in error.errors.items():
                _report(at_step, "handing out leases raised: please report this")
                self._pause(step_id, f"handing out its mini-batches raised {at_step!r}", now)

    def _contain(self, command: Command, error: Exception, now: Moment) -> object:
        """Contain a command that raised: log it, pause the jobs for which it raised, and continue. Return its reply."""
        reply: object = commands.UNANSWERED
        errors: Mapping[StepId, Exception] = {getattr(command, "step_id", StepId(0)): error}
        if isinstance(error, commands.StepsRaised):
            errors, reply = error.errors, error.reply
        for step_id, at_step in errors.items():
            step = self.core.state.steps.get(step_id)
            paused = step is not None and self.core.state.jobs[step.job_key].state == JobState.PAUSED
            if paused and isinstance(command, commands.Tick):
                continue  # already reported, and each tick raises it
            _report(
                at_step,
                "a command raised inside the core: please report this",
                command=type(command).__name__,
                content=repr(command)[:4000],
            )
            self._pause(step_id, f"{type(command).__name__} raised {at_step!r}", now)
        return reply

    def _pause(self, step_id: StepId, what: str, now: Moment) -> None:
        """Pause a job whose state a bug may have left wrong."""
        step = self.core.state.steps.get(step_id)
        if step is not None:
            self.core.handle(commands.PauseJob(step.job_key, f"{what} in the master"), now)

    def _commit_if_idle(self) -> None:
        if self._in_flight is not None:
            return
        dirty = self.core.take_dirty()
        replies, self._replies = self._replies, []
        owed, self._owed = self._owed, []
        if not dirty:
            self._release(replies, owed)
            self._idle.set()
            return
        self._commit(dirty, replies, owed)

    def _commit(self, dirty: Dirty, replies: list[tuple[asyncio.Future[Any], Any]], owed: list[Effect]) -> None:
        if self._closed:
            for future, _ in replies:
                future.cancel()
            return
        self._in_flight = self._loop.run_in_executor(self._thread, self._committer.commit, dirty)
        self._in_flight.add_done_callback(lambda done: self._after_commit(done, dirty, replies, owed))

    def _after_commit(
        self,
        done: asyncio.Future[None],
        dirty: Dirty,
        replies: list[tuple[asyncio.Future[Any], Any]],
        owed: list[Effect],
    ) -> None:
        error = done.exception()
        if isinstance(error, CommitPostponed):
            self.read_only_reason = str(error)
            self._postponed.goes_on(reason=str(error))
            self._tell_space()
            self._loop.call_later(RETRY_COMMIT_S, self._commit, dirty, replies, owed)
            return
        if error is not None:
            self._on_fatal(error)
            return
        self.read_only_reason = ""
        self._postponed.is_over()
        self._tell_space()
        self._in_flight = None
        self._tell(dirty)
        self._release(replies, owed)
        self._commit_if_idle()

    def _tell_space(self) -> None:
        if self._committer.short_of_space:
            self._short.goes_on(reason=self._committer.short_of_space)
        elif not self.read_only_reason:
            self._short.is_over()

    def _tell(self, dirty: Dirty) -> None:
        """Log what happened to nodes and jobs, once it is durable."""
        for event in dirty.events:
            job = self.core.state.jobs.get(event.job_key) if event.job_key is not None else None
            about = {"job": job.job_id} if job is not None else {}
            level = logging.WARNING if event.kind in LOUD_EVENTS else logging.INFO
            what = ("job " if event.job_key is not None else "") + event.kind.replace("_", " ")
            say(level, what, **about, message=event.message)

    def _release(self, replies: list[tuple[asyncio.Future[Any], Any]], owed: list[Effect]) -> None:
        for future, reply in replies:
            if not future.done():
                future.set_result(reply)
        if replies:
            reach("writer.replied")
        if owed:
            self._carry_out(owed)


def _cause_of(error: Exception) -> Exception:
    return next(iter(error.errors.values())) if isinstance(error, commands.StepsRaised) else error


def _report(error: Exception, what: str, **facts: str) -> None:
    say(logging.ERROR, what, **facts, traceback="".join(traceback.format_exception(error)))
