"""Which columns a step of an MLTable file means: names, or a pattern.

Reference: docs/reference/azure-ml/mltable.md#columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from windrow.spec.mltable_values import ValueChecks
from windrow.spec.nodes import Mapping, Node, shown


class ColumnChoice(NamedTuple):
    """Columns by name, or, where `pattern` is not None, those in whose name it is found (`invert`: is not)."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    invert: bool = False

    def chosen(self, columns: Sequence[str]) -> list[str]:
        """Those of `columns`, in their order; names that are not among them are passed over."""
        if self.pattern is None:
            wanted = set(self.names)
            return [name for name in columns if name in wanted]
        pattern = re.compile(self.pattern)
        return [name for name in columns if (pattern.search(name) is not None) != self.invert]


def read_columns(checks: ValueChecks, node: Node, key: str) -> ColumnChoice | None:
    """A name, a list of names, or a mapping with a pattern; None after an error."""
    if not isinstance(node, Mapping):
        names = checks.texts(node, key)
        checks.repeats_do_nothing(node, key, names)
        return ColumnChoice(names) if names else None
    values = checks.mapping(node, key, ("pattern", "ignore_case", "invert"), "takes names or a pattern")
    if "pattern" not in values:
        checks.error(node, key, f"needs names or a `pattern`, not {shown(node)}.")
        return None
    if checks.flag(values, key, "ignore_case"):
        text = "has no effect, as in Azure ML's reader; write (?i) at the beginning of the pattern."
        checks.warn(values["ignore_case"], f"{key}.ignore_case", text)
    invert = checks.flag(values, key, "invert")
    pattern = checks.text(values["pattern"], f"{key}.pattern")
    if pattern is None:
        return None
    try:
        re.compile(pattern)
    except re.error as error:
        checks.error(values["pattern"], f"{key}.pattern", f"{shown(values['pattern'])} is no pattern: {error}.")
        return None
    return ColumnChoice((), pattern, invert)
