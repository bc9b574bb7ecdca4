"""The file of a fleet, as `windrow fleet run` takes it: its groups, each with what agents offer and how many there are.

name: site
defaults: {agent: {join_token_file: /etc/windrow/join-token}}
groups:
  cpu: {provider: slurm, slots: 16, memory: 60GB, max: 40, lifetime: 4h, slurm: {partition: batch}}
  gpu: {provider: slurm, pool: gpu, slots: 8, gpus: 1, max: 4, lifetime: 4h, slurm: {partition: gpu}}
"""

from __future__ import annotations

import math
import os
import re
from typing import NamedTuple

from windrow.common.quantities import bytes_in, seconds_in
from windrow.errors import UsageError
from windrow.fleet.provider import Shape
from windrow.fleet.providers import registry
from windrow.fleet.settings import (
    AGENT_FOLDER,
    EXIT_IDLE_S,
    SUBMISSIONS_AT_ONCE,
    SUBMISSIONS_PER_MINUTE,
    AgentSettings,
    FleetSettings,
    GroupSettings,
)
from windrow.rpc.address import grpc_target
from windrow.spec.naming.names import JOB_NAME, NAME
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_keys, read_scalar, read_text, read_text_map, read_texts
from windrow.spec.reading.mapping_file import read_mapping_file
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.problems import Problem, did_you_mean, listed
from windrow.spec.settings.fields import Field

AGENTS_MAX = 100_000
SLOTS_MAX = 4096
GPUS_MAX = 128
MEMORY_MIN = 1_000_000
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_PRICE_MAX = 1_000_000_000
_FLEET = {"name": Field("text"), "defaults": Field("node"), "groups": Field("node")}
_GROUP = {
    "provider": Field("text"),
    "pool": Field("text"),
    "slots": Field("int", 1, SLOTS_MAX),
    "memory": Field("text"),
    "gpus": Field("int", 0, GPUS_MAX),
    "min": Field("int", 0, AGENTS_MAX, unit="agents"),
    "max": Field("int", 0, AGENTS_MAX, unit="agents"),
    "exit_idle": Field("text"),
    "lifetime": Field("text"),
    "submissions_per_minute": Field("int", 1, AGENTS_MAX),
    "submissions_at_once": Field("int", 1, AGENTS_MAX),
    "price_per_hour": Field("number", 0, _PRICE_MAX),
    "budget_per_day": Field("number", 0, _PRICE_MAX),
    "agent": Field("node"),
}
_AGENT = {
    "command": Field("texts"),
    "master": Field("texts"),
    "ca_file": Field("text"),
    "join_token_file": Field("text"),
    "folder": Field("text"),
    "options": Field("texts"),
    "environment": Field("map"),
}
_GIVEN_BY_THE_FLEET = (
    *("--master", "--ca-file", "--join-token-file", "--allocation", "--node-id", "--folder"),
    *("--lifetime", "--exit-idle", "--slots", "--gpus", "--memory", "--pool", "--config"),
)
"""Options of an agent that have keys of their own, or that only the fleet can know."""


class FleetFile(NamedTuple):
    """The content of a fleet's file."""

    fleet: FleetSettings
    warnings: tuple[Problem, ...]


def load_fleet_file(path: str | os.PathLike[str]) -> FleetFile:
    """Read a fleet's file. Raises JobFileError with all that is wrong."""
    root, context = read_mapping_file(path, "fleet", "a fleet's file is a mapping, with the keys name and groups.")
    check_keys(root, _FLEET, "", context)
    name = read_text(root.entries.get("name"), "name", context)
    if name is None:
        context.problems.error(root, "name", "is missing; give the fleet a name, such as site.")
    else:
        _check_name(name, "a fleet", root.entries["name"], "name", context)
    defaults = as_mapping(root.entries.get("defaults"), "defaults", context)
    if defaults is not None:
        check_keys(defaults, _known_keys(), "defaults", context)
    groups = as_mapping(root.entries.get("groups"), "groups", context)
    if groups is None or not groups.entries:
        context.problems.error(root, "groups", "has no group; write one below it, by its name.")
    read = []
    for group, node in groups.entries.items() if groups is not None else ():
        key = f"groups.{group}"
        assert groups is not None
        _check_name(group, "a group", Scalar(groups.key_places[group], group, group), key, context)
        mapping = as_mapping(node, key, context)
        if mapping is None:
            if is_null(node):
                context.problems.error(groups.key_places[group], key, "is empty; write its provider, slots and max.")
            continue
        read.append(_group(group, mapping, defaults, key, context))
    context.problems.raise_errors()
    return FleetFile(FleetSettings(name or "", tuple(read)), tuple(context.problems.warnings))


