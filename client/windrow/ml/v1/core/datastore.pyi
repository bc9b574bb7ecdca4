# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.datastores import Datastore

__all__ = [
    "Datastore",
]
