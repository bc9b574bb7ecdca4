# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.errors import UsageError as UserErrorException
from windrow.ml.v1.compute import ComputeTargetException

__all__ = [
    "ComputeTargetException",
    "UserErrorException",
]
