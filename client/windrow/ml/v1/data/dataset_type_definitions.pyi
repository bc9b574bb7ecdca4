# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.table_options import PromoteHeadersBehavior

__all__ = [
    "PromoteHeadersBehavior",
]
