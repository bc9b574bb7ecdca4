"""Completion in bash, which takes a colon for the end of a word: `JOB:STEP` reaches the program as three words, and
what it answers replaces the part behind the colon alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable

COLON = ":"


def join(words: list[str], at: int) -> tuple[list[str], int]:
    """Join words that bash has parted at colons. `at`: the index of the word that is being typed; the new one is
    returned.
    """
    joined: list[str] = []
    place = 0
    glue = False
    for number, word in enumerate(words):
        if joined and (word == COLON or glue):
            joined[-1] += word
        else:
            joined.append(word)
        glue = word == COLON and number > 0
        if number == at:
            place = len(joined) - 1
    if at >= len(words):
        # The word that is being typed is still empty; behind a colon it belongs to the one before.
        place = len(joined) - 1 if glue else len(joined)
    return joined, place


def complete(run_app: Callable[[], int]) -> int:
    """Answer bash."""
    words = os.environ.get("COMP_WORDS", "").split("\n")
    try:
        at = int(os.environ.get("COMP_CWORD", ""))
    except ValueError:
        return run_app()
    joined, place = join(words, at)
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(place)
    typed = joined[place] if place < len(joined) else ""
    behind = typed.rfind(COLON) + 1
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            code = run_app()
    finally:
        for line in told.getvalue().splitlines():
            print(line[behind:] if line.startswith(typed[:behind]) else line, file=sys.stdout)
    return code
