"""Stands for `azure.ai.ml.entities`: what jobs are made of, under the names that notebooks import."""

from __future__ import annotations

from windrow.ml.absent import standing_in
from windrow.ml.assets.data import Asset, Data, Model
from windrow.ml.assets.environment import BuildContext, Environment
from windrow.ml.jobs.command_step import command as CommandComponent
from windrow.ml.jobs.pipeline_job import Job, PipelineJob
from windrow.ml.jobs.pipeline_step import PipelineStep as PipelineComponent
from windrow.ml.jobs.settings import (
    JobResourceConfiguration,
    JobService,
    JupyterLabJobService,
    ManagedIdentityConfiguration,
    PipelineJobSettings,
    ResourceConfiguration,
    RetrySettings,
    SshJobService,
    TensorBoardJobService,
    UserIdentityConfiguration,
    VsCodeJobService,
)
from windrow.ml.jobs.step import Step
from windrow.ml.operations.compute import AmlCompute, Compute
from windrow.ml.parallel import parallel_run_function as ParallelComponent
from windrow.ml.schedules import CronTrigger, JobSchedule, RecurrencePattern, RecurrenceTrigger

Command = Component = Parallel = Step
"""Azure ML has a class for each of these; in Windrow, all are a `Step`."""

__all__ = [
    "AmlCompute",
    "Asset",
    "BuildContext",
    "Command",
    "CommandComponent",
    "Component",
    "Compute",
    "CronTrigger",
    "Data",
    "Environment",
    "Job",
    "JobResourceConfiguration",
    "JobSchedule",
    "JobService",
    "JupyterLabJobService",
    "ManagedIdentityConfiguration",
    "Model",
    "Parallel",
    "ParallelComponent",
    "PipelineComponent",
    "PipelineJob",
    "PipelineJobSettings",
    "RecurrencePattern",
    "RecurrenceTrigger",
    "ResourceConfiguration",
    "RetrySettings",
    "SshJobService",
    "Step",
    "TensorBoardJobService",
    "UserIdentityConfiguration",
    "VsCodeJobService",
]


__getattr__ = standing_in(__name__)
