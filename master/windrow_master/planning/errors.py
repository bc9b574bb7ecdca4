"""Why an input cannot be divided."""

from __future__ import annotations

USER_ERROR = "UserError"
SYSTEM_ERROR = "SystemError"
DEPENDENCY_ERROR = "DependencyError"


class PlanningError(Exception):
    """Ends the planning of a step. The message says what happened, to what, and what to do.

    `category` is one of those of docs/contracts.md, section 3.
    Reference: docs/reference/azure-ml/parallel-job.md#the-end-of-a-job.
    """

    def __init__(self, message: str, category: str = USER_ERROR) -> None:
        super().__init__(message)
        self.category = category


def shown(path: bytes) -> str:
    """A path for a message: bytes that are no UTF-8 as `\\xff`, line breaks and other controls escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
