"""What a client makes of a master that misbehaves: answers by script."""

from __future__ import annotations

import json

import grpc
import pytest
from scripted_service import Script
from windrow.cli.display.follower import Follower
from windrow.cli.display.jsonlines import JsonDisplay
from windrow.errors import MasterUnreachable, RequestRefused, UsageError, WindrowError
from windrow.rpc import errors
from windrow.rpc.address import grpc_target
from windrow.rpc.v1 import job_pb2
from windrow.sdk.client import Client


def test_a_short_absence_is_outlived(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 3
    with Client(address, patience_s=30) as client:
        assert client.master().windrow_version == "7"
    assert len(script.asked) == 4


def test_a_repeated_submission_has_one_request_id(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 2

    class Effective:
        def to_json(self) -> str:
            return "{}"

    with Client(address, patience_s=30) as client:
        client.submit_effective(Effective())  # type: ignore[arg-type]
        client.submit_effective(Effective())  # type: ignore[arg-type]
    ids = [request.request_id for request in script.asked]
    assert len(ids) == 4
    assert len(set(ids[:3])) == 1
    assert ids[3] not in ids[:3]


def test_a_long_absence_is_told(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 1000
    with Client(address, patience_s=0.1) as client, pytest.raises(MasterUnreachable, match="not now"):
        client.master()


def test_waiting_ends_when_it_is_useless(script: Script, address: str) -> None:
    script.failures = [grpc.StatusCode.UNAVAILABLE] * 1000
    with Client(address, patience_s=1000) as client:
        client.connection.why_gone = lambda: WindrowError("cannot be started")
        with pytest.raises(WindrowError, match="cannot be started"):
            client.master()


@pytest.mark.parametrize(
    ("code", "reason", "kind", "exit_code"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.JOB_UNKNOWN, RequestRefused, 2),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.JOB_INVALID, RequestRefused, 2),
        (grpc.StatusCode.ALREADY_EXISTS, errors.JOB_EXISTS, RequestRefused, 2),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.STORAGE_FULL, WindrowError, 1),
        (grpc.StatusCode.INTERNAL, errors.INTERNAL, WindrowError, 1),
        (grpc.StatusCode.UNAVAILABLE, "A_REASON_OF_A_NEWER_MASTER", MasterUnreachable, 5),
    ],
)
def test_reasons_become_errors(
    script: Script, address: str, code: grpc.StatusCode, reason: str, kind: type[WindrowError], exit_code: int
) -> None:
    script.refusal = (code, reason)
    with Client(address, patience_s=0.05) as client, pytest.raises(kind, match=reason) as caught:
        client.master()
    assert caught.value.exit_code == exit_code


def test_progress_goes_on_after_a_break_and_repeats_nothing(script: Script, address: str) -> None:
    def moment(seq: int, state: job_pb2.JobState = job_pb2.JOB_STATE_RUNNING) -> job_pb2.Job:
        return job_pb2.Job(job_id="j", seq=seq, state=state)

    end = job_pb2.JOB_STATE_COMPLETED
    script.moments = [[moment(1), moment(2)], [], [moment(2), moment(3), moment(4, end)]]
    with Client(address, patience_s=30) as client:
        assert [job.seq for job in client.progress("j")] == [1, 2, 3, 4]


def test_a_full_disk_is_told_while_a_job_is_followed(
    script: Script, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script.read_only = ["STORAGE_FULL: no room on the disk. Make some.", ""]
    running = job_pb2.Job(job_id="j", seq=1, state=job_pb2.JOB_STATE_RUNNING)
    script.moments = [[running, job_pb2.Job(job_id="j", seq=2, state=job_pb2.JOB_STATE_COMPLETED)]]
    with Client(address) as client:
        follower = Follower(client, "j", after_seq=0)
        last = follower.run(JsonDisplay(), lambda: None)
        follower.close()
    assert last.state.ended
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert any("STORAGE_FULL" in event.get("message", "") for event in events)


def test_a_stream_that_the_master_cancelled_is_opened_again(script: Script, address: str) -> None:
    """What an ending master does with its streams is no end of the job's."""
    script.failures = [grpc.StatusCode.CANCELLED, grpc.StatusCode.CANCELLED]
    script.moments = [[job_pb2.Job(job_id="j", seq=1, state=job_pb2.JOB_STATE_COMPLETED)]]
    with Client(address, patience_s=30) as client:
        assert [job.seq for job in client.progress("j")] == [1]


def test_progress_of_a_job_that_has_ended_before(script: Script, address: str) -> None:
    script.moments = [[]]
    with Client(address) as client:
        assert [job.seq for job in client.progress("j", after_seq=9)] == [9]


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":80", "host:port", "host:70000", "unix:relative", "http://host:80", "/path"]
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="not a master address"):
        grpc_target(text)


@pytest.mark.parametrize("text", ["host:80", "127.0.0.1:8470", "[::1]:8470", "unix:/run/w"])
def test_addresses(text: str) -> None:
    assert grpc_target(text) == text
