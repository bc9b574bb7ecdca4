"""`python -m windrow_agent --config FILE`: runs an agent; FILE is an AgentConfig as JSON, `-` is standard input."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from windrow_agent.config import AgentConfig, BadConfig

_USAGE = "usage: python -m windrow_agent --config FILE    (FILE: a JSON document; - reads it from standard input)"


def main(arguments: list[str]) -> int:
    """Runs the agent. Exit codes: 0 it left in good order, 1 it failed, 2 bad usage or configuration."""
    if len(arguments) != 2 or arguments[0] != "--config":
        print(_USAGE, file=sys.stderr)
        return 2
    if sys.platform != "linux":
        print(
            "windrow agent: an agent runs on Linux only (it uses process descriptors and SOCK_SEQPACKET)",
            file=sys.stderr,
        )
        return 1
    try:
        text = sys.stdin.read() if arguments[1] == "-" else Path(arguments[1]).read_text()
        config = AgentConfig.parse(text)
    except (OSError, BadConfig) as error:
        print(f"windrow agent: {error}", file=sys.stderr)
        return 2
    return _serve(config)


def _serve(config: AgentConfig) -> int:
    # Not at the top: a bad configuration is reported without waiting for imports.
    from windrow.common import garbage_collector
    from windrow.common.hidden_process import hide_process
    from windrow.common.journal import log, open_journal
    from windrow.common.open_files import TooFewOpenFiles, need_open_files, raise_open_files

    from windrow_agent.agent import Agent
    from windrow_agent.node import resources
    from windrow_agent.node.identity import FolderInUse, Identity
    from windrow_agent.session.session import NotAdmitted

    hide_process()
    slots = config.slots or resources.cpu_count()
    try:
        need_open_files("The agent", slots)
    except TooFewOpenFiles as error:
        print(f"windrow agent: {error}", file=sys.stderr)
        return 2
    open_files = raise_open_files()
    try:
        identity = Identity(config.folder)
        open_journal(config.folder / "agent.log", "agent", config.log_level, served=config.served)
    except (FolderInUse, OSError, ValueError) as error:
        print(f"windrow agent: {error}", file=sys.stderr)
        return 1
    if identity.strays_killed:
        log.log(logging.WARNING, "killed %d processes left behind by an earlier agent", identity.strays_killed)

    garbage_collector.resume()

    async def run() -> int:
        return await Agent(config, identity, slots, open_files).run()

    try:
        return asyncio.run(run())
    except (NotAdmitted, BadConfig) as error:
        print(f"windrow agent: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        log.exception("the agent failed")
        print(f"windrow agent: failed: {error!r}. See {config.folder / 'agent.log'}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    # Only now: nobody waits for it before.
    from windrow.common.process_end import end_process

    end_process(exit_code)
