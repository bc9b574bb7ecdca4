# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.ignored import set_diagnostics_collection

__all__ = [
    "set_diagnostics_collection",
]
