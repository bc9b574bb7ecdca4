# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.environment import CondaDependencies

__all__ = [
    "CondaDependencies",
]
