"""Whether this Python can build conda lists with conda's own packages: the extra `conda`."""

from __future__ import annotations

import importlib.util

INSTALL = "pip install 'windrow[conda]'"


def has_conda_builder() -> bool:
    """Whether rattler, the solver and installer of conda packages, is installed here."""
    return importlib.util.find_spec("rattler") is not None
