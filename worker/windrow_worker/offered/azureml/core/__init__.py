"""`azureml.core`, offered where the real package is not installed: `Run`, `Model`, `Dataset` and `Datastore` ask the
agent, and all other names can be imported and say at their use what to do instead
(docs/reference/azure-ml/parallel-job.md#metrics).

The folder above has no `__init__.py`: parts of `azureml` that are installed (its readers of tables) are found as well.
"""

from __future__ import annotations

from ._stand_ins import install, names_of
from .model import Model
from .run import Run
from .workspace import Workspace

__all__ = ["VERSION", "Dataset", "Datastore", "Environment", "Experiment", "Keyvault", "Model", "Run", "Workspace"]

VERSION = __version__ = "1.61.0+windrow"

__getattr__ = names_of(__name__)
if __name__ == "azureml.core":
    # Beside the installed package, this one has another name (`windrow_run_context`).
    install()
