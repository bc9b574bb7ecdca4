"""The network: streams that keep their order until they break, unary calls that get lost, come late or come twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim_world import Process, World

if TYPE_CHECKING:
    from sim_agent import Agent
    from sim_master import SimMaster

CALL_TIMEOUT_S = 2.0


class Channel:
    """One direction of a stream: in order; after a break, a late or lost tail."""

    def __init__(self, world: World, latency_s: float, target: Process) -> None:
        self._world = world
        self._latency_s = latency_s
        self._target = target
        self._last_s = 0.0
        self._late_s = 0.0
        self.cut_s = float("inf")
        """What would arrive later than this is lost."""

    def send(self, deliver: Callable[[], None]) -> None:
        """Deliver after the latency, behind all that was sent before."""
        now_s = self._world.now_s
        if now_s > self.cut_s:
            return
        self._last_s = max(self._last_s, now_s + self._world.around(self._latency_s))
        self._world.after(self._last_s - now_s, lambda: self._arrive(deliver, self._late_s))

    def _arrive(self, deliver: Callable[[], None], late_before_s: float) -> None:
        if self._late_s > late_before_s:
            self._world.after(self._late_s - late_before_s, lambda: self._arrive(deliver, self._late_s))
        elif self._world.now_s <= self.cut_s:
            self._target.after(0.0, deliver)

    def break_off(self, late_s: float, lost_after_s: float) -> None:
        """What is under way comes late; what would come after `lost_after_s` from now never does."""
        self._late_s = late_s
        self.cut_s = min(self.cut_s, self._world.now_s + lost_after_s)


class Stream:
    """One Work stream. Each side learns of its end in its own time."""

    def __init__(self, world: World, latency_s: float, agent: Agent, master: SimMaster, number: int) -> None:
        self.world = world
        self.number = number
        """As the master counts streams."""
        self.agent, self.master = agent, master
        self.up = Channel(world, latency_s, master)
        self.down = Channel(world, latency_s, agent)
        self.broken = False
        self._closed_up = False
        self._closed_down = False

    def break_off(self) -> None:
        """The network drops it: tails are late or lost, each side hears of it when it does."""
        if self.broken:
            return
        self.broken = True
        rng = self.world.rng
        for channel in (self.up, self.down):
            channel.break_off(rng.choice([0.0, 0.0, 0.5, 2.0]), rng.choice([0.0, 0.0, 0.01, 4.0]))
        self.master.after(rng.choice([0.0, 0.1, 4.0]), self._tell_master)
        self.agent.after(rng.choice([0.0, 0.1, 1.5]), self._tell_agent)

    def close_by_agent(self) -> None:
        """The agent ends it: what it sent before still arrives, then the end."""
        self._closed_down = True
        self.up.send(self._tell_master)

    def close_by_master(self) -> None:
        """The master ends it after what it has sent."""
        self._tell_master()
        self.down.send(self._tell_agent)

    def _tell_master(self) -> None:
        if not self._closed_up:
            self._closed_up = True
            self.master.stream_ended(self)

    def _tell_agent(self) -> None:
        if not self._closed_down:
            self._closed_down = True
            self.agent.stream_ended(self)


def call(
    caller: Process,
    master: SimMaster | None,
    latency_s: float,
    loss: float,
    command: Any,
    on_reply: Callable[[Any], None],
    on_error: Callable[[], None],
) -> None:
    """A unary call: exactly one of `on_reply` and `on_error` is called, if the caller lives."""
    world = caller.world
    answered = False

    def once(what: Callable[[], None]) -> None:
        nonlocal answered
        if not answered:
            answered = True
            what()

    def reply_with(reply: Any) -> None:
        if not world.chance(loss):
            world.after(world.around(latency_s), lambda: caller.after(0.0, lambda: once(lambda: on_reply(reply))))

    def arrive() -> None:
        if master is not None:
            master.after(0.0, lambda: master.submit(command, reply_with))

    if master is None or not master.alive:
        caller.after(0.05 + world.around(0.2), lambda: once(on_error))
        return
    if not world.chance(loss):
        world.after(world.around(latency_s), arrive)
    if world.chance(loss / 2):
        world.after(world.rng.random() * 3, arrive)
    caller.after(CALL_TIMEOUT_S, lambda: once(on_error))
