"""The calls of JobService that are about nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from windrow.rpc import errors
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2_grpc

from windrow_master.rpc.refusals import Context, accepted, refuse

if TYPE_CHECKING:
    from windrow_master.rpc.node_views import NodeViews
    from windrow_master.shell.standby import Standby

NODES_PAGE, NODES_PAGE_MAX = 200, 1_000


class NodeCalls(job_service_pb2_grpc.JobServiceServicer):
    """Turns calls into changes, and nodes into messages."""

    def __init__(self, standby: Standby, nodes: NodeViews, *, embedded: bool) -> None:
        self._standby = standby
        self._nodes = nodes
        self._embedded = embedded

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:
        """Return a page of nodes, sorted by name."""
        size = min(request.page_size or NODES_PAGE, NODES_PAGE_MAX)
        nodes = [node for node in self._nodes.nodes() if not request.page_token or node.node_id > request.page_token]
        response = pb.ListNodesResponse(nodes=nodes[:size])
        if len(nodes) > size:
            response.next_page_token = nodes[size - 1].node_id
        return response

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> pb.DrainNodeResponse:
        """Ask a node to leave."""
        await self._refuse_private(request.node_id, context)
        node = await accepted(context, await self._standby.changes().drain(request.node_id))
        return pb.DrainNodeResponse(node=self._nodes.node_view(node))

    async def CordonNode(self, request: pb.CordonNodeRequest, context: Context) -> pb.CordonNodeResponse:
        """Set whether a node gets new leases."""
        if request.cordoned:
            await self._refuse_private(request.node_id, context)
        node = await accepted(context, await self._standby.changes().cordon(request.node_id, request.cordoned))
        return pb.CordonNodeResponse(node=self._nodes.node_view(node))

    async def _refuse_private(self, node_id: str, context: Context) -> None:
        """Refuse to cordon the only node of a `windrow run`: this run and all later ones would wait forever."""
        if self._embedded:
            await errors.abort(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                errors.NODE_PRIVATE,
                f"Node {node_id} belongs to a run on this machine, and is the only node that can do its work. "
                "Ctrl-C interrupts the run; `windrow job cancel` ends its job.",
            )

    async def RemoveNode(self, request: pb.RemoveNodeRequest, context: Context) -> pb.RemoveNodeResponse:
        """Forget a node that is gone."""
        await refuse(context, await self._standby.changes().remove(request.node_id, force=request.force))
        return pb.RemoveNodeResponse()
