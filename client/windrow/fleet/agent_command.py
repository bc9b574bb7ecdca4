"""The command line that starts the agent of an allocation."""

from __future__ import annotations

import math
import os

from windrow.fleet.provider import AgentCommand, Request
from windrow.fleet.settings import GroupSettings


def request_of(group: GroupSettings, name: str, master: str, *, stays: bool) -> Request:
    """What an engine is asked for. `master`: the address at which the fleet reaches the master. `stays`: the agent does
    not leave when it is idle.

    The name of the allocation is also that of the node and of the agent's folder: several agents may run on one
    machine.
    """
    agent = group.agent
    words = [*agent.command, "agent"]
    for address in agent.master or (master,):
        words += ["--master", address]
    if agent.ca_file:
        words += ["--ca-file", agent.ca_file]
    if agent.join_token_file:
        words += ["--join-token-file", agent.join_token_file]
    folder = os.path.join(agent.folder, f"windrow-{name}")  # noqa: PTH118  a path of another machine
    words += ["--allocation", name, "--node-id", name, "--folder", folder]
    if group.lifetime_s is not None:
        words += ["--lifetime", f"{math.floor(group.lifetime_s)}s"]
    if not stays:
        words += ["--exit-idle", f"{math.ceil(group.exit_idle_s)}s"]
    words += ["--slots", str(math.floor(group.shape.slots)), "--gpus", str(group.shape.gpus)]
    if group.shape.memory_bytes:
        words += ["--memory", _size(group.shape.memory_bytes)]
    if group.pool:
        words += ["--pool", group.pool]
    command = AgentCommand((*words, *agent.options), agent.environment, folder)
    return Request(name, group.shape, group.lifetime_s, command)


def _size(count: int) -> str:
    """Bytes as `windrow agent` reads them, not more than they are."""
    if count % (1000**2) == 0:
        return f"{count // 1000**2}MB"
    return f"{count // 1024}KiB"
