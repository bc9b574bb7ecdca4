"""Compares the JSON Schema of job files with the reader: it accepts every file that the reader accepts."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
from windrow.spec.reading.nodes import Mapping, Node, Scalar
from windrow.spec.reading.problems import Problems
from windrow.spec.reading.yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def validator() -> jsonschema.Draft7Validator:
    """The validator for the schema that `windrow schema` prints."""
    schema = json.loads((ROOT / "client" / "windrow" / "spec" / "job.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def plain(node: Node, made: dict[int, Any]) -> Any:
    """A value without its places, made once however many aliases of it there are."""
    if isinstance(node, Scalar):
        return node.value
    if id(node) not in made:
        if isinstance(node, Mapping):
            made[id(node)] = {name: plain(value, made) for name, value in node.entries.items()}
        else:
            made[id(node)] = [plain(item, made) for item in node.items]
    return made[id(node)]


def schema_errors(file: Path) -> list[str]:
    """The errors of a job file by the schema."""
    node = read_yaml(file, "job", Problems())
    assert node is not None
    return [f"{error.json_path}: {error.message}" for error in validator().iter_errors(plain(node, {}))]


def check_schema_takes(file: Path, warnings: str) -> None:
    """Asserts that the schema takes a job file that the reader has taken, with these warnings.

    It may refuse one with a key that the reader warns of as unknown. Files of v1, which have no `jobs`, are left out.
    """
    node = read_yaml(file, "job", Problems())
    if isinstance(node, Mapping) and "jobs" in node.entries and "is unknown here" not in warnings:
        assert schema_errors(file) == []
