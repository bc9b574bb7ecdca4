"""What whoever submits a command may have to catch."""

from __future__ import annotations


class CommandFailed(Exception):
    """A command raised inside the core: a bug. Its job is paused, the master lives on.

    Not the `CommandFailed` of the worker, which is about the program of a command step.
    """
