"""Parallel steps made in Python. Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps, #tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.ml.absent import standing_in
from windrow.ml.attributes import Attributes
from windrow.ml.jobs.step import Step, resources_of


class RunFunction(Attributes):
    """The task of a parallel step: a script with `init`, `run` and `shutdown`."""

    _is_copied = True

    def __init__(
        self,
        *,
        code: Any = None,
        entry_script: str | None = None,
        program_arguments: str | None = None,
        append_row_to: str | None = None,
        environment: Any = None,
        model: Any = None,
        **more: Any,
    ) -> None:
        """The arguments are the keys of `task`. `environment`: a name, or an `Environment`."""
        super().__init__(
            type="run_function",
            code=code,
            entry_script=entry_script,
            program_arguments=program_arguments,
            append_row_to=append_row_to,
            environment=environment,
            model=model,
            **more,
        )


def parallel_run_function(
    *,
    name: str | None = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    instance_count: Any = None,
    instance_type: str | None = None,
    docker_args: Any = None,
    shm_size: str | None = None,
    resources: Any = None,
    task: Any = None,
    **settings: Any,
) -> Step:
    """A parallel step, or a component: call it with inputs to make steps.

    `settings`: description, tags, display_name, compute, retry_settings, environment_variables, logging_level,
    max_concurrency_per_instance, error_threshold, mini_batch_error_threshold, mini_batch_size (also a number),
    partition_keys, input_data, identity, is_deterministic. Unknown ones are reported when the job is made.
    """
    there = resources_of(instance_count, instance_type, docker_args, shm_size)
    if resources is not None and there:
        raise ValueError(
            f"parallel_run_function: {', '.join(there)} and resources are both given; put {', '.join(there)} into "
            "resources."
        )
    for alone in ("experiment_name", "version"):
        settings.pop(alone, None)  # of jobs of their own, which parallel steps never are
    written = {"name": name, "resources": resources or there or None, "task": task, **settings}
    return Step("parallel", written, inputs=inputs, outputs=outputs)


__getattr__ = standing_in(__name__)


__all__ = ["RunFunction", "parallel_run_function"]
