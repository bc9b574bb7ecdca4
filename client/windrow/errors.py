"""What can go wrong for a caller of Windrow. Each message says what happened, to what, why, and what to do next."""

from __future__ import annotations


class WindrowError(Exception):
    """Base of all errors that Windrow raises for a foreseeable cause.

    `reason` is the `ErrorInfo` reason of the protocol where the master told one, else "".
    `exit_code` is what the `windrow` command ends with.
    """

    exit_code = 1

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UsageError(WindrowError):
    """The call itself is wrong: an option, an address, a folder."""

    exit_code = 2


class RequestRefused(WindrowError):
    """The master refused a request; `reason` tells why."""

    exit_code = 2


class NotFound(RequestRefused):
    """There is no such job, output or log file."""


class RunChanged(WindrowError):
    """An unfinished run of the same job file exists that was begun with other settings, inputs or code."""

    exit_code = 2


class StateFolderError(WindrowError):
    """A state folder cannot be used: it is not there, not ours, or in use."""

    exit_code = 2


class MasterUnreachable(WindrowError):
    """No master answers at the address."""

    exit_code = 5


class MasterUntrusted(MasterUnreachable):
    """What answers at the address cannot prove that it is the master, or is reached in the wrong way (TLS)."""


class MasterFailed(WindrowError):
    """The private master or agent of an embedded run does not stay alive, or failed inside."""

    exit_code = 5


class TransferFailed(WindrowError):
    """An upload or a download did not come to its end; repeating it goes on where it stopped."""


class JobFailed(WindrowError):
    """The job ended as failed or cancelled, and its results were asked for."""


class DeadlinePassed(WindrowError, TimeoutError):
    """What was waited for did not happen within the time given."""
