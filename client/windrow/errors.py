"""Errors of Windrow. Each message says what happened, to what, why, and what to do next."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class WindrowError(Exception):
    """Base of all errors with a foreseeable cause.

    `reason`: the `ErrorInfo` reason of the protocol if the master gave one, else "". `exit_code`: of the `windrow`
    command.

    Example:
        try:
            windrow.run("job.yml")
        except windrow.WindrowError as error:
            print(error)
    """

    exit_code = 1

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UsageError(WindrowError):
    """The call itself is wrong: an argument, an option, an address, a folder.

    Example:
        try:
            windrow.map(parse, texts, workers=0)
        except windrow.UsageError as error:
            print(error)
    """

    exit_code = 2


class RequestRefused(WindrowError):
    """The master refused a request; `reason` says why."""

    exit_code = 2


class NotFound(RequestRefused):
    """The job, output or log file does not exist."""


class RunChanged(WindrowError):
    """An unfinished run of the same job file was started with other settings, inputs or code."""

    exit_code = 2


class StateFolderError(WindrowError):
    """A state folder cannot be used: it is missing, in use, or not one of Windrow."""

    exit_code = 2


class MasterUnreachable(WindrowError):
    """No master answers at the address."""

    exit_code = 5


class MasterUntrusted(MasterUnreachable):
    """The server at the address cannot prove that it is the master, or TLS is used on one side only."""


class MasterFailed(WindrowError):
    """The private master or agent of an embedded run does not stay alive, or had an internal error."""

    exit_code = 5


class TransferFailed(WindrowError):
    """An upload or a download failed. Repeating it continues where it stopped."""


class JobFailed(WindrowError):
    """A job failed or was cancelled, or has no results yet. The message has the main cause and what to do next.

    `job`: the `windrow.Job` as it ended; None if the error is not about one job.

    Example:
        try:
            windrow.run("job.yml")
        except windrow.JobFailed as error:
            print(error.job.items.failed, "items failed")
    """

    def __init__(self, message: str, *, reason: str = "", job: Any = None) -> None:
        super().__init__(message, reason=reason)
        self.job = job


class DeadlinePassed(WindrowError, TimeoutError):
    """A wait took longer than its timeout."""


class JobWarning(UserWarning):
    """What a job warns of: values of a table that became null, a setting that has no effect, …

    Example:
        warnings.simplefilter("error", windrow.JobWarning)
    """
