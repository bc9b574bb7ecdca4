"""What a fleet needs of an engine: the contract of providers.

A provider is made for one group of one fleet and is called by one thread at a time. Its calls may take a while (the
fleet goes on with its other groups), but end by themselves: whatever they wait for has a time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from windrow.spec.reading import nodes
    from windrow.spec.reading.context import Context


class Shape(NamedTuple):
    """What one agent offers, and what it takes of the engine."""

    slots: float
    """Workers of steps that need one processor each."""
    memory_bytes: int = 0
    """0: nobody said."""
    gpus: int = 0


class AgentCommand(NamedTuple):
    """How the agent of one allocation is started where the engine runs it."""

    arguments: tuple[str, ...]
    """The command line, `windrow agent ...`."""
    environment: Mapping[str, str]
    """Variables that it needs besides those of the engine."""
    folder: str = ""
    """The agent's own folder there. Nobody needs it once the agent has ended."""


class Request(NamedTuple):
    """One allocation that an engine is asked for."""

    name: str
    """Of the allocation: unique, `[a-z0-9][a-z0-9-]{0,39}`. It goes into the engine's name or label of what is asked
    for, so that `allocations` finds it.
    """
    shape: Shape
    lifetime_s: float | None
    """After so many seconds the engine may end it; None: without an end."""
    agent: AgentCommand


class State(Enum):
    """What an engine says of an allocation. The values are the names in the protocol."""

    QUEUED = "queued"
    """The engine has it, and has not started it (again)."""
    STARTED = "started"
    COMPLETED = "completed"
    """It ended by itself, and well."""
    PREEMPTED = "preempted"
    """The engine took it away for others, or its machine was reclaimed."""
    EXPIRED = "expired"
    """Its time was over."""
    CANCELLED = "cancelled"
    """Somebody cancelled it."""
    FAILED = "failed"
    """It ended badly."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self not in (State.QUEUED, State.STARTED)


class Seen(NamedTuple):
    """An allocation that an engine knows."""

    name: str
    """As in Request."""
    engine_id: str
    """What the engine calls it."""
    state: State
    reason: str = ""
    """Why it is in this state, in the engine's own words ("Priority", "NODE_FAIL", "OOMKilled"); "" if it has none."""


class Refused(Exception):
    """The engine does not take what it was asked for; its message is the engine's own. Asking the same again may help
    later (a limit of submissions), or never (no such partition).
    """


class Unreachable(Exception):
    """The engine did not answer, or not in time. Nobody knows whether it has done what it was asked for."""


class Provider(Protocol):
    """One kind of engine, for one group of a fleet. Every call may raise Unreachable."""

    def submit(self, request: Request) -> str:
        """Ask for one allocation. Return what the engine calls it.

        Raises Refused. After Unreachable the allocation may exist all the same: the fleet looks for its name among
        `allocations` and never asks for the same name twice.
        """
        ...

    def allocations(self) -> Sequence[Seen]:
        """All allocations of this group that the engine has, and those that have ended as long as it remembers them.

        Whoever submitted them: a fleet that was killed left some. Those that are missing do not exist (any more). The
        names of a group's allocations begin with the prefix that the provider was made with.
        """
        ...

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """End an allocation. Return False if it was left as it is.

        `only_queued`: only if it has not started, in one step with looking whether it has; an engine that cannot do
        that returns False and leaves it.
        """
        ...

    def why(self, seen: Seen) -> str:
        """Why an allocation waits, or how it ended, as the engine tells it in full; "" if it has no more to say than
        `allocations` said. Lines of the agent's log come after the first line, which everyone may see.
        """
        ...


class Kind(NamedTuple):
    """A kind of engine, as `provider` names it in a fleet's file. The module of a kind has one as `KIND`; packages of
    others name theirs by an entry point of the group `windrow.fleet_providers`.
    """

    read: Callable[[nodes.Mapping, str, Context], Any]
    """Reads the kind's own keys of a group, which stand below the key that is named like the kind: their mapping (an
    empty one, if the file has none), the key of it for messages, and what notes problems. Returns settings of whatever
    type; after an error that it has noted, anything.
    """
    make: Callable[[Any, str], Provider]
    """Makes the provider of one group, of settings and the prefix with which the names of the group's allocations
    begin. Asks no engine.
    """
    show: Callable[[Any, Request], str]
    """What an engine would be asked for a request, in its own words (a batch script, a manifest). Asks no engine."""
