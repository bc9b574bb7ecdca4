"""Whether anything changes before the moment at which the core says that something is due."""

from __future__ import annotations

import copy

from windrow_master.core import commands
from windrow_master.core.commands import Moment
from windrow_master.core.core import Core


def changes(core: Core, at_s: float) -> list[object]:
    """What a tick at this moment would change that anybody could notice."""
    probe = copy.deepcopy(core)
    moment = Moment(at_s, 0.0)
    last_s = probe.state.tick_s
    probe.handle(commands.Tick(at_s - last_s if last_s is not None else 0.0), moment)
    wanted = probe.state.scheduling_wanted and not core.state.scheduling_wanted
    probe.pick(moment)
    dirty = probe.take_dirty()
    settled = core.state.settle_until_s and not probe.state.settle_until_s
    found: list[object] = [*(["settled"] if settled else []), *probe.take_effects()]
    found += [*dirty.events, *dirty.nodes, *dirty.attempts, *dirty.steps]
    return [*found, *(["scheduling"] if wanted else []), *(core.state.jobs.keys() - probe.state.jobs.keys())]


def assert_quiet_until_due(core: Core, now: Moment) -> None:
    """Nothing changes before the moment that `next_due` names."""
    core = copy.deepcopy(core)
    core.pick(now)
    core.take_effects()
    core.take_dirty()
    due_s = min(core.next_due(now), now.monotonic_s + 10_000)
    for part in (0.001, 0.3, 0.6, 0.999):
        at_s = now.monotonic_s + part * (due_s - now.monotonic_s)
        if at_s > now.monotonic_s:
            assert not changes(core, at_s), f"{due_s - at_s:g} s before the moment that next_due names"
