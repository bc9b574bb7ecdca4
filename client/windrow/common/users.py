"""Changes the user of this process, permanently."""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from windrow.errors import UsageError


def become_user(name: str) -> None:
    """Make this process one of another user, given by name or number, with that user's groups and home, permanently.
    Does nothing if it already is. Refuses root, as whom scripts could read the join token. Raises UsageError.
    """
    uid, gid, home = find_user(name)
    if uid == 0:
        raise UsageError(
            f"--user {name}: scripts that run as root could read the join token. Choose another user (with Compose: "
            f"WINDROW_UID in .env)."
        )
    if os.getresuid() == (uid, uid, uid):
        return
    try:
        os.setgroups([gid])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise UsageError(
            f"--user {name}: this process may not become another user ({error.strerror}). "
            f"Start it as root, or as that user."
        ) from error
    os.environ["HOME"] = home


def look_as(name: str, look: Callable[[], list[str]]) -> list[str]:
    """What `look` returns when that user calls it. A child of this process becomes the user.

    Only for a process with one thread. `look` must import nothing: that user may not be able to. Raises UsageError if
    this process may not become that user.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            become_user(name)
            os.write(writer, json.dumps(look()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as answers:
        answer = answers.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        # Raises the reason for which the child failed.
        become_user(name)
        raise UsageError(f"--user {name}: could not find out what that user can read.")
    found: list[str] = json.loads(answer)
    return found


def unreadable(needed: Mapping[str, Sequence[str]]) -> list[str]:
    """Why this process cannot read what it needs (existing paths, by what they are): a sentence for each obstacle."""
    kept: dict[str, list[str]] = {}
    for what, paths in needed.items():
        for found in filter(None, map(obstacle, paths)):
            kept.setdefault(found, []).append(what)
    return [
        f"This agent runs as user {os.geteuid()}, who cannot read {', '.join(dict.fromkeys(listed))}: "
        f"{permissions(found)}."
        for found, listed in kept.items()
    ]


def obstacle(path: str) -> str:
    """The first part of an existing path, or of the path that it links to, that keeps this process from reading it; ""
    if nothing does.
    """
    target = os.path.realpath(path)
    for way in (path, target):
        for end, letter in enumerate(way):
            if letter == "/" and end and not os.access(way[:end], os.X_OK):
                return way[:end]
    return "" if os.access(target, os.R_OK | (os.X_OK if Path(target).is_dir() else 0)) else target


def permissions(path: str) -> str:
    """Whose a file or folder is, and who may do what with it, in words; or why it cannot be said."""
    try:
        entry = Path(path).stat()
    except OSError as error:
        return f"{path} cannot be accessed ({error.strerror})"
    kind = "folder" if stat.S_ISDIR(entry.st_mode) else "file"
    return f"the {kind} {path} has mode {stat.S_IMODE(entry.st_mode):04o} and belongs to user {entry.st_uid}"


def find_user(name: str) -> tuple[int, int, str]:
    """Return user, group and home. A number does not need an entry in the user database: its group then has the same
    number, and its home is that of the environment.
    """
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        if not name.isdecimal():
            raise UsageError(f"--user {name}: this machine has no such user. Give another name, or a number.") from None
        return int(name), int(name), os.environ.get("HOME", "/")
    return entry.pw_uid, entry.pw_gid, entry.pw_dir
