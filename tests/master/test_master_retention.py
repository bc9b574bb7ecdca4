"""DeleteJob and PruneJobs: what is refused and why, what is told before, and a year of a nightly job."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from master_bench import CODE_DIGEST, MasterBench, drive
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import asset_service_pb2
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.spec import EffectiveJob
from windrow_master.core import commands
from windrow_master.core.commands import Moment
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import PLAN_RECORD
from windrow_master.core.states import JobState
from windrow_master.files.disk_use import bytes_below, kinds
from windrow_master.retention.choosing import Rule, chosen
from windrow_master.retention.job_uses import JobUse
from windrow_master.retention.patient_clock import LEAP, PatientClock
from windrow_master.reuse.notes import ReuseNote, ReuseNotes
from windrow_master.shell import writer as writer_module
from windrow_master.step_paths import StepPaths
from windrow_master.store.records import AssetRow

DAY_S = 86_400.0


async def refusal(call: Any) -> tuple[str, str]:
    """The reason and message of a call that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    failure = read_failure(caught.value)
    return failure.reason, failure.message


async def told(answers: AsyncIterator[pb.PruneJobsResponse]) -> list[pb.JobDeletion]:
    return [answer.deletion async for answer in answers]


async def ticks() -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(0.01)


class Jobs:
    """Submits jobs, and ends them."""

    def __init__(self, bench: MasterBench) -> None:
        self._bench = bench
        self._job = EffectiveJob.from_json(bench.request("x").document)
        self.count = 0

    async def begun(
        self, *, name: str = "", batches: int = 3, divided: bool = True, **changes: Any
    ) -> tuple[str, StepId]:
        """A job with planned mini-batches. `divided`: they are all. `changes`: of its step."""
        bench = self._bench
        self.count += 1
        job = self._job
        job = job._replace(name=name or f"job-{self.count}", steps=(job.steps[0]._replace(**changes),))
        request = pb.SubmitJobRequest(request_id=f"r{self.count}", document=job.to_json().encode())
        job_id = (await bench.jobs.SubmitJob(request)).job.job_id
        step_id = bench.core.state.jobs[bench.core.state.job_keys[job_id]].steps[0].step_id
        records = b"".join(PLAN_RECORD.pack(number, 1, 0, 1, 0) for number in range(batches))
        reader = json.dumps({"kind": "files", "root": "/"}).encode()
        checkpoint = json.dumps({"done": divided}).encode()
        assert await bench.writer.submit(commands.PlanGroup(step_id, None, checkpoint, 0, records, divided, reader))
        return job_id, step_id

    async def failed(self, **changes: Any) -> str:
        job_id, step_id = await self.begun(**changes)
        await self._bench.writer.submit(commands.FailStep(step_id, "no more"))
        return job_id

    async def reused(self, made_by: str) -> str:
        """A job that completes, since its step is reused from another one."""
        bench = self._bench
        self.count += 1
        job = self._job
        job = job._replace(name=f"job-{self.count}", steps=(job.steps[0]._replace(reuse=True),))
        request = pb.SubmitJobRequest(request_id=f"r{self.count}", document=job.to_json().encode())
        job_id = (await bench.jobs.SubmitJob(request)).job.job_id
        step = bench.core.state.jobs[bench.core.state.job_keys[job_id]].steps[0]
        paths = StepPaths({}, {"rows": "/elsewhere"}, None, reused_from=made_by)
        await bench.writer.submit(commands.ReuseStep(step.step_id, paths.to_json(), "Reused."))
        return job_id


async def names(bench: MasterBench) -> list[str]:
    return [job.job_id for job in (await bench.jobs.ListJobs(pb.ListJobsRequest())).jobs]