def _known_keys() -> dict[str, Field]:
    return {**_GROUP, **{kind: Field("node") for kind in registry.kinds()}}


def _group(name: str, own: Mapping, defaults: Mapping | None, key: str, context: Context) -> GroupSettings:
    check_keys(own, _known_keys(), key, context)
    group = own if defaults is None else _merged(defaults, own)
    entries = group.entries

    def number(setting: str) -> float | None:
        value = read_scalar(entries.get(setting), _GROUP[setting], f"{key}.{setting}", context)
        return None if value is None else float(value)

    slots, most = number("slots"), number("max")
    for setting, value, what in (("slots", slots, "how many workers an agent has"), ("max", most, "the most agents")):
        if value is None and setting not in entries:
            context.problems.error(own, f"{key}.{setting}", f"is missing; it says {what}.")
    least = number("min") or 0
    if most is not None and least > most:
        context.problems.error(entries["min"], f"{key}.min", f"is more than max, {most:g}. Lower it, or raise that.")
    pool = read_text(entries.get("pool"), f"{key}.pool", context) or ""
    if pool and not NAME.fullmatch(pool):
        allowed = "at most 64 ASCII letters, digits, _ and -, starting with a letter, digit or _"
        context.problems.error(
            entries["pool"], f"{key}.pool", f'"{pool}" is not a valid name of a pool; use {allowed}.'
        )
    price, budget = number("price_per_hour") or 0.0, number("budget_per_day")
    if budget is not None and not price:
        context.problems.error(
            entries["budget_per_day"], f"{key}.budget_per_day", "needs price_per_hour, the price of one agent."
        )
    provider, engine = _engine(group, own, key, context)
    exit_idle_s = _time(entries.get("exit_idle"), f"{key}.exit_idle", context)
    return GroupSettings(
        name,
        provider,
        Shape(slots or 1.0, _memory(entries.get("memory"), f"{key}.memory", context), int(number("gpus") or 0)),
        int(least),
        int(most or 0),
        pool,
        EXIT_IDLE_S if exit_idle_s is None else exit_idle_s,
        _time(entries.get("lifetime"), f"{key}.lifetime", context),
        int(number("submissions_per_minute") or SUBMISSIONS_PER_MINUTE),
        int(number("submissions_at_once") or SUBMISSIONS_AT_ONCE),
        price,
        math.inf if budget is None else budget,
        _agent(entries.get("agent"), f"{key}.agent", context),
        engine,
    )


def _merged(defaults: Mapping, own: Mapping) -> Mapping:
    """A group with the defaults, key by key; mappings among them also key by key."""
    entries: dict[str, Node] = dict(defaults.entries)
    for name, node in own.entries.items():
        default = entries.get(name)
        both = isinstance(default, Mapping) and isinstance(node, Mapping)
        entries[name] = _merged(default, node) if both else node  # type: ignore[arg-type]
    return Mapping(own.place, entries, {**defaults.key_places, **own.key_places})


