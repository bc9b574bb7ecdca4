"""Folders in each other, as a script may make them: more than calls can be nested, or deeper than a path may be."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WALKED = 200
"""Deeper than calls can be nested in `few_calls`, and paths lead there."""
DEPTH, LONG = 30, "d" * 200
"""With names like this, deeper than a path may be long."""


def nest(at: Path, depth: int, name: str = "d", every: int = 10) -> int:
    """Make so many folders in each other, with a file in every tenth; return the number of files."""
    descriptor = os.open(at, os.O_RDONLY)
    for number in range(depth):
        if number % every == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=descriptor))
        os.mkdir(name, dir_fd=descriptor)
        below = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    return -(-depth // every)


@contextmanager
def few_calls() -> Iterator[None]:
    """What calls itself for each folder fails in some dozens here, not in some hundred: so fewer have to be made."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 120)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
