"""Reads one question, writes one answer, and ends. It also ends when standard input closes, since then nobody waits
for the answer.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from windrow.spec.effective.job import EffectiveJob

from windrow_master.datastores import Datastores
from windrow_master.dry_run.division import Limits, end_planners
from windrow_master.dry_run.existing_state import ExistingState
from windrow_master.dry_run.plan import Question, answer
from windrow_master.files.temporary import temporary_folder
from windrow_master.helper_process import read_request


def main() -> None:
    """Carry out one dry run."""
    # Whatever prints must not get into the answer.
    out = os.dup(1)
    os.dup2(2, 1)
    with temporary_folder("windrow-dry-run-", before_removal=end_planners) as folder:
        line = read_request(_ask_to_end)
        if not line:
            return
        asked = json.loads(line)
        if "outputs_of" in asked:
            told: dict[str, Any] = {"written": ExistingState(Path(asked["outputs_of"])).outputs_written()}
        else:
            told = _plan(asked, folder)
    with os.fdopen(out, "w") as stream:
        stream.write(json.dumps(told) + "\n")


def _plan(asked: dict[str, Any], folder: Path) -> dict[str, Any]:
    state = None if asked["state"] is None else Path(asked["state"])
    return answer(
        Question(
            EffectiveJob.from_json(asked["document"]),
            state,
            Path(asked["outputs"]),
            Datastores(asked["datastores"]),
            folder,
            frozenset(asked["divided"]),
            Limits(**asked["limits"]),
            asked["since"],
        )
    )


def _ask_to_end() -> None:
    """End the process by a signal. Its handler runs in the main thread, so nothing new is made while the handler
    cleans up.
    """
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
