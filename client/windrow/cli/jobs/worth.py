"""Options that say what a job is worth beside others: of commands that submit or change one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from windrow.cli.options.declared import Option
from windrow.common.quantities import moment_in
from windrow.common.queue_settings import PRIORITY_MAX, WEIGHT_MAX
from windrow.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

PRIORITY = Option(
    metavar="N",
    help="Jobs with a higher priority go first in their project.",
    min=-PRIORITY_MAX,
    max=PRIORITY_MAX,
)
WEIGHT = Option(metavar="N", help="Jobs of one priority and deadline share by their weights.", min=1, max=WEIGHT_MAX)
Deadline = Annotated[
    str | None,
    Option(
        metavar="TIME",
        help="When the job should have ended: in 30min, 12h or 2d, or a moment such as 2026-05-31T06:00. Of jobs of "
        "one priority in a project, the one with the earliest deadline goes first.",
    ),
]


def deadline_of(text: str) -> datetime:
    """The moment that `--deadline` means. Raises UsageError."""
    try:
        return moment_in(text, from_now=1)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--deadline {text} is not a time. Write how long it may take from now (30min, 12h, 2d), or a moment "
            "(2026-05-31T06:00)."
        ) from error
