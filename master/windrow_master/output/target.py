"""The file of an output: whether an existing file may be replaced, whether it is still what Windrow wrote, and names of
temporary files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from windrow.common.beneath import Folder

from windrow_master.output.errors import OutputDamaged, TargetForeign
from windrow_master.output.file_operations import FileOperations
from windrow_master.store.records import OutputRow

NAME_BYTES_MAX = 255
TEMPORARY_SUFFIX = ".windrow-partial"


def refuse_foreign(
    folder: Folder, target: Path, outputs_at: Callable[[str], Sequence[OutputRow]], *, submitted: float | None = None
) -> None:
    """Raise TargetForeign unless there is nothing at `target`, or an empty file, or what Windrow wrote, unchanged.

    Size and time of the last change decide; if only the time differs (a copy, a touch), the content's digest does.

    `folder`: the open folder of the target. `submitted`: when the job that is about to begin was submitted, in seconds
    since 1970. A file that was written later passes: if the state was restored from a backup, it may be this job's own
    output, which is checked when the output is made.
    """
    try:
        status = folder.status(target.name)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise TargetForeign(
            f"The output {target} cannot be written: what is there is not a plain file. Move it away, or give "
            "the output another path; then run the job again."
        )
    if status.st_size == 0:
        return
    known = outputs_at(str(target))
    if any((row.length, row.mtime_ns) == (status.st_size, status.st_mtime_ns) for row in known):
        return
    if submitted is not None and status.st_mtime > submitted:
        return
    digests = {row.digest for row in known if row.length == status.st_size}
    if digests and _sha256_of(folder, target.name) in digests:
        return
    raise foreign(str(target), known=bool(known))


def foreign(place: str, *, known: bool, made: str = "") -> TargetForeign:
    """The error for a foreign file or object. `known`: Windrow wrote there before, from this state folder. `made`: the
    job whose output was made, and differs from what is there."""
    seen = "was changed since Windrow wrote it" if known else "was not written by Windrow from this state folder"
    if not made:
        return TargetForeign(
            f"The output {place} exists already and {seen}; Windrow does not touch it. Move it away, or give "
            "the output another path; then run the job again."
        )
    return TargetForeign(
        f"The output {place} exists already, {seen}, and is not what this job writes; Windrow does not touch "
        "it. (If the state was restored from a backup, it may be what the job wrote after that backup.) Move "
        f"it away, then: windrow job retry {made}. No mini-batch needs to run again."
    )


def stamp_if_equal(folder: Folder, name: str, length: int, digest: str) -> int | None:
    """The time of the last change, in ns, of a file with this content; None if its content differs. Raises OSError."""
    with os.fdopen(folder.read(name), "rb") as file:
        before = os.fstat(file.fileno())
        if before.st_size != length:
            return None
        found = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    same = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return before.st_mtime_ns if found == digest and same else None


def need_as_written(
    place: Path,
    opened: Callable[[], AbstractContextManager[tuple[Folder, str]]],
    outputs_at: Callable[[str], Sequence[OutputRow]],
) -> None:
    """Read a file that Windrow has written. `opened`: gives its open folder and its name in it.

    Raises OutputDamaged if it is gone, or differs.
    """
    known = outputs_at(str(place))
    try:
        with opened() as (folder, name):
            length = folder.status(name).st_size
            same_length = {row.digest for row in known if row.length == length}
            if not same_length or _sha256_of(folder, name) not in same_length:
                raise _damaged(place, known, length)
    except FileNotFoundError:
        raise OutputDamaged(str(place), "it is gone") from None
    except OSError as error:
        raise OutputDamaged(str(place), f"it cannot be read: {error.strerror}") from error


class OutputCheck:
    """Compares a file with what Windrow wrote there, while the file is being read for a download."""

    def __init__(self, place: Path, known: Sequence[OutputRow]) -> None:
        """`known`: what was written there, the newest first; if empty, any content passes."""
        self._place = place
        self._known = known
        self._hasher = hashlib.sha256()
        self._length = 0

    def add(self, content: bytes) -> None:
        """The next bytes."""
        if self._known:
            self._hasher.update(content)
            self._length += len(content)

    def end(self) -> None:
        """All bytes were added. Raises OutputDamaged if they are not what was written."""
        if self._known and self._hasher.hexdigest() not in {row.digest for row in self._known}:
            raise _damaged(self._place, self._known, self._length)


def _damaged(place: Path, known: Sequence[OutputRow], length: int) -> OutputDamaged:
    if not known:
        return OutputDamaged(str(place), "the state does not know it, although a finished step wrote it")
    if length != known[0].length:
        return OutputDamaged(str(place), f"it holds {length:,} bytes, and {known[0].length:,} were written")
    return OutputDamaged(str(place), "its content does not have the sha256 of what was written")


def _sha256_of(folder: Folder, name: str) -> str:
    with os.fdopen(folder.read(name), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def temporary_path(target: Path, job_id: str, step_id: int, generation: int, incarnation: int) -> Path:
    """The temporary file beside a target; each incarnation and generation has its own."""
    return target.with_name(f"{_stem(target, job_id, step_id)}g{generation}.i{incarnation}{TEMPORARY_SUFFIX}")


def remove_stale(folder: Folder, target: Path, job_id: str, step_id: int, keep: Path, files: FileOperations) -> None:
    """Remove temporary files of this step that dead incarnations, or earlier generations, left beside the target.

    Only the newest incarnation concatenates, so all but `keep` are stale.
    """
    stem = _stem(target, job_id, step_id)
    with contextlib.suppress(OSError):
        for name in folder.names():
            if name.startswith(stem) and name.endswith(TEMPORARY_SUFFIX) and name != keep.name:
                with contextlib.suppress(OSError):
                    files.unlink(target.with_name(name), folder)


def _stem(target: Path, job_id: str, step_id: int) -> str:
    stem = f".{target.name}.{job_id}.{step_id}."
    # Room for generation, incarnation and suffix.
    if len(os.fsencode(stem)) + 60 <= NAME_BYTES_MAX:
        return stem
    return f".{hashlib.sha256(os.fsencode(stem)).hexdigest()[:32]}."
