# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.published import PublishedPipeline
from windrow.ml.v1.schedules import Schedule
from windrow.ml.v1.schedules import ScheduleRecurrence

__all__ = [
    "PublishedPipeline",
    "Schedule",
    "ScheduleRecurrence",
]
