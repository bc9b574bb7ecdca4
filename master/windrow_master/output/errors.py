"""Why an output cannot be made, or cannot be used; each error has a text for people."""

from __future__ import annotations

from windrow_master.files.errors import StateDamaged
from windrow_master.store.records import CommittedRange


class ConcatenationError(Exception):
    """An output could not be made. The target is unchanged."""


class RowsLost(ConcatenationError):
    """Committed rows can no longer be read, or fail their checksum: their mini-batches must run again."""

    def __init__(self, lost: tuple[CommittedRange, ...], message: str) -> None:
        super().__init__(message)
        self.lost = lost
        """At most LOST_MAX of them; the others are found when these have run again."""


class RowsUnreadable(ConcatenationError):
    """Committed rows cannot be read for a reason that may pass; whether they are lost is not known."""


class TargetForeign(ConcatenationError):
    """At the output's path is something that Windrow did not write, or that was changed since."""


class OutputFull(ConcatenationError):
    """The disk of the output is full."""


class OutputUnwritable(ConcatenationError):
    """The output cannot be written for another reason."""


class ColumnUnwritable(ConcatenationError):
    """The format of the output cannot hold the rows together: a column has no common type, or there is none."""


class RowsOtherwise(ConcatenationError):
    """The rows of a mini-batch are no rows of the step's format, so a script has sent something else."""


class ConcatenationStopped(ConcatenationError):
    """Making the output was stopped on request."""


class OutputDamaged(StateDamaged):
    """A file of rows is not what Windrow wrote."""

    consequence = (
        "It is not used. It was changed or removed since Windrow wrote it, or its disk has damaged it. Check "
        "that disk. Then restore the file from a backup and try again (a failed job: windrow job retry), or "
        "run the job again as a new one."
    )
