"""Lets scripts, and the processes that they start, import `azureml.core` where the real package is not installed: its
`Run` logs metrics (docs/reference/azure-ml/parallel-job.md#metrics).
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from windrow_worker.protocol.configuration import Configuration

OFFERED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "offered")
"""The folder of `azureml`. That has no `__init__.py`, so an installed `azureml` wins wherever on `sys.path` it is."""
VARIABLE = "WINDROW_RUN"


def announce(configuration: Configuration) -> None:
    """Sets the variables for this process and those that it starts."""
    os.environ[VARIABLE] = json.dumps(
        {
            "job_id": configuration.job_id,
            "step_name": configuration.step_name,
            "metrics_path": configuration.metrics_path,
            "requests_path": configuration.requests_path,
            "scratch_folder": configuration.scratch_folder,
        },
        separators=(",", ":"),
    )
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = OFFERED if not before else before + os.pathsep + OFFERED
