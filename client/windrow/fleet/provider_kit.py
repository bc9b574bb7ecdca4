"""What a provider has to pass: checks of the contract in `windrow.fleet.provider`, against the engine itself.

For whoever writes a provider. Each check is a function that takes an `Engine`, uses the engine for a few seconds, fails
with an AssertionError that says what the provider did, and ends what it started. With pytest:

    import pytest
    from windrow.fleet import provider_kit

    @pytest.fixture
    def engine():
        return provider_kit.Engine(make=lambda prefix: MyProvider(settings, prefix))

    @pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
    def test_the_provider_keeps_the_contract(engine, check):
        check(engine)

The checks start no agent of Windrow: short commands of a POSIX shell stand for it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from windrow.fleet.provider import AgentCommand, Provider, Refused, Request, Seen, Shape, State, Unreachable

ORDER = (State.QUEUED, State.STARTED)
"""States go forward in this order, and then to one that has ended."""


class Engine(NamedTuple):
    """The engine under test."""

    make: Callable[[str], Provider]
    """Makes a new provider for one group, given the prefix of its allocations' names. Providers that are made share
    nothing but the engine: each stands for a program of the fleet that was started anew.
    """
    shape: Shape = Shape(slots=1)
    """What the engine starts within `wait_s`."""
    waiting: Shape | None = None
    """What the engine takes, and does not start while it is as it is (more than is free). None: it starts whatever it
    takes at once, and the checks of queued allocations are passed over.
    """
    stays: AgentCommand = AgentCommand(("sleep", "3600"), {})
    """Stands for an agent that runs until it is ended."""
    leaves: AgentCommand = AgentCommand(("true",), {})
    """Stands for an agent that ends well by itself."""
    fails: AgentCommand = AgentCommand(("false",), {})
    """Stands for an agent that ends badly."""
    wait_s: float = 60.0
    """So long the engine may take to do what it is asked for."""


def check_what_is_submitted_is_listed(engine: Engine) -> None:
    """An allocation is listed from when `submit` returns, under its name and what `submit` called it."""
    with _group(engine) as group:
        request = group.request(engine.stays)
        engine_id = group.provider.submit(request)
        assert engine_id, "submit returned no name of the engine"
        seen = group.find(request.name)
        assert seen is not None, f"{request.name} is submitted, and allocations() does not list it: {group.listed()}"
        assert seen.engine_id == engine_id, f"submit returned {engine_id!r}, and allocations() says {seen.engine_id!r}"
        assert not seen.state.has_ended, f"{request.name} has just been submitted, and is {seen.state.value}"


def check_another_provider_finds_it(engine: Engine) -> None:
    """A fleet that was killed finds what it had asked for: names and what the engine calls them are in the engine."""
    with _group(engine) as group:
        request = group.request(engine.stays)
        engine_id = group.provider.submit(request)
        found = {seen.name: seen.engine_id for seen in engine.make(group.prefix).allocations()}
        assert found == {request.name: engine_id}, f"a new provider finds {found}, not {request.name} as {engine_id}"


def check_two_allocations_are_two(engine: Engine) -> None:
    """Two submissions of different names are two allocations, which the engine calls differently."""
    with _group(engine) as group:
        requests = [group.request(engine.stays) for _ in range(2)]
        ids = {request.name: group.provider.submit(request) for request in requests}
        assert len(set(ids.values())) == 2, f"two allocations are called the same: {ids}"
        found = {seen.name: seen.engine_id for seen in group.listed()}
        assert found == ids, f"submitted {ids}, and listed {found}"


def check_other_groups_are_not_listed(engine: Engine) -> None:
    """A group lists its own allocations alone, even if the prefix of another one begins like its own."""
    with _group(engine) as group, _group(engine) as other:
        group.provider.submit(group.request(engine.stays))
        foreign = other.request(engine.stays)
        other.provider.submit(foreign)
        listed = {seen.name for seen in group.listed()}
        assert foreign.name not in listed, f"{foreign.name} is of another group, and listed: {listed}"
        assert len(listed) == 1, f"one allocation was submitted, and {listed} are listed"


def check_what_was_never_asked_for_is_not_listed(engine: Engine) -> None:
    """A group that has asked for nothing lists nothing; an allocation that the engine does not know cannot be
    cancelled.
    """
    with _group(engine) as group:
        assert group.listed() == [], f"nothing was submitted, and {group.listed()} is listed"
        request = group.request(engine.stays)
        ghost = Seen(request.name, group.provider.submit(request), State.STARTED)
        group.provider.cancel(group.must_find(request.name), only_queued=False)
        group.wait_until_ended(request.name)
        assert not group.provider.cancel(ghost, only_queued=True), "what has ended was cancelled as if it were queued"


def check_states_go_forward(engine: Engine) -> None:
    """An allocation is queued, then started, then ended, and never goes back while the engine leaves it alone."""
    with _group(engine) as group:
        request = group.request(engine.leaves)
        group.provider.submit(request)
        states = group.states_until_ended(request.name)
        ranks = [ORDER.index(state) if state in ORDER else len(ORDER) for state in states]
        assert ranks == sorted(ranks), f"its states went {[state.value for state in states]}"


def check_what_ends_well_is_completed(engine: Engine) -> None:
    """An agent that leaves by itself is no failure. An engine may have forgotten it at once."""
    with _group(engine) as group:
        request = group.request(engine.leaves)
        group.provider.submit(request)
        last = group.wait_until_ended(request.name)
        assert last is None or last.state is State.COMPLETED, f"its agent ended with exit code 0, and it is {last}"


def check_what_ends_badly_is_failed(engine: Engine) -> None:
    """An agent that ends badly is told apart, and the engine has a word for it. An engine may have forgotten it."""
    with _group(engine) as group:
        request = group.request(engine.fails)
        group.provider.submit(request)
        last = group.wait_until_ended(request.name)
        if last is not None:
            assert last.state is State.FAILED, f"its agent ended with exit code 1, and it is {last}"
            words = last.reason or group.provider.why(last)
            assert words.strip(), "it failed, and neither its reason nor why() says anything"


def check_cancel_ends_what_has_started(engine: Engine) -> None:
    """A started allocation is cancelled, and is not there, or has ended, soon after."""
    with _group(engine) as group:
        request = group.request(engine.stays)
        group.provider.submit(request)
        seen = group.wait_until(request.name, State.STARTED)
        assert group.provider.cancel(seen, only_queued=False), f"cancel returned False for {seen}"
        last = group.wait_until_ended(request.name)
        assert last is None or last.state is not State.COMPLETED, f"it was cancelled, and is {last}"


def check_only_queued_leaves_what_has_started(engine: Engine) -> None:
    """What has started may be busy: it is left when only queued allocations are to be cancelled."""
    with _group(engine) as group:
        request = group.request(engine.stays)
        group.provider.submit(request)
        seen = group.wait_until(request.name, State.STARTED)
        stale = seen._replace(state=State.QUEUED)
        assert not group.provider.cancel(stale, only_queued=True), f"cancel returned True for {seen}, which has started"
        now = group.must_find(request.name)
        assert now.state is State.STARTED, f"it had started, was to be left, and is {now}"


def check_only_queued_ends_what_waits(engine: Engine) -> None:
    """A queued allocation is cancelled, or left with False where the engine cannot do it in one step."""
    if engine.waiting is None:
        return
    with _group(engine) as group:
        request = group.request(engine.stays, engine.waiting)
        group.provider.submit(request)
        seen = group.must_find(request.name)
        assert seen.state is State.QUEUED, f"the engine cannot start it now, and it is {seen}"
        if group.provider.cancel(seen, only_queued=True):
            last = group.wait_until_ended(request.name)
            assert last is None or last.state is State.CANCELLED, f"it was cancelled while it waited, and is {last}"
        else:
            assert group.must_find(request.name).state is State.QUEUED, "cancel returned False, and changed it"


def check_why_says_why_it_waits(engine: Engine) -> None:
    """What waits has a reason in the engine's words."""
    if engine.waiting is None:
        return
    with _group(engine) as group:
        request = group.request(engine.stays, engine.waiting)
        group.provider.submit(request)
        words = ""
        end = time.monotonic() + engine.wait_s
        while not words.strip() and time.monotonic() < end:
            seen = group.must_find(request.name)
            assert seen.state is State.QUEUED, f"the engine cannot start it now, and it is {seen}"
            words = seen.reason or group.provider.why(seen)
        assert words.strip(), "it waits, and neither its reason nor why() says anything"


