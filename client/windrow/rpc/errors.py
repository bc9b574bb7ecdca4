"""Errors that cross gRPC: `google.rpc.Status` with one `ErrorInfo`, written by servicers and read by clients.

The reason is for programs; the message is for people: what happened, to what, why, and what to do next. The comments of
proto/windrow/rpc/v1 name the reasons; the constants below are all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import grpc

DOMAIN: Final = "windrow"
"""`ErrorInfo.domain` of Windrow's errors."""

DETAILS_KEY: Final = "grpc-status-details-bin"
"""Metadata key under which gRPC carries a serialised `google.rpc.Status`."""

# What was asked for does not exist.
JOB_UNKNOWN: Final = "JOB_UNKNOWN"
LOG_UNKNOWN: Final = "LOG_UNKNOWN"
RUN_FILE_UNKNOWN: Final = "RUN_FILE_UNKNOWN"
OUTPUT_UNKNOWN: Final = "OUTPUT_UNKNOWN"
OUTPUT_NOT_READY: Final = "OUTPUT_NOT_READY"
ARTIFACT_MISSING: Final = "ARTIFACT_MISSING"
NODE_UNKNOWN: Final = "NODE_UNKNOWN"
STEP_UNKNOWN: Final = "STEP_UNKNOWN"
MINI_BATCH_UNKNOWN: Final = "MINI_BATCH_UNKNOWN"
ASSET_UNKNOWN: Final = "ASSET_UNKNOWN"
FLEET_NOT_FOUND: Final = "FLEET_NOT_FOUND"
GROUP_NOT_FOUND: Final = "GROUP_NOT_FOUND"
# The request is refused.
JOB_ENDED: Final = "JOB_ENDED"
JOB_INVALID: Final = "JOB_INVALID"
JOB_EXISTS: Final = "JOB_EXISTS"
JOB_NEEDED: Final = "JOB_NEEDED"
CODE_CHANGED: Final = "CODE_CHANGED"
CODE_UNREADABLE: Final = "CODE_UNREADABLE"
PAGE_TOKEN_INVALID: Final = "PAGE_TOKEN_INVALID"
REQUEST_INVALID: Final = "REQUEST_INVALID"
REPLAY_IMPOSSIBLE: Final = "REPLAY_IMPOSSIBLE"
ASSET_INVALID: Final = "ASSET_INVALID"
ASSET_EXISTS: Final = "ASSET_EXISTS"
NODE_INVALID: Final = "NODE_INVALID"
NODE_ALREADY_LIVE: Final = "NODE_ALREADY_LIVE"
NODE_CONNECTED: Final = "NODE_CONNECTED"
NODE_PRIVATE: Final = "NODE_PRIVATE"
LEASE_NOT_LIVE: Final = "LEASE_NOT_LIVE"
ROWS_EMPTY: Final = "ROWS_EMPTY"
ROWS_UNREADABLE: Final = "ROWS_UNREADABLE"
OUTPUT_UNREADABLE: Final = "OUTPUT_UNREADABLE"
ROWS_ELSEWHERE: Final = "ROWS_ELSEWHERE"
OFFSET_MISMATCH: Final = "OFFSET_MISMATCH"
DIGEST_MISMATCH: Final = "DIGEST_MISMATCH"
DIGEST_INVALID: Final = "DIGEST_INVALID"
ARTIFACT_UNREADABLE: Final = "ARTIFACT_UNREADABLE"
ARTIFACT_TOO_LARGE: Final = "ARTIFACT_TOO_LARGE"
ARCHIVE_INVALID: Final = "ARCHIVE_INVALID"
PATH_OUTSIDE: Final = "PATH_OUTSIDE"
NO_DATASTORE: Final = "NO_DATASTORE"
TOKEN_UNKNOWN: Final = "TOKEN_UNKNOWN"
TOKEN_EXISTS: Final = "TOKEN_EXISTS"
TOKEN_INVALID: Final = "TOKEN_INVALID"
TOKEN_NEEDED: Final = "TOKEN_NEEDED"
QUEUE_INVALID: Final = "QUEUE_INVALID"
QUEUES_CHANGED: Final = "QUEUES_CHANGED"
FLEET_INVALID: Final = "FLEET_INVALID"
FLEET_TAKEN: Final = "FLEET_TAKEN"
FLEET_PAUSED: Final = "FLEET_PAUSED"
FLEET_IN_USE: Final = "FLEET_IN_USE"
TOO_MANY_ALLOCATIONS: Final = "TOO_MANY_ALLOCATIONS"
ALLOCATION_ENDED: Final = "ALLOCATION_ENDED"
ALLOCATION_TAKEN: Final = "ALLOCATION_TAKEN"
USAGE_INVALID: Final = "USAGE_INVALID"
USAGE_TOO_LARGE: Final = "USAGE_TOO_LARGE"
QUOTA_TOO_LARGE: Final = "QUOTA_TOO_LARGE"
TOKENS_OFF: Final = "TOKENS_OFF"
# The caller may not do this.
ROLE_MISSING: Final = "ROLE_MISSING"
PROJECT_MISSING: Final = "PROJECT_MISSING"
LIMIT_REACHED: Final = "LIMIT_REACHED"
STEP_NOT_OFFERED: Final = "STEP_NOT_OFFERED"
# The caller is unknown.
JOIN_TOKEN_INVALID: Final = "JOIN_TOKEN_INVALID"
CLIENT_TOKEN_INVALID: Final = "CLIENT_TOKEN_INVALID"
CREDENTIAL_INVALID: Final = "CREDENTIAL_INVALID"
# The master cannot serve at the moment.
STORAGE_FULL: Final = "STORAGE_FULL"
BACKUP_RUNS: Final = "BACKUP_RUNS"
STATE_DAMAGED: Final = "STATE_DAMAGED"
INTERNAL: Final = "INTERNAL"


