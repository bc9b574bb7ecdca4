"""A node with a valid join token that says what it likes."""

from __future__ import annotations

import os
import queue
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
from besieged import Besieged, GatedJob
from served_tls import DEADLINE_S, wait_until
from windrow.rpc import errors
from windrow.rpc.v1 import agent_service_pb2 as pb
from windrow.rpc.v1 import agent_service_pb2_grpc, work_pb2

CALL_S = 90.0


class Rogue:
    """Its incarnation, its credential, and one Work stream at a time."""

    def __init__(self, made: Besieged, channel: grpc.Channel, name: str = "", pool: str = "") -> None:
        """`pool`: the only one that it works for, if it is not empty."""
        self._labels = {"pool": pool} if pool else {}
        self.name = name or f"rogue-{os.urandom(4).hex()}"
        self.incarnation = os.urandom(8).hex()
        self._stub = agent_service_pb2_grpc.AgentServiceStub(channel)
        self._join = [("authorization", f"Bearer {made.master.token('join-token')}"), ("windrow-secret", self.name)]
        self.metadata: list[tuple[str, str]] = []
        self._to_send: queue.Queue[pb.WorkRequest | None] = queue.Queue()
        self.leases: dict[int, work_pb2.Assignment] = {}
        self.specs: dict[int, work_pb2.StepSpec] = {}
        self.verdicts: dict[int, list[int]] = {}
        """By lease: each answer that came."""
        self.revoked: set[int] = set()
        self.ended = threading.Event()
        self._beats = threading.Event()
        self.says: dict[str, Any] = {}
        """What each of its heartbeats says besides."""
        self.join()

    def join(self, **more: Any) -> None:
        """Register. `more`: of the request. Raises grpc.RpcError."""
        request = pb.RegisterRequest(
            node_id=self.name, node_incarnation=self.incarnation, **{"labels": self._labels, **more}
        )
        answer = self._stub.Register(request, metadata=self._join, timeout=CALL_S)
        self.metadata = [("windrow-credential", answer.node_credential)]

    def beat(self, **more: Any) -> None:
        """Say that it lives. Raises grpc.RpcError."""
        self._stub.Heartbeat(pb.HeartbeatRequest(**self.says, **more), metadata=self.metadata, timeout=CALL_S)

    def beat_on(self) -> None:
        """Say so again and again, until it is gone."""

        def beat() -> None:
            while not self._beats.wait(0.5):
                try:
                    self.beat(lease_count=len(self.leases))
                except (grpc.RpcError, ValueError):  # it is nobody any more, or its channel is closed
                    return

        threading.Thread(target=beat, daemon=True).start()

    def fall_silent(self) -> None:
        """Beat no more."""
        self._beats.set()

    def open(self, *held: pb.HeldLease, **hello: Any) -> None:
        """Open a Work stream, and read it."""
        self._to_send, self.ended = queue.Queue(), threading.Event()
        self.send(hello=pb.WorkHello(held_leases=held, **hello))
        to_send, ended = self._to_send, self.ended
        call = self._stub.Work(iter(to_send.get, None), metadata=self.metadata)

        def read() -> None:
            try:
                for response in call:
                    self._take(response)
            except grpc.RpcError:
                pass
            finally:
                ended.set()

        threading.Thread(target=read, daemon=True).start()

    def send_only(self, requests: Iterator[pb.WorkRequest]) -> Any:
        """Open a Work stream, and never read it. Returns the call."""
        return self._stub.Work(requests, metadata=self.metadata)

    def _take(self, response: pb.WorkResponse) -> None:
        for spec in response.steps:
            self.specs[spec.step_id] = spec
        for of_step in response.assignments:
            for assignment in of_step.assignments:
                self.leases[assignment.lease_id] = assignment
        for answer in response.acknowledgements:
            for lease_id in answer.lease_ids:
                self.verdicts.setdefault(lease_id, []).append(answer.verdict)
        self.revoked.update(response.revoked_lease_ids)

    def send(self, **parts: Any) -> None:
        """Say something on the stream."""
        self._to_send.put(pb.WorkRequest(**parts))

    def take(self, job_step: int, count: int) -> list[work_pb2.Assignment]:
        """Ask for leases of a step, and wait until they are here."""
        self.send(capacities=[pb.StepCapacity(step_id=job_step, leases_max=count, workers=1)])
        wait_until(lambda: len(self.leases) >= count, f"{count} leases have come")
        return list(self.leases.values())

    def complete(self, *results: work_pb2.Completion) -> list[int]:
        """Send results, and wait for the answer to each. Returns the last verdict on each."""
        before = {result.lease_id: len(self.verdicts.get(result.lease_id, ())) for result in results}
        self.send(completions=results)
        wait_until(
            lambda: all(len(self.verdicts.get(lease_id, ())) > count for lease_id, count in before.items()),
            "the results are answered",
        )
        return [self.verdicts[result.lease_id][-1] for result in results]

    def close(self) -> None:
        """End the stream, and say no more."""
        self._beats.set()
        self._to_send.put(None)
        assert self.ended.wait(DEADLINE_S)

    def upload(self, *requests: pb.UploadRowsRequest) -> pb.UploadRowsResponse:
        """Upload large rows. Raises grpc.RpcError."""
        return self._stub.UploadRows(iter(requests), metadata=self.metadata, timeout=CALL_S)

    def refused_upload(self, *requests: pb.UploadRowsRequest) -> str:
        """The reason why an upload of rows is refused; empty if it is not."""
        try:
            self.upload(*requests)
        except grpc.RpcError as error:
            return errors.read_failure(error).reason
        return ""


def result_of(job: GatedJob, lease: work_pb2.Assignment, **other: Any) -> work_pb2.Completion:
    """What an honest agent would report of a lease, but for what is given otherwise."""
    rows = (job.expected[lease.item_first] + "\n").encode()
    right: dict[str, Any] = {
        "lease_id": lease.lease_id, "item_count": 1, "result_count": 1, "row_count": 1, "rows": rows,
        "rows_length": len(rows), "rows_crc32": zlib.crc32(rows), "elapsed_us": 1000, "run_us": 900,
    }  # fmt: skip
    return work_pb2.Completion(**{**right, **other})


def forged(lease_id: int, text: str = "forged") -> work_pb2.Completion:
    """A result with rows that nobody has computed."""
    rows = f"{text}\n".encode()
    return work_pb2.Completion(
        lease_id=lease_id, item_count=1, result_count=1, row_count=1, rows=rows, rows_length=len(rows),
        rows_crc32=zlib.crc32(rows),
    )  # fmt: skip
