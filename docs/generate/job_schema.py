"""The JSON Schema of job files, for editors: from the field tables, with the texts of `job_file.toml` as hints.

It accepts what Windrow accepts without a warning of an unknown key. What depends on other keys or on files (whether an
input exists, or a step has a task) is left to `windrow validate`.
"""

from __future__ import annotations

import json
from typing import Any

from spec_tables import Field, Key, Table, plain, steps, tables

Schema = dict[str, Any]

EXPRESSION: Schema = {"type": "string", "pattern": r"\$\{\{.*\}\}"}
SCALAR: Schema = {"type": ["string", "number", "boolean"]}
SCALAR_OR_NOTHING: Schema = {"type": ["string", "number", "boolean", "null"]}
SIZE = r"^\s*\d{1,18}([kKmMgG][bB])?\s*$"
INTEGER_TEXT, NUMBER_TEXT = r"^\s*[-+]?\d+\s*$", r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def text() -> str:
    """The whole file."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> Schema:
    """The schema of a pipeline file."""
    found = tables()
    definitions = {
        "input": one_of_or(SCALAR_OR_NOTHING, mapping(keys_of(found["input"]))),
        "output": one_of_or(SCALAR_OR_NOTHING, mapping(keys_of(found["output"]))),
        "inputs": mapping_of({"$ref": "#/definitions/input"}),
        "outputs": mapping_of({"$ref": "#/definitions/output"}),
        "settings": mapping(keys_of(found["settings"])),
        "retry_settings": mapping(keys_of(found["retry_settings"])),
        "resources": mapping(keys_of(found["resources"])),
        "limits": mapping(keys_of(found["limits"])),
        "do_while_limits": mapping(keys_of(found["do_while_limits"])),
        "task": mapping(keys_of(found["task"])),
        "component": {"type": ["string", "object", "null"]},
        "environment": {"type": ["string", "object", "null"]},
        "jobs": mapping_of({"$ref": "#/definitions/step"}),
        "step": step_schema(),
        **{f"{name}_step": mapping(keys_of(table)) for name, table in steps().items()},
        "do_while_step": mapping({**keys_of(steps()["do_while"]), "limits": {"$ref": "#/definitions/do_while_limits"}}),
    }
    made: Schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Job file of Windrow",
        "description": "A pipeline of parallel steps and commands, as Azure ML's parallel job (v2) defines it.",
        **mapping(keys_of(found["pipeline"]), required=["type", "jobs"]),
        "definitions": definitions,
    }
    # Unlike the mappings in it, the file itself cannot be empty.
    made["type"] = "object"
    return made


NODES: dict[str, Schema] = {
    "$schema": {"type": ["string", "null"]},
    "type": SCALAR_OR_NOTHING,
    "comment": {},
    "input_data": {
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "null"}]
    },
    **{
        name: {"$ref": f"#/definitions/{name}"}
        for name in (
            "inputs", "outputs", "settings", "retry_settings", "resources", "limits", "task", "component",
            "environment", "jobs",
        )
    },
}  # fmt: skip
"""Keys that code of its own reads. The rest may be anything."""


def step_schema() -> Schema:
    """A step, by its type, or by what is in it."""
    by_type = {name: word(name) for name in ("parallel", "command", "pipeline", "if_else", "do_while")}
    return {
        "type": ["object", "null"],
        "if": {"required": ["type"], "properties": {"type": SCALAR}},
        "then": {
            "properties": {
                "type": {**SCALAR, "examples": list(by_type), "anyOf": [{"enum": list(by_type)}, *by_type.values()]}
            },
            "allOf": [
                {
                    "if": {"properties": {"type": pattern}},
                    "then": {"$ref": f"#/definitions/{name}_step"},
                }
                for name, pattern in by_type.items()
            ],
        },
        "else": {
            "anyOf": [
                {"type": "null"},
                *({"$ref": f"#/definitions/{name}_step"} for name in ("parallel", "command", "pipeline")),
            ]
        },
    }


def keys_of(table: Table) -> dict[str, Schema]:
    """The schemas of a table's keys."""
    return {name: key_schema(key) for name, key in table.keys.items()}


def key_schema(key: Key) -> Schema:
    """The schema of a key's value, with its hint."""
    made = dict(NODES.get(key.name, {})) if key.field.kind == "node" else value_schema(key.field)
    if key.name == "partition_keys":
        made = {"anyOf": [made, {"type": "string"}]}
    hint = f"Without effect: {key.field.effect}." if key.field.effect else plain(key.text)
    if key.default:
        hint += f" Default: {key.default}."
    if "$ref" in made:
        # Beside a reference, draft 7 reads nothing else.
        made = {"allOf": [made]}
    return {"description": hint, **made} if hint else made


def value_schema(field: Field) -> Schema:
    """The schema of a field's value, as a YAML value or as text."""
    match field.kind:
        case "int":
            ends = {"minimum": field.minimum, "maximum": field.maximum}
            return {
                "anyOf": [
                    {"type": "integer", **{name: end for name, end in ends.items() if end is not None}},
                    {"type": "string", "pattern": INTEGER_TEXT},
                    EXPRESSION,
                ]
            }
        case "number":
            return {"anyOf": [{"type": "number"}, {"type": "string", "pattern": NUMBER_TEXT}, EXPRESSION]}
        case "bool":
            words = [word(name) for name in ("true", "false")]
            return {"anyOf": [{"type": "boolean"}, {"enum": [0, 1, "0", "1"]}, *words, {"type": "null"}, EXPRESSION]}
        case "size":
            return {
                "anyOf": [
                    {"type": "integer", "minimum": 0},
                    {"type": "string", "pattern": SIZE},
                    EXPRESSION,
                    {"type": "null"},
                ]
            }
        case "choice":
            return {"anyOf": [{"enum": list(field.choices)}, *map(word, field.choices), EXPRESSION]}
        case "texts":
            return {"type": ["array", "null"], "items": SCALAR}
        case "map":
            return {"type": ["object", "null"], "additionalProperties": SCALAR_OR_NOTHING}
    return SCALAR_OR_NOTHING


def word(text: str) -> Schema:
    """A word in any case."""
    letters = "".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in text)
    return {"type": "string", "pattern": rf"^\s*{letters}\s*$"}


def mapping(properties: dict[str, Schema], required: list[str] | None = None) -> Schema:
    """A mapping with these keys and no others."""
    made: Schema = {"type": ["object", "null"], "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def mapping_of(values: Schema) -> Schema:
    """A mapping of names that the file chooses."""
    return {"type": ["object", "null"], "additionalProperties": values}


def one_of_or(plain_values: Schema, otherwise: Schema) -> Schema:
    """A plain value, or something with keys."""
    return {"anyOf": [plain_values, otherwise]}
