"""Checked values of a document from the network; problems are noted by path.

A method that notes a problem returns a harmless value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from windrow.spec.naming.names import is_encodable

ENTRIES_MAX = 10_000
TEXT_MAX = 64 * 1024
_T = TypeVar("_T")


class ValueReader:
    """Reads values of a parsed JSON document; `problems` are texts of the form `path: problem`."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def fields(
        self, value: object, key: str, readers: Mapping[str, Callable[[object, str], Any]]
    ) -> dict[str, Any] | None:
        """Returns all fields of an object, or None if a problem was noted."""
        before = len(self.problems)
        if not isinstance(value, dict):
            self.problems.append(f"{key}: is not an object")
            return None
        prefix = f"{key}." if key else ""
        self.problems += [f"{prefix}{name[:80]}: is unknown" for name in value if name not in readers]
        self.problems += [f"{prefix}{name}: is missing" for name in readers if name not in value]
        fields = {name: read(value[name], prefix + name) for name, read in readers.items() if name in value}
        return fields if len(self.problems) == before else None

    def list_of(
        self, read: Callable[[object, str], _T], count_max: int = ENTRIES_MAX
    ) -> Callable[[object, str], tuple[_T, ...]]:
        """Returns a reader of lists; `read` reads each item."""

        def read_list(value: object, key: str) -> tuple[_T, ...]:
            if not isinstance(value, list | tuple) or len(value) > count_max:
                self.problems.append(f"{key}: is not a list of at most {count_max}")
                return ()
            return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(value))

        return read_list

    def map_of(
        self, read: Callable[[object, str], _T], names: re.Pattern[str] | None = None
    ) -> Callable[[object, str], dict[str, _T]]:
        """Returns a reader of objects with free names, which have to match `names`; `read` reads each value."""

        def read_map(value: object, key: str) -> dict[str, _T]:
            if not isinstance(value, dict) or len(value) > ENTRIES_MAX:
                self.problems.append(f"{key}: is not an object of at most {ENTRIES_MAX} entries")
                return {}
            self.problems.extend(
                f"{key}: {name[:80]!r} is not a valid name" for name in value if names and not names.fullmatch(name)
            )
            return {name: read(item, f"{key}.{name[:80]}") for name, item in value.items()}

        return read_map

    def optional(self, read: Callable[[object, str], _T]) -> Callable[[object, str], _T | None]:
        """Returns a reader that also accepts null."""
        return lambda value, key: None if value is None else read(value, key)

    def text(self, value: object, key: str) -> str:
        """Reads text that can be encoded, of limited length and without NUL."""
        if not isinstance(value, str) or len(value) > TEXT_MAX or "\0" in value or not is_encodable(value):
            self.problems.append(f"{key}: is not text of at most {TEXT_MAX} characters without NUL")
            return ""
        return value

    def matching(self, value: object, key: str, pattern: re.Pattern[str], what: str) -> str:
        """Reads text that matches a pattern; `what` names it in messages."""
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.problems.append(f"{key}: {str(value)[:80]!r} is not {what} ({pattern.pattern})")
            return ""
        return value

    def one_of(self, *choices: str) -> Callable[[object, str], str]:
        """Returns a reader of one of these texts."""

        def read(value: object, key: str) -> str:
            if value not in choices:
                self.problems.append(f"{key}: is {str(value)[:80]!r}; it must be one of {', '.join(choices)}")
            return str(value)

        return read

    def whole(self, minimum: int, maximum: int) -> Callable[[object, str], int]:
        """Returns a reader of whole numbers within these limits."""

        def read(value: object, key: str) -> int:
            if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
                self.problems.append(
                    f"{key}: is {str(value)[:80]}; it must be a whole number from {minimum} to {maximum}"
                )
                return minimum
            return value

        return read

    def flag(self, value: object, key: str) -> bool:
        """Reads true or false."""
        if not isinstance(value, bool):
            self.problems.append(f"{key}: is {str(value)[:80]}; it must be true or false")
        return value is True
