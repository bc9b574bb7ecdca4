"""The `pattern:` of an MLTable path: which files it names, and which folders have to be looked into.

`*` and `?` stay inside one path component; a component `**` stands for any number of folders, none included, and at
the end of a pattern for all files below; `[ab]`, `[a-z]`, `[!a]` as usual; braces are literal. Case counts; hidden
names count as others do. A wildcard stands for a character of UTF-8, not for a byte of it.

A match takes at most the length of the name times that of the pattern, whatever both hold: where several wildcards
follow each other, what stands between them is found at its first place, and never sought at another.
Reference: docs/reference/azure-ml/mltable.md#paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

_WILD = re.compile(rb"[*?\[]")


class Pattern(NamedTuple):
    """A compiled pattern. `base`: the folder (relative, `b""` for the starting one) below which everything it names
    lies."""

    base: bytes
    files: re.Pattern[str]
    folders: tuple[re.Pattern[str], ...]
    any_depth: bool

    def names_file(self, name: bytes) -> bool:
        """Whether the pattern names this file; `name` is relative to `base`."""
        return self.files.fullmatch(_text(name)) is not None

    def leads_into(self, name: bytes) -> bool:
        """Whether files of the pattern may be in this folder; `name` is relative to `base`."""
        parts = _text(name).split("/")
        if len(parts) > len(self.folders) and not self.any_depth:
            return False
        return all(folder.fullmatch(part) for folder, part in zip(self.folders, parts, strict=False))


def is_wild(text: bytes) -> bool:
    """Whether there is a wildcard in it."""
    return _WILD.search(text) is not None


def compile_pattern(text: bytes) -> Pattern:
    """Compile a pattern that holds a wildcard."""
    parts = [part for part in text.split(b"/") if part not in (b"", b".")]
    fixed = next(index for index, part in enumerate(parts) if is_wild(part))
    base, parts = parts[:fixed], parts[fixed:]
    if text.startswith(b"/"):
        base.insert(0, b"")
    regex = _path([_text(part) for part in parts])
    deep = next((index for index, part in enumerate(parts) if part == b"**"), None)
    folders = parts[:-1] if deep is None else parts[:deep]
    return Pattern(
        b"/".join(base) or (b"/" if text.startswith(b"/") else b""),
        re.compile(regex, re.DOTALL),
        tuple(re.compile(_component(_text(part), count()), re.DOTALL) for part in folders),
        deep is not None,
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _path(parts: list[str]) -> str:
    """The regular expression of a path. Between two `**`, the earliest folders that fit are as good as any."""
    names = count()
    runs: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_component(part, names))
    first, *others = ["/".join(run) for run in runs]
    if not others:
        return first
    regex = first + "/" if first else ""
    for run in others[:-1]:
        if run:
            regex += _once(f"(?:[^/]*/)*?{run}/", names)
    return regex + (f"(?:[^/]*/)*{others[-1]}" if others[-1] else ".*")


def _component(part: str, names: Iterator[int]) -> str:
    """The regular expression of one path component. `names`: those of groups in it."""
    first, *others = _between_stars(part)
    if not others:
        return first
    return first + "".join(_once(f"[^/]*?{run}", names) for run in others[:-1] if run) + f"[^/]*{others[-1]}"


def _once(regex: str, names: Iterator[int]) -> str:
    """A regular expression that is matched as it matches first, and never in another way: what looks ahead does not
    look again. Atomic groups are wrong in some versions of Python.
    """
    name = f"once{next(names)}"
    return f"(?=(?P<{name}>{regex}))(?P={name})"


def _between_stars(part: str) -> list[str]:
    """The regular expressions of what stands between the `*` of a component: each of a fixed number of characters."""
    runs, at = [""], 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            runs.append("")
        elif char == "?":
            runs[-1] += "[^/]"
        elif char == "[":
            # A "]" right after "[" or "[!" is a member of the set, as in the shell.
            negated = part[at : at + 1] == "!"
            first = at + negated
            end = part.find("]", first + 1)
            if end < 0:
                runs[-1] += r"\["
                continue
            members = re.sub(r"([\\^&~|\[\]])", r"\\\1", part[first:end])
            runs[-1] += "(?!/)[" + ("^" if negated else "") + members + "]"
            at = end + 1
        else:
            runs[-1] += re.escape(char)
    return runs
