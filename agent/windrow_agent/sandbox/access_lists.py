"""Gives a user access to a folder of somebody else's with all below it, and takes it back: POSIX access control lists.

The owner, the group and the mode of what is there stay as they are, so nobody else notices. What the user makes there
belongs to the user until the access is taken back: from then on to the owner of the folder, as far as its rights go.

Invariants:

1. No link is followed: entries are reached by descriptors, one folder after the other.
2. Access is given to files with one name alone: another name may be in a folder that is somebody else's.
3. Only what belongs to the user changes its owner, and links do not: whose a link is says whether to trust it
   (`real_place`).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from windrow.common.beneath import Folder
from windrow.common.trees import Entry, entries_below

ENTRIES_MAX = 50_000
"""The most entries of a folder to which a user gets access."""

_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_VERSION = 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_ALL = 7
_LINKS_MAX = 40
_HOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

_Rights = dict[tuple[int, int], int]
"""By kind of entry and user or group: what it may, as the bits of a mode."""


class NotGiven(Exception):
    """The user could not get access; the text says why."""


def real_place(path: str) -> str:
    """Where a folder is: a path through no link. What is missing of it is made. Follows only links of root, since
    scripts lay others. Raises NotGiven, OSError.

    Each part is reached from the open folder above it: a script that puts a link there meanwhile leads nowhere.
    """
    parts, links = path.split("/")[::-1], 0
    names: list[str] = []
    holders = [os.open("/", _HOLDER)]
    try:
        while parts:
            part = parts.pop()
            if part in ("", ".", ".."):
                if part == ".." and names:
                    names.pop()
                    os.close(holders.pop())
                continue
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=holders[-1])
            descriptor = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=holders[-1])
            holders.append(descriptor)
            names.append(part)
            status = os.fstat(descriptor)
            if not stat.S_ISLNK(status.st_mode):
                continue
            links += 1
            here = "/" + "/".join(names)
            if status.st_uid != 0 or links > _LINKS_MAX:
                raise NotGiven(f"{here} is a link of user {status.st_uid}, whom a script may be or have been")
            target = os.readlink("", dir_fd=descriptor)
            for _ in range(len(names) if target.startswith("/") else 1):
                names.pop()
                os.close(holders.pop())
            parts += target.split("/")[::-1]
        return "/" + "/".join(names)
    finally:
        for holder in holders:
            os.close(holder)


def give_access(path: str, user: int, closed: Collection[str] = ()) -> bool:
    """Lets a user make, change and remove files in a folder and below it. `path`: through no link (`real_place`);
    `closed`: such paths that are left out.

    False if there is too much in the folder: the user has no access to the rest. Raises NotGiven.
    """
    left = ENTRIES_MAX
    try:
        with Folder.open(path) as top:
            for place, status in _below(top, closed):
                if left == 0:
                    return False
                left -= 1
                _set_rights(place, status, partial(_with, user=user, status=status))
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise NotGiven(f"the file system of {path} keeps no access lists (POSIX ACLs)") from error
        raise NotGiven(f"{error.filename or path}: {error.strerror}") from error
    return True


def take_back(path: str, user: int, closed: Collection[str] = ()) -> None:
    """Ends the access of a user whose processes are gone, and gives what the user has made there to the owner and the
    group of the folder. `path`, `closed`: as of `give_access`. Raises OSError.
    """
    with Folder.open(path) as top:
        owner = os.fstat(top.descriptor)
        for place, status in _below(top, closed, everything=True):
            # What has just gone is nobody's any more.
            with suppress(FileNotFoundError):
                if status.st_uid == user and owner.st_uid != user and not stat.S_ISLNK(status.st_mode):
                    os.chown(place, owner.st_uid, owner.st_gid)
                with suppress(OSError):
                    _set_rights(place, status, partial(_without, user=user))


def give_tree(path: Path, user: int) -> None:
    """Makes a folder of the agent's, in which no script has run yet, a user's own with all below it. Raises OSError."""
    with Folder.open(os.path.realpath(path)) as top:
        for place, _ in _below(top, ()):
            os.chown(place, user, user)


def take_tree(path: Path, user: int) -> None:
    """Makes what belongs to a user in a folder the agent's own, which nobody else may write. Raises OSError."""
    with Folder.open(os.path.realpath(path)) as top:
        for place, status in _below(top, (), everything=True):
            if status.st_uid == user:
                os.chown(place, os.geteuid(), os.getegid())
            if not stat.S_ISLNK(status.st_mode):
                os.chmod(place, stat.S_IMODE(status.st_mode) & 0o755)  # noqa: PTH101  a path of an open file


