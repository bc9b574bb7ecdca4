"""Unpacks archives of code and of data, and trusts nothing that an archive says.

Format: docs/contracts.md, sections 1 and 1a: a plain tar of regular files, with PAX headers for names that are long or
not ASCII. This reader does not support the rest of tar: it refuses links, devices, sparse files, folders and all other
kinds of headers, and no header makes it use more than PAX_BYTES_MAX of memory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

BLOCK_BYTES = 512
PAX_BYTES_MAX = 64 * 1024
"""The limit for the further headers of one file. A path is the longest thing in them."""

_CHUNK = 1024 * 1024
_HEADER_BYTES_MAX = 8192
"""The limit for headers and padding of one file, even with the longest names that systems allow."""

_REGULAR, _PAX = b"0", b"x"


def not_packed(folder: str, error: OSError) -> str:
    """Why a code folder cannot be packed, and what to do, in a sentence without its first capital."""
    what = os.fsdecode(error.filename) if error.filename else folder
    advice = f"{not_read_advice(what, error)}, or list it in .amlignore"
    return f"the code folder {folder} cannot be packed: {what}: {error.strerror}. {advice}."


def not_read_advice(path: str, error: OSError) -> str:
    """What to do about a file or folder that cannot be read, or for a copy of which there is no room."""
    # Most commands need none.
    import shlex

    if isinstance(error, FileNotFoundError):
        return "Something removes it meanwhile: wait for the end of that, and try again"
    if isinstance(error, PermissionError):
        return f"Let your user read it (chmod u+rX {shlex.quote(path)})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room on that disk, or set TMPDIR to a folder with room"
    return "Check that disk"


class ArchiveError(Exception):
    """A folder that cannot be packed, or an archive that is refused; the message says which, and why."""


class OtherKind(ArchiveError):
    """The archive does not begin like an archive of this kind."""


class ArchiveLimits(NamedTuple):
    """What an archive may hold: `files_max` counts files, `bytes_max` their content in total."""

    files_max: int
    bytes_max: int

    @property
    def folders_max(self) -> int:
        """How many folders its files may need. A path of one file can name two thousand, of 4 KiB each on a disk."""
        return 4 * self.files_max


DATA_LIMITS = ArchiveLimits(files_max=1_000_000, bytes_max=16 << 30)
"""The limits for a client's data for one input. `bytes_max` also limits the whole archive, headers included."""


CODE_LIMITS = ArchiveLimits(files_max=50_000, bytes_max=2 * 1024**3)
"""The limits for a code folder."""

_IMPORTED = (b".py", b".so")


class Hash(Protocol):
    """A hash object as `hashlib` makes it."""

    def update(self, data: bytes, /) -> None:
        """Add more of the content."""

    def digest(self) -> bytes:
        """Return the hash of everything added so far."""


class Member(NamedTuple):
    """A regular file in an archive; its content begins at `offset`."""

    name: bytes
    size: int
    executable: bool
    offset: int


@cache
def data_preamble() -> bytes:
    """How archives of data begin. Archives of code never begin like this, so no digest belongs to one of each."""
    # Imported here: only transfers of data need it.
    import tarfile

    return tarfile.TarInfo.create_pax_global_header({"comment": "windrow data"})


def unpack(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    limits: ArchiveLimits,
    *,
    what: str,
    preamble: bytes = b"",
    for_all: bool = False,
    on_bytes: Callable[[int], None] = lambda done: None,
    on_file: Callable[[bytes, bytes, os.stat_result], None] | None = None,
    make_hash: Callable[[], Hash] = hashlib.sha256,
) -> None:
    """Unpacks an archive into `folder`, which must not exist yet or be empty.

    Only regular files with relative names are accepted, each once; anything else, and an archive beyond the limits,
    raises ArchiveError, which calls it `what`. Files that were unpacked before that stay: the caller removes the
    folder. The caller also verifies that the archive has its digest. `preamble`: how it must begin; `for_all`: all
    users may read what is unpacked, whatever the umask; `on_bytes` is called again and again with the number of bytes
    of the archive that are done; `on_file` is called with each written file: its name, the digest of its content
    (sha256, or from `make_hash`), and its status. Raises OSError.
    """
    target = os.fsencode(folder)
    os.makedirs(target, exist_ok=True)
    if for_all:
        Path(folder).chmod(0o755)
    if any(Path(folder).iterdir()):
        raise ArchiveError(f"{folder} is not empty; archives are only unpacked into a fresh folder.")
    with Path(archive).open("rb") as file:
        # Headers and padding of many small files come on top of the content.
        if os.fstat(file.fileno()).st_size > limits.bytes_max + limits.files_max * _HEADER_BYTES_MAX:
            raise ArchiveError(f"the {what} {archive} is refused: it is larger than Windrow's archives can be.")
        if file.read(len(preamble)) != preamble:
            raise OtherKind(f"the {what} {archive} is refused: it is a different kind of archive.")
        try:
            members = _members(file, len(preamble), what)
            _unpack_members(
                members,
                file,
                target,
                limits,
                what,
                for_all=for_all,
                on_bytes=on_bytes,
                on_file=on_file,
                make_hash=make_hash,
            )
        except ValueError as error:
            raise ArchiveError(f"the {what} {archive} is damaged or not a Windrow archive: {error}") from error


