# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.bindings import PipelineData
from windrow.ml.v1.bindings import PipelineParameter
from windrow.ml.v1.pipelines import Pipeline
from windrow.ml.v1.pipelines import StepSequence
from windrow.ml.v1.published import PipelineEndpoint
from windrow.ml.v1.published import PublishedPipeline
from windrow.ml.v1.runs import PipelineRun
from windrow.ml.v1.runs import StepRun
from windrow.ml.v1.schedules import Schedule
from windrow.ml.v1.schedules import ScheduleRecurrence

__all__ = [
    "Pipeline",
    "PipelineData",
    "PipelineEndpoint",
    "PipelineParameter",
    "PipelineRun",
    "PublishedPipeline",
    "Schedule",
    "ScheduleRecurrence",
    "StepRun",
    "StepSequence",
]
