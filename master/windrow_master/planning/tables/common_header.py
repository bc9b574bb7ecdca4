"""The header of the first delimited file, which counts for all files, and what is done about files with another one.

Reference: docs/reference/azure-ml/mltable.md#delimited-text, #plain-files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from windrow.common.quantities import first_few

from windrow_master.planning.errors import PlanningError, shown
from windrow_master.planning.listing.walk import Warn
from windrow_master.planning.tables.files import TableFile

_NAMES_SHOWN = 20


class CommonHeader(NamedTuple):
    """`file`: which has it. `plain`: others need the same columns, which may have another order; else they are read by
    position, whatever their header says, as the vendor's reader does.
    """

    file: str
    names: list[str]
    plain: bool

    @classmethod
    def of(cls, pinned: dict[str, Any]) -> CommonHeader | None:
        """The one in a pinned table; None if no header counts for all files."""
        found = pinned.get("common_header")
        return None if found is None else cls(**found)

    def order(self, file: TableFile, names: Sequence[str], width: int) -> list[int] | None:
        """The place in the table of each of its `width` columns, in another plain file; None if the same as here.
        Raises PlanningError for other columns.
        """
        if not self.plain or list(names) == self.names:
            return None
        if sorted(names) != sorted(self.names):
            raise PlanningError(
                f"{self._differs(file, names)} Files that are read together need the same columns. Read those with "
                "other columns in another step or run, or all of them through an MLTable file with `read_delimited: "
                "{header: all_files_different_headers}`, which joins columns by name (`no_header`: if the first lines "
                "are data)."
            )
        place = {name: at for at, name in enumerate(self.names)}
        return [*(place[name] for name in names), *range(len(names), width)]

    def warning(self, file: TableFile, names: Sequence[str]) -> str | None:
        """What to tell of a file that is read by position although its header differs."""
        if self.plain or list(names) == self.names:
            return None
        return (
            f"{self._differs(file, names)} The first header counts for all files, as in Azure ML, so the values of the "
            "others are taken by their position. `header: all_files_different_headers` in the MLTable file joins "
            "columns by name instead."
        )

    def _differs(self, file: TableFile, names: Sequence[str]) -> str:
        others, ours = first_few(names, _NAMES_SHOWN), first_few(self.names, _NAMES_SHOWN)
        return f"{shown(file.name)} has the header {others}, but {shown(os.fsencode(self.file))} has {ours}."


class HeaderCheck:
    """Compares the headers of files with the one that counts; the first that is not followed is warned of."""

    def __init__(self, pinned: dict[str, Any], warn: Warn) -> None:
        self._common = CommonHeader.of(pinned)
        self._width = len(pinned["reader"].get("columns", ()))
        self._warn: Warn | None = warn

    def order(self, file: TableFile, names: Sequence[str] | None) -> list[int] | None:
        """As `CommonHeader.order`; `names` is None if the file has no header."""
        if self._common is None or names is None:
            return None
        if self._warn is not None and (warning := self._common.warning(file, names)):
            self._warn(warning)
            self._warn = None
        return self._common.order(file, names, self._width)