def unpack_code(
    archive: str | os.PathLike[str], folder: str | os.PathLike[str], limits: ArchiveLimits = CODE_LIMITS
) -> dict[str, int]:
    """Unpacks an archive of code into `folder`, which must not exist yet or be empty: see `unpack`.

    Returns the crc32 of each file that Python could import, by its name. Raises ArchiveError, OSError.
    """
    sums = {}

    def note(name: bytes, digest: bytes, _: os.stat_result) -> None:
        if name.endswith(_IMPORTED):
            sums[os.fsdecode(name)] = int.from_bytes(digest)

    unpack(archive, folder, limits, what="code archive", on_file=note, make_hash=_Crc32)
    return sums


def contents(archive: str | os.PathLike[str], *, what: str) -> dict[bytes, bytes]:
    """The sha256 of each file of an archive, by its name. Raises ArchiveError, OSError."""
    found = {}
    with Path(archive).open("rb") as file:
        try:
            for member in _members(file, 0, what):
                digest, left, at = hashlib.sha256(), member.size, member.offset
                while left and (chunk := os.pread(file.fileno(), min(left, _CHUNK), at)):
                    digest.update(chunk)
                    left, at = left - len(chunk), at + len(chunk)
                found[member.name] = digest.digest()
        except ValueError as error:
            raise ArchiveError(f"the {what} {archive} is damaged or not a Windrow archive: {error}") from error
    return found


def _unpack_members(
    members: Iterator[Member],
    file: BinaryIO,
    target: bytes,
    limits: ArchiveLimits,
    what: str,
    *,
    for_all: bool,
    on_bytes: Callable[[int], None],
    on_file: Callable[[bytes, bytes, os.stat_result], None] | None,
    make_hash: Callable[[], Hash],
) -> None:
    content_bytes, folders, made = 0, 0, {target}
    for count, member in enumerate(members, 1):
        content_bytes += member.size
        if count > limits.files_max or content_bytes > limits.bytes_max:
            raise ArchiveError(
                f"the {what} is refused: it holds more than {limits.files_max} files or {limits.bytes_max} bytes."
            )
        shown = os.fsdecode(member.name[:500])
        parts = member.name.split(b"/")
        if b"\0" in member.name or any(part in (b"", b".", b"..") for part in parts):
            raise ArchiveError(f"the {what} is refused: {shown!r} is not a valid relative file name.")
        try:
            if b"/".join([target, *parts[:-1]]) not in made:
                folders += _make_folders(target, parts[:-1], made, limits.folders_max - folders, for_all=for_all)
            # O_EXCL: a name that appears twice is refused, and nothing that exists is followed or overwritten.
            descriptor = os.open(
                target + b"/" + member.name,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o755 if member.executable else 0o644,
            )
        except _TooManyFolders:
            raise ArchiveError(
                f"the {what} is refused: its files lie in more than {limits.folders_max:,} folders. "
                "Nest them less deep."
            ) from None
        except (FileExistsError, NotADirectoryError):
            raise ArchiveError(
                f"the {what} is refused: {shown!r} appears twice, or as both a file and a folder."
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL):
                raise
            raise ArchiveError(
                f"the {what} is refused: {shown!r} cannot be the name of a file here: {error.strerror}."
            ) from error
        with os.fdopen(descriptor, "wb") as out:
            if for_all:
                os.fchmod(descriptor, 0o755 if member.executable else 0o644)
            hasher = None if on_file is None else make_hash()
            at, end = member.offset, member.offset + member.size
            while at < end:
                chunk = os.pread(file.fileno(), min(end - at, _CHUNK), at)
                if not chunk:
                    raise ValueError(f"{shown!r} ends too early")
                out.write(chunk)
                if hasher is not None:
                    hasher.update(chunk)
                at += len(chunk)
                on_bytes(at)
            if on_file is not None and hasher is not None:
                out.flush()
                on_file(member.name, hasher.digest(), os.fstat(descriptor))


