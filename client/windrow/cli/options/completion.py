"""Names for the shell's completion. They come from the master that the command would ask: one that answers within a
moment, or the private one of a state folder here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.rpc.contexts import Access
    from windrow.sdk.client import Client

COMPLETION_PATIENCE_S = 1.0
NAMES_MAX = 200


def job_names(incomplete: str) -> list[str]:
    """Names of jobs that begin like this, newest first, and `last`."""
    from windrow.sdk.job_names import LAST

    found = _names(incomplete, lambda client: chain([LAST], (job.job_id for job in client.list_jobs())))
    return list(dict.fromkeys(found))


def job_and_step_names(incomplete: str) -> list[str]:
    """The same before a colon; after one, the steps of that job that begin like this."""
    job, colon, _ = incomplete.partition(":")
    if not colon:
        return job_names(incomplete)
    return _names(incomplete, lambda client: (f"{job}:{step.name}" for step in client.find(job).steps))


def node_names(incomplete: str) -> list[str]:
    """Names of nodes that begin like this."""
    return _names(incomplete, lambda client: (node.node_id for node in client.list_nodes()))


def causes(incomplete: str) -> list[str]:
    """Causes that begin like this."""
    from windrow.sdk.job import CAUSES
    from windrow.sdk.mini_batch import NO_RESULT

    return [name for name in (*CAUSES[1:], NO_RESULT) if name.startswith(incomplete)]


def _names(incomplete: str, ask: Callable[[Client], Iterator[str]]) -> list[str]:
    """Of the first names that a master returns, those that begin with the given text."""
    try:
        from windrow.sdk.client import Client

        access = _access()
        state = None if access is not None else _state()
        if access is None and state is None:
            return []
        with Client(access=access, state=state, patience_s=COMPLETION_PATIENCE_S) as client:
            return [name for name in islice(ask(client), NAMES_MAX) if name.startswith(incomplete)]
    except Exception:  # a completion never disturbs the line that is being typed
        return []


def context_names(incomplete: str) -> list[str]:
    """Names of contexts that begin like this."""
    from windrow.rpc.contexts import Contexts

    try:
        return [name for name in sorted(Contexts().all) if name.startswith(incomplete)]
    except Exception:
        return []


def _state() -> str | None:
    """The state folder that a command without options would use; None if it does not exist."""
    from windrow.common.state_mark import STATE_MARK
    from windrow.embedded import state_folder

    state = state_folder.default()
    return state if os.path.isfile(os.path.join(state, STATE_MARK)) else None  # noqa: PTH113, PTH118


def _access() -> Access | None:
    """How to reach the master that a command without options would use."""
    from windrow.embedded import state_folder
    from windrow.rpc.contexts import Access, find_access

    state = os.environ.get("WINDROW_STATE")
    access = None if state else find_access(None, os.environ)
    if access is None:
        endpoint = state_folder.read_endpoint(state or state_folder.DEFAULT)
        access = Access(endpoint["address"]) if endpoint else None
    return access
