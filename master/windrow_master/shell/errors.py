"""The errors that whoever changes something may have to catch."""

from __future__ import annotations


class SubmissionInvalid(Exception):
    """The document cannot be accepted. `reason`: an ErrorInfo reason of the protocol."""

    def __init__(self, reason: str, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.metadata = metadata or {}


class CommandFailed(Exception):
    """A command raised inside the core, which is a bug. Its job is paused; the master continues.

    Not the `CommandFailed` of the worker, which is about the program of a command step.
    """
