# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.datastores import DataPath
from windrow.ml.v1.datastores import DataPathComputeBinding

__all__ = [
    "DataPath",
    "DataPathComputeBinding",
]
