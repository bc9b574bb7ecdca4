"""Asks what happens if the code has changed since the job whose results are taken over."""

from __future__ import annotations

import sys
from collections.abc import Callable

from windrow.cli.messages import printable

ANSWERS = {"r": "rerun", "m": "mix", "": "ask"}


def asker(*, quiet: bool, begin: Callable[[], None] | None = None) -> Callable[[str], str]:
    """The function that asks on a terminal; without one, or if `quiet`, nothing is chosen.

    `begin`: called before it asks, so that nothing else is printed between the question and its answer.
    """
    if quiet or sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return lambda told: "ask"

    def ask(told: str) -> str:
        if begin is not None:
            begin()
        return _ask(told)

    return ask


def _ask(told: str) -> str:
    """Ask until there is an answer. The end of the input is one: stop."""
    what, _, _ = told.partition(" Choose what happens:")
    lines = [
        what,
        "  r      run everything again",
        "  m      mix: keep those results as they are, and run only the rest",
        "  Enter  stop",
    ]
    print(printable("\n".join(lines), sys.stderr.encoding), file=sys.stderr)
    while True:
        print("Choose [r/m/Enter]: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        chosen = ANSWERS.get(answer.strip().lower())
        if chosen is not None:
            return chosen
