"""Services that notebooks ask for beside a step: read, and told to have no effect."""

from __future__ import annotations

from typing import Any

from windrow.ml.attributes import Attributes


class JobService(Attributes):
    """One of the `services` of a step; none is started."""

    _is_copied = True
    _type: str | None = None

    def __init__(self, *, type: str | None = None, **more: Any) -> None:
        """`type`: jupyter_lab, ssh, tensor_board, vs_code, custom."""
        super().__init__(type=type or self._type, **more)


class JupyterLabJobService(JobService):
    """Told to have no effect."""

    _type = "jupyter_lab"


class SshJobService(JobService):
    """Told to have no effect."""

    _type = "ssh"


class TensorBoardJobService(JobService):
    """Told to have no effect."""

    _type = "tensor_board"


class VsCodeJobService(JobService):
    """Told to have no effect."""

    _type = "vs_code"
