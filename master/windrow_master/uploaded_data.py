"""Data that clients upload: archives unpacked as `uploads/<digest>` in the default datastore, for all nodes to read.

1. A folder named by its digest is whole and durable: it was unpacked beside its place, synced, and renamed.
2. Nothing that an archive says points outside that folder (`windrow.common.archives`).
3. What its files were when they were unpacked is listed before it stands (`upload_lists`).
4. The archive is dropped when its folder stands, or when it is refused; after any other failure it is kept.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from windrow.common.archives import DATA_LIMITS, ArchiveError, OtherKind, data_preamble, unpack
from windrow.common.durable import put_in_place, sync_folder
from windrow.common.removal import discard_tree
from windrow.rpc import errors

from windrow_master.crash_points import reach
from windrow_master.files.artifacts import DIGEST, ArtifactError, ArtifactFolder
from windrow_master.files.checked_records import RecordWriter
from windrow_master.files.durable import is_full, make_durable, sync_file_system
from windrow_master.files.upload_lists import UploadedFile, list_path, write_file
from windrow_master.kept_folders import UPLOADS

FOR_ALL = 0o755
"""Agents may run as another user."""


class Stopped(Exception):
    """Unpacking was stopped because the master ends; a client may ask for it again."""


class UploadedData:
    """`uploads` in the default datastore. All methods block on the disk; any thread may call them."""

    def __init__(self, artifacts: ArtifactFolder, datastore: Path | None, lists: Path) -> None:
        """`datastore`: the default one; if None, uploads are refused. `lists`: the folder of the lists of files.

        Raises OSError.
        """
        self._artifacts = artifacts
        self._folder = None if datastore is None else datastore / UPLOADS
        self._lists = lists
        self._stopped = threading.Event()
        self._remove_old_lists()

    def for_planner(self) -> dict[str, str] | None:
        """What planners need to know about uploads (docs/contracts.md, section 3); None if no data is accepted."""
        return None if self._folder is None else {"folder": str(self._folder), "lists": str(self._lists)}

    def stop(self) -> None:
        """Stop unpacking soon."""
        self._stopped.set()

    def path(self, digest: str) -> Path | None:
        """Where the data of an archive is unpacked; None if it is not."""
        if self._folder is None or not DIGEST.fullmatch(digest):
            return None
        path = self._folder / digest
        return path if path.is_dir() else None

    def place(self, digest: str, on_bytes: Callable[[int, int], None]) -> Path:
        """Unpack an archive, unless that is done already; return the folder.

        `on_bytes`: called with the bytes done and the total. One call for a digest at a time. Raises ArtifactError,
        Stopped.
        """
        placed = self.path(digest)
        if placed is not None:
            self._artifacts.drop(digest)
            with contextlib.suppress(OSError):
                os.utime(placed)  # it is about to be named by a job: `retention.collection` looks at the time
            return placed
        if self._folder is None:
            raise ArtifactError(
                errors.NO_DATASTORE,
                "This master accepts no data: it has no datastore named default. Start it with --datastore "
                "default=PATH for a folder that all nodes see, or give the absolute path of data in a "
                "datastore.",
            )
        # A damaged one is gone: the client uploads it again.
        archive = self._artifacts.stored(digest, unless_just_here=True)
        if archive is None:
            raise ArtifactError(
                errors.ARTIFACT_MISSING,
                f"This master has no artifact {digest[:80]!r}. Submit the job again to upload it.",
            )
        try:
            return self._unpack(digest, archive, self._folder, on_bytes)
        except ArchiveError as error:
            # An archive of another kind may be the code of a job.
            dropped = not isinstance(error, OtherKind)
            if dropped:
                self._artifacts.drop(digest)
            raise ArtifactError(
                errors.ARCHIVE_INVALID,
                f"The data {digest} was rejected{' and removed' if dropped else ''}: {error}",
            ) from error
        except OSError as error:
            full = is_full(error)
            advice = "Free some space there and" if full else "Give the master write permission there, and"
            raise ArtifactError(
                errors.STORAGE_FULL if full else errors.NO_DATASTORE,
                f"The master cannot unpack the data into {self._folder}, or list it in {self._lists}: "
                f"{error.strerror}. {advice} submit again: the upload is kept.",
            ) from error

    def remove_leftovers(self) -> None:
        """Remove folders that earlier masters did not finish unpacking. Those of a live master are locked, and stay."""
        if self._folder is None or not self._folder.is_dir():
            return
        for partial in self._folder.glob(".*.partial-*"):
            if self._stopped.is_set():
                return
            with contextlib.suppress(OSError), _locked(partial):
                _remove(partial)

    def _remove_old_lists(self) -> None:
        """Remove lists of data that no longer exists, and lists that were not finished."""
        if self._lists.is_dir():
            for found in self._lists.iterdir():
                if self.path(found.name) is None:
                    with contextlib.suppress(OSError):  # `.nfs…`: another process has it open
                        found.unlink(missing_ok=True)

    def _unpack(self, digest: str, archive: Path, folder: Path, on_bytes: Callable[[int, int], None]) -> Path:
        if folder.is_symlink():
            raise ArchiveError(f"{folder} is a link; a master does not unpack through links.")
        if not folder.is_dir():
            make_durable(folder)
            folder.chmod(FOR_ALL)
        total = archive.stat().st_size

        def told(done: int) -> None:
            if self._stopped.is_set():
                raise Stopped
            on_bytes(done, total)

        disk = os.statvfs(folder)
        if disk.f_bavail * disk.f_frsize < total:
            # Said at once, not after the disk has been full for a while: the master's state may also be on it.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        partial = folder / f".{digest}.partial-{secrets.token_hex(8)}"
        partial.mkdir(FOR_ALL)
        try:
            with _locked(partial):
                with self._file_list(digest) as on_file:
                    unpack(
                        archive,
                        partial,
                        DATA_LIMITS,
                        what="data archive",
                        preamble=data_preamble(),
                        for_all=True,
                        on_bytes=told,
                        on_file=on_file,
                    )
                reach("place.unpacked")
                sync_file_system(partial)
                reach("place.synced")
                target = folder / digest
                try:
                    partial.rename(target)
                except OSError as error:
                    # Another master over the same datastore was faster: the same digest is the same data.
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
        finally:
            _remove(partial)
        sync_folder(folder)
        reach("place.renamed")
        self._artifacts.drop(digest)
        return target

    @contextlib.contextmanager
    def _file_list(self, digest: str) -> Iterator[Callable[[bytes, bytes, os.stat_result], None]]:
        """Collect the files of an upload in a list, which becomes durable if nothing goes wrong."""
        self._lists.mkdir(parents=True, exist_ok=True)
        place = list_path(self._lists, digest)
        unfinished = place.with_suffix(".new")
        try:
            with unfinished.open("wb") as out:
                records = RecordWriter(out)
                yield lambda name, sha256, status: write_file(records, UploadedFile(name, sha256, status.st_ctime_ns))
            put_in_place(unfinished, place)
        finally:
            unfinished.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a folder and all below it, if it exists."""
    discard_tree(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Lock a folder where the file system supports it; yields its descriptor. Raises BlockingIOError, OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass
        yield descriptor
    finally:
        os.close(descriptor)
