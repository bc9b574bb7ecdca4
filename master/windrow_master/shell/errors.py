"""The error that the submitter of a command may have to catch."""

from __future__ import annotations


class CommandFailed(Exception):
    """A command raised inside the core, which is a bug. Its job is paused; the master continues.

    Not the `CommandFailed` of the worker, which is about the program of a command step.
    """
