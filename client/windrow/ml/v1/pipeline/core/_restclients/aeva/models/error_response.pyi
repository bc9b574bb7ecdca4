# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.errors import RequestRefused as ErrorResponseException

__all__ = [
    "ErrorResponseException",
]
