"""Regular expressions of users, which are matched in time that grows with the text only.

Python's `re` tries one way after the other, and some patterns have more ways than anybody can wait for: a few
characters in a table could hold a planner for ever. These are matched by RE2, by pyarrow. Azure ML's reader (Rust's
`regex`) is linear, too: neither has look-around and backreferences.

pyarrow is loaded when the first pattern is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

SYNTAX = "Patterns have the syntax of RE2, which has no look-around ((?=…), (?<!…)) and no backreferences (\\1)"


SHORT_MAX = 255
"""The most characters of a path for which the cube of its length does not matter."""


class BadPattern(ValueError):
    """A pattern that RE2 does not take; the text says what it does not."""


def check(pattern: str) -> None:
    """Raises BadPattern for what is no pattern of RE2."""
    found_in(pattern, [""])


def found_in(pattern: str, texts: Iterable[str]) -> list[bool]:
    """Whether each text contains a match. Raises BadPattern."""
    from pyarrow import ArrowInvalid, compute

    try:
        return [bool(compute.match_substring_regex(_array(text), pattern=pattern)[0].as_py()) for text in texts]
    except ArrowInvalid as error:
        raise BadPattern(_said(error)) from None


class PathPattern:
    """A pattern of paths with named groups, in place of a compiled one of `re`."""

    def __init__(self, pattern: str, short: re.Pattern[str] | None = None) -> None:
        """`pattern`: as `re` has it, with `\\Z` at its end. `short`: what is as good for short paths, and faster.

        Raises BadPattern.
        """
        self._short = short
        self._pattern = "(?s)" + _without_numbers(pattern.removesuffix(r"\Z")) + r"\z"
        self._search("")

    def search(self, path: str) -> _Groups | re.Match[str] | None:
        """The leftmost match, as `re` finds it. `path` is as of `os.fsdecode`."""
        if self._short is not None and len(path) <= SHORT_MAX:
            return self._short.search(path)
        return self._search(path)

    def _search(self, path: str) -> _Groups | None:
        from pyarrow import ArrowInvalid, compute

        try:
            found = compute.extract_regex(_array(path), pattern=self._pattern)[0].as_py()
        except ArrowInvalid as error:
            raise BadPattern(_said(error)) from None
        return None if found is None else _Groups((name, _text(value)) for name, value in found.items())


class _Groups(dict[str, "str | None"]):
    """Named groups of a match; None for one that took no part, and none is empty."""

    def groupdict(self) -> dict[str, str | None]:
        return self


def ways_of(pattern: str) -> int | None:
    """How many parts of unknown length a pattern of paths (of `windrow_worker.tables.partition_format`) has between two
    `/`, at most: the power of the length of a path that `re` may take, less one. None if there is more of a regular
    expression in it than what stands for columns, dates, `*` and `/`.
    """
    rest = pattern.removeprefix("(?:").removesuffix(r")\Z")
    for known, short in _KNOWN:
        rest = known.sub(short, rest)
    return None if _SPECIAL.search(rest) else max(part.count("\0") for part in rest.split("/"))


_KNOWN = (
    (re.compile(r"\(\?P<t\d+>\[\^/\\\\\]\+\)|\[\^/\\\\\][+*]"), "\0"),
    (re.compile(r"\(\?P<\w+>\\d\{\d\}\)|\\d\{\d\}"), "0"),
    (re.compile(r"\[/\\\\\]"), "/"),
    (re.compile(r"\\[.{}()\[\]+?^$|]"), "_"),
)
_SPECIAL = re.compile(r"[()\[\]{}+*?^$|\\.]")
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\()(?!\?)", re.DOTALL)


def _without_numbers(pattern: str) -> str:
    """The pattern with names for all groups that it has: pyarrow takes no other ones, and nothing refers to them."""
    return _GROUP.sub(lambda found: "(?:" if found[1] else found[0], pattern)


def _array(text: str) -> Any:
    """One text, or, if it is not UTF-8, its bytes."""
    import pyarrow

    content = os.fsencode(text)
    try:
        content.decode()
    except UnicodeDecodeError:
        return pyarrow.array([content], pyarrow.binary())
    return pyarrow.array([content], pyarrow.string())


def _text(value: str | bytes) -> str | None:
    return (os.fsdecode(value) if isinstance(value, bytes) else value) or None


def _said(error: Exception) -> str:
    return str(error).removeprefix("Invalid regular expression: ")
