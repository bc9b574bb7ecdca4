# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.

__all__ = []