def _below(top: Folder, closed: Collection[str], *, everything: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """A folder, and all folders and files with one name below it: a path that leads to exactly this one, and its
    status. `everything`: links, pipes and files with several names, too.
    """
    yield f"/proc/self/fd/{top.descriptor}", os.fstat(top.descriptor)
    apart = {str(Path(path).relative_to(top.path)) for path in closed if Path(path).is_relative_to(top.path)}
    depth = max((path.count("/") for path in apart), default=-1)

    def is_open(entry: Entry) -> bool:
        return len(entry.above) > depth or entry.path not in apart

    for entry in entries_below(top.descriptor, enter=is_open):
        if not is_open(entry):
            continue
        try:
            descriptor = os.open(entry.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry.holder)
        except OSError:
            continue
        try:
            status = os.fstat(descriptor)
            is_folder, is_file = stat.S_ISDIR(status.st_mode), stat.S_ISREG(status.st_mode)
            if everything or is_folder or (is_file and status.st_nlink == 1):
                yield f"/proc/self/fd/{descriptor}", status
        finally:
            os.close(descriptor)


def _set_rights(place: str, status: os.stat_result, change: Callable[[_Rights], _Rights]) -> None:
    """Raises OSError."""
    is_folder = stat.S_ISDIR(status.st_mode)
    for name in (_ACCESS, _DEFAULT) if is_folder else (_ACCESS,):
        found = _rights(place, name)
        if found is None:
            mode = status.st_mode
            found = {(_OWNER, _NOBODY): mode >> 6 & 7, (_GROUP, _NOBODY): mode >> 3 & 7, (_OTHERS, _NOBODY): mode & 7}
            if change(found) == found:
                continue
        wanted = change(found)
        if wanted == found:
            continue
        if name == _DEFAULT and not any(kind in (_USER, _NAMED_GROUP) for kind, _ in wanted):
            os.removexattr(place, name)
        else:
            os.setxattr(place, name, _as_bytes(wanted))


def _rights(place: str, name: str) -> _Rights | None:
    """The list that is there. Raises OSError."""
    try:
        data = os.getxattr(place, name)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return None
        raise
    entries = [_ENTRY.unpack_from(data, at) for at in range(_HEAD.size, len(data), _ENTRY.size)]
    return {(kind, who): may for kind, may, who in entries}


def _as_bytes(rights: _Rights) -> bytes:
    return _HEAD.pack(_VERSION) + b"".join(_ENTRY.pack(kind, may, who) for (kind, who), may in sorted(rights.items()))


def _with(rights: _Rights, user: int, status: os.stat_result) -> _Rights:
    """What is there, and for the user as much as the owner may: all in folders."""
    may = _ALL if stat.S_ISDIR(status.st_mode) else 6 | (status.st_mode >> 6 & 1)
    found = rights | {(_USER, user): may}
    found[_MASK, _NOBODY] = _mask(found) | rights.get((_MASK, _NOBODY), 0)
    return found


def _without(rights: _Rights, user: int) -> _Rights:
    """What is there, without the user. Where no other is named, the mask goes, too, after it has done its work: what is
    made in a folder gets the folder's rights of the group, and the mask keeps them to those that were asked for.
    """
    if (_USER, user) not in rights:
        return rights
    found = {key: may for key, may in rights.items() if key != (_USER, user)}
    if not any(kind in (_USER, _NAMED_GROUP) for kind, _ in found):
        found[_GROUP, _NOBODY] &= found.pop((_MASK, _NOBODY), _ALL)
    return found


def _mask(rights: _Rights) -> int:
    mask = 0
    for (kind, _), may in rights.items():
        if kind in (_USER, _GROUP, _NAMED_GROUP):
            mask |= may
    return mask
