"""What lies ahead of jobs, as clients see it (`core.forecasts`)."""

from __future__ import annotations

import logging
import time
import traceback
from typing import TYPE_CHECKING

from windrow.common.journal import Repeated
from windrow.rpc.v1 import job_pb2

from windrow_master.core.ids import StepId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow_master.core.forecasts import Forecast, JobForecast, StepForecast
    from windrow_master.core.ids import JobKey
    from windrow_master.shell.standby import Standby

KEPT_S = 1.0
"""A look ahead is as good for so long: displays ask again and again, and with many jobs it takes tens of ms."""
_FAILED = Repeated(in_all=30)


class ForecastViews:
    """Looks ahead when asked. Use it on the event loop's thread."""

    def __init__(self, standby: Standby) -> None:
        self._standby = standby
        self._last: tuple[float, Forecast | None] = (0.0, None)

    def of(self, job_key: JobKey) -> JobForecast | None:
        """What lies ahead of a job; None if it has ended."""
        ahead = self._now()
        return None if ahead is None else ahead.jobs.get(job_key)

    def put(self, message: job_pb2.Job, job_key: JobKey) -> job_pb2.Job:
        """Add to the message of a job what lies ahead of it; nothing if it has ended."""
        if (found := self.of(job_key)) is not None:
            message.place = found.place
            message.forecast.CopyFrom(job_forecast(found))
            for step in message.steps:
                if (ahead := self._steps().get(StepId(step.step_id))) is not None:
                    step.forecast.CopyFrom(step_forecast(ahead))
        return message

    def _steps(self) -> Mapping[StepId, StepForecast]:
        """As of the last look."""
        _, found = self._last
        return {} if found is None else found.steps

    def _now(self) -> Forecast | None:
        state = self._standby.state
        if state is None or not self._standby.unfinished():
            return None
        from windrow_master.core.commands import Moment
        from windrow_master.core.forecasts import forecast

        now = Moment(time.monotonic(), time.time())
        at_s, found = self._last
        if found is None or now.monotonic_s - at_s >= KEPT_S:
            try:
                found = forecast(state, now)
            except Exception as error:  # jobs are shown without it
                _FAILED.say(
                    0, logging.ERROR, "nothing can be forecast. This is a fault of Windrow's: report it",
                    error="".join(traceback.format_exception(error)),
                )  # fmt: skip
                return None
            self._last = now.monotonic_s, found
        return found


def step_forecast(found: StepForecast) -> job_pb2.Forecast:
    """The message of what lies ahead of a step."""
    return job_pb2.Forecast(
        begin_ms=milliseconds(found.begin_s),
        end_ms=milliseconds(found.end_s),
        latest_ms=milliseconds(found.latest_s),
        workers=found.workers,
    )


def job_forecast(found: JobForecast) -> job_pb2.Forecast:
    """The message of what lies ahead of a job."""
    return job_pb2.Forecast(
        begin_ms=milliseconds(found.begin_s),
        end_ms=milliseconds(found.end_s),
        latest_ms=milliseconds(found.latest_s),
        workers=found.workers,
        late_ms=milliseconds(found.late_s),
        more_workers=found.more_workers,
    )


def milliseconds(seconds: float | None) -> int | None:
    """A time in whole milliseconds; None stays None."""
    return None if seconds is None else round(seconds * 1000)
