"""`windrow health`: asks a master or an agent how it is, by the standard gRPC health service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from windrow.cli import exit_codes
from windrow.cli.options import Master, guarded
from windrow.cli.tables import out
from windrow.contexts import Access, find_access
from windrow.errors import UsageError


@guarded
def health(
    master: Master = None,
    folder: Annotated[
        Path | None,
        # readable: a health check may be root without its rights.
        typer.Option(
            "--folder", metavar="DIR", readable=False, help="Instead: ask the agent that works in this folder."
        ),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Wait so long for the answer.")] = 5.0,
) -> int:
    """Ask a master or an agent how it is. Exit code 0: it serves; 1: it does not, at the moment; 5: no answer.

    A master that a client token is known for must accept it, too: exit code 2 where it does not.
    """
    if folder is not None:
        from windrow.rpc.health import SOCKET

        _become_owner(folder)
        access: Access | None = Access(f"unix:{folder.absolute() / SOCKET}")
    else:
        access = find_access(master, os.environ)
    if access is None:
        raise UsageError("Whose health? Give --master ADDRESS, or --folder DIR for an agent on this machine.")
    if _serves(access, timeout):
        if access.token:
            # Raises RequestRefused, with the master's own words on the token.
            from windrow.client import Client

            with Client(access=access, patience_s=0.0) as client:
                client.master()
        out("serving")
        return exit_codes.DONE
    why = (
        "it is not connected to a master" if folder is not None else "its storage is full; windrow job list tells more"
    )
    out(f"not serving: {why}")
    return exit_codes.JOB_FAILED


def _serves(access: Access, timeout_s: float) -> bool:
    """Raises WindrowError when there is no answer."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from windrow.rpc.connection import Connection

    connection = Connection(access.address, patience_s=0.0, access=access)
    try:
        check = health_pb2_grpc.HealthStub(connection.channel).Check
        answer = connection.call(check, health_pb2.HealthCheckRequest(), timeout_s=timeout_s)
    finally:
        connection.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _become_owner(folder: Path) -> None:
    """A health check runs as a container's user, root perhaps; only the agent's own user may enter its folder."""
    try:
        owner = folder.stat()
    except OSError as error:
        raise UsageError(f"The agent's folder {folder} cannot be looked at: {error.strerror}.") from error
    if os.geteuid() == 0 and owner.st_uid != 0:
        from windrow.users import become_user

        become_user(str(owner.st_uid))
