"""What lies ahead of a job or a step, as a plain frozen value, and its words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windrow.common.quantities import ahead, brief_duration, counted, roughly

if TYPE_CHECKING:
    from windrow.rpc.v1 import job_pb2


class Forecast(NamedTuple):
    """What lies ahead of a job, or of one of its steps, as far as was measured: how long its mini-batches have taken,
    how many are left, and the workers that it is entitled to, now and when others have ended. Times are seconds from
    the moment of the answer; None: nobody knows.

    Example:
        with windrow.Client("gpu1") as client:
            late = [job.job_id for job in client.list_jobs() if job.forecast and (job.forecast.late_s or 0) > 0]
    """

    begin_s: float | None = None
    """When it is likely to get its first worker; 0: it has one. Of a step that waits for others: when these end."""
    end_s: float | None = None
    """When it is likely to end."""
    latest_s: float | None = None
    """When it ends if its last mini-batch is among the slowest (95th percentile)."""
    workers: float = 0.0
    """The workers that it is entitled to now; need not be a whole number."""
    late_s: float | None = None
    """By how much it is likely to miss its deadline; below 0: how early it is."""
    more_workers: int | None = None
    """If it is late: with so many more from now on, it would not be. None: no number would do."""

    @property
    def brief(self) -> str:
        """In a few characters, for a column: `ends 12min`, `starts 5min`; empty if nothing is known."""
        if self.begin_s:
            told = f"starts {brief_duration(self.begin_s)}"
        elif self.end_s is not None:
            told = f"ends {brief_duration(self.end_s)}"
        else:
            return ""
        return f"{told}, late" if self.late_s is not None and self.late_s > 0 else told

    @property
    def begin_words(self) -> str:
        """`likely to start in about 12 min`; empty if it has started, or nobody knows."""
        return f"likely to start {ahead(self.begin_s)}" if self.begin_s else ""

    @property
    def end_words(self) -> str:
        """`likely to end in about 40 min (55 min if the last mini-batches are slow)`; empty if nobody knows."""
        if self.end_s is None:
            return ""
        latest = ""
        if self.latest_s is not None and roughly(self.latest_s) != roughly(self.end_s):
            latest = f" ({roughly(self.latest_s)} if the last mini-batches are slow)"
        return f"likely to end {ahead(self.end_s)}{latest}"

    @property
    def words(self) -> str:
        """`likely to start in about 12 min and to end in about 40 min`; empty if nobody knows."""
        end = self.end_words.removeprefix("likely " * bool(self.begin_s))
        return " and ".join(filter(None, (self.begin_words, end)))

    @property
    def deadline_words(self) -> str:
        """`40 min late; 12 more workers would do`, `2 h before its deadline`; empty if there is none, or nobody
        knows.
        """
        if self.late_s is None:
            return ""
        if self.late_s <= 0:
            return f"{roughly(-self.late_s)} before its deadline"
        if self.more_workers is None:
            return f"{roughly(self.late_s)} late; more workers cannot change that"
        return f"{roughly(self.late_s)} late; {counted(self.more_workers, 'more worker')} would do"


def forecast_from_message(message: job_pb2.Forecast) -> Forecast:
    """Make a forecast from its message."""

    def seconds(field: str) -> float | None:
        return getattr(message, field) / 1000 if message.HasField(field) else None  # type: ignore[arg-type]

    return Forecast(
        seconds("begin_ms"),
        seconds("end_ms"),
        seconds("latest_ms"),
        message.workers,
        seconds("late_ms"),
        message.more_workers if message.HasField("more_workers") else None,
    )
