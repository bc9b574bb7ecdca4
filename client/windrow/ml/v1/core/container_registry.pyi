# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.ignored import ContainerRegistry

__all__ = [
    "ContainerRegistry",
]
