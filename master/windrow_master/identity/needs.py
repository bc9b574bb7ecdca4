"""What each call needs. A call that is missing here is refused to everybody.

| who | sends | may call |
| --- | --- | --- |
| client | `authorization: Bearer <client token>` | what its role allows |
| agent | `authorization: Bearer <join token>`, `windrow-secret: <the node's secret>` | AgentService.Register |
| node | the credential that Register gave it | the rest of AgentService; GetArtifact, DownloadArtifact |
| anybody | nothing | Health; and whatever a token guards that this master was started without |

gRPC itself refuses methods that do not exist.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from windrow_master.store.records import Role


class Who(Enum):
    """Who may make a call at all."""

    ANYBODY = "anybody"
    CLIENT = "a client"
    JOINING = "an agent that joins"
    NODE = "a node"
    CLIENT_OR_NODE = "a client or a node"


class Need(NamedTuple):
    """What a call needs."""

    who: Who
    role: Role = Role.NONE
    """The least role of a client."""
    all_projects: bool = False
    """A token for one project is not enough: this concerns what projects share."""
    changes: bool = False
    """It changes something: it is written to the audit log."""
    lasts: bool = False
    """Its messages may go on for hours: it ends with its token."""
    request_bytes_max: int = 8 << 20
    """Size of one of its requests, at most."""


CHUNK_MAX = 2 << 20
"""Of requests that bring a chunk of at most 1 MiB."""
LARGEST = 64 << 20
"""What gRPC takes at all: for documents, which have a limit of their own, and results of many attempts."""

_ANYBODY = Need(Who.ANYBODY)
_VIEW = Need(Who.CLIENT, Role.VIEW)
_SUBMIT = Need(Who.CLIENT, Role.SUBMIT, changes=True)
_STREAM = _VIEW._replace(lasts=True)
_ASK_TO_SUBMIT = Need(Who.CLIENT, Role.SUBMIT)
_OPERATE = Need(Who.CLIENT, Role.OPERATE, all_projects=True, changes=True)
_ADMIN = Need(Who.CLIENT, Role.ADMIN, all_projects=True)
_NODE = Need(Who.NODE)

_BY_SERVICE = {
    "grpc.health.v1.Health": {"Check": _ANYBODY, "List": _ANYBODY, "Watch": _ANYBODY},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _STREAM},
    "windrow.rpc.v1.AgentService": {
        # The last heartbeat and the labels of each node are kept.
        "Register": Need(Who.JOINING, changes=True, request_bytes_max=1 << 20),
        "Heartbeat": _NODE._replace(request_bytes_max=1 << 20),
        "Work": _NODE._replace(request_bytes_max=LARGEST),
        "UploadRows": _NODE._replace(request_bytes_max=CHUNK_MAX),
        "PushLogs": _NODE._replace(request_bytes_max=CHUNK_MAX),
        "KeepFiles": _NODE._replace(request_bytes_max=CHUNK_MAX),
        "ListModels": _NODE,
        "ListRunFiles": _NODE,
        "ReadRunFile": _NODE,
        "ReadLogged": _NODE,
        "FindData": _NODE,
        "ListDatastores": _NODE,
    },
    "windrow.rpc.v1.ArtifactService": {
        "GetArtifact": Need(Who.CLIENT_OR_NODE, Role.VIEW),
        "DownloadArtifact": Need(Who.CLIENT_OR_NODE, Role.VIEW, lasts=True),
        "UploadArtifact": _SUBMIT._replace(lasts=True, request_bytes_max=CHUNK_MAX),
        "StatData": _ASK_TO_SUBMIT,
        "PlaceData": _SUBMIT._replace(lasts=True),
    },
    "windrow.rpc.v1.AssetService": {"CreateAsset": _SUBMIT, "GetAsset": _VIEW, "ListAssets": _VIEW},
    "windrow.rpc.v1.JobService": {
        "SubmitJob": _SUBMIT._replace(request_bytes_max=LARGEST),
        "CancelJob": _SUBMIT,
        "UpdateJob": _SUBMIT,
        "TagRun": _SUBMIT._replace(request_bytes_max=CHUNK_MAX),
        "RetryJob": _SUBMIT._replace(request_bytes_max=LARGEST),
        "DeleteJob": _SUBMIT,
        "PruneJobs": _SUBMIT._replace(lasts=True),
        "GetJob": _VIEW,
        "ListJobs": _VIEW,
        "WatchJob": _STREAM,
        "ExplainJob": _VIEW,
        "ListLogs": _VIEW,
        "ReadLog": _STREAM,
        "DownloadOutput": _STREAM,
        "ReadRows": _STREAM,
        "ListMiniBatches": _VIEW,
        "GetMiniBatch": _VIEW,
        "GetReplay": _ASK_TO_SUBMIT,
        "GetJobReport": _VIEW,
        "ListNodes": _VIEW,
        "GetMaster": _VIEW,
        "DrainNode": _OPERATE,
        "CordonNode": _OPERATE,
        "RemoveNode": _OPERATE,
    },
    "windrow.rpc.v1.QueueService": {
        "ListQueues": _VIEW,
        "ExplainQueue": _VIEW,
        "GetUsage": _VIEW,
        "SetQueues": _ADMIN._replace(changes=True),
    },
    "windrow.rpc.v1.FleetService": {
        # Each second; what they change is in the fleet's rows. A take-over is in the audit log.
        "SyncFleet": _OPERATE._replace(changes=False),
        "BeginAllocations": _OPERATE._replace(changes=False),
        "ListFleets": _VIEW,
        "GetFleet": _VIEW,
        "UpdateFleet": _OPERATE,
        "DeleteFleet": _OPERATE,
    },
    "windrow.rpc.v1.TokenService": {
        "CreateToken": _ADMIN._replace(changes=True),
        "ListTokens": _ADMIN,
        "RevokeToken": _ADMIN._replace(changes=True),
    },
}

NEEDS = {f"/{service}/{method}": need for service, methods in _BY_SERVICE.items() for method, need in methods.items()}
"""By the full name of the method."""
