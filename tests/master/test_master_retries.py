"""RetryJob and ExplainJob: what is accepted, what is refused, and that a repeated call does no harm."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from master_bench import CODE_DIGEST, DEADLINE_S, MasterBench, drive
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import job_pb2
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.spec import EffectiveJob
from windrow_master.core import commands
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.records import Snapshot
from windrow_master.store.records import ReopenedJob
from windrow_master.store.sqlite.store import SqliteStore


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """The error of a call that must be refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def failed(bench: MasterBench) -> str:
    """A job that was divided into three mini-batches, and then failed."""
    job_id = await bench.submitted()
    step_id = StepId(1)
    records = b"".join(commands_record(number) for number in range(3))
    reader = json.dumps({"kind": "files", "root": "/"}).encode()
    assert await bench.writer.submit(commands.PlanGroup(step_id, None, b'{"done": true}', 0, records, True, reader))
    await bench.writer.submit(commands.FailStep(step_id, "no more"))
    return job_id


def commands_record(number: int) -> bytes:
    from windrow_master.core.records import PLAN_RECORD

    return PLAN_RECORD.pack(number, 1, 0, 1, 0)


def changed(bench: MasterBench, **changes: Any) -> bytes:
    """The document of the submitted job with other values in its step."""
    job = EffectiveJob.from_json(bench.request("x").document)
    return job._replace(steps=(job.steps[0]._replace(**changes),)).to_json().encode()


def test_a_job_that_has_ended_is_at_work_again_and_a_repeated_call_is_answered_as_the_first(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        request = pb.RetryJobRequest(job_id=job_id, generation=1)
        first = (await bench.jobs.RetryJob(request)).job
        assert (first.state, first.generation) == (job_pb2.JOB_STATE_RUNNING, 2)
        assert (first.steps[0].mini_batches.total, first.steps[0].mini_batches.queued) == (3, 3)
        again = (await bench.jobs.RetryJob(request)).job
        assert (again.state, again.generation) == (job_pb2.JOB_STATE_RUNNING, 2)
        error = await refusal(bench.jobs.RetryJob(pb.RetryJobRequest(job_id=job_id, generation=2)))
        assert read_failure(error).reason == "JOB_NOT_ENDED"

    drive(tmp_path, scenario)


def test_calls_at_the_same_time_open_it_once(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        request = pb.RetryJobRequest(job_id=job_id, generation=1)
        answers = await asyncio.gather(*(bench.jobs.RetryJob(request) for _ in range(4)), return_exceptions=True)
        reasons = {read_failure(answer).reason for answer in answers if isinstance(answer, grpc.aio.AioRpcError)}
        assert reasons <= {"JOB_NOT_ENDED"}
        assert bench.core.state.jobs[bench.core.state.job_keys[job_id]].generation == 2

    drive(tmp_path, scenario)


@pytest.mark.parametrize("meanwhile", ["the caller hangs up", "the disk is full"])
def test_a_job_that_is_open_again_in_the_store_is_at_work_whatever_happens_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    reopen = SqliteStore.reopen

    def slow(store: SqliteStore, job: ReopenedJob) -> Snapshot:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return reopen(store, job)

    monkeypatch.setattr(SqliteStore, "reopen", slow)

    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        with bench.watchers.watch(JobKey(1)) as watch:
            retry = asyncio.create_task(bench.retries.retry(job_id, 1, b""))
            await asyncio.to_thread(begun.wait, DEADLINE_S)
            watch.changed.clear()
            if meanwhile == "the disk is full":
                bench.committer.short_of_space = "The disk is full."
            else:
                retry.cancel()
            go_on.set()
            (answer,) = await asyncio.gather(retry, return_exceptions=True)
            assert answer == JobKey(1) or retry.cancelled()
            await watch.changed.wait()
        assert bench.core.state.jobs[JobKey(1)].generation == 2

    drive(tmp_path, scenario)


def test_what_cannot_be_retried_is_refused(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        error = await refusal(bench.jobs.RetryJob(pb.RetryJobRequest(job_id="none", generation=1)))
        assert read_failure(error).reason == "JOB_UNKNOWN"
        job_id = await bench.submitted()
        error = await refusal(bench.jobs.RetryJob(pb.RetryJobRequest(job_id=job_id, generation=1)))
        assert read_failure(error).reason == "JOB_NOT_ENDED"

    drive(tmp_path, scenario)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mini_batch_size": 7}, "mini_batch_size differ"),
        ({"append_row_to": None}, "append_row_to differ"),
        ({"resume_from": "another"}, "resume_from differ"),
        ({"name": "another"}, "different steps"),
    ],
)
def test_a_repaired_job_whose_rows_would_not_go_together_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        request = pb.RetryJobRequest(job_id=job_id, generation=1, document=changed(bench, **changes))
        error = await refusal(bench.jobs.RetryJob(request))
        assert read_failure(error).reason == "JOB_INVALID"
        assert said in str(error.details())
        assert (await bench.jobs.GetJob(pb.GetJobRequest(job_id=job_id))).job.state == job_pb2.JOB_STATE_FAILED

    drive(tmp_path, scenario)


def test_repaired_code_limits_and_arguments_are_the_jobs_from_now_on(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        unknown = changed(bench, code_digest="c" * 64)
        error = await refusal(bench.jobs.RetryJob(pb.RetryJobRequest(job_id=job_id, generation=1, document=unknown)))
        assert read_failure(error).reason == "ARTIFACT_MISSING"
        (bench.state / "artifacts" / ("c" * 64)).write_bytes(b"")
        repaired = changed(bench, code_digest="c" * 64, max_retries=9, arguments=("--x",))
        await bench.jobs.RetryJob(pb.RetryJobRequest(job_id=job_id, generation=1, document=repaired))
        answer = await bench.jobs.GetJob(pb.GetJobRequest(job_id=job_id))
        step = EffectiveJob.from_json(answer.document).steps[0]
        assert (step.code_digest, step.max_retries, step.arguments) == ("c" * 64, 9, ("--x",))
        assert answer.job.run_digest == EffectiveJob.from_json(repaired).run_digest
        assert bench.core.state.steps[StepId(1)].settings.max_retries == 9
        assert CODE_DIGEST != "c" * 64

    drive(tmp_path, scenario)


def test_why_a_job_stands_still_is_told_and_of_one_that_ended_how(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await failed(bench)
        answer = await bench.jobs.ExplainJob(pb.ExplainJobRequest(job_id=job_id))
        assert [(reason.code, reason.message) for reason in answer.reasons] == [("FAILED", "no more")]
        other = await bench.submitted("another")
        answer = await bench.jobs.ExplainJob(pb.ExplainJobRequest(job_id=other))
        assert [reason.code for reason in answer.reasons] == ["NO_NODE"]
        error = await refusal(bench.jobs.ExplainJob(pb.ExplainJobRequest(job_id="none")))
        assert read_failure(error).reason == "JOB_UNKNOWN"

    drive(tmp_path, scenario)
