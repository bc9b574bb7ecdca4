"""The field tables of `windrow.spec`, joined with the texts of `job_file.toml`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from windrow.spec.job.step_settings import DEFAULTS
from windrow.spec.settings import schema
from windrow.spec.settings.arguments import ALL_ARGUMENTS, EXACT_ONLY, OWN
from windrow.spec.settings.fields import Field

__all__ = ["EXACT_ONLY", "OWN", "Field", "Key", "Table", "plain", "steps", "tables"]

TEXTS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("job_file.toml").read_text())
OWN_COMMAND_KEYS = {name: field for name, field in schema.COMMAND_STEP.items() if name not in schema.STEP}
TABLES: dict[str, dict[str, Field]] = {
    "pipeline": schema.PIPELINE,
    "settings": schema.PIPELINE_SETTINGS,
    "step": schema.STEP,
    "component": {name: field for name, field in schema.COMPONENT.items() if name not in schema.STEP},
    "retry_settings": schema.RETRY_SETTINGS,
    "resources": schema.RESOURCES,
    "task": schema.TASK,
    "command_step": {
        **OWN_COMMAND_KEYS,
        **{name: schema.COMMAND_STEP[name] for name in ("code", "limits", "environment")},
    },
    "limits": schema.LIMITS,
    "pipeline_step": {name: field for name, field in schema.PIPELINE_STEP.items() if name == "jobs"},
    "if_else": schema.IF_ELSE,
    "do_while": schema.DO_WHILE,
    "do_while_limits": schema.DO_WHILE_LIMITS,
    "input": schema.INPUT,
    "output": schema.OUTPUT,
    "arguments": {name: argument.field for name, argument in ALL_ARGUMENTS.items()},
}
"""By the names of `job_file.toml`."""
_EFFECTIVE = {
    ("retry_settings", "timeout"): "run_invocation_timeout_s",
    ("arguments", "run_max_try"): "",
    ("command_step", "code"): "",
}
"""Effective names of keys that differ from the keys; "" for none."""


class Key(NamedTuple):
    """One key: its field, its default ("" for none, or if the text gives it) and its meaning."""

    name: str
    field: Field
    default: str
    text: str


class Table(NamedTuple):
    """The keys of one mapping. Not a table of data."""

    name: str
    keys: dict[str, Key]


def tables() -> dict[str, Table]:
    """All tables. Raises KeyError if `job_file.toml` and the tables do not have the same keys."""
    made = {}
    for name, fields in TABLES.items():
        texts = TEXTS[name]
        working = {key for key, field in fields.items() if not field.effect}
        if missing := working - texts.keys():
            raise KeyError(f"job_file.toml has no text for [{name}] {', '.join(sorted(missing))}")
        if unknown := texts.keys() - fields.keys():
            raise KeyError(
                f"job_file.toml has keys that windrow.spec does not have: [{name}] {', '.join(sorted(unknown))}"
            )
        keys = {key: Key(key, field, _default(name, key), texts.get(key, "")) for key, field in fields.items()}
        made[name] = Table(name, keys)
    if unknown := TEXTS.keys() - TABLES.keys():
        raise KeyError(f"job_file.toml has tables that windrow.spec does not have: {', '.join(sorted(unknown))}")
    return made


def steps() -> dict[str, Table]:
    """The keys of a step, by its type. Keys without a text of their own have that of a parallel step."""
    made = tables()
    by_type = {"command": (schema.COMMAND_STEP, "command_step"), "pipeline": (schema.PIPELINE_STEP, "pipeline_step")}
    found = {"parallel": made["step"]}
    for name, (fields, own) in by_type.items():
        texts = {key: one.text for key, one in {**made["step"].keys, **made[own].keys}.items()}
        found[name] = Table(name, {key: Key(key, field, "", texts.get(key, "")) for key, field in fields.items()})
    found["if_else"], found["do_while"] = made["if_else"], made["do_while"]
    return found


def _default(table: str, key: str) -> str:
    name = _EFFECTIVE.get((table, key), key)
    if table == "arguments" and name:
        name = ALL_ARGUMENTS[key].sets
    value: Any = DEFAULTS.get(name) if table not in ("pipeline", "settings", "input", "output") else None
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def plain(text: str) -> str:
    """A text without links, for where none can be followed."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text)
