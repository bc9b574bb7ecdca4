"""Inputs of the pipeline and of its steps: literals, data and bindings, followed to what they finally mean.

Reference: docs/reference/azure-ml/parallel-job.md#inputs-and-outputs; docs/reference/azure-ml/client.md#dumped-jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from windrow.spec.effective.job import DataInput, LiteralInput, StepInput
from windrow.spec.naming.datastores import DEFAULT
from windrow.spec.naming.expressions import AlreadyReported, Reference, has_expression, substitute, whole_reference
from windrow.spec.naming.locations import (
    Location,
    absolute,
    datastore_name,
    elsewhere,
    is_elsewhere,
    parse_location,
    why_missing,
    why_unreachable,
)
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_keys, read_scalar
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, Sequence, is_null, shown
from windrow.spec.settings.fields import Field, parse_value
from windrow.spec.settings.schema import DATA_TYPES, INPUT, LITERAL_TYPES, MODEL_TYPES
from windrow.storage.urls import BadUrl


class Resolved(NamedTuple):
    """An input, followed to its value; `value` is None if it has none.

    `broken`: an error was noted, so the missing value means nothing. `own`: the key of a relative path, which is on
    this machine wherever the master is; or empty. `missing`: the place and key of the pipeline input whose missing
    value is the reason why this input has none.
    """

    value: StepInput | None
    place: Place
    broken: bool = False
    optional: bool = False
    own: str = ""
    missing: tuple[Place, str] | None = None


class InputSpec(NamedTuple):
    """An input as written: an object, or (`is_path` false) a bare value."""

    place: Node
    type: str | None = None
    mode: str | None = None
    value: Node | None = None
    is_path: bool = False
    optional: bool = False
    limits: Mapping | None = None


Lookup = Callable[[Reference, Node], Resolved]
"""Resolves a reference in a step's input; raises ValueError, saying why, if it means nothing."""


def read_input(node: Node, key: str, context: Context) -> InputSpec | None:
    """Reads one entry of `inputs`. None, with an error, if it is neither a value nor an object."""
    match node:
        case Scalar():
            return InputSpec(node, value=node)
        case Sequence():
            context.problems.error(
                node,
                key,
                "is a list; it must be text, a number, true/false, a binding, or an object with type and path.",
            )
            return None
        case Mapping(entries=entries):
            check_keys(node, INPUT, key, context)
            before = len(context.problems.errors)
            input_type = read_scalar(entries.get("type"), INPUT["type"], f"{key}.type", context)
            mode = read_scalar(entries.get("mode"), INPUT["mode"], f"{key}.mode", context)
            optional = read_scalar(entries.get("optional"), INPUT["optional"], f"{key}.optional", context)
            if len(context.problems.errors) > before:
                return None
            path = entries.get("path")
            is_path = not is_null(path)
            value = (
                path
                if is_path
                else next((entries[name] for name in ("value", "default") if not is_null(entries.get(name))), None)
            )
            return InputSpec(
                node,
                str(input_type) if input_type else None,
                str(mode) if mode else None,
                value,
                is_path,
                optional is True,
                limits=node,
            )


def resolve_input(spec: InputSpec, declared: InputSpec | None, key: str, context: Context, lookup: Lookup) -> Resolved:
    """What an input means, its component's declaration (type, mode, default) taken into account."""
    place = spec.place.place
    if declared:
        has_value = not is_null(spec.value)
        spec = spec._replace(
            type=spec.type or declared.type,
            mode=spec.mode or declared.mode,
            value=spec.value if has_value else declared.value,
            is_path=spec.is_path if has_value else declared.is_path,
            optional=declared.optional or spec.optional,
            limits=declared.limits,
        )
    node = spec.value
    if node is None or is_null(node):
        return Resolved(None, place, optional=spec.optional)
    if not isinstance(node, Scalar):
        context.problems.error(node, key, f"is {shown(node)}; it must be a path, a value or a binding.")
        return Resolved(None, place, broken=True)
    if spec.mode in ("eval_mount", "eval_download") and spec.type != "mltable":
        context.problems.error(
            spec.place, f"{key}.mode", f'"{spec.mode}" is for type mltable; use ro_mount, download or direct.'
        )
        return Resolved(None, place, broken=True)
    try:
        found = _follow(node, spec, key, context, lookup)
        return found if _may_be_written(found, spec, key, context) else Resolved(None, place, broken=True)
    except AlreadyReported:
        return Resolved(None, place, broken=True)
    except ValueError as error:
        context.problems.error(node, key, f"is {shown(node)}; {error}.")
        return Resolved(None, place, broken=True)


