"""The call of JobService that reads committed rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
from windrow.errors import JobFailed
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.core.counters import Counters
from windrow_master.core.records import JobRow, StepRow
from windrow_master.core.states import ENDED_STEPS
from windrow_master.files.errors import StateDamaged
from windrow_master.files.state_files import StateFiles
from windrow_master.jobs import Jobs
from windrow_master.output.committed_rows import RowsPiece, Seen, committed_rows, whole_until
from windrow_master.output.errors import RowsUnreadable
from windrow_master.output.fitting import Fitting, Heads, make_fitting
from windrow_master.rpc.mini_batch_calls import step_named
from windrow_master.rpc.refusals import Context
from windrow_master.step_paths import StepPaths
from windrow_master.threads import in_thread

CONTENT_BYTES_MAX = 1 << 20


class RowCalls:
    """Turns committed rows into messages. A mixin: the servicer provides these."""

    _jobs: Jobs
    _files: StateFiles

    async def _job(self, job_id: str, context: Context) -> tuple[JobRow, list[StepRow]]:
        raise NotImplementedError

    async def ReadRows(self, request: pb.ReadRowsRequest, context: Context) -> AsyncIterator[pb.ReadRowsResponse]:
        """Send the rows of a step that are committed now, and how far that is."""
        job, steps = await self._job(request.job_id, context)
        step = await step_named(request.job_id, steps, request.step_name, context)
        if made_by := StepPaths.from_json(step.paths).reused_from:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.ROWS_ELSEWHERE,
                f"Step {step.name} of job {job.job_id} was reused from job {made_by}, which has the rows: "
                f"windrow job rows {made_by}.",
            )
        # Before the rows are read: what comes after the last of them is told by the next call.
        complete = step.state in ENDED_STEPS
        counters = Counters.from_json(step.counters)
        header = b""
        reader = self._jobs.reader
        # Behind the last mini-batch there is nothing, and the store would miss what is before that.
        first = min(request.first, counters.planned)

        def fitting_of(heads: Heads) -> Fitting:
            from windrow.spec.effective.job import EffectiveJob

            rows = EffectiveJob.from_json(job.document).steps[step.ordinal].rows
            # Rows are committed together with their header.
            now = next((now.header for now in reader.steps_of(job.job_key) if now.step_id == step.step_id), None)
            return make_fitting(rows.format, now, rows.missing, heads)

        try:
            until = await in_thread(whole_until, reader, step.step_id, first)
            # Of an ended step, what has no outcome will never have one.
            behind = None if request.as_committed or complete else until
            pieces = committed_rows(
                reader,
                step.step_id,
                self._files.step(job.job_id, step.step_id).segments,
                first=first,
                behind=behind,
                seen=Seen(request.seen),
                fitting_of=fitting_of,
            )
            while (piece := await in_thread(next, pieces, None)) is not None:
                header = piece.header
                for message in _messages(piece):
                    yield message
        except JobFailed as error:
            # A script has sent something else than rows.
            await errors.abort(context, grpc.StatusCode.FAILED_PRECONDITION, errors.OUTPUT_UNREADABLE, str(error))
        except (StateDamaged, RowsUnreadable) as error:
            await errors.abort(context, grpc.StatusCode.DATA_LOSS, errors.STATE_DAMAGED, str(error))
        end = pb.RowsEnd(
            next=until,
            behind=max(0, counters.succeeded + counters.failed - until),
            planned=counters.planned,
            complete=complete,
        )
        yield pb.ReadRowsResponse(header=header, end=end)


def _messages(piece: RowsPiece) -> Iterator[pb.ReadRowsResponse]:
    """A piece in messages that are not too long."""
    ranges = [
        pb.RowsRange(mini_batch=row.mini_batch, row_count=row.row_count, length=length)
        for row, length in zip(piece.ranges, piece.lengths, strict=True)
    ]
    # Also where none of them has a row: the client notes what it has seen.
    for begin in range(0, len(piece.content) or 1, CONTENT_BYTES_MAX):
        yield pb.ReadRowsResponse(
            header=piece.header,
            ranges=ranges if not begin else (),
            content=piece.content[begin : begin + CONTENT_BYTES_MAX],
        )
