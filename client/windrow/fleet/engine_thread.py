"""Speaks to the engine of one group, in a thread of its own: an engine that is slow, or away, holds up no other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from windrow.common.allocation_name import is_allocation_name
from windrow.common.journal import say
from windrow.common.secret_values import shown_text
from windrow.fleet.provider import Provider, Refused, Request, Seen, State, Unreachable

LIST_S = 2.0
"""Between two lists while something happens, and the least at any time."""
LIST_QUIET_S = 5.0
"""While there are allocations."""
LIST_IDLE_S = 30.0
"""While there are none, or the engine does not answer for long."""
LIVELY_S = 30.0
"""So long after a change lists follow each other quickly."""
EXPLAINED_AT_ONCE = 5
MISNAMED_TOLD = 20
WORDS_MAX = 500
"""Characters of an engine's words that are kept."""
ENGINE_ID_MAX = 256
"""Characters of what an engine calls an allocation; the master takes no more."""


class Submitted(NamedTuple):
    """The engine has taken a request."""

    name: str
    engine_id: str


class SubmissionFailed(NamedTuple):
    """The engine has refused a request (`refused`), or not answered: then it may have taken it all the same."""

    name: str
    why: str
    refused: bool


class NeverAsked(NamedTuple):
    """The engine was not asked, and will not be."""

    name: str
    why: str


class Listed(NamedTuple):
    """What the engine has."""

    seen: tuple[Seen, ...]
    settled: frozenset[str]
    """Names whose submissions had ended before the list began."""


class ListFailed(NamedTuple):
    """The engine did not answer."""

    why: str


Event: TypeAlias = Submitted | SubmissionFailed | NeverAsked | Listed | ListFailed


class EngineThread:
    """The thread of one group."""

    def __init__(self, group: str, provider: Provider) -> None:
        self._group = group
        self._provider = provider
        self._wanted: deque[Request] = deque()
        self._unwanted: deque[Seen] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._seen: tuple[Seen, ...] | None = None
        self._changed_s = time.monotonic()
        self._failures = 0
        self._in_doubt = False
        """A submission was not answered; a list shows whether the engine is there."""
        self._explained: dict[str, str] = {}
        self._misnamed: set[str] = set()
        self._submitted: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=f"engine of {group}", daemon=True)

    def start(self) -> None:
        """Begin, with a list."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Ask the engine, as soon as it is free."""
        self._wanted.append(request)
        self._wake.set()

    def cancel(self, seen: Seen) -> None:
        """Cancel an allocation if it has not started."""
        self._unwanted.append(seen)
        self._wake.set()

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        found = []
        while True:
            try:
                found.append(self._events.get_nowait())
            except queue.Empty:
                return found

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait until what it was doing is done."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        list_at = 0.0
        while not self._stopping:
            if self._wanted and not self._in_doubt:
                self._submit(self._wanted.popleft())
            elif self._unwanted and not self._in_doubt:
                self._cancel(self._unwanted.popleft())
            elif not self._in_doubt and (left := list_at - time.monotonic()) > 0:
                self._wake.wait(min(left, self._pause_s()))
                self._wake.clear()
                list_at = min(list_at, time.monotonic() + self._pause_s())
            else:
                self._list()
                list_at = time.monotonic() + self._pause_s()
        self._give_up("The program of the fleet ended before it asked the engine.")

    def _give_up(self, why: str) -> None:
        """Ask for nothing of what waits."""
        while self._wanted:
            self._events.put(NeverAsked(self._wanted.popleft().name, why))

    def _pause_s(self) -> float:
        if self._failures:
            return min(LIST_IDLE_S, LIST_S * 2.0 ** min(self._failures - 1, 10))
        if time.monotonic() - self._changed_s < LIVELY_S:
            return LIST_S
        return LIST_QUIET_S if any(not one.state.has_ended for one in self._seen or ()) else LIST_IDLE_S

    def _submit(self, request: Request) -> None:
        try:
            engine_id = self._provider.submit(request)
            self._events.put(Submitted(request.name, _text(engine_id, ENGINE_ID_MAX)))
        except Refused as error:
            self._events.put(SubmissionFailed(request.name, _words_of(str(error)), refused=True))
        except Exception as error:
            self._events.put(SubmissionFailed(request.name, self._words(error), refused=False))
            # Each further try would take as long, if it is away.
            self._in_doubt = True
        self._submitted.add(request.name)
        self._changed_s = time.monotonic()

    def _cancel(self, seen: Seen) -> None:
        try:
            done = self._provider.cancel(seen, only_queued=True)
        except Exception as error:
            say(logging.WARNING, "an allocation cannot be cancelled", allocation=seen.name, why=self._words(error))
            return
        if done:
            say(logging.INFO, "queued allocation cancelled", allocation=seen.name, engine_id=seen.engine_id)
        self._changed_s = time.monotonic()

    def _list(self) -> None:
        settled, self._submitted, self._in_doubt = frozenset(self._submitted), set(), False
        try:
            seen = self._named(self._provider.allocations())
            seen = tuple(one._replace(reason=_words_of(one.reason)) for one in self._with_reasons(seen))
        except Exception as error:
            self._submitted |= settled
            self._failures += 1
            why = self._words(error)
            self._events.put(ListFailed(why))
            self._give_up(f"The engine did not answer: {why}")
            return
        if seen != self._seen or self._failures:
            self._changed_s = time.monotonic()
        self._seen, self._failures = seen, 0
        self._events.put(Listed(seen, settled))

    def _named(self, seen: Sequence[Seen]) -> tuple[Seen, ...]:
        """Those that can be allocations. Others may have given something a name that begins like those of the group:
        the master would refuse to hear of it, and of all that is told with it.
        """
        found = []
        for one in seen:
            if is_allocation_name(one.name):
                found.append(one._replace(engine_id=_text(one.engine_id, ENGINE_ID_MAX)))
            elif len(self._misnamed) < MISNAMED_TOLD and one.name not in self._misnamed:
                self._misnamed.add(one.name)
                say(logging.WARNING, "the engine lists what is no allocation", group=self._group, name=one.name[:80])
        return tuple(found)

    def _with_reasons(self, seen: tuple[Seen, ...]) -> tuple[Seen, ...]:
        """Those that have failed, with what the engine says of them in full; it is asked once for each."""
        failed = [one for one in seen if one.state is State.FAILED]
        for one in [one for one in failed if one.name not in self._explained][:EXPLAINED_AT_ONCE]:
            self._explained[one.name] = _words_of(self._provider.why(one) or "") or one.reason
        names = {one.name for one in failed}
        self._explained = {name: why for name, why in self._explained.items() if name in names}
        return tuple(
            one._replace(reason=self._explained.get(one.name, one.reason)) if one.name in names else one for one in seen
        )

    def _words(self, error: Exception) -> str:
        """What a provider says; a fault of its own is logged with its place, and counts as no answer."""
        if isinstance(error, Unreachable):
            return _words_of(str(error))
        logging.getLogger("windrow").error(
            "the provider has a fault", exc_info=error, extra={"fields": {"group": self._group}}
        )
        return _words_of(f"the provider has a fault: {error!r}")


def _text(words: str, length: int) -> str:
    """The beginning of what an engine writes, as text that can be sent: JSON can hold halves of characters."""
    return words[:length].encode("utf-8", "replace").decode()


def _words_of(words: str) -> str:
    """The beginning of what an engine tells people, without what looks like a secret: it may be lines of a log."""
    return _text(shown_text(words[: 2 * WORDS_MAX]), WORDS_MAX)
