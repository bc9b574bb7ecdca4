"""What can keep an output from being made, or from being used, each with a text for people."""

from __future__ import annotations

from windrow_master.files.errors import StateDamaged
from windrow_master.store.records import CommittedRange


class ConcatenationError(Exception):
    """Base. The target is as it was."""


class RowsLost(ConcatenationError):
    """Committed rows cannot be read any more, or fail their checksum: their mini-batches must run again."""

    def __init__(self, lost: tuple[CommittedRange, ...], message: str) -> None:
        super().__init__(message)
        self.lost = lost
        """At most LOST_MAX of them: the rest is found when these have run again."""


class RowsUnreadable(ConcatenationError):
    """Committed rows cannot be read at the moment, for a reason that may pass; whether they are lost is not known."""


class TargetForeign(ConcatenationError):
    """Something stands at the output's path that Windrow did not write, or that was changed since."""


class OutputFull(ConcatenationError):
    """There is no room where the output is to stand."""


class OutputUnwritable(ConcatenationError):
    """The output cannot be written where it is to stand, for another reason."""


class ConcatenationStopped(ConcatenationError):
    """It was asked to stop."""


class OutputDamaged(StateDamaged):
    """A file of rows is not what Windrow wrote."""

    consequence = (
        "It is not used. Somebody has changed or removed it since Windrow wrote it, or its disk has damaged it. Check "
        "that disk. Then bring the file back from a backup and try again (a failed job: windrow job retry), or run the "
        "job anew."
    )
