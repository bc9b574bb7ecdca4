"""`if_else` nodes of pipelines. The module has its name from Azure ML."""

from __future__ import annotations

from typing import Any

from windrow.ml.jobs.control_steps import Condition


def condition(condition: Any, *, true_block: Any = None, false_block: Any = None) -> Condition:
    """Run one of two blocks of steps.

    `condition`: an output of type boolean, a step with such an output alone, an input of the pipeline, or a bool.
    `true_block`, `false_block`: a step, or a list of them. Those of the other block are skipped. Raises UsageError.
    """
    return Condition(condition, true_block, false_block)
