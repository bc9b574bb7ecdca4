"""The JSON Schema of job files beside the reader: it takes every file that the reader takes without a complaint."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jsonschema
from windrow.spec.reading.nodes import Mapping, to_plain
from windrow.spec.reading.problems import Problems
from windrow.spec.reading.yaml_files import read_yaml

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def validator() -> jsonschema.Draft7Validator:
    """Of the schema as `windrow schema` prints it."""
    schema = json.loads((ROOT / "client" / "windrow" / "spec" / "job.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def schema_errors(file: Path) -> list[str]:
    """What the schema has against a job file."""
    node = read_yaml(file, "job", Problems())
    assert node is not None
    return [f"{error.json_path}: {error.message}" for error in validator().iter_errors(to_plain(node))]


def check_schema_takes(file: Path, warnings: str) -> None:
    """Asserts that the schema takes a job file that the reader has taken, with these warnings.

    It may refuse one with a key that the reader warns of as unknown. Files of v1 are not the schema's.
    """
    node = read_yaml(file, "job", Problems())
    if isinstance(node, Mapping) and "pipeline" not in node.entries and "is unknown here" not in warnings:
        assert schema_errors(file) == []
