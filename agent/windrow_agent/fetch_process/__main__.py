"""`python -m windrow_agent.fetch_process FD`: fetches from stores and saves to them, as the agent asks over socket FD.

It ends when the socket is closed (docs/contracts.md, section 4b). It runs in the agent's environment, with the agent's
credentials.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from windrow_agent.fetch_process.messages import Decoder, Part, Save, encode
from windrow_agent.fetch_process.saves import Saves, save_failure_of
from windrow_agent.fetch_process.transfers import Transfers, failure_of
from windrow_agent.fetch_process.trees import parts_below
from windrow_agent.node import kernel

_READ_BYTES = 1 << 20


def main(arguments: list[str]) -> int:
    """Serves the socket whose descriptor is `arguments[1]`."""
    kernel.forbid_dumps()
    asyncio.run(_serve(socket.socket(fileno=int(arguments[1]))))
    # Do not wait for threads that still write: nobody needs their files.
    os._exit(0)


async def _serve(channel: socket.socket) -> None:
    channel.setblocking(False)
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(sock=channel)
    transfers, saves = Transfers(), Saves()
    running: dict[int, asyncio.Task[None]] = {}
    decoder = Decoder()

    async def fetch(request: dict[str, Any], answer: dict[str, Any]) -> None:
        if "tree" in request:
            place, parts = await asyncio.to_thread(parts_below, request["tree"])
            answer["place"] = place
        else:
            parts = [Part(*part) for part in request["parts"]]
        await transfers.fetch(Path(request["folder"]), parts, writable=request["writable"])

    async def carry_out(request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        saving = "saves" in request
        try:
            if saving:
                await saves.save(request["folder"], request["device"], [Save(*one) for one in request["saves"]])
            else:
                await fetch(request, answer)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            cause, message = save_failure_of(error) if saving else failure_of(error)
            answer |= {"cause": cause, "message": message}
        finally:
            running.pop(request["id"], None)
        writer.write(encode(answer))
        await writer.drain()

    while data := await reader.read(_READ_BYTES):
        for message in decoder.feed(data):
            if "cancel" in message:
                if task := running.pop(message["cancel"], None):
                    task.cancel()
            else:
                running[message["id"]] = loop.create_task(carry_out(message))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
