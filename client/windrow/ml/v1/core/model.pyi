# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.models import Model

__all__ = [
    "Model",
]
