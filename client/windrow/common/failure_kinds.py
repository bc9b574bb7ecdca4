"""Groups failures by what they are: the type of the error and its place in the script.

Master and client share it, so that every summary of a job groups alike: the kinds that cost mini-batches first, those
that recovered on retry apart. Pure; regular expressions are imported at the first failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from windrow.common.quantities import counted

MESSAGE_CHARACTERS_MAX = 400
"""The number of leading characters of a message that decide its kind, if it does not name a type of error."""

SHORT_RETURN = "unspecified"
"""The cause of items without a failed attempt: `run()` returned fewer results than it was given items."""

NO_MORE_STARTS = ". This node starts no more workers for this step"
"""Ends the message of the start after which a node gives a step up. It failed as those before it."""

_NAMES = {
    "exception": "an exception",
    "timeout": "a timeout",
    "bad_return": "a return value that cannot become rows",
    "crash": "a crash of the worker",
    "oom": "too little memory",
    "init_failed": "a failed start of a worker",
    "load_failed": "input that could not be loaded",
    "input_changed": "input that had changed",
    "node_fault": "a fault of the node",
    "node_lost": "the loss of its node",
    "preempted": "a node that was taken away",
    "rows_lost": "the loss of its committed rows",
    "cancelled": "a cancelled attempt",
    "node_killer": "the loss of several nodes",
    "output_failed": "an output that could not be written",
    "marked": "an error that the script reported",
    "input_misread": "input that was read unlike it was divided",
}
"""What happened to an attempt, for causes whose messages do not name a type of error."""


class FailedStep(Protocol):
    """A step and what failed in it; `windrow.sdk.job.Step` has this shape."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def is_command(self) -> bool: ...
    @property
    def failure_kinds(self) -> Sequence[FailureKind]: ...


class KindKey(NamedTuple):
    """What makes failures one kind, beside their cause."""

    error: str
    """The type of the exception, such as `ValueError`; otherwise empty."""
    place: str
    """Where in the script, such as `score.py, line 12`; otherwise empty."""
    message: str
    """Without type and place: the message without its numbers; otherwise empty."""


class FailureKind(NamedTuple):
    """Failures of one step that have cause, type of error and place in common, with the first of them as example."""

    cause: str
    """Such as `exception`; `unspecified` for items that got no result although `run()` returned."""
    error: str
    """The type of the exception, such as `ValueError`; empty if the message does not name one."""
    place: str
    """Where in the script, such as `score.py, line 12`; empty if the message does not name a place."""
    attempts: int
    """Failed attempts of this kind."""
    final_attempts: int
    """Of those, the attempts of mini-batches that were given up, or of starts that ended the step."""
    mini_batches: int
    """Mini-batches that were given up at a failure of this kind."""
    items: int
    """The failed items of those."""
    mini_batch_index: int
    """The mini-batch of the example; -1 if a worker failed before it had one."""
    message: str
    detail: str
    """A traceback or the tail of stderr; only of a few kinds, those of final failures first."""
    node_id: str
    process_number: int | None
    status: str = ""
    error_category: str = ""

    @property
    def is_permanent(self) -> bool:
        """Whether something failed for good by failures of this kind."""
        return bool(self.mini_batches or (self.final_attempts and self.is_start))

    @property
    def is_start(self) -> bool:
        """Whether workers failed before they had a mini-batch."""
        return self.mini_batch_index < 0


def within(message: str, most: int) -> str:
    """A message in at most `most` characters: its beginning, which names the type of the error, and its end, which
    names the place in the script, so that `key_of` finds in it what it finds in the whole.
    """
    if len(message) <= most:
        return message
    head = most // 3
    return f"{message[:head]}…{message[head + 1 - most :]}"


def key_of(message: str) -> KindKey:
    """What a failure's message says about its kind."""
    import re

    message = message.partition(NO_MORE_STARTS)[0]
    place = ""
    for found in re.finditer(r"\(([^()/]+, line \d+)\)", message):
        place = found[1]
    named = re.search(
        r"(?:\brun\(\) raised |\bcould not be loaded: |\bfailed: |\bcannot be (?:used|read with [^ ]+): |as rows: )"
        r"([A-Za-z_]\w*)(?=[:(. ]|$)",
        message,
    )
    error = named[1] if named else ""
    # The same except for numbers: "item 17 is bad", "item 18 is bad".
    rest = "" if error or place else re.sub(r"\d+", "#", message[:MESSAGE_CHARACTERS_MAX])
    return KindKey(error, place, rest)


def ordered(kinds: Iterable[FailureKind]) -> list[FailureKind]:
    """The kinds that cost most first; then those that recovered, the most frequent first."""
    return sorted(kinds, key=lambda kind: (not kind.is_permanent, -kind.mini_batches, -kind.items, -kind.attempts))


def name_of(kind: FailureKind, *, with_place: bool = True) -> str:
    """What happened to an attempt: `ValueError (score.py, line 12)`, `a timeout`."""
    name = kind.error or _NAMES.get(kind.cause, kind.cause)
    return f"{name} ({kind.place})" if with_place and kind.error and kind.place else name


def headline(kind: FailureKind, *, settled: bool, with_place: bool = True, is_command: bool = False) -> str:
    """What happened, in one clause without a full stop.

    `settled`: the step is complete, so what did not fail for good has recovered. `with_place`: name the place in the
    script; leave it out where the message follows, which names it.
    """
    name = name_of(kind, with_place=with_place)
    if kind.cause == SHORT_RETURN:
        return f"{counted(kind.items, 'item')} in {counted(kind.mini_batches, 'mini-batch')} got no result"
    attempts = counted(kind.attempts, "attempt")
    others = kind.attempts - kind.final_attempts
    after = "recovered on retry" if settled else "was queued again" if others == 1 else "were queued again"
    if kind.is_start:
        starts = counted(kind.attempts, "start")
        why = f" with {name}" if kind.error or kind.cause != "init_failed" else ""
        return f"{starts} of a worker failed{why}" + ("" if kind.final_attempts else "; later ones succeeded")
    if not kind.is_permanent and not others:
        return f"{attempts} met {name}, in mini-batches that then failed otherwise"
    if not kind.is_permanent:
        return f"{counted(others, 'attempt')} met {name} and {after}"
    what = "the command" if is_command else counted(kind.mini_batches, "mini-batch")
    if kind.items and not is_command:
        what = f"{counted(kind.items, 'item')} in {what}"
    told = f"{what} failed with {name}"
    if others:
        return f"{told}; {counted(others, 'more attempt')} met it and {after}"
    return told if kind.attempts <= kind.mini_batches else f"{told}, in {attempts}"


def cause_line(step: FailedStep, kind: FailureKind) -> str:
    """How much failed, with what and where in the script: one clause, after the name of the step."""
    return f"{step.name}: {headline(kind, settled=step.state == 'completed', is_command=step.is_command)}"
