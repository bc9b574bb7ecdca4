"""Services that notebooks ask for beside a step: read, and told to have no effect."""

from __future__ import annotations

from typing import Any

from windrow.ml.attributes import Attributes


class JobService(Attributes):
    """One of the `services` of a step; none is started."""

    _is_copied = True

    def __init__(self, *, type: str | None = None, **more: Any) -> None:
        """`type`: jupyter_lab, ssh, tensor_board, vs_code, custom."""
        super().__init__(type=type, **more)


class JupyterLabJobService(JobService):
    """Told to have no effect."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"type": "jupyter_lab", **more})


class SshJobService(JobService):
    """Told to have no effect."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"type": "ssh", **more})


class TensorBoardJobService(JobService):
    """Told to have no effect."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"type": "tensor_board", **more})


class VsCodeJobService(JobService):
    """Told to have no effect."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"type": "vs_code", **more})
