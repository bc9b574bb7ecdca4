# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.errors import JobFailed as ActivityFailedException
from windrow.errors import JobFailed as ExperimentExecutionException
from windrow.errors import UsageError as UserErrorException
from windrow.ml.v1.compute import ComputeTargetException
AzureMLException: tuple[type[Exception], ...]

__all__ = [
    "ActivityFailedException",
    "AzureMLException",
    "ComputeTargetException",
    "ExperimentExecutionException",
    "UserErrorException",
]
