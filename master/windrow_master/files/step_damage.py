"""A damaged file of one step. The step fails, and everything else continues."""

from __future__ import annotations

import os

from windrow_master.files.errors import StateDamaged


class StepDamaged(StateDamaged):
    """A file of one step is not what was written to it."""

    consequence = (
        "Windrow uses nothing that fails its checksum, so the step cannot continue. Check that disk. Then run "
        "the job again with `--since` and the name of this one: the input is divided again, and finished "
        "results are taken over. Or restore the state folder from a backup."
    )


def read_part(descriptor: int, path: str, begin: int, end: int) -> bytes:
    """The bytes from `begin` to `end` of `path`, an open file of a step; fewer only if the file ends.

    Raises StepDamaged if the disk does not return them.
    """
    parts = []
    while begin < end:
        try:
            part = os.pread(descriptor, end - begin, begin)
        except OSError as error:
            raise StepDamaged(path, f"it cannot be read at {begin:,}: {error.strerror}") from error
        if not part:
            break
        parts.append(part)
        begin += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
