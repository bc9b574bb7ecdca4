"""Steps that stand where they have no meaning: told when the MLTable file is read.

Reference: docs/reference/azure-ml/mltable.md#paths, #partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from windrow.spec.mltable_steps import (
    ConvertColumnTypes,
    DropColumns,
    Filter,
    KeepColumns,
    SelectPartitions,
    Skip,
    Step,
    Take,
)
from windrow.spec.mltable_values import ValueChecks

PATH = "Path"
"""The only column of a list of files: the absolute path, as text."""


def check_file_step(checks: ValueChecks, key: str, step: Step) -> None:
    """Note what a step on the list of files, before it is read, cannot do there."""
    only = f'a list of files has only the column "{PATH}"'
    match step:
        case Filter():
            for name in step.expression.columns:
                if name != PATH:
                    checks.error(step.place, key, f'names the column "{name}", but {only}.')
        case KeepColumns() | DropColumns():
            if bool(step.columns.chosen([PATH])) == isinstance(step, DropColumns):
                checks.error(step.place, key, f"leaves no column: {only}.")
        case ConvertColumnTypes():
            for conversion in step.conversions:
                if conversion.columns.chosen([PATH]) and conversion.type.type != "string":
                    text = f'the column "{PATH}" of a list of files cannot become {conversion.type.type}.'
                    checks.error(conversion.place, key, text)
        case SelectPartitions():
            if step.numbers and step.numbers[-1] > 0:
                text = f"names partition {step.numbers[-1]}, but a list of files is one partition, 0."
                checks.error(step.place, key, text)


def check_partition_steps(checks: ValueChecks, steps: Iterable[tuple[str, Step]]) -> None:
    """Note what is wrong with `select_partitions` among the steps on rows, as far as it shows before the data is
    seen."""
    counted, left = "", None
    for key, step in steps:
        if isinstance(step, (Take, Skip)):
            counted = "take" if isinstance(step, Take) else "skip"
        elif isinstance(step, SelectPartitions):
            if counted:
                checks.error(step.place, key, f"stands behind {counted}, which is not carried out; put it before.")
            if left is not None and step.numbers and step.numbers[-1] >= left:
                text = f"names partition {step.numbers[-1]}, but an earlier select_partitions leaves {left}, from 0 on."
                checks.error(step.place, key, text)
            left = len(step.numbers)
