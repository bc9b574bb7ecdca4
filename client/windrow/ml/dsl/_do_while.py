"""`do_while` nodes of pipelines. The module has its name from Azure ML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.ml.jobs.control_steps import DoWhile


def do_while(body: Any, mapping: Mapping[Any, Any], max_iteration_count: int, condition: Any = None) -> DoWhile:
    """Repeat a step of the pipeline.

    `mapping`: by output of the body, the input (or a list of them) that gets it in the next iteration. `condition`: an
    output of the body, of type boolean; the loop ends when it is false, or after `max_iteration_count` iterations.
    Where other steps read outputs of the body, they get those of the last iteration. Raises UsageError.
    """
    return DoWhile(body, mapping, max_iteration_count, condition)
