"""As `azure.ai.ml.exceptions`: the errors of Windrow, by the names under which notebooks catch them.

Some names are tuples of several errors, which `except` takes as well. The vendor's other exceptions are there, and
nothing raises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import JobFailed as JobException
from windrow.errors import JobWarning, RequestRefused, UsageError, WindrowError
from windrow.errors import UsageError as UserErrorException
from windrow.ml.absent import standing_in
from windrow.spec.reading.problems import JobFileError
from windrow.spec.reading.problems import JobFileError as JobParsingError

if TYPE_CHECKING:
    from windrow.spec.reading.context import Context

MlException = (WindrowError, JobFileError)
"""Every error that Windrow raises on purpose."""

ValidationException = (JobFileError, UsageError)
"""A job, component or asset is wrong."""

ComponentException = ValidationException

AssetException = ModelException = (RequestRefused, UsageError)
"""Data or a model cannot be registered, or does not exist."""


def job_file_error(context: Context) -> JobFileError:
    """The error to raise for a job that was read, with all that was found: errors, warnings, and the code of steps."""
    return JobFileError(context.problems.errors, context.problems.warnings, context.codes)


__getattr__ = standing_in(__name__)


__all__ = [
    "AssetException",
    "ComponentException",
    "JobException",
    "JobParsingError",
    "JobWarning",
    "MlException",
    "ModelException",
    "UserErrorException",
    "ValidationException",
]
