"""Where paths lead, and which of the links on the way a script may have laid, to be given what they lead to.

A script may replace a folder by a link at any moment, also between a check of a path and its use. So a path is followed
once, here. What it leads to is then a path without links, which is checked, and which the confined process opens
without following any (`confinement`): a link that is laid later leads nowhere.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple

from windrow_agent.sandbox.confinement import is_below

_FOLDERS_MAX = 10_000
_LINKS_MAX = 40
"""As many as the kernel follows in one path."""


class Link(NamedTuple):
    """A link on the way: its path, and the folder that holds it, without links."""

    path: str
    holder: str


class Place(NamedTuple):
    """Where a path leads. `real`: without links. `is_link`: the path itself names a link."""

    real: str
    links: tuple[Link, ...]
    is_link: bool


def followed(path: str) -> Place:
    """Follows the links in an absolute path, which need not exist. Raises OSError if there are too many."""
    rest = _parts(path)
    links: list[Link] = []
    real, is_link = "", False
    while rest:
        part = rest.pop()
        if part == "..":
            real = real.rpartition("/")[0]
            continue
        here = f"{real}/{part}"
        try:
            target = os.readlink(here)  # noqa: PTH115  # text, as in documents
        except OSError:
            # It is no link, is not there, or cannot be reached by this user.
            real = here
            continue
        is_link = is_link or not rest
        links.append(Link(here, real or "/"))
        if len(links) > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        real = "" if target.startswith("/") else real
        rest += _parts(target)
    return Place(real or "/", tuple(links), is_link)


def _parts(path: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


class ScriptFolders:
    """The folders in which scripts of this node were given to write, the newest ones. A link there may be a script's.

    Other links, such as those on the way to a datastore, are the operator's or the user's, and are followed.
    """

    def __init__(self, windrows: Iterable[str]) -> None:
        """`windrows`: Windrow's own folders. It lays no links there."""
        self._windrows = tuple(windrows)
        self._written: dict[str, None] = {}

    def note(self, real: str) -> None:
        """A script may write below this folder from now on."""
        self._written.pop(real, None)
        self._written[real] = None
        if len(self._written) > _FOLDERS_MAX:
            del self._written[next(iter(self._written))]

    def link_on_the_way(self, place: Place) -> str:
        """The first link on the way that a script may have laid; "" if there is none."""
        for link in place.links:
            if any(is_below(link.holder, folder) for folder in (*self._windrows, *self._written)):
                return link.path
        return ""
