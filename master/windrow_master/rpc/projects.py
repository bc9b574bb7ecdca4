"""Which projects a caller may have jobs in."""

from __future__ import annotations

import grpc
from windrow.rpc import errors

from windrow_master.identity.principals import caller
from windrow_master.rpc.names import NAME, not_a_project
from windrow_master.rpc.refusals import Context


async def refuse_project(project: str, context: Context) -> None:
    """End the call if the caller names a project in which it may have no jobs. `project`: empty if it names none."""
    by = caller()
    if project and not NAME.fullmatch(project):
        await errors.abort(
            context,
            grpc.StatusCode.INVALID_ARGUMENT,
            errors.REQUEST_INVALID,
            not_a_project(project),
        )
    if project and not by.sees(project):
        await errors.abort(
            context,
            grpc.StatusCode.PERMISSION_DENIED,
            errors.PROJECT_MISSING,
            f"The token {by.name!r} is for the project {by.project}: its jobs cannot belong to {project}.",
        )
