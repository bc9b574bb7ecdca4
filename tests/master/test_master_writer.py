"""The writer's promises: order of commits, replies only after them, what a full disk and a bug in the core do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from windrow.rpc.v1.work_pb2 import Completion
from windrow_master.core import attempts, commands, scheduling, steps, ticks
from windrow_master.core.core import HANDLERS, Core
from windrow_master.core.effects import Effect, NotifyJob, PrepareStep
from windrow_master.core.ids import JobKey, NodeId, StepId
from windrow_master.core.records import PLAN_RECORD, Dirty
from windrow_master.core.refused import Refused
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import JobState, StepState
from windrow_master.core.transitions import InvariantBroken
from windrow_master.shell.committer import CommitPostponed
from windrow_master.shell.errors import CommandFailed
from windrow_master.shell.writer import Writer

DEADLINE_S = 180.0


class GatedCommitter:
    """Commits only when it is let: each commit waits for a permit, and fails with what it is told to."""

    def __init__(self) -> None:
        self.committed: list[Dirty] = []
        self.begun = threading.Semaphore(0)
        self.permits = threading.Semaphore(0)
        self.errors: list[Exception] = []
        self.short_of_space = ""

    def commit(self, dirty: Dirty) -> None:
        self.begun.release()
        assert self.permits.acquire(timeout=DEADLINE_S)
        if self.errors:
            raise self.errors.pop(0)
        self.committed.append(dirty)


def submit_job(name: str) -> commands.SubmitJob:
    return commands.SubmitJob(name, f"request-{name}", b"{}", "digest", (StepSettings("score"),))


class Bench:
    """A writer over a gated committer."""

    def __init__(self) -> None:
        self.committer = GatedCommitter()
        self.carried: list[Effect] = []
        self.fatal: list[BaseException] = []
        self.ended = asyncio.Event()
        self.writer = Writer(Core(1, 1), self.committer, self.carried.extend, on_fatal=self.end)

    def end(self, error: BaseException) -> None:
        """What the service does: no more work."""
        self.fatal.append(error)
        self.ended.set()

    async def begun(self) -> None:
        """Wait until a commit is on its way."""
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, lambda: self.committer.begun.acquire(timeout=DEADLINE_S))


def drive(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        try:
            await asyncio.wait_for(scenario(bench), DEADLINE_S)
        finally:
            for _ in range(100):
                bench.committer.permits.release()
            await bench.writer.close()

    asyncio.run(main())


def test_a_reply_and_its_effects_wait_for_the_commit() -> None:
    async def scenario(bench: Bench) -> None:
        reply = bench.writer.submit(submit_job("a"))
        await bench.begun()
        assert not reply.done() and not bench.carried
        bench.committer.permits.release()
        assert await reply == 1
        assert {type(effect) for effect in bench.carried} == {NotifyJob, PrepareStep}

    drive(scenario)


def test_groups_that_arrive_during_a_commit_share_the_next_one() -> None:
    async def scenario(bench: Bench) -> None:
        first = bench.writer.submit(submit_job("a"))
        await bench.begun()
        others = [bench.writer.submit(submit_job(name)) for name in "bcd"]
        await asyncio.sleep(0)
        bench.committer.permits.release()
        await first
        assert not any(reply.done() for reply in others)
        bench.committer.permits.release()
        await asyncio.gather(*others)
        assert [[job.job_id for job in dirty.jobs] for dirty in bench.committer.committed] == [["a"], ["b", "c", "d"]]

    drive(scenario)


def test_what_promises_nothing_durable_is_answered_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        bench.writer.submit(submit_job("a"))
        await bench.begun()
        beat = bench.writer.submit(commands.HeartbeatNode("n", "i", 0, 0))  # type: ignore[arg-type]
        assert isinstance(await beat, Refused)
        assert not bench.committer.committed

    drive(scenario)


def test_a_full_disk_acknowledges_nothing_refuses_changes_and_goes_on_when_space_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windrow_master.shell.writer.RETRY_COMMIT_S", 0.01)

    async def scenario(bench: Bench) -> None:
        bench.committer.errors = [CommitPostponed("STORAGE_FULL: no space on /state")] * 2
        reply = bench.writer.submit(submit_job("a"))
        for _ in range(2):
            await bench.begun()
            bench.committer.permits.release()
        await bench.begun()
        assert "no space" in bench.writer.read_only_reason
        refused: Any = await bench.writer.submit(submit_job("b"))
        assert refused.reason == "STORAGE_FULL"
        assert not reply.done()
        bench.committer.permits.release()
        assert await reply == 1
        assert bench.writer.read_only_reason == ""
        assert [job.job_id for dirty in bench.committer.committed for job in dirty.jobs] == ["a"]

    drive(scenario)


def test_any_other_commit_error_is_fatal_and_answers_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        bench.committer.errors = [RuntimeError("database disk image is malformed")]
        reply = bench.writer.submit(submit_job("a"))
        await bench.begun()
        bench.committer.permits.release()
        await bench.ended.wait()
        assert not reply.done() and "malformed" in str(bench.fatal[0])

    drive(scenario)


def test_what_comes_while_the_master_ends_is_neither_handled_nor_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Streams end with the server, and the end of each is a command."""

    async def scenario(bench: Bench) -> None:
        closing = asyncio.ensure_future(bench.writer.close())
        queued = bench.writer.submit(submit_job("a"))
        await asyncio.sleep(0)
        late = bench.writer.submit(submit_job("b"))
        await closing
        await asyncio.wait([queued, late], timeout=DEADLINE_S)
        assert queued.cancelled() and late.cancelled()
        assert not bench.committer.committed and not bench.carried

    drive(scenario)
    assert not caplog.records, "asyncio logs what a callback raises"


