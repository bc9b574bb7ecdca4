"""The real agent, as a process of its own, beside a master that the test scripts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from scripted_master import DEADLINE_S, ScriptedMaster
from windrow.common.removal import discard_tree

ECHO = "def run(mini_batch):\n    return [f'row of {name}' for name in mini_batch]\n"


class AgentProcess:
    """The real agent, as a process of its own."""

    def __init__(self, master: ScriptedMaster, folder: Path, before: Sequence[str] = (), **config: Any) -> None:
        """`before`: words before its command, of a command that becomes it."""
        self.before = before
        self.errors_path = folder.parent / f"{folder.name}.stderr"
        self.folder = folder
        self.config = {
            "folder": str(folder),
            "master_addresses": [master.address],
            "node_id": "node-1",
            "slots": 2,
            "python": sys.executable,
        } | config
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, **environment: str) -> None:
        """Runs it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.errors_path.open("ab") as stderr:
            self.process = await asyncio.create_subprocess_exec(
                *self.before,
                sys.executable,
                "-m",
                "windrow_agent",
                "--config",
                "-",
                stdin=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=os.environ | environment,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self.config).encode())
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    async def wait(self) -> int:
        """Its exit code."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), DEADLINE_S)

    async def kill(self) -> None:
        """Ends it for certain."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Waits for something no agent announces to its master (a file, a process); fails after DEADLINE_S."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what or condition}"
        await asyncio.sleep(0.01)


class Rig:
    """A master, an agent, and a folder for scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.master = ScriptedMaster(root)
        self.agents: list[AgentProcess] = []

    def script(self, text: str, name: str = "code") -> Path:
        """A folder of code with one script."""
        folder = self.root / name
        folder.mkdir()
        (folder / "script.py").write_text(text)
        return folder

    async def agent(self, name: str = "agent", **config: Any) -> AgentProcess:
        """Starts an agent."""
        agent = AgentProcess(self.master, self.root / name, **config)
        self.agents.append(agent)
        await agent.start()
        return agent

    async def serve(self, text: str, *, spec: dict[str, Any] | None = None, **config: Any) -> AgentProcess:
        """A master with one step over this script, and an agent that has opened its stream."""
        self.master.step(self.script(text), **(spec or {}))
        await self.master.start()
        agent = await self.agent(**config)
        await self.master.until(lambda: self.master.hellos, "a hello")
        return agent


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """A rig in a short path (unix sockets allow no long ones); everything is ended afterwards."""
    root = Path(tempfile.mkdtemp(prefix="wra-"))
    made = Rig(root)
    try:
        yield made
    finally:
        for agent in made.agents:
            await agent.kill()
        await made.master.stop()
        discard_tree(root)


def scenario(test: Callable[[Rig], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of a coroutine that gets a rig."""

    async def run() -> None:
        async with rig() as made:
            await test(made)

    def wrapped() -> None:
        coroutine: Coroutine[Any, Any, None] = run()
        asyncio.run(coroutine)

    wrapped.__name__ = getattr(test, "__name__", "test")
    wrapped.__doc__ = test.__doc__
    return wrapped
