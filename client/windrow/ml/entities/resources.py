"""Settings that have a class of their own in notebooks.

Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps.
"""

from __future__ import annotations

from typing import Any

from windrow.ml.attributes import Attributes


class ResourceConfiguration(Attributes):
    """`resources` of a step: instance_count, instance_type, properties, shm_size, docker_args."""

    _is_copied = True

    def __init__(self, *, instance_count: Any = None, instance_type: str | None = None, **more: Any) -> None:
        """As the keys of `resources`."""
        super().__init__(instance_count=instance_count, instance_type=instance_type, **more)


JobResourceConfiguration = ResourceConfiguration


class RetrySettings(Attributes):
    """`retry_settings` of a step: max_retries, and timeout in seconds."""

    _is_copied = True

    def __init__(self, *, max_retries: Any = None, timeout: Any = None, **more: Any) -> None:
        """As the keys of `retry_settings`."""
        super().__init__(max_retries=max_retries, timeout=timeout, **more)


class PipelineJobSettings(Attributes):
    """`settings` of a pipeline."""

    _is_copied = True
