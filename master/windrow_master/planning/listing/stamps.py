"""Names in stores, each followed by its *stamp*: a line feed, the object's size, a space, and the store's mark of its
content.

Names in stores hold no control characters, so the first line feed ends the name. By the stamp an agent knows that what
it fetches is what was listed. Among names of a list that holds both, local ones are absolute and have no stamp.
"""

from __future__ import annotations

from collections.abc import Callable


def stamped(name: bytes, size: int, version: str) -> bytes:
    """A name with its stamp."""
    return b"%b\n%d %b" % (name, size, version.encode())


def name_of(text: bytes) -> bytes:
    """The name without its stamp."""
    return text.partition(b"\n")[0]


def stamp_of(text: bytes) -> tuple[int, str]:
    """Size and mark of a stamped name."""
    size, _, version = text.partition(b"\n")[2].partition(b" ")
    return int(size), version.decode()


def unstamped(text: bytes, *, remote: bool) -> bytes:
    """A name of a list of files without its stamp, if it has one. `remote`: of the list's reader document."""
    return name_of(text) if remote and not text.startswith(b"/") else text


def through(apply: Callable[[bytes, list[bytes]], list[bytes]], folder: bytes, names: list[bytes]) -> list[bytes]:
    """Apply a function to names without their stamps; return the remaining names with their stamps."""
    if folder.startswith(b"/"):
        return apply(folder, names)
    whole = {name_of(name): name for name in names}
    return [whole[name] for name in apply(folder, list(whole))]
