"""What a group of a fleet says of the machines that it reaches by ssh."""

from __future__ import annotations

from collections.abc import Mapping as Values
from types import MappingProxyType
from typing import NamedTuple

from windrow.common.quantities import seconds_in
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar, read_text, read_texts
from windrow.spec.reading.nodes import Mapping, Scalar, is_null, shown
from windrow.spec.settings.fields import Field

FOLDER = ".local/state/windrow/fleet"
TIMEOUT_S = 30
_AGENTS_MAX = 1000
_KEYS = {"hosts": Field("node"), "folder": Field("text"), "options": Field("texts"), "timeout": Field("text")}


class SshSettings(NamedTuple):
    """Machines, and how they are reached."""

    hosts: Values[str, int] = MappingProxyType({})
    """Machines, as `ssh` takes them, with the agents that each has room for."""
    folder: str = FOLDER
    """On the machines, for what is known of the agents; relative to the home of the user there."""
    options: tuple[str, ...] = ()
    """Further options of ssh. They hold where they contradict those of the fleet."""
    timeout_s: float = TIMEOUT_S
    """So long a machine may take to answer."""


def read(mapping: Mapping, key: str, context: Context) -> SshSettings:
    """Reads the keys below `ssh`."""
    check_keys(mapping, _KEYS, key, context)
    entries = mapping.entries
    hosts = as_mapping(entries.get("hosts"), f"{key}.hosts", context)
    rooms = {}
    for host, node in hosts.entries.items() if hosts is not None else ():
        room = read_scalar(node, Field("int", 0, _AGENTS_MAX, unit="agents"), f"{key}.hosts.{host}", context)
        if host.startswith("-") or not host.isprintable() or " " in host:
            context.problems.error(node, f"{key}.hosts", f'has "{host}", which is no name of a machine.')
        rooms[host] = int(room or 0)
    if hosts is None or not rooms:
        context.problems.error(
            mapping,
            f"{key}.hosts",
            "names no machines; write each with the agents that it has room for: {node1: 2, node2: 1}.",
        )
    timeout_s, given = float(TIMEOUT_S), entries.get("timeout")
    if given is not None and not is_null(given):
        seconds = seconds_in(given.text) if isinstance(given, Scalar) else None
        if not seconds:
            context.problems.error(given, f"{key}.timeout", f"is {shown(given)}; it must be a time such as 30s.")
        timeout_s = float(seconds or TIMEOUT_S)
    return SshSettings(
        rooms,
        read_text(entries.get("folder"), f"{key}.folder", context) or FOLDER,
        tuple(read_texts(entries.get("options"), f"{key}.options", context)),
        timeout_s,
    )
