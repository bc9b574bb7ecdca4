"""One heartbeat, over a connection that may have stalled.

After an outage, TCP retransmits at growing intervals (0.2, 0.4, ... 3, 6 s). A network that was away for three seconds
can thus look dead for six, longer than a lease lives. A new connection works at once, so while a heartbeat is not
answered, the agent tries one every second. The master counts either as a sign of life. If only the new connection is
answered, the old one has stalled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.link import Link

TIMEOUT_S = 3.0
ANSWER_S = 1.0
"""How long a heartbeat may take before the agent tries a new connection."""

_BOTH_S = 0.2
"""A master that was itself stalled answers old and new connections at about the same time."""


class LinkStalled(Exception):
    """The connection has stalled: a new one to the same master works."""


async def beat(link: Link, request: rpc.HeartbeatRequest, renew: Callable[[], Link]) -> rpc.HeartbeatResponse:
    """Sends one heartbeat and returns the answer. `renew` opens a new connection with the same credential.

    Raises LinkStalled, grpc.aio.AioRpcError.
    """
    call = asyncio.ensure_future(_send(link, request, TIMEOUT_S))
    try:
        await asyncio.wait([call], timeout=ANSWER_S)
        while not call.done() and not link.address.startswith("unix:"):
            fresh = renew()
            attempt = asyncio.ensure_future(_send(fresh, request, ANSWER_S))
            try:
                await asyncio.wait([call, attempt], return_when=asyncio.FIRST_COMPLETED)
                if attempt.done() and attempt.exception() is None:
                    await asyncio.wait([call], timeout=_BOTH_S)
                    if not call.done():
                        raise LinkStalled
                elif not call.done():
                    # It may be refused at once: not more than one try per second.
                    await asyncio.wait([call], timeout=ANSWER_S)
            finally:
                attempt.cancel()
                await asyncio.gather(attempt, return_exceptions=True)
                await fresh.close()
        return await call
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def _send(link: Link, request: rpc.HeartbeatRequest, timeout_s: float) -> rpc.HeartbeatResponse:
    return await link.agent.Heartbeat(request, metadata=link.metadata, timeout=timeout_s)