def _engine(group: Mapping, own: Mapping, key: str, context: Context) -> tuple[str, object]:
    """The kind of provider, and its own settings."""
    node = group.entries.get("provider")
    provider = read_text(node, f"{key}.provider", context)
    kinds = registry.kinds()
    if provider is None or node is None:
        if node is None or is_null(node):
            context.problems.error(
                own, f"{key}.provider", f"is missing; it names the engine. Available: {listed(kinds)}"
            )
        return "", None
    if provider not in kinds:
        said = f'there is no provider "{provider}".{did_you_mean(provider, kinds)} Available: {listed(kinds)}'
        context.problems.error(node, f"{key}.provider", said)
        return provider, None
    for other in kinds:
        if other != provider and other in own.entries:
            context.problems.warn(
                own.key_places[other], f"{key}.{other}", f"has no effect: the provider of the group is {provider}."
            )
    try:
        kind = registry.load(provider)
    except UsageError as error:
        context.problems.error(node, f"{key}.provider", str(error))
        return provider, None
    mapping = as_mapping(group.entries.get(provider), f"{key}.{provider}", context)
    return provider, kind.read(mapping or Mapping(node.place, {}, {}), f"{key}.{provider}", context)


def _agent(node: Node | None, key: str, context: Context) -> AgentSettings:
    mapping = as_mapping(node, key, context)
    if mapping is None:
        return AgentSettings()
    check_keys(mapping, _AGENT, key, context)
    entries = mapping.entries
    master = read_texts(entries.get("master"), f"{key}.master", context)
    for address in master:
        try:
            grpc_target(address)
        except UsageError as error:
            context.problems.error(entries["master"], f"{key}.master", str(error))
    options = read_texts(entries.get("options"), f"{key}.options", context)
    for option in options:
        if option.partition("=")[0] in _GIVEN_BY_THE_FLEET:
            said = f"holds {option}, which the fleet itself gives to each agent. Leave it out; other keys set it."
            context.problems.error(entries["options"], f"{key}.options", said)
    folder = read_text(entries.get("folder"), f"{key}.folder", context) or AGENT_FOLDER
    if not folder.startswith("/"):
        context.problems.error(entries["folder"], f"{key}.folder", f'is "{folder}"; it must be an absolute path.')
    paths = {}
    for name in ("ca_file", "join_token_file"):
        paths[name] = read_text(entries.get(name), f"{key}.{name}", context) or ""
        if paths[name] and not paths[name].startswith("/"):
            said = f'is "{paths[name]}"; it must be an absolute path, of the machines where agents run.'
            context.problems.error(entries[name], f"{key}.{name}", said)
    environment = read_text_map(entries.get("environment"), f"{key}.environment", context)
    for name in environment:
        # Engines get them as lines of a shell's.
        if not _VARIABLE.fullmatch(name):
            said = f'holds "{name}", which is no name of a variable: use letters, digits and _, and no digit first.'
            context.problems.error(entries["environment"], f"{key}.environment", said)
    command = read_texts(entries.get("command"), f"{key}.command", context)
    texts = (*command, *options, folder, *paths.values(), *environment.values())
    if any("\0" in text for text in texts):
        context.problems.error(mapping, key, "holds a NUL character, which no command line can hold. Remove it.")
    return AgentSettings(
        tuple(command) or ("windrow",),
        tuple(master),
        paths["ca_file"],
        paths["join_token_file"],
        folder,
        tuple(options),
        environment,
    )


def _time(node: Node | None, key: str, context: Context) -> float | None:
    """A time in seconds; None if there is none."""
    if node is None or is_null(node):
        return None
    seconds = seconds_in(node.text) if isinstance(node, Scalar) else None
    if not seconds:
        context.problems.error(node, key, f"is {shown(node)}; it must be a time such as 90s, 2min, 4h or 1d.")
        return None
    return float(seconds)


def _memory(node: Node | None, key: str, context: Context) -> int:
    if node is None or is_null(node):
        return 0
    found = bytes_in(node.text) if isinstance(node, Scalar) else None
    if found is None or found < MEMORY_MIN:
        context.problems.error(node, key, f"is {shown(node)}; it must be a size such as 500MB, 64GB or 60GiB.")
        return 0
    return found


def _check_name(name: str, what: str, node: Node, key: str, context: Context) -> None:
    if not JOB_NAME.fullmatch(name):
        allowed = "at most 64 letters, digits, _, . and -, starting with a letter or digit"
        context.problems.error(node, key, f'"{name}" is not a valid name of {what}; use {allowed}.')
