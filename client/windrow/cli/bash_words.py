"""Completion in bash, which takes `:` and `=` for ends of words: `JOB:STEP` arrives as three words, and only what
follows the colon is replaced.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence

BREAKS = (":", "=")
WORDS, AT = "COMP_WORDS", "COMP_CWORD"


def rejoined(words: Sequence[str], at: int) -> tuple[list[str], int, str]:
    """The words as they were typed, the place of the one to complete, and its beginning that bash keeps.

    `at`: the place of the word to complete, as bash counts.
    """
    whole: list[str] = []
    place = kept = 0
    for index, word in enumerate(words):
        follows = index > 1 and (word in BREAKS or words[index - 1] in BREAKS)
        if index <= at:
            kept = (len(whole[-1]) if follows else 0) + (len(word) if word in BREAKS else 0)
        if follows:
            whole[-1] += word
        else:
            whole.append(word)
        if index == at:
            place = len(whole) - 1
    if at >= len(words):
        return whole, len(whole), ""
    return whole, place, whole[place][:kept]


def complete(run: Callable[[], int]) -> int:
    """Answer bash. `run`: prints a completion on each line, and returns an exit code or ends with one."""
    words, at, kept = rejoined(os.environ.get(WORDS, "").split("\n"), int(os.environ.get(AT) or 0))
    os.environ[WORDS], os.environ[AT] = "\n".join(words), str(at)
    shown, sys.stdout = sys.stdout, io.StringIO()
    code = 0
    try:
        code = run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        told, sys.stdout = sys.stdout.getvalue(), shown
    for line in told.splitlines():
        # The value of an option comes without its name.
        print(line.removeprefix(kept))
    return code
