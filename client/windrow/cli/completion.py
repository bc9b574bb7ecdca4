"""Names for the shell's completion: only what a live master tells within a moment; silence otherwise."""

from __future__ import annotations

import os

COMPLETION_PATIENCE_S = 1.0


def job_names(incomplete: str) -> list[str]:
    """Names of jobs that begin like this, newest first."""
    from windrow.embedded import state_folder

    try:
        from windrow.client import Client

        endpoint = state_folder.read_endpoint(os.environ.get("WINDROW_STATE") or state_folder.DEFAULT)
        address = os.environ.get("WINDROW_MASTER") or (endpoint or {}).get("address")
        if not address:
            return []
        with Client(address, patience_s=COMPLETION_PATIENCE_S) as client:
            names = [job.job_id for _, job in zip(range(200), client.list_jobs(), strict=False)]
        return [name for name in names if name.startswith(incomplete)]
    except Exception:  # a completion never disturbs the line that is being typed
        return []
