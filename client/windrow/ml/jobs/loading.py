"""Jobs, components and assets from YAML files.

Reference: docs/reference/azure-ml/client.md#spellings, #refusals, #loading.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from windrow.ml.assets.data import Data, Model
from windrow.ml.assets.environment import Environment
from windrow.ml.exceptions import job_file_error
from windrow.ml.jobs.pipeline_job import PipelineJob
from windrow.ml.jobs.pipeline_step import pipeline_from_tree, step_from_tree
from windrow.ml.jobs.step import Step
from windrow.spec.job.components import FLOW, is_flow
from windrow.spec.job.sets import apply_sets
from windrow.spec.load import is_v1
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import from_plain
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Scalar, Source, source_label, to_plain
from windrow.spec.reading.yaml_files import read_yaml


def load_job(
    source: Any = None,
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: Sequence[Mapping[str, Any]] = (),
) -> PipelineJob:
    """A pipeline job from a job file (v2 or v1), to look at, change and submit.

    `relative_origin`: where relative paths in the file start: a folder, or a file in that folder. The default is the
    file itself. `params_override`: mappings of dotted keys to values, put over the file. Raises
    windrow.spec.JobFileError.
    """
    root, path, context = _read(source, "job", relative_origin)
    if is_v1(root):
        from windrow.spec.v1.pipeline import translate

        translated = translate(root, (), context)
        if context.problems.errors or not isinstance(translated, MappingNode):
            raise job_file_error(context)
        root = translated
    root = _overridden(root, params_override, context)
    written_type = root.entries.get("type")
    if not isinstance(written_type, Scalar) or written_type.text.strip().casefold() != "pipeline":
        context.problems.error(
            written_type or root, "type", 'is not a pipeline; load_job reads files with "type: pipeline", or v1 files.'
        )
    job = pipeline_from_tree(root, path, context)
    if context.problems.errors:
        raise job_file_error(context)
    return job


def load_component(
    source: Any = None,
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Step:
    """A component from its file; call it to make steps. `relative_origin`, `params_override`: as for `load_job`.
    Raises windrow.spec.JobFileError.
    """
    root, path, context = _read(source, "component", relative_origin)
    root = _with(root, params_override)
    if is_flow(root):
        context.problems.error(root, "", f"{FLOW}; load a component of another type.")
        raise job_file_error(context)
    made = step_from_tree(root, context, as_component=True, path=path)
    if context.problems.errors:
        raise job_file_error(context)
    return made


def load_data(
    source: Any = None,
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Data:
    """A data asset from its file. `relative_origin`: as for `load_job`; `params_override`: keys and their values."""
    return Data(**_plain(source, relative_origin, params_override, paths=("path",)))


def load_model(
    source: Any = None,
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Model:
    """A model from its file. `relative_origin`: as for `load_job`; `params_override`: keys and their values."""
    return Model(**_plain(source, relative_origin, params_override, paths=("path",)))


def load_environment(
    source: Any = None,
    *,
    relative_origin: str | os.PathLike[str] | None = None,
    params_override: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Environment:
    """An environment from its file. `relative_origin`: as for `load_job`; `params_override`: keys and their values."""
    return Environment(**_plain(source, relative_origin, params_override, paths=("conda_file",)))


def _read(source: Any, kind: str, relative_origin: str | os.PathLike[str] | None) -> tuple[MappingNode, str, Context]:
    """Read a file. Returns its tree, its path (in the folder of `relative_origin`, if that is given), and the context
    for reading it.
    """
    if source is None:
        raise TypeError("name the YAML file: source=PATH")
    content = None
    if hasattr(source, "read"):
        text = source.read()
        content = text.encode() if isinstance(text, str) else text
        source = getattr(source, "name", os.path.join(os.getcwd(), "job.yml"))
    path = os.path.abspath(source)
    folder = os.path.dirname(path)
    if relative_origin is not None:
        origin = os.path.abspath(relative_origin)
        folder = origin if os.path.isdir(origin) else os.path.dirname(origin)
    context = Context(Source(kind, source_label(path), folder), embedded=True)
    root = read_yaml(path, kind, context.problems, content, folder)
    if root is not None and not isinstance(root, MappingNode):
        context.problems.error(root, "", "is not a mapping of settings; is it the right file?")
    if not isinstance(root, MappingNode) or context.problems.errors:
        raise job_file_error(context)
    return root, os.path.join(folder, os.path.basename(path)), context


def _overridden(root: MappingNode, overrides: Sequence[Mapping[str, Any]], context: Context) -> MappingNode:
    import json

    texts = [f"{key}={json.dumps(value)}" for entries in overrides for key, value in entries.items()]
    if not texts:
        return root
    changed = apply_sets(root, texts, context.problems, context.source)
    if context.problems.errors or not isinstance(changed, MappingNode):
        raise job_file_error(context)
    return changed


def _with(root: MappingNode, overrides: Sequence[Mapping[str, Any]]) -> MappingNode:
    """Return a mapping with some of its keys replaced."""
    entries = dict(root.entries)
    for changes in overrides:
        entries |= {key: from_plain(value, root.place) for key, value in changes.items()}
    return root._replace(entries=entries, key_places={key: node.place for key, node in entries.items()})


def _plain(
    source: Any,
    relative_origin: str | os.PathLike[str] | None,
    overrides: Sequence[Mapping[str, Any]],
    *,
    paths: tuple[str, ...],
) -> dict[str, Any]:
    root, _, _ = _read(source, "job", relative_origin)
    values = {key: node for key, node in root.entries.items() if key != "$schema"}
    plain: dict[str, Any] = {}
    for key, node in values.items():
        plain[key] = _from_here(node) if key in paths and isinstance(node, Scalar) else to_plain(node)
    for changes in overrides:
        plain |= changes
    return plain


def _from_here(node: Scalar) -> str:
    from windrow.spec.naming.locations import absolute, parse_location

    location = parse_location(node.text)
    if location.kind != "local" or os.path.isabs(location.value):
        return node.text
    # A relative path stays relative: that means data of this machine.
    return os.path.relpath(absolute(location.value, node.place.source.folder))
