# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.workspace import Workspace

__all__ = [
    "Workspace",
]