def test_only_an_ended_job_is_deleted_and_then_nobody_finds_it(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        jobs = Jobs(bench)
        job_id, step_id = await jobs.begun()
        reason, message = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id, force=True)))
        assert (reason, "is running" in message) == ("JOB_NOT_ENDED", True)
        await bench.writer.submit(commands.FailStep(step_id, "no more"))
        log = bench.files.logs(job_id) / "log.txt"
        log.parent.mkdir(parents=True)
        log.write_text("x")
        kept = bench.files.outputs / job_id / "rows" / "rows.txt"
        kept.parent.mkdir(parents=True)
        kept.write_text("x")
        answer = (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id))).deletion
        assert answer.deleted and answer.bytes > 0
        assert await refusal(bench.jobs.GetJob(pb.GetJobRequest(job_id=job_id)))
        reason, _ = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id)))
        assert reason == "JOB_UNKNOWN"
        assert not log.exists() and not kept.exists()
        # The name is free again, and a new job has it.
        again, _ = await jobs.begun(name=job_id)
        assert again == job_id
        assert await names(bench) == [job_id]

    drive(tmp_path, scenario, embedded=True)


def test_a_dry_run_tells_what_is_lost_and_changes_nothing(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await Jobs(bench).failed()
        answer = (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id, dry_run=True))).deletion
        assert not answer.deleted and not answer.refusal
        assert any("retry" in loss for loss in answer.losses)
        assert any("job rows" in loss and "mb show" in loss for loss in answer.losses)
        assert await names(bench) == [job_id]
        assert bench.core.state.job_keys

    drive(tmp_path, scenario)


def test_what_others_need_stays_until_it_is_forced(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        jobs = Jobs(bench)
        maker, taken = await jobs.failed(), await jobs.failed()
        reuser = await jobs.reused(maker)
        taker, _ = await jobs.begun(resume_from=taken, divided=False)
        reason, message = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=maker)))
        assert reason == "JOB_NEEDED" and reuser in message and "--force" in message
        # Somebody reads it now: nothing overrides that.
        reason, message = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=taken, force=True)))
        assert reason == "JOB_NEEDED" and taker in message and "--force" not in message
        await bench.jobs.CancelJob(pb.CancelJobRequest(job_id=taker))
        reason, message = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=taken)))
        assert reason == "JOB_NEEDED" and "retry" in message.lower()
        assert (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=maker, force=True))).deletion.deleted
        assert (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=taken, force=True))).deletion.deleted
        assert await names(bench) == [taker, reuser]
        # One that has taken over all that there is does not need it: that is said.
        taken = await jobs.failed()
        await jobs.failed(resume_from=taken)
        answer = (await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=taken))).deletion
        assert answer.deleted and any("by which code" in loss for loss in answer.losses)

    drive(tmp_path, scenario)


def test_a_registered_output_keeps_its_job(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await Jobs(bench).failed()
        place = str(bench.files.outputs / job_id / "rows")
        kind = int(asset_service_pb2.ASSET_KIND_DATA)
        bench.store.record_asset(AssetRow(kind, "flowers", "7", "uri_folder", place, False, "", b"{}", 1.0))
        reason, message = await refusal(bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id)))
        assert reason == "JOB_NEEDED" and "flowers:7" in message

    drive(tmp_path, scenario, embedded=True)


def test_pruning_goes_by_age_and_number_and_names_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    day = 0
    monkeypatch.setattr(writer_module, "moment", lambda: Moment(time.monotonic(), time.time() - (100 - day) * DAY_S))

    async def scenario(bench: MasterBench) -> None:
        nonlocal day
        jobs, made = Jobs(bench), []
        for day in range(0, 100, 10):  # noqa: B007  read by the clock
            made.append(await jobs.failed())
        running, _ = await jobs.begun()
        reuser = await jobs.reused(made[2])
        reason, _ = await refusal(anext(aiter(bench.jobs.PruneJobs(pb.PruneJobsRequest()))))
        assert reason == "REQUEST_INVALID"
        rule = {"older_than_s": 45 * DAY_S, "keep_last": 7}
        would = await told(bench.jobs.PruneJobs(pb.PruneJobsRequest(**rule, dry_run=True)))
        # The newest first. Seven of the ended ones are spared: the one that was reused, and six others.
        assert [one.job_id for one in would] == [made[3], made[2], made[1], made[0]]
        assert [one.job_id for one in would if one.refusal] == [made[2]]
        assert len(await names(bench)) == 12
        did = await told(bench.jobs.PruneJobs(pb.PruneJobsRequest(**rule)))
        assert [one.job_id for one in did if one.deleted] == [made[3], made[1], made[0]]
        assert await names(bench) == [reuser, running, *reversed(made[4:]), made[2]]
        # Both go in one call: the one that reused goes first.
        did = await told(bench.jobs.PruneJobs(pb.PruneJobsRequest(keep_last=0)))
        assert all(one.deleted for one in did)
        assert await names(bench) == [running]

    drive(tmp_path, scenario)


