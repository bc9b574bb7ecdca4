"""`azureml.data`, offered where the real package is not installed: names that scripts import."""

from __future__ import annotations

from azureml.core._stand_ins import names_of  # type: ignore[import-not-found]

__getattr__ = names_of(__name__)
