"""Options of tables that have a class of their own: types of columns, and which lines are headers."""

from __future__ import annotations

from enum import Enum
from typing import Any

from windrow.errors import UsageError


class DataType:
    """Types of columns, for `set_column_types`."""

    def __init__(self, name: Any) -> None:
        """`name`: as MLTable names it."""
        self.name = name

    @staticmethod
    def to_string() -> DataType:
        """A column of text."""
        return DataType("string")

    @staticmethod
    def to_long() -> DataType:
        """A column of whole numbers."""
        return DataType("int")

    @staticmethod
    def to_float(decimal_mark: str = ".") -> DataType:
        """A column of numbers. Raises UsageError for a decimal mark other than the point, which no reader of tables
        supports.
        """
        if decimal_mark != ".":
            raise UsageError(
                f"to_float(decimal_mark={decimal_mark!r}) is not supported: numbers need a decimal point. Read the "
                "column as text, with to_string(), and convert it in the script."
            )
        return DataType("float")

    @staticmethod
    def to_bool() -> DataType:
        """A column of true and false."""
        return DataType("boolean")

    @staticmethod
    def to_datetime(formats: Any = None) -> DataType:
        """A column of times."""
        wanted = [formats] if isinstance(formats, str) else list(formats or ["%Y-%m-%d %H:%M:%S"])
        return DataType({"datetime": {"formats": wanted}})


class PromoteHeadersBehavior(Enum):
    """Which lines of delimited files are headers."""

    NO_HEADERS = 0
    ONLY_FIRST_FILE_HAS_HEADERS = 1
    COMBINE_ALL_FILES_HEADERS = 2
    ALL_FILES_HAVE_SAME_HEADERS = 3