CHECKS: tuple[Callable[[Engine], None], ...] = (
    check_what_is_submitted_is_listed,
    check_another_provider_finds_it,
    check_two_allocations_are_two,
    check_other_groups_are_not_listed,
    check_what_was_never_asked_for_is_not_listed,
    check_states_go_forward,
    check_what_ends_well_is_completed,
    check_what_ends_badly_is_failed,
    check_cancel_ends_what_has_started,
    check_only_queued_leaves_what_has_started,
    check_only_queued_ends_what_waits,
    check_why_says_why_it_waits,
)
"""All checks, in any order."""


class _Group:
    """A group of its own for one check."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.prefix = f"kit-{secrets.token_hex(4)}-"
        self.provider = engine.make(self.prefix)

    def request(self, agent: AgentCommand, shape: Shape | None = None) -> Request:
        """A request that nobody has made before."""
        return Request(f"{self.prefix}x{secrets.token_hex(4)}", shape or self._engine.shape, 3600.0, agent)

    def listed(self) -> list[Seen]:
        """What is listed; no name is there twice, and all are of the group."""
        listed = list(self.provider.allocations())
        names = [seen.name for seen in listed]
        assert len(set(names)) == len(names), f"a name is listed twice: {names}"
        foreign = [name for name in names if not name.startswith(self.prefix)]
        assert not foreign, f"{foreign} do not begin with {self.prefix!r}, and are listed"
        return listed

    def find(self, name: str) -> Seen | None:
        """An allocation, if it is listed."""
        return next((seen for seen in self.listed() if seen.name == name), None)

    def must_find(self, name: str) -> Seen:
        """An allocation, which has to be listed."""
        seen = self.find(name)
        assert seen is not None, f"{name} is not listed: {self.listed()}"
        return seen

    def wait_until(self, name: str, state: State) -> Seen:
        """An allocation, once it is in a state that it has to come to."""
        end = time.monotonic() + self._engine.wait_s
        while (seen := self.must_find(name)).state is not state:
            assert not seen.state.has_ended, f"it was to be {state.value}, and is {seen}: {self.provider.why(seen)}"
            assert time.monotonic() < end, f"after {self._engine.wait_s:g} s it is not {state.value}, but {seen}"
            time.sleep(0.1)
        return seen

    def wait_until_ended(self, name: str) -> Seen | None:
        """An allocation, once it has ended; None: the engine has forgotten it."""
        end = time.monotonic() + self._engine.wait_s
        while (seen := self.find(name)) is not None and not seen.state.has_ended:
            assert time.monotonic() < end, f"after {self._engine.wait_s:g} s it has not ended, but is {seen}"
            time.sleep(0.1)
        return seen

    def states_until_ended(self, name: str) -> list[State]:
        """The states that an allocation goes through, as far as they are seen; it ends by itself."""
        states: list[State] = []
        end = time.monotonic() + self._engine.wait_s
        while (seen := self.find(name)) is not None:
            if not states or states[-1] is not seen.state:
                states.append(seen.state)
            if seen.state.has_ended:
                break
            assert time.monotonic() < end, f"after {self._engine.wait_s:g} s it has not ended, but is {seen}"
            time.sleep(0.02)
        return states


@contextmanager
def _group(engine: Engine) -> Iterator[_Group]:
    """A group; what is left of it is ended in the end."""
    group = _Group(engine)
    try:
        yield group
    finally:
        with contextlib.suppress(Refused, Unreachable):
            for seen in group.provider.allocations():
                if not seen.state.has_ended:
                    group.provider.cancel(seen, only_queued=False)
