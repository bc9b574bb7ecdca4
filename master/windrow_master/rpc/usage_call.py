"""Answers QueueService.GetUsage where nothing else of the service makes sense: for runs on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from windrow_master.shell.standby import Standby
    from windrow_master.store.protocol import Store

METHOD = "/windrow.rpc.v1.QueueService/GetUsage"


class UsageCall(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # at run time, it takes none
    """Loads the service when it is called: runs start sooner without."""

    def __init__(self, standby: Standby, store: Store) -> None:
        self._standby = standby
        self._store = store

    def service(self, handler_call_details: Any) -> Any:
        """The handler of the call; None for all others."""
        if handler_call_details.method != METHOD:
            return None
        from windrow.rpc.v1 import queue_service_pb2 as pb

        from windrow_master.rpc.queue_service import QueueService

        return grpc.unary_unary_rpc_method_handler(
            QueueService(self._standby, self._store.reader()).GetUsage,
            request_deserializer=pb.GetUsageRequest.FromString,
            response_serializer=pb.GetUsageResponse.SerializeToString,
        )
