"""The kinds of providers by name: those of Windrow, and those that other packages bring."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from windrow.errors import UsageError
from windrow.fleet.provider import Kind

ENTRY_POINTS = "windrow.fleet_providers"
"""The group of entry points in which a package names its kinds: `name = "package.module:KIND"`."""
_OWN = ("command", "docker", "kubernetes", "process", "ray", "slurm", "ssh")


def kinds() -> list[str]:
    """The names of all kinds."""
    return sorted({*_OWN, *_others()})


def load(name: str) -> Kind:
    """The kind of that name. Raises UsageError if there is none, or its package cannot be loaded."""
    if name in _OWN:
        module = f"windrow.fleet.providers.{name}"
        found = import_module(module).KIND
    elif name in _others():
        try:
            found = _others()[name].load()
        except Exception as error:
            raise UsageError(
                f"The provider {name} of {_others()[name].value} cannot be loaded: {error!r}. Its package may be "
                "broken, or for another version of Windrow."
            ) from error
    else:
        raise UsageError(f"There is no provider {name}. Available: {', '.join(kinds())}")
    assert isinstance(found, Kind), f"{name} is no windrow.fleet.provider.Kind"
    return found


@cache
def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS) if point.name not in _OWN}