def test_a_retry_and_a_deletion_at_once_leave_one_whole_job_or_none(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        jobs = Jobs(bench)
        for _ in range(8):
            job_id = await jobs.failed()
            retry = bench.jobs.RetryJob(pb.RetryJobRequest(job_id=job_id, generation=1))
            deletion = bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=job_id))
            answers = await asyncio.gather(retry, deletion, return_exceptions=True)
            assert sum(isinstance(answer, BaseException) for answer in answers) == 1, answers
            is_there = job_id in await names(bench)
            assert is_there == isinstance(answers[1], BaseException)
            if is_there:
                await bench.jobs.CancelJob(pb.CancelJobRequest(job_id=job_id))

    drive(tmp_path, scenario)


def test_what_no_job_needs_is_collected_and_the_rest_stays(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        jobs = Jobs(bench)
        needed = await jobs.failed()
        gone = await jobs.failed(name="gone")
        artifacts = bench.files.artifacts
        published, unused, fresh = "b" * 64, "c" * 64, "d" * 64
        for digest in (published, unused, fresh):
            (artifacts / digest).write_bytes(b"x" * 5000)
        kind = int(asset_service_pb2.ASSET_KIND_PIPELINE)
        bench.store.record_asset(AssetRow(kind, "nightly", "1", "", published, True, "", b"{}", 1.0))
        notes = ReuseNotes(bench.files.made)
        notes.add("k1", ReuseNote(needed, 1, {}, {}, "{}"))
        notes.add("k1", ReuseNote(gone, 2, {}, {}, "{}"))
        notes.add("k2", ReuseNote(gone, 2, {}, {}, "{}"))
        broken_off = bench.files.job("broken-off") / "run.json"
        broken_off.parent.mkdir(parents=True)
        broken_off.write_text("{}")
        old = time.time() - 2 * DAY_S
        for path in (artifacts / published, artifacts / unused, artifacts / CODE_DIGEST, broken_off.parent):
            os.utime(path, (old, old))
        await bench.jobs.DeleteJob(pb.DeleteJobRequest(job_id=gone))
        await bench.keeper.clear(rests=False)
        assert sorted(path.name for path in artifacts.iterdir()) == sorted([CODE_DIGEST, published, fresh])
        assert [note.job_id for note in notes.find("k1")] == [needed]
        assert not (bench.files.made / "k2.json").exists()
        assert not broken_off.parent.exists()

    drive(tmp_path, scenario)


def test_a_master_that_retains_deletes_by_itself(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        jobs = Jobs(bench)
        made = [await jobs.failed() for _ in range(3)]
        keeping = asyncio.create_task(bench.keeper.keep(Rule(None, 1), first_s=0.0))
        async with asyncio.timeout(60):
            async for _ in ticks():
                if await names(bench) == made[2:] and not any(bench.files.removed_found()):
                    break
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    drive(tmp_path, scenario)


def test_an_archive_that_was_asked_for_lately_stays(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        digest = "c" * 64
        path = bench.files.artifacts / digest
        path.write_bytes(b"x")
        os.utime(path, (1.0, 1.0))
        assert bench.artifacts.length(digest) == (1, True)
        await bench.keeper.clear(rests=False)
        assert path.exists()

    drive(tmp_path, scenario)


def test_a_year_of_a_nightly_job_leaves_the_state_folder_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """365 nights with a master that retains 30 days: results of the night before are taken over, the code changes each
    week, and a note for reuse is left."""
    now = time.time() - 400 * DAY_S
    monkeypatch.setattr(writer_module, "moment", lambda: Moment(time.monotonic(), now))
    monkeypatch.setattr(time, "time", lambda: now)
    used: list[int] = []
    database: list[int] = []

    async def scenario(bench: MasterBench) -> None:
        nonlocal now
        jobs, before, notes = Jobs(bench), "", ReuseNotes(bench.files.made)
        for night in range(365):
            now += DAY_S
            code = f"{night // 7:064x}"
            archive = bench.files.artifacts / code
            if not archive.exists():
                archive.write_bytes(os.urandom(20_000))
                os.utime(archive, (now, now))
            job_id, step_id = await jobs.begun(
                name=f"nightly-{night}", batches=40, code_digest=code, resume_from=before or None
            )
            step = bench.files.step(job_id, step_id)
            for path in (step.segments / "1-1.rows", step.recipes, bench.files.logs(job_id) / "score" / "log.txt"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(os.urandom(10_000))
            notes.add(f"key-{night}", ReuseNote(job_id, step_id, {}, {}, "{}"))
            await bench.jobs.CancelJob(pb.CancelJobRequest(job_id=job_id))
            before = job_id
            if night % 5 == 4:
                await bench.keeper.tidy(Rule(30 * DAY_S, None), rests=False)
            if night % 10 == 9:
                # SQLite's log grows to its limit once; emptied, it shows what the database itself takes.
                with sqlite3.connect(bench.files.database) as log:
                    log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                used.append(bytes_below(bench.state))
                database.append(bench.files.database.stat().st_size)
        assert len(await names(bench)) == 31
        for folder in (bench.files.jobs, bench.files.made):
            assert len(list(folder.iterdir())) == 31
        assert len(list(bench.files.artifacts.iterdir())) <= 9
        assert list(bench.files.removed.iterdir()) == []
        with sqlite3.connect(f"file:{bench.files.database}?mode=ro", uri=True) as rows:
            assert rows.execute("SELECT count(*) FROM mini_batch").fetchone() == (31 * 40,)
            assert rows.execute("SELECT count(DISTINCT job_key) FROM event").fetchone() == (31,)

    drive(tmp_path, scenario)
    assert len(used) == 36
    assert max(used[6:]) <= 1.05 * max(used[3:6]), used
    assert max(database[6:]) <= 1.05 * max(database[3:6]), database


def test_a_state_folder_says_what_takes_how_much(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id, step_id = await Jobs(bench).begun()
        rows = bench.files.step(job_id, step_id).segments / "1-1.rows"
        rows.parent.mkdir(parents=True)
        rows.write_bytes(bytes(100_000))
        log = bench.files.logs(job_id) / "log.txt"
        log.parent.mkdir(parents=True)
        log.write_bytes(bytes(300_000))
        found = kinds(bench.files)
        assert found["rows of jobs"] >= 100_000 and found["logs and reports of jobs"] >= 300_000
        assert found["recipes and listings of jobs"] < 100_000
        assert abs(sum(found.values()) - bytes_below(bench.state)) < 50_000

    drive(tmp_path, scenario)


def ended(key: int, end_time: float, nth: int) -> JobUse:
    """A job that has ended, as far as its age is concerned."""
    nothing: frozenset[str] = frozenset()
    return JobUse(
        JobKey(key), f"job-{key}", "", JobState.COMPLETED, 1, 1, end_time, nth, "", (), (), nothing, nothing, {}, (),
        {}, nothing, nothing, (), False,
    )  # fmt: skip


def test_a_clock_that_was_set_back_makes_no_job_older_than_those_before_it() -> None:
    now = 100 * DAY_S
    # The third ended last, after the clock was set back by 40 days; the fourth while it was a year ahead.
    jobs = [ended(1, now - 50 * DAY_S, 1), ended(2, now - 3 * DAY_S, 2), ended(4, now + 365 * DAY_S, 3)]
    jobs.append(ended(3, now - 40 * DAY_S, 4))

    def going(rule: Rule) -> list[str]:
        return [job.job_id for job in chosen(jobs, rule, now)]

    assert going(Rule(30 * DAY_S, None)) == ["job-1"]
    assert going(Rule(None, 2)) == ["job-2", "job-1"], "the two that ended last stay"


def test_deletions_do_not_believe_a_leap_of_the_clock_at_once(caplog: pytest.LogCaptureFixture) -> None:
    wall, monotonic = 1_000_000.0, 50.0
    clock = PatientClock(lambda: wall, lambda: monotonic)

    def passes(seconds: float, leap: float = 0.0) -> float:
        """What the clock shows more than at the beginning."""
        nonlocal wall, monotonic
        wall, monotonic = wall + seconds + leap, monotonic + seconds
        return clock() - 1_000_000.0

    assert passes(3600.0, leap=5.0) == 3605.0, "it was adjusted"
    assert passes(3600.0, leap=365 * DAY_S) == 7205.0
    assert [passes(3600.0) for _ in range(3)] == [10805.0, 14405.0, 18005.0]
    assert passes(3600.0, leap=-365 * DAY_S) == 21605.0, "it was set right again"
    assert passes(0.0, leap=DAY_S) == 21605.0
    assert passes(DAY_S) == 21605.0 + 2 * DAY_S, "it stays so, and is believed"
    assert passes(0.0, leap=-2 * DAY_S) == 21605.0, "a clock that is set back deletes less"
    assert [record.message for record in caplog.records].count(LEAP) == 2


class Machine:
    """A machine whose clock is set, and that starts again."""

    def __init__(self) -> None:
        self.wall_s, self.up_s, self.starts = 1_000_000.0, 50.0, 1

    def passes(self, seconds: float, leap: float = 0.0) -> None:
        self.wall_s, self.up_s = self.wall_s + seconds + leap, self.up_s + seconds

    def restarts(self, off_s: float) -> None:
        self.wall_s, self.up_s, self.starts = self.wall_s + off_s, 10.0, self.starts + 1

    def clock(self, note: Path) -> PatientClock:
        return PatientClock(lambda: self.wall_s, lambda: self.up_s, note, lambda: (f"start {self.starts}", self.up_s))


def test_deletions_do_not_believe_a_leap_of_the_clock_while_no_master_ran(tmp_path: Path) -> None:
    machine, note = Machine(), tmp_path / "note"
    assert machine.clock(note)() == 1_000_000.0, "the first master believes what it finds"
    machine.passes(3600.0, leap=365 * DAY_S)
    clock = machine.clock(note)
    assert clock() == 1_003_600.0
    machine.passes(3600.0)
    assert machine.clock(note)() == 1_007_200.0, "nor does the one after it"
    machine.passes(3600.0, leap=-365 * DAY_S)
    assert clock() == machine.clock(note)() == 1_010_800.0, "it was set right again"
    machine.passes(3600.0)
    assert machine.clock(note)() == machine.wall_s


def test_deletions_do_not_believe_a_machine_that_starts_in_the_future(tmp_path: Path) -> None:
    machine, note = Machine(), tmp_path / "note"
    machine.clock(note)()
    machine.restarts(365 * DAY_S)
    clock = machine.clock(note)
    machine.passes(3600.0)
    assert clock() == 1_003_600.0
    for _ in range(23):
        machine.passes(3600.0)
        clock()
    assert clock() == machine.wall_s, "it has gone on so for a day"


def test_a_machine_that_is_off_each_night_is_believed_after_a_day_of_work(tmp_path: Path) -> None:
    machine, note = Machine(), tmp_path / "note"
    behind = []
    for _ in range(8):
        clock = machine.clock(note)
        for _ in range(8):
            machine.passes(3600.0)
            clock()
        behind.append((machine.wall_s - clock()) // 3600)
        machine.restarts(16 * 3600.0)
    assert behind == [0, 16, 32, 0, 16, 32, 0, 16]


def test_a_damaged_note_of_the_clock_harms_nothing(tmp_path: Path) -> None:
    machine, note = Machine(), tmp_path / "note"
    for content in (b"", b"{}", b'{"a": 1, "crc32": 5}\n'):
        note.write_bytes(content)
        assert machine.clock(note)() == machine.wall_s