def _may_be_written(found: Resolved, spec: InputSpec, key: str, context: Context) -> bool:
    """Whether an input in the mode rw_mount is where a script may write to it. Notes an error if it is not."""
    data = found.value
    if spec.mode != "rw_mount" or not isinstance(data, DataInput):
        return True
    why = ""
    if is_elsewhere(data.path):
        why = f"{data.path} is in storage, and what a script would write into its copy is not brought back"
    elif found.own and not context.embedded:
        why = f"{data.path} is on this machine, and nodes read a copy of it"
    if why:
        context.problems.error(
            spec.place, f"{key}.mode", f'"rw_mount" is for data on a file system of the nodes; {why}. Use an output.'
        )
    return not why


def _follow(node: Scalar, spec: InputSpec, key: str, context: Context, lookup: Lookup) -> Resolved:
    reference = whole_reference(node.text)
    if reference:
        target = lookup(reference, node)
        if target.broken or target.value is None:
            return target._replace(place=node.place, optional=spec.optional or target.optional)
        if not isinstance(target.value, LiteralInput):
            if target.value.type in LITERAL_TYPES:
                # One value, as text; for a reader of data, the file that holds it.
                kind = "uri_file" if spec.type in (*DATA_TYPES, *MODEL_TYPES) else target.value.type
            else:
                kind = _bound_type(target.value.type, spec.type)
            value = target.value._replace(type=kind, mode=spec.mode or target.value.mode)
            return Resolved(value, node.place, own=target.own)
        # A path may be passed as a literal: it is relative to the file that holds it, not to the one that binds it.
        written = Scalar(target.place, target.value.value, target.value.value)
        return _plain(written, spec._replace(is_path=False), key, context)
    if not has_expression(node.text):
        return _plain(node, spec, key, context)

    def literal(inner: Reference) -> str:
        target = lookup(inner, node)
        if target.broken:
            raise AlreadyReported
        if not isinstance(target.value, LiteralInput):
            raise ValueError("inside a longer text, only literal inputs can be used")
        return target.value.value

    text = substitute(node.text, literal)
    return _plain(Scalar(node.place, text, text), spec, key, context)


def _plain(node: Scalar, spec: InputSpec, key: str, context: Context) -> Resolved:
    if spec.type in LITERAL_TYPES or (spec.type is None and not spec.is_path):
        return Resolved(LiteralInput(_literal(node, spec, key, context)), node.place)
    data = data_at(node, spec.type, spec.mode, f"{key}.path" if spec.is_path else key, context)
    location = parse_location(node.text)
    own = data is not None and location.kind == "local" and not os.path.isabs(location.value)
    return Resolved(data, node.place, broken=data is None, own=key if own else "")


def data_at(node: Scalar, data_type: str | None, mode: str | None, key: str, context: Context) -> DataInput | None:
    """Data at a path. A local path has to exist and match the type; None, with an error, if it does not."""
    text = node.text.strip()
    location = parse_location(text)
    if location.kind == "asset":
        return _data_of_asset(node, location.value, data_type, mode, key, context)
    if location.kind in ("datastore", "remote"):
        return _data_elsewhere(node, location, data_type, mode, key, context)
    if location.kind != "local":
        context.problems.error(node, key, why_unreachable(location, text))
        return None
    if not location.value or "\0" in location.value:
        context.problems.error(node, key, f"{shown(node)} is not a path; give the path of a file or folder.")
        return None
    path = absolute(location.value, node.place.source.folder)
    on_this_machine = context.embedded or not os.path.isabs(location.value)
    is_folder, is_file = os.path.isdir(path), os.path.isfile(path)
    if on_this_machine and not is_folder and not is_file:
        hint = " A pattern needs an MLTable file." if any(sign in text for sign in "*?[") else ""
        why = f"{shown(node)} {why_missing(path)} ({path})"
        context.problems.error(node, key, f"{why}; paths are relative to the file that holds them.{hint}")
        return None
    if data_type is None or data_type in MODEL_TYPES:
        data_type = "uri_file" if is_file else "uri_folder"
    if on_this_machine and data_type == "uri_file" and is_folder:
        context.problems.error(
            node, key, f"{shown(node)} is a folder, but the type is uri_file; use type: uri_folder, or name a file."
        )
        return None
    if on_this_machine and data_type == "uri_folder" and is_file:
        context.problems.error(
            node, key, f"{shown(node)} is a file, but the type is uri_folder; use type: uri_file, or name a folder."
        )
        return None
    return DataInput(data_type, mode or "ro_mount", path)


