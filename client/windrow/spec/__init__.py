"""The job file: Azure ML's pipeline YAML with `type: parallel` steps, read, checked and turned into the effective job.

`load_job` reads a file, `build_effective` makes the job that a client submits, `EffectiveJob.from_json` is how the
master reads it. This package runs before the first `run()` of every job, so it imports the standard library and PyYAML
only, and YAML only where a file is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.spec.effective.document import DocumentError
    from windrow.spec.effective.job import (
        DEFAULT_ROWS_FILE,
        CondaList,
        DataInput,
        EffectiveJob,
        EffectiveStep,
        Environment,
        Iteration,
        LiteralInput,
        OutputInput,
        PipelineOutput,
        Rows,
        RunIf,
        StepInput,
        StepOutput,
        resolve_arguments,
    )
    from windrow.spec.job.pipeline import LoadedJob, build_effective
    from windrow.spec.load import load_job
    from windrow.spec.reading.context import Origin
    from windrow.spec.reading.problems import JobFileError, Problem

__all__ = [
    "DEFAULT_ROWS_FILE",
    "CondaList",
    "DataInput",
    "DocumentError",
    "EffectiveJob",
    "EffectiveStep",
    "Environment",
    "Iteration",
    "JobFileError",
    "LiteralInput",
    "LoadedJob",
    "Origin",
    "OutputInput",
    "PipelineOutput",
    "Problem",
    "Rows",
    "RunIf",
    "StepInput",
    "StepOutput",
    "build_effective",
    "load_job",
    "resolve_arguments",
]

_LAZY = {
    **dict.fromkeys(
        (
            "DEFAULT_ROWS_FILE",
            "CondaList",
            "DataInput",
            "EffectiveJob",
            "EffectiveStep",
            "Environment",
            "Iteration",
            "LiteralInput",
            "OutputInput",
            "PipelineOutput",
            "Rows",
            "RunIf",
            "StepInput",
            "StepOutput",
            "resolve_arguments",
        ),
        "effective.job",
    ),
    "DocumentError": "effective.document",
    "JobFileError": "reading.problems",
    "LoadedJob": "job.pipeline",
    "Origin": "reading.context",
    "Problem": "reading.problems",
    "build_effective": "job.pipeline",
    "load_job": "load",
}


def __getattr__(name: str) -> object:
    """Import at first use: master and agent need no readers of files, and those who only ask not even the job."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"windrow.spec.{_LAZY[name]}"), name)
