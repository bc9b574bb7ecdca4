"""`python -m windrow_agent.node.delegation UID GID`: gives a user a control group, and moves the process that has
started this one there. Run by root, before that process becomes the user (`windrow agent --user`).

Afterwards the user makes groups in it (`control_groups`), as if systemd had delegated it. The user can neither lift the
limits of that group nor leave it. It is called `windrow-<pid>-<start time>` after the process, and so is removed by the
next one when that process is gone.

Prints why it could not, and ends with 1 then; the process stays where it was.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from windrow_agent.node.control_groups import (
    AGENTS,
    NoControlGroups,
    Tree,
    make_room,
    remove_abandoned,
    trees_here,
    usable,
)
from windrow_agent.node.strays import start_time

_GIVEN = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
"""What whoever manages the groups below a group writes. Its limits are not among them."""


def delegate(pid: int, uid: int, gid: int) -> None:
    """Does it for a process. Raises NoControlGroups."""
    made: list[Path] = []
    moved_from: list[Path] = []
    try:
        for tree in usable(trees_here(), demanded=False):
            base = tree.own.parent if tree.own.name == AGENTS else tree.own
            if tree.version == 2 and tree.controllers:
                make_room(base, tree.controllers)
            remove_abandoned(base)
            folder = base / f"windrow-{pid}-{start_time(pid)}"
            folder.mkdir()
            made.append(folder)
            _give(folder, uid, gid)
            moved_from.append(_group_of(tree))
            (folder / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        _undo(pid, made, moved_from)
        raise NoControlGroups(f"{error.filename or made}: {error.strerror}") from error


def _give(folder: Path, uid: int, gid: int) -> None:
    os.chown(folder, uid, gid)
    for name in _GIVEN:
        with suppress(FileNotFoundError):
            os.chown(folder / name, uid, gid)


def _group_of(tree: Tree) -> Path:
    """Where the process is now: `make_room` may have moved it."""
    room = tree.own / AGENTS
    return room if room.is_dir() else tree.own


def _undo(pid: int, made: Sequence[Path], moved_from: Sequence[Path]) -> None:
    for group in moved_from:
        with suppress(OSError):
            (group / "cgroup.procs").write_text(str(pid))
    for folder in made:
        with suppress(OSError):
            folder.rmdir()


if __name__ == "__main__":
    try:
        delegate(os.getppid(), int(sys.argv[1]), int(sys.argv[2]))
    except NoControlGroups as why:
        print(why)
        sys.exit(1)
