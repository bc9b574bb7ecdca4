"""Fetches from stores and saves to them, as the agent asks over a socket, until that is closed (docs/contracts.md,
section 4b).

It has the agent's credentials, in its environment: `boot.py` has made sure that nobody can look into it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from windrow_agent.fetch_process.data_cache import FREE_BYTES_MIN, CacheUse, DataCache
from windrow_agent.fetch_process.messages import Decoder, Part, Save, encode
from windrow_agent.fetch_process.saves import Saves, save_failure_of
from windrow_agent.fetch_process.transfers import Reached, Transfers, failure_of
from windrow_agent.fetch_process.trees import parts_below

_READ_BYTES = 1 << 20
_LOOK_S = 5.0
"""How often the cache looks whether others need its disk."""


def serve(channel: socket.socket) -> NoReturn:
    """Serves until the agent closes its end."""
    asyncio.run(_serve(channel))


async def _serve(channel: socket.socket) -> NoReturn:
    channel.setblocking(False)
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=channel)
    transfers, saves = Transfers(), Saves()
    running: dict[int, asyncio.Task[None]] = {}
    decoder = Decoder()

    looking: list[asyncio.Task[None]] = []

    async def fetch(request: dict[str, Any], answer: dict[str, Any], use: CacheUse) -> None:
        if "tree" in request:
            place, parts = await asyncio.to_thread(parts_below, request["tree"])
            answer["place"] = place
        else:
            parts = [Part(*part) for part in request["parts"]]
        folder, within = Path(request["folder"]), Reached(**request["reach"])
        await transfers.fetch(folder, parts, writable=request["writable"], user=request["user"], within=within, use=use)

    async def carry_out(request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        saving, use = "saves" in request, CacheUse()
        try:
            if "look" in request:
                if transfers.cache is not None:
                    await transfers.cache.open()
            elif saving:
                await saves.save(request["folder"], request["device"], [Save(*one) for one in request["saves"]])
            else:
                await fetch(request, answer, use)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            cause, message = save_failure_of(error) if saving else failure_of(error)
            answer |= {"cause": cause, "message": message}
        finally:
            running.pop(request["id"], None)
        if transfers.cache is not None:
            answer["cache"] = {**asdict(use), **transfers.cache.held()}
        writer.write(encode(answer))
        await writer.drain()

    while data := await reader.read(_READ_BYTES):
        for message in decoder.feed(data):
            if "cache" in message:
                cache = message["cache"]
                transfers.cache = DataCache(Path(cache["folder"]), cache["bytes_max"], keep=cache["keep"])
                looking.append(loop.create_task(_look_after(transfers.cache)))
            elif "cancel" in message:
                if task := running.pop(message["cancel"], None):
                    task.cancel()
            else:
                running[message["id"]] = loop.create_task(carry_out(message))
    # Do not wait for threads that still write, or hang: nobody needs their files.
    os._exit(0)


async def _look_after(cache: DataCache) -> None:
    """Gives disk space back before others lack it. Never returns."""
    while True:
        if await cache.open():
            await cache.leave_free(FREE_BYTES_MIN)
        await asyncio.sleep(_LOOK_S)
