# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.environment import CondaDependencies
from windrow.ml.v1.environment import RunConfiguration
DEFAULT_CPU_IMAGE: str
DEFAULT_GPU_IMAGE: str

__all__ = [
    "CondaDependencies",
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
    "RunConfiguration",
]
