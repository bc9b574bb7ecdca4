"""Workers that share a GPU by NVIDIA's Multi-Process Service: the variables by which its clients are bounded.

Source: NVIDIA, Multi-Process Service, Appendix: Environment Variables
(docs.nvidia.com/deploy/mps/latest/appendix-environment-variables.html). Others start the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT = "/tmp/nvidia-mps"
_PERCENT_MIN = 1.0


def pipe_folder(environment: Mapping[str, str]) -> Path | None:
    """Where the daemon of MPS (nvidia-cuda-mps-control) listens; None if there is none."""
    folder = Path(environment.get(PIPES) or _DEFAULT)
    return folder if (folder / "control").exists() else None


def client_variables(folder: Path, share: float, memory_bytes: int) -> dict[str, str]:
    """What a process gets that has a part of one device. `memory_bytes`: that of the whole device; 0: nobody has said,
    and memory has no limit.
    """
    variables = {
        PIPES: str(folder),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{max(_PERCENT_MIN, 100 * share):g}",
    }
    if memory_bytes:
        # It sees one device only, which is its number 0.
        variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={max(1, int(memory_bytes * share) >> 20)}M"
    return variables
