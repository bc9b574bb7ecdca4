"""What the worker tells the processes of its script about their run."""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict

VARIABLE = "WINDROW_RUN"
"""JSON: `job_id`, `step_name`, `metrics_path`, the file of the worker, `requests_path`, the socket of its agent, and
`scratch_folder`, its own folder."""


def _told_by_worker() -> Dict[str, str]:
    nothing = dict.fromkeys(("job_id", "step_name", "metrics_path", "requests_path", "scratch_folder"), "")
    try:
        nothing.update(json.loads(os.environ[VARIABLE]))
    except (KeyError, ValueError):
        pass  # The script has cleared its environment.
    return nothing


TOLD = _told_by_worker()
