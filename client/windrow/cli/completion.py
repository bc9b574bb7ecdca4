"""Names for the shell's completion. They come from the master that the command line means, if it answers within a
moment, or from a state folder that no run uses; otherwise there are none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from windrow.sdk.client import Client

COMPLETION_PATIENCE_S = 1.0
NAMES_MAX = 200


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs that begin like this, newest first, and `last`."""
    from windrow.sdk.job_names import LAST

    found = _names(context, incomplete, lambda client: chain([LAST], (job.job_id for job in client.list_jobs())))
    return list(dict.fromkeys(found))


def job_and_step_names(context: typer.Context, incomplete: str) -> list[str]:
    """The same before a colon; after one, the steps of that job that begin like this."""
    job, colon, _ = incomplete.partition(":")
    if not colon:
        return job_names(context, incomplete)
    return _names(context, incomplete, lambda client: (f"{job}:{step.name}" for step in client.find(job).steps))


def node_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes that begin like this."""
    return _names(context, incomplete, lambda client: (node.node_id for node in client.list_nodes()))


def causes(incomplete: str) -> list[str]:
    """Causes that begin like this."""
    from windrow.sdk.job import CAUSES
    from windrow.sdk.mini_batch import NO_RESULT

    return [name for name in (*CAUSES[1:], NO_RESULT) if name.startswith(incomplete)]


def _names(context: typer.Context, incomplete: str, ask: Callable[[Client], Iterator[str]]) -> list[str]:
    """Of the first names that a master returns, those that begin with the given text."""
    try:
        client = _client(context)
        if client is None:
            return []
        with client:
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


def _client(context: typer.Context) -> Client | None:
    """A client of the master that the command line means so far; None if there is none to ask."""
    from windrow.cli.master_choice import choose_master
    from windrow.common.state_mark import STATE_MARK
    from windrow.embedded import state_folder
    from windrow.rpc.contexts import Access, find_access
    from windrow.sdk.client import Client

    master, state = choose_master(context.params.get("master"), context.params.get("state"))
    access = find_access(master, os.environ) if state is None else None
    if access is None:
        folder = Path(state or state_folder.DEFAULT)
        endpoint = state_folder.read_endpoint(str(folder))
        if endpoint is None:
            # One that is being opened is not waited for.
            idle = (folder / STATE_MARK).is_file() and not state_folder.is_owned(str(folder))
            return Client(state=folder, patience_s=COMPLETION_PATIENCE_S) if idle else None
        access = Access(endpoint["address"])
    return Client(access=access, patience_s=COMPLETION_PATIENCE_S)
