"""One heartbeat over a connection that may have stopped without a word.

After an outage TCP repeats what was lost at ever longer pauses (0.2, 0.4, ... 3, 6 s), so that a network that was away
for three seconds can look dead for six, longer than leases live. A new connection goes through at once: while a
heartbeat is not answered, one is tried each second. It is a sign of life for the master all the same, and when only the
new connection is answered, the old one is of no use any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.link import Link

TIMEOUT_S = 3.0
ANSWER_S = 1.0
"""So long a heartbeat may take before a new connection is tried."""

_BOTH_S = 0.2
"""A master that stood still answers old and new connections at about the same time."""


class LinkStalled(Exception):
    """The connection has stopped: a new one to the same master goes through."""


async def beat(link: Link, request: rpc.HeartbeatRequest, renew: Callable[[], Link]) -> rpc.HeartbeatResponse:
    """Send one heartbeat and return its answer. `renew` makes a new connection with the same credential.

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
                    # Refused at once, maybe: not more than one try a second.
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
