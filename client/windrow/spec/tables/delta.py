"""`read_delta_lake`: the version of a Delta table that is read.

Reference: docs/reference/azure-ml/mltable.md#the-mltable-file, #delta.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from windrow.spec.reading.nodes import Node, shown
from windrow.spec.tables.value_checks import ValueChecks


class ReadDelta(NamedTuple):
    """`read_delta_lake`; at most one of the first two is given, and without either the latest version is read.

    `timestamp_as_of` is RFC 3339: a time after the last commit means the latest version, one before the first means
    version 0.
    """

    timestamp_as_of: str | None = None
    version_as_of: int | None = None
    include_path_column: bool = False


DELTA_KEYS = ("timestamp_as_of", "version_as_of", "include_path_column", "path_column")


def read_delta(checks: ValueChecks, values: dict[str, Node], key: str) -> ReadDelta:
    """Reads the settings `values`, whose keys are among `DELTA_KEYS`."""
    version, timestamp = None, None
    if "version_as_of" in values:
        version = checks.whole(values["version_as_of"], f"{key}.version_as_of", 0, "the number of a version")
    if "timestamp_as_of" in values:
        node = values["timestamp_as_of"]
        timestamp = checks.text(node, f"{key}.timestamp_as_of")
        if timestamp is not None and not _is_rfc_3339(timestamp):
            checks.error(
                node,
                f"{key}.timestamp_as_of",
                f"must be a time with its zone, such as 2024-01-31T18:30:00Z, not {shown(node)}.",
            )
        if "version_as_of" in values:
            checks.error(node, f"{key}.timestamp_as_of", "is given together with version_as_of; keep one of them.")
    return ReadDelta(timestamp, version, checks.flag(values, key, "include_path_column"))


def _is_rfc_3339(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
