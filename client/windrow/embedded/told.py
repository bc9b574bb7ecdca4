"""How a run on this machine was told to run its scripts, for who retries it: `jobs/<job>/run.json` in the state folder.

Only what was typed: a run that was told nothing leaves no file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import NamedTuple


class Told(NamedTuple):
    """`python`: interpreter for the scripts, absolute, or None; `datastores`: NAME=PLACE, with absolute paths."""

    python: str | None = None
    environments: str = "build"
    datastores: tuple[str, ...] = ()


def remember(folder: str, job_id: str, python: str | None, environments: str, datastores: Sequence[str]) -> None:
    """Keep it. Raises OSError."""
    told = Told(python, environments, tuple(_absolute(one) for one in datastores))
    path = _path(folder, job_id)
    if told == Told():
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(told._asdict(), file)
    os.replace(f"{path}.new", path)


def recall(folder: str, job_id: str) -> Told:
    """What was kept of a run; where nothing was, or nothing that can be read, that it was told nothing."""
    try:
        with open(_path(folder, job_id), encoding="utf-8", errors="surrogateescape") as file:
            found = json.load(file)
        return Told(found["python"], found["environments"], tuple(found["datastores"]))
    except (OSError, ValueError, LookupError, TypeError):
        return Told()


def _path(folder: str, job_id: str) -> str:
    return os.path.join(folder, "jobs", job_id, "run.json")


def _absolute(datastore: str) -> str:
    name, equals, place = datastore.partition("=")
    return datastore if not equals or "://" in place else f"{name}={os.path.abspath(place)}"
