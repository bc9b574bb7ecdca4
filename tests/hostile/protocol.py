"""All calls that a master answers, by the descriptors of the protocol: a new one is among them without being named."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from windrow.rpc import v1


class Rpc(NamedTuple):
    """One method."""

    path: str
    """As in HTTP/2: /package.Service/Method."""
    request: type[Message]
    response: type[Message]
    takes_stream: bool
    sends_stream: bool

    @property
    def name(self) -> str:
        """Service and method, without the package."""
        return self.path.rpartition(".")[2]

    @property
    def streams(self) -> bool:
        """In one direction, or both."""
        return self.takes_stream or self.sends_stream


def all_rpcs() -> list[Rpc]:
    """Those of Windrow's protocol, and of the standard services beside it."""
    modules: list[Any] = [
        importlib.import_module(f"{v1.__name__}.{module.name}")
        for module in pkgutil.iter_modules(v1.__path__)
        if module.name.endswith("_pb2")
    ]
    return [
        Rpc(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            method.client_streaming,
            method.server_streaming,
        )
        for module in (*modules, health_pb2, reflection_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


RPCS = all_rpcs()
