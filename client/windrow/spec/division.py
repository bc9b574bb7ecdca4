"""What is divided, where runtime arguments say something else than `input_data` alone: nothing, or records.

Reference: parallel-job.md, sections 2.2 and 2.3.
"""

from __future__ import annotations

from typing import Any

from windrow.spec.effective import DataInput, OutputInput
from windrow.spec.nodes import Node, Place, is_null, shown
from windrow.spec.reading import Context


def check_no_input_data(node: Node | None, values: dict[str, Any], name: str, context: Context) -> None:
    """Notes that an input is given where `--rank_mini_batch_count` asks for mini-batches without one."""
    if node is not None and not is_null(node):
        context.problems.warn(
            node,
            f"jobs.{name}.input_data",
            f"{shown(node)} is not divided: --rank_mini_batch_count {values['rank_mini_batch_count']} makes "
            "mini-batches without input.",
        )


def check_file_format(
    given: object, values: dict[str, Any], place: Place | None, step_key: str, context: Context
) -> None:
    """Notes what does not go with `--amlbi_file_format` and `--amlbi_mini_batch_rows`."""
    if place is None:
        return
    key, asked = f"{step_key}.task.program_arguments", values["file_format"]
    if asked and values["rank_mini_batch_count"]:
        values["file_format"] = values["mini_batch_rows"] = None
    elif asked and isinstance(given, DataInput | OutputInput) and given.type == "mltable":
        context.problems.error(
            place,
            key,
            f"--amlbi_file_format {asked} is for an input of type uri_file or uri_folder; the input that is divided is "
            "of type mltable, whose own steps say how its files are read. Change its type, or remove the argument.",
        )
    elif values["mini_batch_rows"] is not None and not asked:
        context.problems.warn(
            place,
            key,
            f"--amlbi_mini_batch_rows {values['mini_batch_rows']} has no effect without --amlbi_file_format jsonl.",
        )
        values["mini_batch_rows"] = None
