"""What a group of a fleet says of a Ray cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping as Values
from types import MappingProxyType
from typing import NamedTuple

from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar, read_text
from windrow.spec.reading.nodes import Mapping
from windrow.spec.settings.fields import Field

NAMESPACE = "windrow"
_KEYS = {"address": Field("text"), "namespace": Field("text"), "python": Field("text"), "resources": Field("node")}
_RESOURCE_MAX = 1e9


class RaySettings(NamedTuple):
    """Which cluster, and what an actor takes of it besides the shape."""

    address: str = "auto"
    """As `ray.init` takes it; "auto": the cluster that this machine is a node of."""
    namespace: str = NAMESPACE
    """Of Ray, for the actors."""
    python: str = sys.executable
    """An interpreter that has Ray, of the same versions as the cluster."""
    resources: Values[str, float] = MappingProxyType({})
    """Custom resources that an actor takes."""


def read(mapping: Mapping, key: str, context: Context) -> RaySettings:
    """Reads the keys below `ray`."""
    check_keys(mapping, _KEYS, key, context)
    entries = mapping.entries
    default = RaySettings()
    texts = {
        name: read_text(entries.get(name), f"{key}.{name}", context) or getattr(default, name)
        for name in ("address", "namespace", "python")
    }
    custom = as_mapping(entries.get("resources"), f"{key}.resources", context)
    resources = {}
    for name, node in custom.entries.items() if custom is not None else ():
        count = read_scalar(node, Field("number", 0, _RESOURCE_MAX), f"{key}.resources.{name}", context)
        resources[name] = float(count or 0)
    return RaySettings(**texts, resources=resources)
