"""The result of checking a job, in the form that notebooks expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.spec import LoadedJob
    from windrow.spec.reading.problems import Problem


class Validation:
    """Whether a job is valid. `loaded` is the job as read, or None; `problems` says what is wrong."""

    def __init__(self, loaded: LoadedJob | None, problems: Sequence[Problem] = ()) -> None:
        """`problems`: empty if the job was read."""
        self.loaded = loaded
        self.problems = tuple(problems)

    @property
    def passed(self) -> bool:
        """Whether the job can be submitted."""
        return self.loaded is not None

    @property
    def error_messages(self) -> dict[str, str]:
        """The problems by key; several problems of one key are joined."""
        messages: dict[str, str] = {}
        for problem in self.problems:
            earlier = messages.get(problem.key)
            messages[problem.key] = f"{earlier}; {problem.message}" if earlier else problem.message
        return messages

    def __repr__(self) -> str:
        """Show all problems with their places, for a notebook's cell."""
        return "\n".join(["Validation: failed", *map(str, self.problems)] if self.problems else ["Validation: passed"])
