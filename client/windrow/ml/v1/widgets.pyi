# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.runs import RunDetails

__all__ = [
    "RunDetails",
]
