# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.pipelines import Pipeline

__all__ = [
    "Pipeline",
]