class _TooManyFolders(Exception):
    """The files of an archive need more folders than it may have."""


def _make_folders(target: bytes, parts: list[bytes], made: set[bytes], most: int, *, for_all: bool) -> int:
    """Make the folders down to a file, at most so many, and remember the last ones made; return how many were made.

    Raises FileExistsError if one of them is a file, _TooManyFolders, OSError.
    """
    count = 0
    if len(made) > 10_000:
        made.clear()
    path = target
    for part in parts:
        path += b"/" + part
        if path in made:
            continue
        try:
            if count == most and not os.path.lexists(path):
                raise _TooManyFolders
            os.mkdir(path, 0o755)
        except FileExistsError:
            # Never through a link: only this process writes here, and it makes none.
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
        else:
            count += 1
            if for_all:
                os.chmod(path, 0o755)
        made.add(path)
    return count


def _members(file: BinaryIO, at: int, what: str) -> Iterator[Member]:
    """The files of an archive, in order. `at`: the place of the first header. Raises ArchiveError for any other kind of
    entry, ValueError for data that is not a tar.
    """
    pax: dict[bytes, bytes] = {}
    while True:
        block = os.pread(file.fileno(), BLOCK_BYTES, at)
        if len(block) < BLOCK_BYTES:
            raise ValueError("it ends too early")
        if not any(block):
            if pax:
                raise ValueError("it ends after a header that announces a file")
            return
        if _octal(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * ord(" "):
            raise ValueError("a header has a wrong checksum")
        kind, size = block[156:157], _octal(block[124:136])
        at += BLOCK_BYTES
        if kind == _PAX and not pax:
            if size > PAX_BYTES_MAX:
                raise ArchiveError(f"the {what} is refused: a header has {size} bytes, more than Windrow ever writes.")
            pax = _pax_records(os.pread(file.fileno(), size, at), size)
        else:
            name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
            name = pax.get(b"path", prefix + b"/" + name if prefix else name)
            if kind not in (_REGULAR, b"\0") or any(block[157:257]) or not pax.keys() <= _PAX_KEYS:
                raise ArchiveError(f"the {what} is refused: {os.fsdecode(name[:500])!r} is not a regular file.")
            if b"size" in pax:
                size = _decimal(pax[b"size"])
            pax = {}
            yield Member(name, size, bool(_octal(block[100:108]) & stat.S_IXUSR), at)
        at += -(-size // BLOCK_BYTES) * BLOCK_BYTES


_PAX_KEYS = {b"path", b"size", b"hdrcharset"}


def _pax_records(data: bytes, size: int) -> dict[bytes, bytes]:
    """`<length> <key>=<value>\\n`, one after another. Raises ValueError."""
    if len(data) < size:
        raise ValueError("it ends inside a header")
    records: dict[bytes, bytes] = {}
    at = 0
    while at < size:
        length = _decimal(data[at : data.index(b" ", at)])
        record = data[at : at + length]
        if not 5 <= length <= size - at or not record.endswith(b"\n"):
            raise ValueError("a header is damaged")
        key, _, value = record[:-1].partition(b" ")[2].partition(b"=")
        records[key] = value
        at += length
    return records


def _octal(field: bytes) -> int:
    text = field.split(b"\0")[0].strip(b" ")
    if not all(0x30 <= digit <= 0x37 for digit in text):
        raise ValueError("a header lacks a number")
    return int(text or b"0", 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise ValueError("a header lacks a number")
    return int(text)


class _Crc32:
    """A `Hash` that computes a crc32."""

    def __init__(self) -> None:
        self._crc = 0

    def update(self, data: bytes, /) -> None:
        self._crc = zlib.crc32(data, self._crc)

    def digest(self) -> bytes:
        return self._crc.to_bytes(4)