def _data_of_asset(
    node: Scalar, reference: str, data_type: str | None, mode: str | None, key: str, context: Context
) -> DataInput | None:
    """Data that the job file names as a registered asset."""
    # Few job files name one.
    from windrow.spec.assets.lookup import find_asset, type_of

    found = find_asset(node, reference, data_type, key, context)
    if found is None:
        return None
    place = Scalar(node.place, found.path, found.path)
    data = data_at(place, type_of(found, data_type), mode, key, context)
    return None if data is None else data._replace(asset=found.reference)


def _data_elsewhere(
    node: Scalar, location: Location, data_type: str | None, mode: str | None, key: str, context: Context
) -> DataInput | None:
    """Data in a store or datastore. The planner checks that it exists: only the master and the agents have
    credentials.
    """
    try:
        path = elsewhere(location, node.text.strip())
    except BadUrl as error:
        context.problems.error(node, key, f"is wrong: {error}.")
        return None
    web = path.startswith(("http:", "https:"))
    if data_type is None or data_type in MODEL_TYPES:
        data_type = "uri_file" if web else "uri_folder"
    if web and data_type == "uri_folder":
        context.problems.error(
            node,
            key,
            f"{shown(node)} is on a web server, which cannot be listed; name one file, with type: uri_file.",
        )
        return None
    if data_type == "uri_file" and location.value.endswith("/"):
        context.problems.error(
            node, key, f"{shown(node)} is a folder, but the type is uri_file; use type: uri_folder, or name a file."
        )
        return None
    if location.kind == "datastore" and context.embedded:
        name = datastore_name(path)
        if name not in context.datastores:
            store = f", or {name}=s3://bucket/path" if name != DEFAULT else ""
            which = repr(name) if name != DEFAULT else f"of the workspace, {name!r} here"
            context.problems.error(
                node,
                key,
                f"{shown(node)} is in the datastore {which}, which this run does not have; say where that is "
                f"(windrow run --datastore {name}=PATH{store}), give a local path or the address "
                "of the store itself, or submit the job to a master that has the datastore (windrow job create).",
            )
            return None
    return DataInput(data_type, mode or "ro_mount", path)


def _bound_type(source: str, wanted: str | None) -> str:
    """The type of a bound input. The reader decides how data is read (an mltable folder as plain files, for
    instance), but a file stays a file.
    """
    if wanted is None or wanted not in DATA_TYPES or (source == "uri_file" and wanted == "uri_folder"):
        return source
    return wanted


def _literal(node: Scalar, spec: InputSpec, key: str, context: Context) -> str:
    text = literal_text(node, spec.type)
    kind = {"integer": "int", "number": "number", "boolean": "bool"}.get(spec.type or "")
    if kind:
        try:
            parse_value(Field(kind), text)
        except ValueError:
            context.problems.warn(
                node,
                key,
                f'{shown(node)} is not of type {spec.type}, which the input declares; the script gets "{text}".',
            )
    limits = spec.limits.entries if spec.limits else {}
    choices = limits.get("enum")
    if isinstance(choices, Sequence) and text not in [
        literal_text(item, spec.type) for item in choices.items if isinstance(item, Scalar)
    ]:
        context.problems.warn(node, key, f"{shown(node)} is not in the input's enum.")
    for name, beyond in (("min", float.__lt__), ("max", float.__gt__)):
        limit = limits.get(name)
        try:
            if isinstance(limit, Scalar) and limit.value is not None and beyond(float(text), float(limit.text)):
                context.problems.warn(node, key, f"{shown(node)} is outside the input's {name} of {limit.text}.")
        except ValueError:
            pass
    return text


def literal_text(node: Scalar, literal_type: str | None) -> str:
    """A literal as the script gets it.

    `True` and `False` for booleans, plain decimals for integers, anything else as written.
    """
    if literal_type == "boolean" or isinstance(node.value, bool):
        try:
            return str(parse_value(Field("bool"), node.value))
        except ValueError:
            return node.text
    if isinstance(node.value, int):
        return str(node.value)
    return node.text
