"""Outputs of the pipeline and of its steps: their types, their paths, and what they are bound to.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs, #the-rows-file;
docs/reference/azure-ml/client.md#dumped-jobs (what a dump loses).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from windrow.spec.effective.job import StepOutput
from windrow.spec.naming.assets import ASSET_NAME, is_asset_version
from windrow.spec.naming.datastores import DEFAULT_DATASTORES
from windrow.spec.naming.expressions import Reference, substitute, whole_reference
from windrow.spec.naming.locations import (
    absolute,
    datastore_path,
    elsewhere,
    is_elsewhere,
    parse_location,
    why_unreachable,
)
from windrow.spec.naming.names import is_file_name
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_keys, read_scalar, read_text
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.settings.schema import DATA_TYPES, LITERAL_TYPES, OUTPUT
from windrow.storage.urls import BadUrl


class OutputSpec(NamedTuple):
    """An output as written; `binding` is the pipeline output that it is bound to, `path` where it goes."""

    place: Node
    type: str | None = None
    mode: str | None = None
    path: Scalar | None = None
    binding: Reference | None = None
    asset_name: str | None = None
    asset_version: str | None = None
    value: str | None = None
    make_folder: bool | None = None


def read_output(node: Node, key: str, context: Context) -> OutputSpec | None:
    """Reads one entry of `outputs`: nothing, a binding, a path, or an object.

    None, with an error, if it is something else.
    """
    if is_null(node):
        return OutputSpec(node)
    output_type = mode = name = version = makes = None
    value: Node | None = node
    if isinstance(node, Mapping):
        check_keys(node, OUTPUT, key, context)
        output_type = read_scalar(node.entries.get("type"), OUTPUT["type"], f"{key}.type", context)
        mode = read_scalar(node.entries.get("mode"), OUTPUT["mode"], f"{key}.mode", context)
        name, version = _asset(node, key, context)
        value = node.entries.get("path")
        makes = read_scalar(node.entries.get("make_folder"), OUTPUT["make_folder"], f"{key}.make_folder", context)
        control = read_scalar(node.entries.get("is_control"), OUTPUT["is_control"], f"{key}.is_control", context)
        if control and is_null(node.entries.get("type")):
            output_type = "boolean"
        if control and output_type not in (None, *LITERAL_TYPES):
            context.problems.error(
                node.entries["is_control"],
                f"{key}.is_control",
                f"goes with an output that holds one value, not with type {output_type}; use type: boolean.",
            )
            return None
        if (output_type is None and "type" in node.entries) or (mode is None and "mode" in node.entries):
            return None
    kind = None if output_type is None else str(output_type) if output_type in DATA_TYPES else "uri_folder"
    held = str(output_type) if output_type in LITERAL_TYPES else None
    spec = OutputSpec(
        node,
        kind if held is None else "uri_file",
        str(mode) if mode else None,
        asset_name=name,
        asset_version=version,
        value=held,
        make_folder=None if makes is None else bool(makes),
    )
    if value is None or is_null(value):
        return spec
    if not isinstance(value, Scalar):
        context.problems.error(
            value,
            key,
            f"is {shown(value)}; it must be a binding such as ${{{{parent.outputs.x}}}}, a local path, or an object.",
        )
        return None
    try:
        reference = whole_reference(value.text)
    except ValueError as error:
        context.problems.error(value, key, f"is {shown(value)}; {error}.")
        return None
    if reference and reference.scope not in ("name", "default_datastore"):
        return spec._replace(binding=reference)
    return spec._replace(path=value)


def make_output(
    given: Sequence[OutputSpec],
    declared: Sequence[OutputSpec],
    key: str,
    place_name: str,
    context: Context,
) -> StepOutput:
    """Makes one output of a step, and notes errors of its path. `given`: its settings in the step, then in each
    pipeline output that it is bound to, the innermost first; `declared`: its settings in their components.
    `place_name`: the name of its folder in the pipeline's default datastore.
    """
    made = _placed_output(given, declared, key, place_name, context)
    unmade = next((spec for spec in (*given, *declared) if spec.make_folder is not None), None)
    if unmade is None or unmade.make_folder:
        return made
    if made.type != "uri_folder" or made.asset_name is not None:
        context.problems.error(
            unmade.place,
            f"{key}.make_folder",
            "false is for an output of type uri_folder that does not become a data asset; leave it out.",
        )
    return made._replace(make_folder=False)


def _placed_output(
    given: Sequence[OutputSpec],
    declared: Sequence[OutputSpec],
    key: str,
    place_name: str,
    context: Context,
) -> StepOutput:
    step, *pipelines = given
    ranked = [*given, *declared]
    kind = _type_of(step, declared, pipelines)
    mode = next((spec.mode for spec in ranked if spec.mode), "rw_mount")
    named = next((spec for spec in ranked if spec.asset_name), None)
    held = next((spec.value for spec in ranked if spec.value), None) if kind == "uri_file" else None
    asset = (named.asset_name, named.asset_version, held) if named else (None, None, held)
    path_node = next((spec.path for spec in ranked if spec.path), None)
    if path_node is None and context.default_datastore and held is None:
        context.placed_outputs.add(key)
        folder = f"azureml://datastores/{context.default_datastore}/paths/azureml/${{{{name}}}}/{place_name}"
        # A file of rows gets its own name later.
        name = place_name.rpartition("/")[2]
        return StepOutput(kind, mode, f"{folder}/{name}" if kind == "uri_file" else folder, None, *asset)
    if path_node is None:
        return StepOutput(kind, mode, None, None, *asset)
    path, file_name = _output_path(path_node, kind, key, context)
    if held is not None and path is not None and is_elsewhere(path):
        context.problems.error(
            path_node,
            key,
            f"{shown(path_node)} is in a store, but an output that holds one value has to be a file "
            "here: leave its path out.",
        )
    return StepOutput(kind, mode, path, file_name, *asset)


def _type_of(step: OutputSpec, declared: Sequence[OutputSpec], pipelines: Sequence[OutputSpec]) -> str:
    """The type of an output: that which its step gives it, else those of its components and pipeline outputs.

    A pipeline output with a mode and no type is a folder, whatever the component says, as the vendor's command line
    takes it (azure-ai-ml 1.23, `Output(type="uri_folder", mode=...)`).
    """
    if step.type is None and any(spec.mode and not spec.type for spec in pipelines):
        return "uri_folder"
    others = [spec.type for spec in (*declared, *pipelines) if spec.type]
    # A dumped step may say uri_folder where all others say uri_file: these are right.
    is_dumped = step.type == "uri_folder" and bool(pipelines) and others and set(others) == {"uri_file"}
    if step.type and not is_dumped:
        return step.type
    return "uri_file" if "uri_file" in others else (others[0] if others else "uri_folder")


def _asset(node: Mapping, key: str, context: Context) -> tuple[str | None, str | None]:
    """The name and version under which an output is registered (version None for the next number). The name is None,
    with an error, if that is not allowed.
    """
    name = read_text(node.entries.get("name"), f"{key}.name", context)
    version = read_text(node.entries.get("version"), f"{key}.version", context)
    if name is None:
        if version is not None:
            context.problems.warn(
                node.entries["version"], f"{key}.version", "has no effect without a name: nothing is registered."
            )
        return None, None
    if not ASSET_NAME.fullmatch(name):
        context.problems.error(
            node.entries["name"],
            f"{key}.name",
            f"is {shown(node.entries['name'])}; it must be at most 255 ASCII letters, digits, _, . and -, starting "
            "with a letter or digit.",
        )
        return None, None
    if version is not None and not is_asset_version(version):
        context.problems.error(
            node.entries["version"],
            f"{key}.version",
            f"is {shown(node.entries['version'])}; it must be at most 50 ASCII letters, digits, _, . and -, but not "
            "the word latest. Leave it out to get the next number.",
        )
        return None, None
    return name, version


def _output_path(node: Scalar, kind: str, key: str, context: Context) -> tuple[str | None, str | None]:
    """`(path, file_name)` of a `StepOutput`."""

    def known(reference: Reference) -> str:
        if reference.scope == "name":
            return context.job_name or "${{name}}"
        if reference.scope == "default_datastore":
            return context.default_datastore or "${{default_datastore}}"
        raise ValueError("a path may contain ${{name}} and ${{default_datastore}} only")

    try:
        text = substitute(node.text.strip(), known)
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return None, None
    location = parse_location(text)
    if location.kind == "datastore":
        return _datastore_output(location.value, node, kind, key, context)
    if location.kind == "remote":
        return _remote_output(text, node, kind, key, context), None
    if location.kind == "other_host":
        context.problems.error(node, key, why_unreachable(location, text))
        return None, None
    if location.kind != "local":
        what = "a registered asset" if location.kind == "asset" else "an address where Windrow cannot write"
        context.problems.error(
            node, key, f"{shown(node)} is {what}; give a local path, or leave it out for Windrow's default place."
        )
        return None, None
    if "${{default_datastore}}" in location.value or not location.value or "\0" in location.value:
        context.problems.error(
            node,
            key,
            f"{shown(node)} is not a path of an output; give a local path, or "
            "azureml://datastores/${{default_datastore}}/paths/…",
        )
        return None, None
    path = absolute(location.value, node.place.source.folder)
    if not os.path.isabs(location.value):
        context.own_outputs.add(key)
    if context.embedded:
        _check_writable(path, node, kind, location.value.endswith("/"), key, context)
    return path, None


def _remote_output(text: str, node: Scalar, kind: str, key: str, context: Context) -> str | None:
    """The canonical address of an output in a store. None, with an error, if nothing can be written there."""
    try:
        path = elsewhere(parse_location(text), text)
    except BadUrl as error:
        context.problems.error(node, key, f"is wrong: {error}.")
        return None
    why = ""
    if path.startswith(("http:", "https:")):
        why = "is on a web server, where Windrow cannot write; give the address of a store (s3://, gs://, abfss://)"
    elif kind == "uri_file" and (text.endswith("/") or path.count("/") < 3):
        why = "is a folder, but the type is uri_file; add the file's name, or use type: uri_folder"
    if why:
        context.problems.error(node, key, f"{shown(node)} {why}.")
        return None
    return path


def _datastore_output(value: str, node: Scalar, kind: str, key: str, context: Context) -> tuple[str | None, str | None]:
    """An output in a datastore. In the default one it goes to the default place of outputs, under its own file name;
    in another one to just that place, if the master has that datastore."""
    found = datastore_path(f"azureml://{value}")
    name = value.rstrip("/").rpartition("/")[2]
    file_name = name if kind == "uri_file" and not value.endswith("/") and found and found.path else None
    file_name = file_name if file_name and is_file_name(file_name) else None
    if found is not None and found.name in DEFAULT_DATASTORES:
        return None, file_name
    if found is None or (context.embedded and found.name not in context.datastores):
        context.problems.warn(
            node,
            key,
            f"{shown(node)} has no effect: this run has no datastore {found.name!r}, so the output goes to Windrow's "
            f"default place for outputs. Give the run that datastore with --datastore {found.name}=PLACE."
            if found is not None
            else f"{shown(node)} does not name a datastore; the output goes to Windrow's default place for outputs.",
        )
        return None, file_name
    return str(found), None


def _check_writable(path: str, node: Scalar, kind: str, as_folder: bool, key: str, context: Context) -> None:
    """Notes an error for an output that could not be written: otherwise it would fail only after hours of work."""
    if kind == "uri_file" and (os.path.isdir(path) or as_folder):
        context.problems.error(
            node,
            key,
            f"{shown(node)} is a folder, but the type is uri_file; add the file's name, or use type: uri_folder.",
        )
        return
    if kind != "uri_file" and os.path.isfile(path):
        context.problems.error(
            node, key, f"{shown(node)} is a file, but the type is {kind}; name a folder, or use type: uri_file."
        )
        return
    nearest = path if kind != "uri_file" else os.path.dirname(path)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest):
        context.problems.error(
            node, key, f"{shown(node)} cannot be written: {nearest} is a file, not a folder; choose another path."
        )
    elif not os.access(nearest, os.W_OK | os.X_OK):
        context.problems.error(
            node, key, f"{shown(node)} cannot be written: no permission to write in {nearest}; choose another path."
        )
