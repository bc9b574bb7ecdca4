"""Becoming another user of this machine, for good."""

from __future__ import annotations

import os
import pwd

from windrow.errors import UsageError


def become_user(name: str) -> None:
    """Turn this process into one of a user, given by name or number: its groups, its home, and no way back.

    Nothing to do where it is that user's already. Root is nobody to become: it is done to leave root's files behind.
    Raises UsageError.
    """
    uid, gid, home = _find(name)
    if uid == 0:
        raise UsageError(
            f"--user {name}: scripts that run as root could read the join token. Name another user (with Compose: "
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


def _find(name: str) -> tuple[int, int, str]:
    """(user, group, home); a number needs no entry in the list of users: its group has the same number then, and its
    home is that of the environment."""
    try:
        entry = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        if not name.isdecimal():
            raise UsageError(
                f"--user {name}: there is no such user here. Give a name of this machine, or a number."
            ) from None
        return int(name), int(name), os.environ.get("HOME", "/")
    return entry.pw_uid, entry.pw_gid, entry.pw_dir
