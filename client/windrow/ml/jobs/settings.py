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
        """The arguments are the keys of `resources`."""
        super().__init__(instance_count=instance_count, instance_type=instance_type, **more)


JobResourceConfiguration = ResourceConfiguration


class RetrySettings(Attributes):
    """`retry_settings` of a step: max_retries, and timeout in seconds."""

    _is_copied = True

    def __init__(self, *, max_retries: Any = None, timeout: Any = None, **more: Any) -> None:
        """The arguments are the keys of `retry_settings`."""
        super().__init__(max_retries=max_retries, timeout=timeout, **more)


class PipelineJobSettings(Attributes):
    """`settings` of a pipeline."""

    _is_copied = True


class _Typed(Attributes):
    _is_copied = True
    _type: str | None = None

    def __init__(self, *, type: str | None = None, **more: Any) -> None:
        """`type`: by default, the type that the class is for."""
        super().__init__(type=type or self._type, **more)


class UserIdentityConfiguration(_Typed):
    """`identity` of a step. It has no effect: a script runs with the rights of its agent."""

    _type = "user_identity"


class ManagedIdentityConfiguration(_Typed):
    """`identity` of a step. It has no effect: a script runs with the rights of its agent."""

    _type = "managed"


class AmlTokenConfiguration(_Typed):
    """`identity` of a step. It has no effect: a script runs with the rights of its agent."""

    _type = "aml_token"


class MpiDistribution(_Typed):
    """`distribution` of a command. It has no effect: the command runs once, on one node."""

    _type = "mpi"


class PyTorchDistribution(_Typed):
    """`distribution` of a command. It has no effect: the command runs once, on one node."""

    _type = "pytorch"


class TensorFlowDistribution(_Typed):
    """`distribution` of a command. It has no effect: the command runs once, on one node."""

    _type = "tensorflow"


class JobService(_Typed):
    """One of the `services` of a step, of type jupyter_lab, ssh, tensor_board, vs_code or custom. It has no effect:
    none is started.

    Not the RPC service of that name, which the master serves.
    """


class JupyterLabJobService(JobService):
    """Accepted, but has no effect; a warning says so."""

    _type = "jupyter_lab"


class SshJobService(JobService):
    """Accepted, but has no effect; a warning says so."""

    _type = "ssh"


class TensorBoardJobService(JobService):
    """Accepted, but has no effect; a warning says so."""

    _type = "tensor_board"


class VsCodeJobService(JobService):
    """Accepted, but has no effect; a warning says so."""

    _type = "vs_code"
