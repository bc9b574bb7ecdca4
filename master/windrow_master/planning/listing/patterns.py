"""The `pattern:` of an MLTable path: which files it names, and which folders have to be looked into.

`*` and `?` stay inside one path component; a component `**` stands for any number of folders, none included, and at
the end of a pattern for all files below; `[ab]`, `[a-z]`, `[!a]` as usual; braces are literal. Case counts; hidden
names count as others do. A wildcard stands for a character of UTF-8, not for a byte of it.
Reference: docs/reference/azure-ml/mltable.md#paths.
"""

from __future__ import annotations

import re
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
    regex = ""
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == b"**":
            regex += ".*" if last else "(?:.*/)?"
        else:
            regex += _component(_text(part)) + ("" if last else "/")
    deep = next((index for index, part in enumerate(parts) if part == b"**"), None)
    folders = parts[:-1] if deep is None else parts[:deep]
    return Pattern(
        b"/".join(base) or (b"/" if text.startswith(b"/") else b""),
        re.compile(regex, re.DOTALL),
        tuple(re.compile(_component(_text(part)), re.DOTALL) for part in folders),
        deep is not None,
    )


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _component(part: str) -> str:
    """The regular expression of one path component."""
    regex, at = "", 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[":
            # A "]" right after "[" or "[!" is a member of the set, as in the shell.
            negated = part[at : at + 1] == "!"
            first = at + negated
            end = part.find("]", first + 1)
            if end < 0:
                regex += r"\["
                continue
            members = re.sub(r"([\\^&~|\[\]])", r"\\\1", part[first:end])
            regex += "(?!/)[" + ("^" if negated else "") + members + "]"
            at = end + 1
        else:
            regex += re.escape(char)
    return regex
