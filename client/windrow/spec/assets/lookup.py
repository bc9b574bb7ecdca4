"""Looks up registered data assets and models that a job file names.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs (`azureml:<asset>:<version>`, `@latest`).
"""

from __future__ import annotations

from windrow.spec.naming.assets import DATA, MODEL, AssetLookup, FoundAsset, split_asset_reference
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Scalar, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.settings.schema import MODEL_TYPES


def find_asset(node: Scalar, reference: str, data_type: str | None, key: str, context: Context) -> FoundAsset | None:
    """What `<name>:<version>` or `<name>@latest` means; None, with an error, if there is no such asset."""
    try:
        said = split_asset_reference(reference)
    except ValueError as error:
        context.problems.error(node, key, f"{shown(node)} {error}")
        return None
    if said is None:
        context.problems.error(
            node,
            key,
            f"{shown(node)} is not the name of an asset; write azureml:<name>:<version>, or azureml:<name>@latest.",
        )
        return None
    name, sign, version = said
    lookup = context.asset_lookup()
    if lookup is None:
        context.problems.error(
            node,
            key,
            f"{shown(node)} names a registered asset, but there is no registry to look it up in; give a path, or name "
            "the master that has it.",
        )
        return None
    wanted = None if sign == "@" else version
    kinds = (MODEL, DATA) if data_type in MODEL_TYPES else (DATA, MODEL)
    for kind in kinds:
        found = lookup.find(kind, name, wanted)
        if found is not None:
            return found
    context.problems.error(node, key, _not_found(node, name, version, kinds[0], data_type, lookup))
    return None


def _not_found(node: Scalar, name: str, version: str, kind: str, data_type: str | None, lookup: AssetLookup) -> str:
    what = "model" if kind == MODEL else "data asset"
    versions = list(dict.fromkeys([*lookup.versions(DATA, name), *lookup.versions(MODEL, name)]))
    if versions:
        return (
            f"{shown(node)} is not a registered version; the versions of {name} are: "
            f"{', '.join(versions[:10])}{', …' if len(versions) > 10 else ''}."
        )
    known = [*lookup.names(DATA), *lookup.names(MODEL)]
    given = "" if version in ("latest", "1") else f" --version {version}"
    type_ = data_type or ("custom_model" if kind == MODEL else "uri_folder")
    return (
        f"{shown(node)} is not registered.{did_you_mean(name, known)} Register it: windrow {kind} create --name {name}"
        f"{given} --type {type_} --path PATH; or give a path here. No such {what} is known to this master or state "
        "folder."
    )


def type_of(found: FoundAsset, data_type: str | None) -> str:
    """The type that an input of type `data_type` gives to an asset: models are read as folders or files."""
    wanted = data_type or found.type
    if wanted in MODEL_TYPES:
        return "uri_file" if found.is_file else "uri_folder"
    return wanted
