"""Windrow runs a script over one big input on many processes and machines, each row exactly once.

`windrow.run("job.yml")` runs a job on this machine; `windrow.map(function, items)` calls a function for each item;
`windrow.Client(address)` talks to a master.
Importing this package is cheap: everything else is imported at first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs 4 ms on the way to the first run()
if TYPE_CHECKING:
    from windrow.errors import JobFailed, JobWarning, UsageError, WindrowError
    from windrow.sdk.asset import Asset
    from windrow.sdk.client import Client
    from windrow.sdk.job import Job, JobState
    from windrow.sdk.mapping.map import Failed, ItemsFailed, map
    from windrow.sdk.node import Node
    from windrow.sdk.run import Run, run

__version__ = "0.1.0"

__all__ = [
    "Asset",
    "Client",
    "Failed",
    "ItemsFailed",
    "Job",
    "JobFailed",
    "JobState",
    "JobWarning",
    "Node",
    "Run",
    "UsageError",
    "WindrowError",
    "__version__",
    "map",
    "run",
]

_LAZY = {
    "Asset": "windrow.sdk.asset",
    "Client": "windrow.sdk.client",
    "Failed": "windrow.sdk.mapping.map",
    "ItemsFailed": "windrow.sdk.mapping.map",
    "Job": "windrow.sdk.job",
    "JobFailed": "windrow.errors",
    "JobState": "windrow.sdk.job",
    "JobWarning": "windrow.errors",
    "Node": "windrow.sdk.node",
    "Run": "windrow.sdk.run",
    "UsageError": "windrow.errors",
    "WindrowError": "windrow.errors",
    "map": "windrow.sdk.mapping.map",
    "run": "windrow.sdk.run",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from windrow.embedded.interrupts import held

    # Some libraries cannot be imported any more in a process where their import was broken off (asyncio, for gRPC).
    with held():
        value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, so that completion shows what users may use, before it is imported."""
    return sorted(__all__)