def test_a_commit_under_way_when_the_master_ends_is_the_last_one() -> None:
    async def scenario(bench: Bench) -> None:
        first = bench.writer.submit(submit_job("a"))
        await bench.begun()
        second = bench.writer.submit(submit_job("b"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(bench.writer.close())
        await asyncio.sleep(0)
        bench.committer.permits.release()
        await closing
        await asyncio.wait([first, second], timeout=DEADLINE_S)
        assert first.result() == JobKey(1) and second.cancelled()
        assert len(bench.committer.committed) == 1

    drive(scenario)


def test_a_command_that_raises_is_answered_pauses_its_job_and_the_writer_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(HANDLERS, commands.FinishStep, broken)

    async def scenario(bench: Bench) -> None:
        for _ in range(3):
            bench.committer.permits.release()
        await bench.writer.submit(submit_job("a"))
        with pytest.raises(CommandFailed, match="planted"):
            await bench.writer.submit(commands.FinishStep(StepId(1), 1))
        assert await bench.writer.submit(submit_job("b")) == 2
        assert bench.writer.core.state.jobs[1].state == JobState.PAUSED  # type: ignore[index]

    drive(scenario)


def test_what_raises_while_leases_are_handed_out_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    async def scenario(bench: Bench) -> None:
        monkeypatch.setattr(bench.writer.core, "pick", broken)
        bench.committer.permits.release()
        assert await bench.writer.submit(submit_job("a")) == 1

    drive(scenario)


NODE = NodeId("n1")


async def two_jobs(bench: Bench) -> None:
    """Two jobs of one mini-batch each, and a node with a slot for both."""
    submit = bench.writer.submit
    await submit(commands.RegisterNode(NODE, "i", "", b'{"slots": 2}', b"{}"))
    await submit(commands.OpenWork(NODE, "i", 1, (), ()))
    for number, name in enumerate("ab", 1):
        await submit(submit_job(name))
        plan = PLAN_RECORD.pack(0, 1, 0, 1, 0)
        end = b'{"mini_batches": 1, "items": 1, "done": true}'
        await submit(commands.PlanGroup(StepId(number), None, end, 0, plan, True, b"{}"))
    await submit(commands.SetCapacity(NODE, 1, ((StepId(1), 1, 1), (StepId(2), 1, 1))))


def test_results_that_raise_pause_their_own_job_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = attempts._complete_attempt

    def broken(state: Any, node: Any, job: Any, *more: Any) -> None:
        if job.job_key == 1:
            raise ZeroDivisionError("planted")
        complete(state, node, job, *more)

    monkeypatch.setattr(attempts, "_complete_attempt", broken)

    async def scenario(bench: Bench) -> None:
        for _ in range(20):
            bench.committer.permits.release()
        await two_jobs(bench)
        submit, state = bench.writer.submit, bench.writer.core.state
        good, bad = sorted(state.leases.values(), key=lambda lease: -lease.step_id)
        results = [Completion(lease_id=lease.lease_id, item_count=1, result_count=1) for lease in (good, bad)]
        with pytest.raises(CommandFailed, match="planted"):
            await submit(commands.CompleteAttempts(NODE, results))
        assert [state.jobs[JobKey(key)].state for key in (1, 2)] == [JobState.PAUSED, JobState.RUNNING]
        assert state.steps[StepId(2)].state == StepState.CONCATENATING, "the other job goes on"

    drive(scenario)


def test_a_lost_node_costs_the_job_that_raises_its_leases_and_the_caller_gets_its_reply(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    requeue = attempts.requeue

    def broken(state: Any, step: Any, *more: Any) -> None:
        if step.step_id == 1:
            raise ZeroDivisionError("planted")
        requeue(state, step, *more)

    monkeypatch.setattr(attempts, "requeue", broken)

    async def scenario(bench: Bench) -> None:
        for _ in range(20):
            bench.committer.permits.release()
        await two_jobs(bench)
        submit, state = bench.writer.submit, bench.writer.core.state
        await submit(commands.CloseWork(NODE, 1))
        assert await submit(commands.RemoveNode(NODE)) is None
        assert [state.jobs[JobKey(key)].state for key in (1, 2)] == [JobState.PAUSED, JobState.RUNNING]
        assert "RemoveNode raised ZeroDivisionError" in state.jobs[JobKey(1)].message
        assert not state.leases and state.steps[StepId(2)].ready.size == 1
        assert "a command raised inside the core" in caplog.text

    drive(scenario)


def test_what_raises_at_a_paused_job_is_told_but_not_with_each_tick(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    async def scenario(bench: Bench) -> None:
        for _ in range(20):
            bench.committer.permits.release()
        await two_jobs(bench)
        submit, state = bench.writer.submit, bench.writer.core.state
        monkeypatch.setattr(ticks, "fail_if_given_up", broken)
        monkeypatch.setattr(steps, "_end_step", broken)
        told = []
        group: list[commands.Command] = [commands.Tick(), commands.Tick(), commands.CancelJob("a")]
        for command in group:
            caplog.clear()
            reply = await submit(command)
            told.append(caplog.text.count("a command raised inside the core"))
        assert told == [2, 0, 1] and reply == 1
        assert [state.jobs[JobKey(key)].state for key in (1, 2)] == [JobState.CANCELLING, JobState.PAUSED]

    drive(scenario)


def test_a_job_whose_leases_cannot_be_handed_out_is_paused_and_the_others_get_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grant = scheduling._grant

    def broken(state: Any, step: Any, *more: Any) -> Any:
        if step.step_id == 1:
            raise InvariantBroken("planted")
        return grant(state, step, *more)

    monkeypatch.setattr(scheduling, "_grant", broken)

    async def scenario(bench: Bench) -> None:
        for _ in range(20):
            bench.committer.permits.release()
        await two_jobs(bench)
        state = bench.writer.core.state
        assert [state.jobs[JobKey(key)].state for key in (1, 2)] == [JobState.PAUSED, JobState.RUNNING]
        assert "handing out its mini-batches raised InvariantBroken" in state.jobs[JobKey(1)].message
        assert [lease.step_id for lease in state.leases.values()] == [2]

    drive(scenario)
