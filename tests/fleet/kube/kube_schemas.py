"""The published schemas of Kubernetes' API, strict: what they do not know is refused."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema
import referencing
from kubernetes_validate.utils import all_versions, major_minor, schema_contents

OLDEST = "1.29"
"""The first version whose Jobs have all fields that Windrow sets, without being asked for."""
VERSIONS = [version for version in all_versions() if int(version.split(".")[1]) >= int(OLDEST.split(".")[1])]
NEWEST = VERSIONS[-1]


def problem_of(found: dict[str, Any], version: str = NEWEST) -> str:
    """What is wrong with an object of the API; "": nothing."""
    kind, api_version = str(found.get("kind")), str(found.get("apiVersion"))
    try:
        validator = _validator(kind.lower(), api_version, version)
    except FileNotFoundError:
        return f"{kind} of {api_version} is not known to Kubernetes {major_minor(version)}"
    error = jsonschema.exceptions.best_match(validator.iter_errors(found))
    return "" if error is None else f"{kind} {error.json_path}: {error.message[:300]}"


@cache
def _validator(kind: str, api_version: str, version: str) -> Any:
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    if kind == "deleteoptions":
        # It is no object that is stored, so it has no file.
        reference = "/api/_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
        dialect = "https://json-schema.org/draft/2020-12/schema"
        schema = {"$id": "https://kubernetes.io/api/deleteoptions", "$schema": dialect, "$ref": reference}
    else:
        schema = schema_contents(f"{folder}/{kind}-{group}.json", version)
    registry: Any = referencing.Resource.from_contents(schema) @ referencing.Registry()
    registry = referencing.Resource.from_contents(_definitions(version)) @ registry
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


@cache
def _definitions(version: str) -> Any:
    return schema_contents(f"kubernetes-json-schema/v{version}-local-strict/_definitions.json", version)
