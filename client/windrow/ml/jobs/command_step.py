"""Command steps made in Python. Reference: docs/reference/azure-ml/parallel-job.md#command-steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.ml.jobs.step import Step, resources_of


def command(
    *,
    name: str | None = None,
    command: str | None = None,
    code: Any = None,
    environment: Any = None,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    instance_count: Any = None,
    instance_type: str | None = None,
    docker_args: Any = None,
    shm_size: str | None = None,
    timeout: int | None = None,
    **settings: Any,
) -> Step:
    """A step that runs a command, or the component of several: call it to give it its inputs.

    `timeout`: seconds; `settings`: description, tags, display_name, compute, environment_variables, identity,
    is_deterministic, distribution, services, limits.
    """
    for alone in ("experiment_name", "version"):
        settings.pop(alone, None)
    if timeout is not None:
        settings["limits"] = {**dict(settings.get("limits") or {}), "timeout": timeout}
    written = {
        "name": name,
        "command": command,
        "code": code,
        "environment": environment,
        "resources": resources_of(instance_count, instance_type, docker_args, shm_size) or None,
        **settings,
    }
    return Step("command", written, inputs=inputs, outputs=outputs)
