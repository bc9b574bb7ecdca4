"""The calls of JobService that delete jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb

from windrow_master.identity.principals import caller
from windrow_master.rpc.refusals import Context, refuse

if TYPE_CHECKING:
    from windrow_master.retention.keeper import Fate, Keeper

AGE_MAX_S = 1e10


class RetentionCalls:
    """Turns calls into deletions. A mixin: the servicer provides this."""

    _keeper: Callable[[], Keeper]
    """Made when it is first asked for: most runs delete nothing."""

    async def DeleteJob(self, request: pb.DeleteJobRequest, context: Context) -> pb.DeleteJobResponse:
        """Delete a job, or say what that would mean."""
        by = caller()
        fate = await self._keeper().delete(
            request.job_id, forced=request.force, dry=request.dry_run, project=by.project
        )
        if fate is None:
            await errors.abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                errors.JOB_UNKNOWN,
                f"There is no job named {request.job_id!r} here. `windrow job list` names them.{by.sees_only}",
            )
        elif not request.dry_run:
            await refuse(context, fate.refusal)
        return pb.DeleteJobResponse(deletion=_message(fate, dry=request.dry_run))

    async def PruneJobs(self, request: pb.PruneJobsRequest, context: Context) -> AsyncIterator[pb.PruneJobsResponse]:
        """Delete old jobs, or say what that would mean."""
        from windrow_master.retention.choosing import Rule

        older_than_s = request.older_than_s if request.HasField("older_than_s") else None
        rule = Rule(older_than_s, request.keep_last if request.HasField("keep_last") else None, caller().project)
        if not rule.chooses or (older_than_s is not None and not 0 <= older_than_s <= AGE_MAX_S):
            await errors.abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                errors.REQUEST_INVALID,
                "It is not said which jobs are old. Give older_than_s (from 0 seconds), keep_last, or both.",
            )
        async for fate in self._keeper().prune(rule, forced=request.force, dry=request.dry_run):
            yield pb.PruneJobsResponse(deletion=_message(fate, dry=request.dry_run))


def _message(fate: Fate, *, dry: bool) -> pb.JobDeletion:
    known, refusal = fate.consequences, fate.refusal
    message = pb.JobDeletion(
        job_id=fate.job.job_id,
        bytes=fate.size,
        losses=known.losses,
        outputs_gone=known.outputs_gone,
        outputs_kept=known.outputs_kept,
        deleted=refusal is None and not dry,
    )
    message.end_time.FromNanoseconds(int(fate.job.end_time * 1e9))
    if refusal is not None:
        message.refusal_reason, message.refusal = refusal.reason, refusal.message
        message.may_be_forced = known.hindrance(forced=True) is None and bool(known.hindrances)
    return message
