"""Content-addressed archives on the master's disk: received in pieces, verified, then durable under their digest.

Verify an archive before you use it (`verified`). A damaged one is removed, so that the next upload replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Collection
from pathlib import Path

from windrow.common.durable import put_in_place
from windrow.common.journal import say

DIGEST = re.compile(r"[0-9a-f]{64}")
ARTIFACT_BYTES_MAX = 16 << 30
SPARE_BYTES = 128 << 20
"""The disk space that an upload leaves for the master's state; a small one leaves as much as its own size."""
PARTIAL_KEPT_S = 7 * 86400.0
"""Older partial uploads are removed."""


class ArtifactError(Exception):
    """The upload or archive cannot be accepted. `reason`: an ErrorInfo reason of the protocol."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ArtifactFolder:
    """The folder of archives. All methods block on the disk."""

    def __init__(self, folder: Path) -> None:
        """Removes partial uploads that nobody has continued for PARTIAL_KEPT_S."""
        self._folder = folder
        self._finished: dict[str, tuple[int, ...]] = {}
        """For archives that this process verified on arrival: the marks of their files at that time."""
        self._asked: dict[str, float] = {}
        """When somebody last asked for an archive: a client that finds it here does not send it again."""
        folder.mkdir(parents=True, exist_ok=True)
        self.drop_old_partials(time.time())

    def path(self, digest: str) -> Path | None:
        """The path of a complete artifact, or None if there is none. Its content is not checked."""
        if not DIGEST.fullmatch(digest):
            return None
        path = self._folder / digest
        self._asked[digest] = time.time()
        return path if path.exists() else None

    def unused_since(self, before: float) -> list[str]:
        """The digests of the complete artifacts that came before a time (seconds since 1970), and that nobody has asked
        for since. Raises OSError.
        """
        self._asked = {digest: asked for digest, asked in self._asked.items() if asked >= before}
        found = []
        for path in self._folder.iterdir():
            if DIGEST.fullmatch(path.name) and path.name not in self._asked:
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < before:
                        found.append(path.name)
        return found

    def drop_unused(self, digest: str) -> None:
        """Remove an artifact that `unused_since` has named, unless somebody has asked for it meanwhile."""
        if digest not in self._asked:
            (self._folder / digest).unlink(missing_ok=True)
            self._finished.pop(digest, None)

    def drop_old_partials(self, now: float) -> None:
        """Remove partial uploads that nobody has continued for PARTIAL_KEPT_S. Raises OSError."""
        for partial in self._folder.glob("*.partial"):
            with contextlib.suppress(FileNotFoundError):
                if now - partial.stat().st_mtime > PARTIAL_KEPT_S:
                    partial.unlink()

    def verified(self, digest: str, *, unless_just_here: bool = False) -> Path | None:
        """The path of a complete artifact whose content was read and compared, or None if there is none.

        `unless_just_here`: skip the reading if the artifact arrived during the life of this process and was not touched
        since, because a large one takes long to read. Raises ArtifactError for a damaged artifact, which is removed,
        and for one that cannot be read.
        """
        path = self.path(digest)
        try:
            if path is None or (unless_just_here and self._finished.get(digest) == _marks(path)):
                return path
            if sha256_of(path) == digest:
                return path
        except OSError as error:
            raise ArtifactError(
                "ARTIFACT_UNREADABLE",
                f"The archive {path} on the master's machine cannot be read ({error.strerror}). Let the master's user "
                "read it, or check that disk, and repeat the command.",
            ) from error
        path.unlink(missing_ok=True)
        say(logging.ERROR, "state is damaged", where=str(path), what="an archive fails its checksum; it was removed")
        raise ArtifactError(
            "DIGEST_MISMATCH",
            f"{path} was damaged: its content does not match its digest. It was removed. Check that disk, and "
            "submit the job again to upload it again.",
        )

    def stored(self, digest: str, *, unless_just_here: bool = False) -> Path | None:
        """As `verified`, for a caller that can have the artifact again: None also for a damaged one. Raises
        ArtifactError for one that cannot be read.
        """
        try:
            return self.verified(digest, unless_just_here=unless_just_here)
        except ArtifactError as error:
            if error.reason != "DIGEST_MISMATCH":
                raise
            return None

    def drop(self, digest: str) -> None:
        """Remove a complete artifact, if it is there."""
        path = self.path(digest)
        if path is not None:
            path.unlink(missing_ok=True)
        self._finished.pop(digest, None)
        self._asked.pop(digest, None)

    def length(self, digest: str) -> tuple[int, bool]:
        """How many bytes have been received, and whether the artifact is complete."""
        path = self.path(digest)
        if path is not None:
            return path.stat().st_size, True
        try:
            return self._partial(digest).stat().st_size, False
        except (FileNotFoundError, ArtifactError):
            return 0, False

    def begin(
        self,
        digest: str,
        length: int,
        offset: int,
        *,
        promised: int = 0,
        under_way: Collection[str] = (),
        left: int = 64,
    ) -> int:
        """Open an upload at `offset`; return a file descriptor for the caller to `leave`. Raises ArtifactError.

        Only one upload of a digest at a time: a second one could change what the first has verified. `under_way`: the
        digests of all others that arrive now, to which `promised` bytes of the disk belong. Of those that broke off,
        `left` are kept, and none if this one needs their room.
        """
        if length > ARTIFACT_BYTES_MAX:
            raise ArtifactError("ARTIFACT_TOO_LARGE", f"The artifact has {length} bytes; the limit is 16 GiB.")
        partial = self._partial(digest)
        here = partial.stat().st_size if partial.exists() else 0
        if offset not in (0, here):
            raise ArtifactError("OFFSET_MISMATCH", f"{here} bytes of {digest} are here; the upload begins at {offset}.")
        missing = length - here
        needed = missing + promised + min(missing, SPARE_BYTES)
        busy = {digest, *under_way}
        self._drop_left(busy, left)
        if self._free() < needed:
            self._drop_left(busy, 0)
        if self._free() < needed:
            raise ArtifactError(
                "STORAGE_FULL",
                f"The master does not have enough space for the remaining {missing} bytes, the {promised} bytes that "
                f"other uploads have announced, and its own state. "
                f"Free some space on the disk of its state folder, {self._folder.parent}, and try again.",
            )
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, offset)
            os.lseek(descriptor, offset, os.SEEK_SET)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize

    def _drop_left(self, busy: Collection[str], keep: int) -> None:
        """Remove uploads that broke off, but for the `keep` that did so last. `busy`: digests of those that arrive."""
        found = []
        for partial in self._folder.glob("*.partial"):
            # Another thread may remove it at the same time.
            with contextlib.suppress(OSError):
                if partial.stem not in busy:
                    found.append((partial.stat().st_mtime_ns, partial))
        for _, partial in sorted(found)[: max(0, len(found) - keep)]:
            partial.unlink(missing_ok=True)

    def leave(self, digest: str, descriptor: int) -> None:
        """Close an upload. One that broke off is kept, to be continued, unless nothing of it has arrived."""
        os.close(descriptor)
        with contextlib.suppress(OSError):
            if not self._partial(digest).stat().st_size:
                self._partial(digest).unlink()

    def give_up(self, digest: str) -> None:
        """Remove a partial upload: the disk is full, and the master's state needs the room."""
        self._partial(digest).unlink(missing_ok=True)

    def finish(self, digest: str, length: int) -> None:
        """Verify a whole upload and make it durable under its digest. If it is wrong, remove it and raise
        ArtifactError."""
        partial = self._partial(digest)
        with partial.open("rb") as file:
            found, size = hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size
            if size != length or found != digest:
                partial.unlink()
                raise ArtifactError(
                    "DIGEST_MISMATCH",
                    f"The {size} bytes received for {digest} do not match that digest. Upload them again.",
                )
        put_in_place(partial, self._folder / digest)
        self._finished[digest] = _marks(self._folder / digest)

    def _partial(self, digest: str) -> Path:
        if not DIGEST.fullmatch(digest):
            raise ArtifactError("DIGEST_INVALID", f"{digest[:80]!r} is not a sha256 digest (64 hexadecimal digits).")
        return self._folder / f"{digest}.partial"


def _marks(path: Path) -> tuple[int, ...]:
    """Marks of a file that change when somebody writes to it."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sha256_of(path: Path) -> str:
    """Return the sha256 (hexadecimal) of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