class Failure(NamedTuple):
    """A failed call as its caller sees it.

    Not a failed fetch or mini-batch, for which the agent and the command line have classes of this name.
    """

    code: grpc.StatusCode
    reason: str
    """One of the constants above; "" if Windrow did not raise the error (the connection, a proxy, a deadline)."""
    message: str
    metadata: Mapping[str, str] = MappingProxyType({})


class AbortableContext(Protocol):
    """What `abort` needs of a `grpc.aio.ServicerContext`."""

    async def abort(self, code: grpc.StatusCode, details: str = ..., trailing_metadata: Any = ...) -> NoReturn:
        """Ends the call with an error; raises."""


class AbortableSyncContext(Protocol):
    """What `abort_sync` needs of a `grpc.ServicerContext`."""

    def abort_with_status(self, status: Any) -> NoReturn:
        """Ends the call with an error; raises."""


class ErrorStatus(grpc.Status):
    """`grpc.Status` of an error with its details, for `abort_with_status`."""

    def __init__(self, code: grpc.StatusCode, message: str, details: bytes) -> None:
        self.code = code
        self.details = message
        self.trailing_metadata = ((DETAILS_KEY, details),)


def as_text(message: str) -> str:
    """A message that UTF-8 can hold: bytes of a name that are no UTF-8 stand there as `\\xff`."""
    return message.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def status_details(
    code: grpc.StatusCode, reason: str, message: str, metadata: Mapping[str, str] | None = None
) -> bytes:
    """The serialised `google.rpc.Status` with an `ErrorInfo`: the value of the metadata key `DETAILS_KEY`."""
    # Imported only for errors, to keep a cold start short.
    from google.protobuf import any_pb2
    from google.rpc import error_details_pb2, status_pb2

    told = {key: as_text(value) for key, value in (metadata or {}).items()}
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=told)
    detail = any_pb2.Any()
    detail.Pack(info)
    status: bytes = status_pb2.Status(
        code=code.value[0], message=as_text(message), details=[detail]
    ).SerializeToString()
    return status


@lru_cache(maxsize=256)
def _plain_details(code: grpc.StatusCode, reason: str, message: str) -> bytes:
    """Those of an error without metadata: a flood of refused calls gets the same ones again and again."""
    return status_details(code, reason, message)


async def abort(
    context: AbortableContext,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str] | None = None,
) -> NoReturn:
    """Ends a call of an aio servicer with an error that clients can read. `message`: what, to what, why, what to do."""
    details = status_details(code, reason, message, metadata) if metadata else _plain_details(code, reason, message)
    await context.abort(code, as_text(message), ((DETAILS_KEY, details),))
    raise AssertionError("abort raises")


def abort_sync(
    context: AbortableSyncContext,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    metadata: Mapping[str, str] | None = None,
) -> NoReturn:
    """`abort` for a servicer of a threaded server."""
    context.abort_with_status(ErrorStatus(code, as_text(message), status_details(code, reason, message, metadata)))
    raise AssertionError("abort_with_status raises")


def read_failure(error: grpc.RpcError) -> Failure:
    """Read a failed call, whether a servicer or gRPC itself made it fail. Never raises."""
    code = error.code() if hasattr(error, "code") else grpc.StatusCode.UNKNOWN
    message = (error.details() if hasattr(error, "details") else "") or str(error)
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in trailing or ():
        if key == DETAILS_KEY:
            info = _error_info(value if isinstance(value, bytes) else value.encode())
            if info is not None:
                return Failure(code, info[0], message, info[1])
    return Failure(code, "", message)


def _error_info(details: bytes) -> tuple[str, dict[str, str]] | None:
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    try:
        status = status_pb2.Status.FromString(details)
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == DOMAIN:
                return info.reason, dict(info.metadata)
    except DecodeError:
        return None
    return None
