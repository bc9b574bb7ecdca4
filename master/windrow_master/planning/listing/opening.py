"""Opens what an input names: links may lead to it, but what is open then has to be in the datastores.

Whoever can write an input may lay a link at any moment, also between a check of a path and its use. So what counts is
where the kernel says that an open folder or file is, not where its path led a moment before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from windrow_master.planning.listing.outside import outside
from windrow_master.roots import Roots


def open_within(path: bytes, roots: Roots | None, flags: int = 0) -> int:
    """Open a path for reading; return the descriptor, which the caller closes. A pipe does not block.

    `roots`: where it has to be; anywhere if None. Raises OSError, PlanningError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    if roots is None:
        return descriptor
    try:
        if not roots.hold_real(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise outside(path, roots)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_within(path: bytes, roots: Roots | None, most: int) -> bytes:
    """The first bytes of a file, at most so many. Raises as `open_within`."""
    with open(open_within(path, roots), "rb") as file:
        return file.read(most)


@contextmanager
def entries_within(path: bytes, roots: Roots | None) -> Iterator[Iterator[os.DirEntry[bytes]]]:
    """The entries of a folder. With `roots`, the paths of the entries lead through the open folder, so they hold only
    as long as this lasts. Raises as `open_within`.
    """
    if roots is None:
        with os.scandir(path) as entries:
            yield entries
        return
    descriptor = open_within(path, roots, os.O_DIRECTORY)
    try:
        # By its number alone, the names would be decoded.
        with os.scandir(b"/proc/self/fd/%d" % descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)
