"""Whether a folder can hold the durable state of runs, or of a master."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

from windrow.common.quantities import size
from windrow.common.role_query import Unanswered, ask
from windrow.common.state_mark import STATE_MARK
from windrow.doctor.findings import FAIL, OK, WARN, Finding
from windrow.embedded.state_folder import read_endpoint
from windrow.errors import StateFolderError

AREA = "State folder"
ROOM_BYTES = 1 << 30
SLOW_SYNC_MS = 20.0
VOLATILE = ("tmpfs", "ramfs")
_ELSEWHERE = "Use a folder on a local disk: --state DIR."


def check(folder: str, *, deep: bool = False) -> Iterator[Finding]:
    """All findings of this area. `deep`: verify every checksum, however long that takes."""
    try:
        found = ask("windrow_master.state_folder", folder)
    except Unanswered as error:
        yield Finding(AREA, "master", FAIL, f"the master's code does not run: {error}", "Reinstall Windrow.")
        return
    there = "exists" if found["is_there"] else "is created by the first run"
    if found["trials"] is None:
        advice = "Choose one that this user can write to: --state DIR."
        yield Finding(AREA, "folder", FAIL, f"{found['folder']} cannot be written ({found['trouble']})", advice)
    else:
        yield Finding(AREA, "folder", OK, f"{found['folder']} {there}{_live(folder, found)}")
    yield _kind(found)
    yield _room(found)
    if found["disk_use"]:
        told = ", ".join(f"{size(taken)} {kind}" for kind, taken in found["disk_use"].items())
        advice = "Delete old jobs: windrow job prune --older-than 30d --dry-run. See docs/how-to/free-disk-space.md."
        yield Finding(AREA, "disk use", OK, f"{size(sum(found['disk_use'].values()))}: {told}", advice)
    if found["trials"] is not None:
        yield from _trials(found["trials"])
    yield from _database(found)
    if deep and found["is_there"]:
        yield from _deep(folder)


def _deep(folder: str) -> Iterator[Finding]:
    try:
        found = ask("windrow_master.salvage", "check", folder, patience_s=None)
        trouble = found["trouble"]
    except Unanswered as error:
        trouble = str(error)
    if trouble:
        yield Finding(AREA, "content", WARN, f"was not checked: {trouble}")
        return
    advice = f"Restore the whole folder from a backup, or: windrow state salvage {shlex.quote(folder)} --to OUT"
    for where, what in found["damage"]:
        yield Finding(AREA, "content", FAIL, f"{where}: {what}", advice)
    if not found["damage"]:
        yield Finding(AREA, "content", OK, "every checksum is correct")


def _live(folder: str, found: dict[str, Any]) -> str:
    try:
        endpoint = read_endpoint(folder) if found["is_there"] else None
    except StateFolderError as error:
        return f"; {error}"
    if endpoint is not None:
        return f"; `windrow run` (process {endpoint.get('pid')}) uses it now"
    return "; a master uses it now" if found["locked"] else ""


def _kind(found: dict[str, Any]) -> Finding:
    kind = found["kind"] or "of an unknown kind"
    if found["network"]:
        return Finding(AREA, "file system", FAIL, f"{kind}, a network file system: the master refuses it", _ELSEWHERE)
    if found["kind"] in VOLATILE:
        advice = "Good for trying things out. On a disk, an interrupted run also survives a reboot."
        return Finding(AREA, "file system", WARN, f"{kind}: its content is lost when the machine restarts", advice)
    return Finding(AREA, "file system", OK, f"{kind}, local")


def _room(found: dict[str, Any]) -> Finding:
    free, needed = found["free_bytes"], found["needed_bytes"]
    seen = f"{size(free)} free"
    if free < needed:
        advice = f"A master reserves {size(needed // 2)}, and stops without it. Free space, or use another disk."
        return Finding(AREA, "room", FAIL, f"{seen}; at least {size(needed)} are needed", advice)
    if free < ROOM_BYTES:
        return Finding(
            AREA, "room", WARN, seen, "The rows of a job are there until it is done. Free enough space for them."
        )
    return Finding(AREA, "room", OK, seen)


def _trials(trials: dict[str, Any]) -> Iterator[Finding]:
    for name, what in (("flock", "locks keep others out"), ("shared_map", "memory maps are shared")):
        if trials[name]:
            yield Finding(AREA, name, OK, what)
        else:
            yield Finding(
                AREA,
                name,
                FAIL,
                "does not work on this file system; two masters could use the folder at once",
                _ELSEWHERE,
            )
    syncs = trials["sync_ms"]
    median = syncs[len(syncs) // 2]
    seen = f"a sync takes {median:.1f} ms (median of {len(syncs)}; {syncs[0]:.1f} to {syncs[-1]:.1f})"
    if median > SLOW_SYNC_MS:
        advice = "Every group of results waits for two syncs. A local SSD makes many short mini-batches faster."
        yield Finding(AREA, "sync", WARN, seen, advice)
    else:
        yield Finding(AREA, "sync", OK, seen)


def _database(found: dict[str, Any]) -> Iterator[Finding]:
    if not found["sqlite_ok"]:
        yield Finding(AREA, "SQLite", FAIL, f"{found['sqlite']} is too old", "Use a newer Python.")
    if found["damage"]:
        advice = "Run windrow state check, which lists all damage. Then see docs/how-to/repair-a-damaged-state.md."
        yield Finding(AREA, "database", FAIL, found["damage"], advice)
        return
    schema, known = found["schema"], found["schema_known"]
    if schema is None:
        return
    if schema > known:
        advice = "Use that version, or a newer one; or another folder: --state DIR."
        yield Finding(
            AREA, "database", FAIL, f"was written by a newer Windrow (schema {schema}, known {known})", advice
        )
    else:
        later = f"; it is brought to {known} at the next start" if schema < known else ""
        length = os.path.getsize(os.path.join(found["folder"], STATE_MARK))  # noqa: PTH118, PTH202
        yield Finding(AREA, "database", OK, f"schema {schema}{later}, {size(length)}")
