"""As `azure.ai.ml.exceptions`: what is raised here, by the names under which notebooks catch it.

Some names stand for several errors, as tuples: `except` takes these, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.errors import JobFailed as JobException
from windrow.errors import RequestRefused, UsageError, WindrowError
from windrow.errors import UsageError as UserErrorException
from windrow.ml.absent import refusing_all
from windrow.spec.reading.problems import JobFileError
from windrow.spec.reading.problems import JobFileError as JobParsingError

if TYPE_CHECKING:
    from windrow.spec.reading.context import Context

MlException = (WindrowError, JobFileError)
"""All that can be foreseen."""

ValidationException = (JobFileError, UsageError)
"""What is wrong with a job, a component or an asset."""

ComponentException = ValidationException

AssetException = ModelException = (RequestRefused, UsageError)
"""Data or a model that cannot be registered, or is not there."""


class JobWarning(UserWarning):
    """A setting of a job is accepted but has no effect, or not the one a reader may expect."""


def job_file_error(context: Context) -> JobFileError:
    """The error to raise for a job that was read, with all that was found: errors, warnings, and the code of steps."""
    return JobFileError(context.problems.errors, context.problems.warnings, context.codes)


__getattr__ = refusing_all(
    __name__,
    "nothing here raises it. Catch MlException, which is all that can be "
    "foreseen, or one of the others: ValidationException, JobException, AssetException, UserErrorException.",
)


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
