"""Whose call it is, where limits count by client."""

from __future__ import annotations

from windrow_master.rpc.refusals import Context


def host_of(peer: str) -> str:
    """The host of a gRPC peer, without the port, which differs for each connection."""
    return peer.rpartition(":")[0]


def caller_of(context: Context) -> str:
    """The client that a call comes from: the address of its machine."""
    return host_of(context.peer())
