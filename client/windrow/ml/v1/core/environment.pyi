# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.environment import CondaDependencies
from windrow.ml.v1.environment import Environment

__all__ = [
    "CondaDependencies",
    "Environment",
]
