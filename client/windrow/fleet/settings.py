"""What a fleet's file says, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from windrow.fleet.provider import Shape

EXIT_IDLE_S = 120
SUBMISSIONS_PER_MINUTE = 30
SUBMISSIONS_AT_ONCE = 10
AGENT_FOLDER = "/tmp"
"""On the machine of the agent. The folder in it has a name that nobody can guess before it is there."""


class AgentSettings(NamedTuple):
    """How agents are started. Paths are those of the machines where they run."""

    command: tuple[str, ...] = ("windrow",)
    """What stands for `windrow`."""
    master: tuple[str, ...] = ()
    """Addresses of the master, as agents reach it; empty: as the fleet does."""
    ca_file: str = ""
    join_token_file: str = ""
    folder: str = AGENT_FOLDER
    """The folder in which each agent makes its own."""
    options: tuple[str, ...] = ()
    """Further options of `windrow agent`."""
    environment: Mapping[str, str] = MappingProxyType({})


class GroupSettings(NamedTuple):
    """Agents of one kind, from one engine."""

    name: str
    provider: str
    shape: Shape
    min: int
    max: int
    pool: str = ""
    """The pool of its agents; "": none, so that they serve all steps."""
    exit_idle_s: float = EXIT_IDLE_S
    lifetime_s: float | None = None
    submissions_per_minute: int = SUBMISSIONS_PER_MINUTE
    submissions_at_once: int = SUBMISSIONS_AT_ONCE
    """So many at most have been begun and are not answered by the engine."""
    price_per_hour: float = 0.0
    """Of one agent; 0: nobody said."""
    budget_per_day: float = math.inf
    """Once the agents of a day (UTC) have cost so much, no more are asked for."""
    agent: AgentSettings = AgentSettings()
    engine: Any = None
    """The provider's own settings."""


class FleetSettings(NamedTuple):
    """A fleet with its groups, in the order of the file."""

    name: str
    groups: tuple[GroupSettings, ...]
