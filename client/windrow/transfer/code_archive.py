"""Code folders as archives: packed by the client, addressed by their sha256, unpacked by agents.

Format: docs/contracts.md, section 1. A tar of regular files, sorted by name, in which every field besides content is
fixed, so that equal folders have equal digests on every machine. It is not compressed, because versions of a compressor
differ, and another digest would mean another run. The packing side decides what belongs in it; the unpacking side
trusts nothing.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from windrow.common.archives import CODE_LIMITS, ArchiveError, ArchiveLimits
from windrow.common.state_mark import STATE_MARK

ALWAYS_LEFT_OUT = frozenset(
    {".git", "__pycache__", ".windrow", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that never belong to a job's code: they change from run to run although the code does not."""

DEFAULT_DATASTORE = "workspaceblobstore"
"""The folder beside a state folder that is the default datastore of `windrow.ml.v1`: data and models, no code."""

LOG_SUFFIX = ".log"

IGNORE_FILES = (".amlignore", ".gitignore")
"""The first of these in the root of the folder lists, as git patterns, what is left out."""


@dataclass(frozen=True, slots=True)
class CodeArchive:
    """A packed folder: sha256 of the archive in hexadecimal, its length in bytes, and what went in."""

    digest: str
    length: int
    file_count: int
    content_bytes: int


def pack(
    folder: str | os.PathLike[str],
    archive: BinaryIO,
    *,
    required: Sequence[str] = (),
    left_out: Collection[str] = (),
    with_logs: bool = True,
    limits: ArchiveLimits = CODE_LIMITS,
) -> CodeArchive:
    """Pack a code folder into `archive`, an empty file that is open for writing, and return its digest.

    `folder`: "" packs nothing, for a command without code. `required`: relative paths (the entry script) that must not
    be left out. `left_out`: relative paths of files and folders that are not code; `with_logs`: whether files named
    `….log` are. What this process itself prints into is not code. Links to files inside the folder are packed as those
    files. Raises ArchiveError for links that lead elsewhere, special files, missing required files and folders beyond
    the limits; OSError for what cannot be read.
    """
    root = Path(folder)
    files = list(_files(root, limits, left_out, with_logs)) if os.fspath(folder) else []
    _need(required, files, root)
    content_bytes = 0
    out = _Hashing(archive)
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name, path in files:
            content_bytes += _add(tar, name, path)
            if content_bytes > limits.bytes_max:
                raise ArchiveError(_too_large(root, limits))
    archive.flush()
    return CodeArchive(out.digest.hexdigest(), out.length, len(files), content_bytes)


def measure(
    folder: str | os.PathLike[str],
    *,
    required: Sequence[str] = (),
    left_out: Collection[str] = (),
    with_logs: bool = True,
    limits: ArchiveLimits = CODE_LIMITS,
) -> tuple[int, int]:
    """The number and the bytes of the files that `pack` would take. Reads none of them.

    Raises ArchiveError as `pack` does; OSError.
    """
    root = Path(folder)
    files = list(_files(root, limits, left_out, with_logs))
    _need(required, files, root)
    content_bytes = sum(path.stat().st_size for _, path in files)
    if content_bytes > limits.bytes_max:
        raise ArchiveError(_too_large(root, limits))
    return len(files), content_bytes


def _need(required: Sequence[str], files: Sequence[tuple[str, Path]], root: Path) -> None:
    """Raise ArchiveError if a file that the job needs would be left out."""
    names = {name for name, _ in files}
    for name in required:
        if name not in names:
            raise ArchiveError(
                f"{root / name} is left out of the code archive, but the job needs it; check "
                f"{' and '.join(IGNORE_FILES)} in {root}."
            )


def _files(root: Path, limits: ArchiveLimits, left_out: Collection[str], with_logs: bool) -> Iterator[tuple[str, Path]]:
    """Names (relative, with `/`) and paths of all files to pack, sorted by the bytes of their names."""
    if not root.is_dir():
        raise ArchiveError(f"the code folder {root} does not exist, or is not a folder; name one that exists.")
    walked = _walk(root, _ignored_by(root, left_out, with_logs), _printed_into())
    found = sorted(walked, key=lambda entry: os.fsencode(entry[0]))
    if len(found) > limits.files_max:
        raise ArchiveError(
            f"the code folder {root} holds more than {limits.files_max:,} files; leave data out of it, "
            f"with a {IGNORE_FILES[0]} file or by a narrower `code`."
        )
    yield from found


