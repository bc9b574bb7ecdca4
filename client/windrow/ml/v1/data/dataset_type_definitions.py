"""As `azureml.data.dataset_type_definitions`."""

from __future__ import annotations

from enum import Enum


class PromoteHeadersBehavior(Enum):
    """Which lines of delimited files are headers."""

    NO_HEADERS = 0
    ONLY_FIRST_FILE_HAS_HEADERS = 1
    COMBINE_ALL_FILES_HEADERS = 2
    ALL_FILES_HAVE_SAME_HEADERS = 3


__all__ = ["PromoteHeadersBehavior"]
