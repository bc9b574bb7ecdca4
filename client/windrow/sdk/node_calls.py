"""What `windrow.Client` offers for nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from windrow.rpc.connection import Connection
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.sdk.node import Node, node_from_message

if TYPE_CHECKING:
    from windrow.rpc.v1 import job_service_pb2_grpc


class NodeCalls:
    """Calls of a client. Needs its `connection` and stub."""

    connection: Connection
    _stub: job_service_pb2_grpc.JobServiceStub

    def list_nodes(self) -> Iterator[Node]:
        """All nodes, by name; also those that are gone (`lost`) while their names are cordoned."""
        for page in self.connection.pages(self._stub.ListNodes, pb.ListNodesRequest()):
            yield from map(node_from_message, page.nodes)

    def drain_node(self, node_id: str) -> Node:
        """Ask a node to leave; its name stays cordoned. It has left when it is gone from the list, or `lost` in it.

        Raises RequestRefused (NODE_UNKNOWN).
        """
        return node_from_message(self.connection.call(self._stub.DrainNode, pb.DrainNodeRequest(node_id=node_id)).node)

    def cordon_node(self, node_id: str, cordoned: bool = True) -> Node:
        """Hand a node nothing new, or (`cordoned=False`) work again; it finishes what it has begun.

        Holds for the name, over restarts of agent and master. Raises RequestRefused (NODE_UNKNOWN).
        """
        request = pb.CordonNodeRequest(node_id=node_id, cordoned=cordoned)
        return node_from_message(self.connection.call(self._stub.CordonNode, request).node)

    def remove_node(self, node_id: str) -> None:
        """Forget a node that is gone, with its cordon. Raises RequestRefused (NODE_UNKNOWN, NODE_CONNECTED)."""
        self.connection.call(self._stub.RemoveNode, pb.RemoveNodeRequest(node_id=node_id))
