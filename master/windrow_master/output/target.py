"""The file an output becomes: whether what stands there may be replaced, whether it is still what was written, and the
names used on the way."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from windrow_master.files.artifacts import sha256_of
from windrow_master.output.errors import OutputDamaged, TargetForeign
from windrow_master.output.files import Files
from windrow_master.store.records import OutputRow

NAME_BYTES_MAX = 255
TEMPORARY_SUFFIX = ".windrow-partial"


def refuse_foreign(
    target: Path, outputs_at: Callable[[str], Sequence[OutputRow]], *, submitted: float | None = None
) -> None:
    """Raise TargetForeign unless nothing stands at `target`, or what Windrow wrote there, unchanged, or an empty file.

    Size and time of the last change tell; where only the time differs (a copy, a touch), the content's digest does.

    `submitted`: when the job was that is about to begin, in seconds since 1970. A file that was written later passes:
    where the state was brought back from a backup, it may be this job's own output, which is told when it is made.
    """
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise TargetForeign(
            f"The output {target} cannot be written: something that is no plain file stands there. "
            f"Move it away, or give the output another path; then run the job again."
        )
    if status.st_size == 0:
        return
    known = outputs_at(str(target))
    if any((row.length, row.mtime_ns) == (status.st_size, status.st_mtime_ns) for row in known):
        return
    if submitted is not None and status.st_mtime > submitted:
        return
    digests = {row.digest for row in known if row.length == status.st_size}
    if digests and sha256_of(target) in digests:
        return
    raise foreign(str(target), known=bool(known))


def foreign(place: str, *, known: bool, made: str = "") -> TargetForeign:
    """What to tell of what stands at an output's place. `known`: Windrow has written there from this state folder.
    `made`: the job whose output is made, and is another."""
    seen = "was changed since Windrow wrote it" if known else "was not written by Windrow from this state folder"
    if not made:
        return TargetForeign(
            f"The output {place} exists already and {seen}; it is left alone. Move it away, or give the output another "
            f"path; then run the job again."
        )
    return TargetForeign(
        f"The output {place} exists already, {seen}, and is not what this job writes; it is left alone. (Where the "
        f"state was brought back from a backup, it may be what the job wrote after that.) Move it away, then: windrow "
        f"job retry {made}. No mini-batch needs to run again."
    )


def stamp_if_equal(target: Path, length: int, digest: str) -> int | None:
    """The time of the last change, in ns, of a file that has this content; None where it has another. Raises
    OSError."""
    with target.open("rb") as file:
        before = os.fstat(file.fileno())
        if before.st_size != length:
            return None
        found = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    same = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return before.st_mtime_ns if found == digest and same else None


def need_as_written(place: Path, outputs_at: Callable[[str], Sequence[OutputRow]]) -> None:
    """Read a file that Windrow has written. Raises OutputDamaged where it is gone, or another."""
    known = outputs_at(str(place))
    try:
        length = place.stat().st_size
        same_length = {row.digest for row in known if row.length == length}
        if not same_length or sha256_of(place) not in same_length:
            raise _damaged(place, known, length)
    except FileNotFoundError:
        raise OutputDamaged(str(place), "it is gone") from None
    except OSError as error:
        raise OutputDamaged(str(place), f"it cannot be read: {error.strerror}") from error


class Sent:
    """Compares a file with what Windrow wrote there while it is read for somebody."""

    def __init__(self, place: Path, known: Sequence[OutputRow]) -> None:
        """`known`: what was written there, the newest first; empty: nothing was, and anything passes."""
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
        """There are no more. Raises OutputDamaged."""
        if self._known and self._hasher.hexdigest() not in {row.digest for row in self._known}:
            raise _damaged(self._place, self._known, self._length)


def _damaged(place: Path, known: Sequence[OutputRow], length: int) -> OutputDamaged:
    if not known:
        return OutputDamaged(str(place), "the state does not know it, though a step that is done has written it")
    if length != known[0].length:
        return OutputDamaged(str(place), f"it holds {length:,} bytes, and {known[0].length:,} were written")
    return OutputDamaged(str(place), "its content does not have the sha256 of what was written")


def temporary_path(target: Path, job_id: str, step_id: int, generation: int, incarnation: int) -> Path:
    """The temporary file beside a target: no two incarnations or generations share one."""
    return target.with_name(f"{_stem(target, job_id, step_id)}g{generation}.i{incarnation}{TEMPORARY_SUFFIX}")


def remove_stale(target: Path, job_id: str, step_id: int, keep: Path, files: Files) -> None:
    """Remove temporary files of this step that dead incarnations, or earlier generations, left beside the target.

    Only the newest incarnation concatenates, so all but `keep` are stale.
    """
    stem = _stem(target, job_id, step_id)
    with contextlib.suppress(OSError):
        for path in target.parent.iterdir():
            if path.name.startswith(stem) and path.name.endswith(TEMPORARY_SUFFIX) and path.name != keep.name:
                with contextlib.suppress(OSError):
                    files.unlink(path)


def _stem(target: Path, job_id: str, step_id: int) -> str:
    stem = f".{target.name}.{job_id}.{step_id}."
    # Room for generation, incarnation and suffix.
    if len(os.fsencode(stem)) + 60 <= NAME_BYTES_MAX:
        return stem
    return f".{hashlib.sha256(os.fsencode(stem)).hexdigest()[:32]}."
