"""Steps of an MLTable file that are legal, checked, and not carried out yet: refused by name, so that no result is
silently wrong.

Source: reference/parallel-job.md, section 4.4; reference/mltable.md, sections 6 and 7.
"""

from __future__ import annotations

from windrow.spec.mltable_values import ValueChecks
from windrow.spec.nodes import Node, is_null

STEPS_NOT_CARRIED_OUT = {
    "extract_columns_from_partition_format": "Take it out of the MLTable file.",
}
"""Their names, with what to do instead."""


def check_step_not_carried_out(name: str, value: Node | None, item: Node, key: str, checks: ValueChecks) -> None:
    """Note what is wrong with the settings of a step; else that it is not carried out yet."""
    before = checks.error_count
    if value is None or is_null(value):
        checks.error(item, key, "has no value.")
    elif name == "extract_columns_from_partition_format":
        values = checks.settings(value, key, ("partition_format",))
        if "partition_format" in values:
            checks.text(values["partition_format"], f"{key}.partition_format")
    if checks.error_count == before:
        checks.error(item, key, f"{name} is not carried out yet. {STEPS_NOT_CARRIED_OUT[name]}")
