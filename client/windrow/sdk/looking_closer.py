"""What a client asks when it looks closer at a job: its mini-batches, what it takes to run one again, its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.rpc.connection import Connection

if TYPE_CHECKING:
    from windrow.rpc.v1 import job_service_pb2, job_service_pb2_grpc
    from windrow.sdk.mini_batch import MiniBatch, MiniBatchDetails

REPORT_TIMEOUT_S = 300.0
"""A million mini-batches are read from the master's disk."""


class LookingCloser:
    """Calls of a `Client` about the inside of a job."""

    connection: Connection
    _stub: job_service_pb2_grpc.JobServiceStub

    def mini_batches(
        self,
        job_id: str,
        *,
        step: str | None = None,
        state: str | Sequence[str] = (),
        cause: str | None = None,
        newest_first: bool = False,
        page_size: int = 1000,
    ) -> Iterator[MiniBatch]:
        """Mini-batches of a job as they are now, by step and index, fetched a page at a time.

        `state`: only those `queued`, `leased`, `succeeded`, `failed` or `cancelled`. `cause`: only those of which an
        attempt ended by it (`exception`, `timeout`, …; `no_result`: those whose `run()` returned fewer results than
        items). `newest_first`: the last begun first, without those never begun. Raises NotFound (of job or step), and
        UsageError for a state or a cause that there is not.
        """
        from windrow.rpc.v1 import job_service_pb2 as pb
        from windrow.sdk.job import CAUSES
        from windrow.sdk.mini_batch import NO_RESULT, STATES, mini_batch_from_message

        states = [state] if isinstance(state, str) else list(state)
        for one in states:
            if one not in STATES[1:]:
                raise UsageError(f"There is no state {one!r} of mini-batches. The states: {', '.join(STATES[1:])}.")
        if cause is not None and cause not in CAUSES[1:] and cause != NO_RESULT:
            raise UsageError(f"There is no cause {cause!r}. The causes: {', '.join((*CAUSES[1:], NO_RESULT))}.")
        request = pb.ListMiniBatchesRequest(
            job_id=job_id,
            step_name=step or "",
            states=[STATES.index(one) for one in states],  # type: ignore[misc]
            cause=CAUSES.index(cause) if cause in CAUSES[1:] else 0,  # type: ignore[arg-type]
            short_of_results=cause == NO_RESULT,
            newest_first=newest_first,
            page_size=page_size,
        )
        for page in self.connection.pages(self._stub.ListMiniBatches, request):
            yield from map(mini_batch_from_message, page.mini_batches)

    def mini_batch(self, job_id: str, index: int, *, step: str | None = None) -> MiniBatchDetails:
        """One mini-batch with all its attempts. `step` may be left out where the job has only one. Raises NotFound."""
        from windrow.rpc.v1 import job_service_pb2 as pb
        from windrow.sdk.mini_batch import details_from_message

        request = pb.GetMiniBatchRequest(job_id=job_id, step_name=step or "", mini_batch_index=_index(index))
        return details_from_message(self.connection.call(self._stub.GetMiniBatch, request))

    def replay(self, job_id: str, index: int, *, step: str | None = None) -> job_service_pb2.GetReplayResponse:
        """What it takes to run a mini-batch again beside the job, as the protocol has it. Raises NotFound,
        RequestRefused (REPLAY_IMPOSSIBLE)."""
        from windrow.rpc.v1 import job_service_pb2 as pb

        request = pb.GetReplayRequest(job_id=job_id, step_name=step or "", mini_batch_index=_index(index))
        return self.connection.call(self._stub.GetReplay, request)

    def report(self, job_id: str) -> dict[str, Any]:
        """The figures of a job as of now (docs/contracts.md, section 6). Raises NotFound."""
        from windrow.rpc.v1 import job_service_pb2 as pb

        request = pb.GetJobReportRequest(job_id=job_id)
        answer = self.connection.call(self._stub.GetJobReport, request, timeout_s=REPORT_TIMEOUT_S)
        document: dict[str, Any] = json.loads(answer.document)
        return document

    def download_code(self, digest: str, target: Path) -> None:
        """Bring a code archive into a file; goes on where it broke off. Raises NotFound, OSError."""
        from windrow.transfer.download import download_artifact

        download_artifact(self.connection, digest, target)


def _index(index: int) -> int:
    if index < 0:
        raise UsageError(f"{index} is no mini-batch: they are counted from 0.")
    return min(index, (1 << 63) - 1)
