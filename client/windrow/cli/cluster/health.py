"""`windrow health`: asks a master by the standard gRPC health service, or looks at a folder on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.cluster.local_health import MASTER_SERVES_NOT, local_health
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Master
from windrow.cli.tables import out
from windrow.errors import UsageError
from windrow.rpc.contexts import Access, find_access


@command(
    epilog="Example: windrow health --master 127.0.0.1:8470", short_help="Check whether a master or an agent serves."
)
def health(
    master: Master = None,
    folder: Annotated[
        Path | None,
        # readable: a health check may be root without its rights.
        Option("--folder", metavar="DIR", readable=False, help="Instead of a master: the agent of this folder."),
    ] = None,
    state: Annotated[
        Path | None,
        Option(
            "--state", metavar="DIR", readable=False, help="Instead of an address: the master of this state folder."
        ),
    ] = None,
    timeout: Annotated[float, Option(min=0.1, metavar="SECONDS", help="How long to wait for an answer.")] = 5.0,
) -> int:
    """Check whether a master or an agent serves.

    With --folder or --state it looks at a file there, which takes milliseconds: meant for health checks of containers.
    If this machine has a client token for the master, the master must accept it. Exit codes: 0 it serves, 1 it does not
    serve now, 2 it refuses the token, 5 no answer.
    """
    if sum(place is not None for place in (master, folder, state)) > 1:
        raise UsageError("--master, --folder and --state are mutually exclusive. Give one of them.")
    for option, place in (("--folder", folder), ("--state", state)):
        if place is not None:
            return local_health(option, str(place))
    access = find_access(master, os.environ)
    if access is None:
        raise UsageError(
            "Which master or agent? Give --master ADDRESS or, on this machine, --state DIR for a master or "
            "--folder DIR for an agent."
        )
    if _serves(access, timeout):
        if access.token:
            # Raises RequestRefused with the master's message about the token.
            from windrow.sdk.client import Client

            with Client(access=access, patience_s=timeout) as client:
                client.master()
        out("serving")
        return exit_codes.DONE
    out(MASTER_SERVES_NOT)
    return exit_codes.JOB_FAILED


def _serves(access: Access, timeout_s: float) -> bool:
    """Whether a master serves. Raises WindrowError if it does not answer."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from windrow.rpc.connection import Connection

    connection = Connection(access.address, patience_s=timeout_s, access=access)
    try:
        check = health_pb2_grpc.HealthStub(connection.channel).Check
        answer = connection.call(check, health_pb2.HealthCheckRequest(), timeout_s=timeout_s)
    finally:
        connection.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
