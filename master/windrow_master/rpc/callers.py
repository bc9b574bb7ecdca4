"""Whose call it is, where limits count by client."""

from __future__ import annotations

from windrow_master.identity.principals import caller
from windrow_master.rpc.refusals import Context


def host_of(peer: str) -> str:
    """The host of a gRPC peer, without the port, which differs for each connection."""
    return peer.rpartition(":")[0]


def caller_of(context: Context) -> str:
    """The client that a call comes from: its node or token, else the address of its machine."""
    by = caller()
    if by.node:
        return f"node {by.node}"
    return f"token {by.name}" if by.name else host_of(context.peer())