def _printed_into() -> set[tuple[int, int]]:
    """Device and inode of the files to which the output of this process is redirected, as in `windrow run … > log`."""
    found = set()
    for descriptor in (1, 2):
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue  # closed
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


def _walk(
    root: Path, ignored: Callable[[str], bool], printed: Collection[tuple[int, int]]
) -> Iterator[tuple[str, Path]]:
    real_root = root.resolve()
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.name in ALWAYS_LEFT_OUT or entry.name.endswith(".pyc"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if not ignored(name + "/") and not _is_kept_by_windrow(entry):
                        waiting.append((Path(entry.path), name + "/"))
                elif not ignored(name) and not (printed and _identity(entry) in printed):
                    yield name, _regular_file(Path(entry.path), name, real_root)


def _is_kept_by_windrow(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is a state folder, or the default datastore of notebooks, which is beside one."""
    if Path(entry.path, STATE_MARK).exists():
        return True
    beside = Path(entry.path).parent
    return entry.name == DEFAULT_DATASTORE and any(beside.glob(f"*/{STATE_MARK}"))


def _identity(entry: os.DirEntry[str]) -> tuple[int, int] | None:
    try:
        status = entry.stat()
    except OSError:
        return None  # a broken link; told later
    return status.st_dev, status.st_ino


def _regular_file(path: Path, name: str, root: Path) -> Path:
    """The file, with links resolved that stay inside the folder."""
    if not path.is_symlink():
        if not path.is_file():
            raise ArchiveError(
                f"{path} is neither a file nor a folder (a socket, pipe or device); remove it, or list it "
                f"in {IGNORE_FILES[0]}."
            )
        return path
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise ArchiveError(f"the link {path} is broken; remove it, or list it in {IGNORE_FILES[0]}.") from None
    if not target.is_relative_to(root):
        raise ArchiveError(
            f"the link {path} points outside the code folder, to {target}; copy the file in, or list "
            f"{name} in {IGNORE_FILES[0]}."
        )
    if not target.is_file():
        raise ArchiveError(
            f"the link {path} points to {target}, which is not a file; only links to files are followed. "
            f"List {name} in {IGNORE_FILES[0]}."
        )
    return target


def _ignored_by(root: Path, left_out: Collection[str], with_logs: bool) -> Callable[[str], bool]:
    """Return a function that says whether a name is left out, by the caller or by the ignore file. Names of folders end
    with `/`.
    """

    def is_no_code(name: str) -> bool:
        return name.rstrip("/") in left_out or (not with_logs and name.endswith(LOG_SUFFIX))

    for file_name in IGNORE_FILES:
        try:
            lines = (root / file_name).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except FileNotFoundError:
            continue
        # Only folders with an ignore file pay for the import.
        from pathspec import GitIgnoreSpec

        ignores = GitIgnoreSpec.from_lines(lines).match_file
        return lambda name: is_no_code(name) or ignores(name)
    return is_no_code


def _add(tar: tarfile.TarFile, name: str, path: Path) -> int:
    """Add one file as it is now.

    Its length is taken from the open file, so that a growing file cannot break the archive.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ArchiveError(
                f"{path} is no longer a regular file; do not change the code folder while a job is submitted."
            )
        info = tarfile.TarInfo(name)
        info.size = status.st_size
        info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        try:
            tar.addfile(info, file)
        except OSError as error:
            if "unexpected end of data" not in str(error):
                raise
            raise ArchiveError(
                f"{path} became shorter while it was packed; do not change the code folder while a job is submitted."
            ) from error
        return info.size


def _too_large(root: Path, limits: ArchiveLimits) -> str:
    return (
        f"the code folder {root} holds more than {limits.bytes_max // 1024**2} MiB; give data as "
        f"inputs, and leave it out with a {IGNORE_FILES[0]} file or by a narrower `code`."
    )


class _Hashing(io.RawIOBase):
    """Writes through to a file, and keeps sha256 and length."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.digest = hashlib.sha256()
        self.length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self._raw.write(view)
        self.digest.update(view)
        self.length += view.nbytes
        return view.nbytes
