"""ListMiniBatches, GetMiniBatch and GetReplay: what is stored, what is leased at this moment, a page at a time."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import grpc
import pytest
from master_bench import MasterBench, drive
from windrow.rpc.errors import read_failure
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import mini_batch_pb2, work_pb2
from windrow_master.core import commands
from windrow_master.core.commands import PlanGroup
from windrow_master.core.ids import JobKey, LeaseId, NodeId, StepId
from windrow_master.core.leases import Lease
from windrow_master.core.records import (
    PLAN_RECORD,
    AttemptRow,
    Dirty,
    ItemOutcomeRow,
    JobRow,
    OutcomeRow,
    PlannedRows,
    StepRow,
)
from windrow_master.core.states import AttemptState, Cause, JobState, MiniBatchState, StepState
from windrow_master.files.state_files import StateFiles

JOB_KEY, FIRST, SECOND = JobKey(900), StepId(901), StepId(902)
START_US = 1_700_000_000_000_000
NAMES = [b"in/a\xff", b"in/b", b"in/c"]


def store_job(bench: MasterBench) -> None:
    """An ended job of two steps. Of one: mini-batch 1 was tried twice, 3 failed, 4 lacks a result, 5 is cancelled."""
    prefix = bench.store.lease_prefix << 32
    job = JobRow(
        JOB_KEY, "ended", "", JobState.FAILED, 1, 1, "default", 0, 1, "", b'{"steps": [{}, {}]}', "", b"[]",
        1.0, 2.0,
    )  # fmt: skip
    reader = json.dumps({"kind": "files", "root": "/data"}).encode()
    steps = [
        StepRow(step_id, JOB_KEY, number, name, StepState.FAILED, "", b"{}", reader, None, b"{}", None, 1.0, 2.0)
        for number, (step_id, name) in enumerate([(FIRST, "one"), (SECOND, "two")])
    ]
    recipe = b"\0".join(NAMES)
    folder = StateFiles(bench.state).step("ended", FIRST).folder
    folder.mkdir(parents=True)
    (folder / "recipes").write_bytes(b"xxxx" + recipe)
    records = b"".join(PLAN_RECORD.pack(3 * at, 3, 4, len(recipe), zlib.crc32(recipe)) for at in range(6))

    def attempt(number: int, mini_batch: int, cause: Cause, step_id: StepId = FIRST) -> AttemptRow:
        state = AttemptState.FAILED if cause else AttemptState.SUCCEEDED
        return AttemptRow(
            LeaseId(prefix | number), step_id, mini_batch, 1, "node", "inc", 7, state, cause, START_US + number,
            3_000_000, 2_000_000, 1_000_000, 3, 3, 1024, f"message {number}", f"detail {number}", 5,
        )  # fmt: skip

    def outcome(mini_batch: int, state: MiniBatchState, number: int, ok: int) -> OutcomeRow:
        lease_id = LeaseId(prefix | number) if number else LeaseId(0)
        return OutcomeRow(FIRST, mini_batch, state, 1, 3, ok, lease_id, -1, 0)

    bench.store.commit(
        Dirty(
            jobs=[job],
            steps=steps,
            planned=[PlannedRows(FIRST, 0, 1, records), PlannedRows(SECOND, 0, 1, records[: 2 * PLAN_RECORD.size])],
            outcomes=[
                outcome(0, MiniBatchState.SUCCEEDED, 1, 3),
                outcome(1, MiniBatchState.SUCCEEDED, 3, 3),
                outcome(3, MiniBatchState.FAILED, 5, 0),
                outcome(4, MiniBatchState.SUCCEEDED, 6, 2),
                outcome(5, MiniBatchState.CANCELLED, 0, 0),
            ],
            attempts=[
                attempt(1, 0, Cause.NONE),
                attempt(2, 1, Cause.TIMEOUT),
                attempt(3, 1, Cause.NONE),
                attempt(4, 3, Cause.TIMEOUT),
                attempt(5, 3, Cause.EXCEPTION),
                attempt(6, 4, Cause.NONE),
                attempt(7, 0, Cause.OOM, SECOND),
            ],
            item_outcomes=[
                ItemOutcomeRow(FIRST, 3, 9, 3, Cause.EXCEPTION, ""),
                ItemOutcomeRow(FIRST, 4, 12, 1, Cause.NONE, ""),
            ],
        ),
        [],
        [],
    )


async def listed(bench: MasterBench, page_size: int, **wanted: object) -> list[str]:
    """All pages, as STEP/INDEX."""
    found: list[str] = []
    request = pb.ListMiniBatchesRequest(job_id="ended", page_size=page_size, **wanted)  # type: ignore[arg-type]
    for _ in range(50):
        page = await bench.jobs.ListMiniBatches(request)
        assert len(page.mini_batches) <= page_size
        found += [f"{one.step_name}/{one.mini_batch_index}" for one in page.mini_batches]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            return found
    raise AssertionError("the pages have no end")


FAILED = mini_batch_pb2.MINI_BATCH_STATE_FAILED
DONE = mini_batch_pb2.MINI_BATCH_STATE_SUCCEEDED
QUEUED = mini_batch_pb2.MINI_BATCH_STATE_QUEUED


@pytest.mark.parametrize("page_size", [1, 2, 3, 100])
def test_pages_together_are_what_was_asked_for(tmp_path: Path, page_size: int) -> None:
    async def scenario(bench: MasterBench) -> None:
        store_job(bench)
        everything = [f"one/{index}" for index in range(6)] + ["two/0", "two/1"]
        assert await listed(bench, page_size) == everything
        assert await listed(bench, page_size, step_name="two") == ["two/0", "two/1"]
        assert await listed(bench, page_size, states=[DONE]) == ["one/0", "one/1", "one/4"]
        assert await listed(bench, page_size, states=[FAILED, QUEUED]) == ["one/2", "one/3", "two/0", "two/1"]
        assert await listed(bench, page_size, cause=work_pb2.CAUSE_TIMEOUT) == ["one/1", "one/3"]
        assert await listed(bench, page_size, cause=work_pb2.CAUSE_TIMEOUT, states=[FAILED]) == ["one/3"]
        assert await listed(bench, page_size, short_of_results=True) == ["one/4"]
        assert await listed(bench, page_size, newest_first=True) == ["two/0", "one/4", "one/3", "one/1", "one/0"]
        newest = await listed(bench, page_size, newest_first=True, cause=work_pb2.CAUSE_TIMEOUT)
        assert newest == ["one/3", "one/1"]
        assert await listed(bench, page_size, newest_first=True, short_of_results=True) == ["one/4"]

    drive(tmp_path, scenario)


@pytest.mark.parametrize("newest_first", [False, True])
def test_short_of_results_is_also_what_has_failed_by_that(tmp_path: Path, newest_first: bool) -> None:
    async def scenario(bench: MasterBench) -> None:
        store_job(bench)
        lease_id = LeaseId(bench.store.lease_prefix << 32 | 6)
        # As where error_threshold is set.
        short = OutcomeRow(FIRST, 4, MiniBatchState.FAILED, 1, 3, 2, lease_id, -1, 0)
        bench.store.commit(Dirty(outcomes=[short]), [], [])
        assert await listed(bench, 10, newest_first=newest_first, short_of_results=True) == ["one/4"]

    drive(tmp_path, scenario)


def test_a_mini_batch_is_told_with_all_its_attempts(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        store_job(bench)
        request = pb.GetMiniBatchRequest(job_id="ended", step_name="one", mini_batch_index=3)
        found = await bench.jobs.GetMiniBatch(request)
        assert (found.mini_batch.state, found.mini_batch.tries) == (FAILED, 2)
        assert found.mini_batch.cause == work_pb2.CAUSE_EXCEPTION
        assert [(one.status, one.counts, one.detail) for one in found.attempts] == [
            ("RUN_TIMEOUT", False, "detail 4"), ("RUN_EXCEPTION", True, "detail 5"),
        ]  # fmt: skip
        assert found.attempts[0].process_number == 7
        assert list(found.items) == ["/data/in/a\\xff", "/data/in/b", "/data/in/c"]
        assert json.loads(found.recipe) == {"files": list(found.items)}
        untried = await bench.jobs.GetMiniBatch(
            pb.GetMiniBatchRequest(job_id="ended", step_name="one", mini_batch_index=2)
        )
        assert (untried.mini_batch.state, untried.mini_batch.tries, len(untried.attempts)) == (QUEUED, 0, 0)
        assert not untried.mini_batch.HasField("last_attempt")

    drive(tmp_path, scenario)


def test_what_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    async def refusal(call: grpc.aio.UnaryUnaryCall) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        failure = read_failure(caught.value)
        return failure.reason, failure.message

    async def scenario(bench: MasterBench) -> None:
        store_job(bench)
        jobs = bench.jobs
        assert (await refusal(jobs.ListMiniBatches(pb.ListMiniBatchesRequest(job_id="x"))))[0] == "JOB_UNKNOWN"
        reason, message = await refusal(jobs.ListMiniBatches(pb.ListMiniBatchesRequest(job_id="ended", step_name="x")))
        assert (reason, "one, two" in message) == ("STEP_UNKNOWN", True)
        for token in ("a", "1.x", "-1", "1.2.3.4"):
            request = pb.ListMiniBatchesRequest(job_id="ended", page_token=token)
            assert (await refusal(jobs.ListMiniBatches(request)))[0] == "PAGE_TOKEN_INVALID"
        reason, message = await refusal(jobs.GetMiniBatch(pb.GetMiniBatchRequest(job_id="ended", mini_batch_index=1)))
        assert (reason, "STEP/17" in message) == ("STEP_UNKNOWN", True)
        for index in (6, 1 << 33):
            for call, kind in ((jobs.GetMiniBatch, pb.GetMiniBatchRequest), (jobs.GetReplay, pb.GetReplayRequest)):
                request = kind(job_id="ended", step_name="one", mini_batch_index=index)
                assert (await refusal(call(request)))[0] == "MINI_BATCH_UNKNOWN"
        assert (await refusal(jobs.GetJobReport(pb.GetJobReportRequest(job_id="x"))))[0] == "JOB_UNKNOWN"

    drive(tmp_path, scenario)


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_a_recipe_that_is_lost_hides_nothing_else(tmp_path: Path, damage: str) -> None:
    async def scenario(bench: MasterBench) -> None:
        store_job(bench)
        recipes = StateFiles(bench.state).step("ended", FIRST).recipes
        content = recipes.read_bytes()
        recipes.unlink()
        if damage != "gone":
            recipes.write_bytes(content[:-1] + (b"" if damage == "cut" else bytes([content[-1] ^ 1])))
        request = pb.GetMiniBatchRequest(job_id="ended", step_name="one", mini_batch_index=3)
        found = await bench.jobs.GetMiniBatch(request)
        assert len(found.attempts) == 2
        assert "no longer known" in found.items[0]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bench.jobs.GetReplay(pb.GetReplayRequest(job_id="ended", step_name="one", mini_batch_index=3))
        assert read_failure(caught.value).reason == "REPLAY_IMPOSSIBLE"

    drive(tmp_path, scenario)


def test_leases_are_told_at_once_though_they_are_not_stored(tmp_path: Path) -> None:
    async def scenario(bench: MasterBench) -> None:
        job_id = await bench.submitted()
        core = bench.core
        step_id = next(iter(core.state.steps))
        record = b"".join(PLAN_RECORD.pack(at, 1, 0, 0, 0) for at in range(5))
        await bench.writer.submit(commands.StartStep(step_id, b"{}"))
        reader = json.dumps({"kind": "none"}).encode()
        checkpoint = json.dumps({"mini_batches": 5, "items": 5, "done": True}).encode()
        await bench.writer.submit(PlanGroup(step_id, None, checkpoint, 0, record, True, reader))
        await bench.writer.drain()
        step = core.state.steps[step_id]
        assert len(step.mini_batches) == 5
        for index in (1, 3):
            lease = Lease(LeaseId(50 + index), step_id, index, 1, NodeId("node"), 0.0)
            core.state.leases[lease.lease_id] = lease
            step.lease_ids.add(lease.lease_id)
        leased = mini_batch_pb2.MINI_BATCH_STATE_LEASED

        async def indices(**wanted: object) -> list[int]:
            request = pb.ListMiniBatchesRequest(job_id=job_id, **wanted)  # type: ignore[arg-type]
            page = await bench.jobs.ListMiniBatches(request)
            return [one.mini_batch_index for one in page.mini_batches]

        assert await indices(states=[leased]) == [1, 3]
        assert await indices(states=[QUEUED]) == [0, 2, 4]
        assert await indices(states=[QUEUED], page_size=2) == [0, 2]
        assert await indices(states=[QUEUED, leased]) == [0, 1, 2, 3, 4]
        found = await bench.jobs.GetMiniBatch(pb.GetMiniBatchRequest(job_id=job_id, mini_batch_index=3))
        assert found.mini_batch.state == leased
        assert (found.attempts[-1].status, found.attempts[-1].node_id) == ("LEASED", "node")
        assert not found.attempts[-1].HasField("process_number")
        step.lease_ids.clear()
        core.state.leases.clear()

    drive(tmp_path, scenario)
