"""Whole files that survive a loss of power: written beside their place, synced, renamed, and the name synced.

After a power cut at any moment, the place holds the file that was there before, or the new one; once a call has
returned, the new one. Without the sync of the folder, a name may be gone although its file is on the disk.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike

NO_FOLDER_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)
"""The errors of file systems without folders of their own (shares, FUSE): there is nothing to sync."""


def put_in_place(partial: str | PathLike[str], target: str | PathLike[str], descriptor: int | None = None) -> None:
    """Give a file that is written to its end its name, durably, whether or not another file has it.

    `descriptor`: of the file, if it is open and its owner's rights do not allow to open it again. Raises OSError.
    """
    opened = os.open(partial, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        os.fsync(opened)
    finally:
        if descriptor is None:
            os.close(opened)
    os.rename(partial, target)  # noqa: PTH104  pathlib is not for the way to the first run()
    sync_folder(os.path.dirname(target) or ".")  # noqa: PTH120  the same


def write_whole(
    target: str | PathLike[str], content: bytes, *, partial: str | PathLike[str] | None = None, mode: int = 0o666
) -> None:
    """Write a file as a whole, durably. `partial`: the name that it has until then [default: a hidden one beside it].
    Only one call at a time for a `partial`. What is there under that name goes; a link that somebody has laid there is
    not followed. Raises OSError; then what was there before is there still.
    """
    folder, slash, name = os.fspath(target).rpartition("/")
    unfinished = os.fspath(partial) if partial is not None else f"{folder}{slash}.{name}.windrow-partial"
    try:
        with open(create_anew(unfinished, mode), "wb") as file:
            file.write(content)
        put_in_place(unfinished, target)
    except BaseException:
        try:
            os.unlink(unfinished)  # noqa: PTH108  the same
        except OSError:
            pass
        raise


def create_anew(path: str | PathLike[str], mode: int = 0o666) -> int:
    """Make a new file in the place of any other, or of a link; return its descriptor, open for writing.

    Raises FileExistsError if somebody else makes one there at the same time, OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)  # noqa: PTH108  pathlib is not for the way to the first run()
    return os.open(path, flags, mode)


def sync_folder(folder: str | PathLike[str]) -> None:
    """Sync the names in a folder to the disk. Raises OSError, but not if the file system has no way to do it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        # A folder that can be written but not read cannot be synced.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)
