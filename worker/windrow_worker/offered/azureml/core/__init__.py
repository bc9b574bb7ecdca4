"""`azureml.core`, offered where the real package is not installed: `Run`, `Model`, and names that say at their use that
there is no workspace (docs/reference/azure-ml/parallel-job.md#metrics).

The folder above has no `__init__.py`: parts of `azureml` that are installed (its readers of tables) are found as well.
"""

from __future__ import annotations

import sys

from .model import Model
from .run import Run, absent
from .workspace import Dataset, Datastore, Environment, Experiment, Keyvault, Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn, Optional, Sequence

__all__ = ["Dataset", "Datastore", "Environment", "Experiment", "Keyvault", "Model", "Run", "Workspace"]


class _AbsentModules:
    """The last finder: what no other one has found below this package is not there."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None) -> None:
        """Raises ModuleNotFoundError for such a module."""
        if name.startswith(__name__ + "."):
            raise absent(name)


sys.meta_path.append(_AbsentModules())


def __getattr__(name: str) -> NoReturn:
    """Raises ModuleNotFoundError, as the import of a package that is not installed does."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(f"{__name__}.{name}")
