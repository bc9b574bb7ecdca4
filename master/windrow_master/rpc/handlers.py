"""Handlers of methods that stand before others of the same kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from windrow_master.rpc.refusals import Handler


def like(handler: Handler, behaviour: Any) -> Handler:
    """A handler of the same kind, with another behaviour."""
    codecs = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.request_streaming:
        make: Any = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
    else:
        make = (
            grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
        )
    made: Handler = make(behaviour, **codecs)
    return made
