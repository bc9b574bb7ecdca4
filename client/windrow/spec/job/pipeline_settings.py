"""What a pipeline sets for all its steps: `settings` and `compute`.

Reference: docs/reference/azure-ml/parallel-job.md#pipelines.
"""

from __future__ import annotations

from typing import NamedTuple

from windrow.spec.naming.datastores import DEFAULT, DEFAULT_DATASTORES
from windrow.spec.naming.names import NAME
from windrow.spec.reading.context import Context, origin_of
from windrow.spec.reading.keys import Resolve, as_mapping, check_keys, read_scalar, read_text
from windrow.spec.reading.nodes import Mapping, Node, is_null, shown
from windrow.spec.settings.schema import PIPELINE_SETTINGS, STEP

ANY_NODE = ("local", "serverless")
"""Values of `compute` that do not name a pool."""


class PipelineSettings(NamedTuple):
    """The settings that are not kept in the context: `continue_on_step_failure`."""

    continue_on_step_failure: bool = False


def read_pipeline_settings(pipeline: Mapping, context: Context) -> PipelineSettings:
    """Reads `compute` and `settings`; the defaults for steps go to the context."""
    context.default_compute = read_compute(pipeline.entries.get("compute"), "compute", context) or ""
    settings = as_mapping(pipeline.entries.get("settings"), "settings", context)
    if settings is None:
        return PipelineSettings()
    check_keys(settings, PIPELINE_SETTINGS, "settings", context)
    entries = settings.entries
    compute = read_compute(entries.get("default_compute"), "settings.default_compute", context)
    context.default_compute = context.default_compute if compute is None else compute
    context.default_datastore = _default_datastore(entries.get("default_datastore"), context)
    goes_on = False
    for name in ("continue_on_step_failure", "continue_run_on_step_failure"):
        node = entries.get(name)
        if not is_null(node):
            goes_on = read_scalar(node, PIPELINE_SETTINGS[name], f"settings.{name}", context) is True or goes_on
    forced = entries.get("force_rerun")
    if forced is not None and not is_null(forced):
        context.force_rerun = bool(
            read_scalar(forced, PIPELINE_SETTINGS["force_rerun"], "settings.force_rerun", context)
        )
        context.origins["settings.force_rerun"] = origin_of(forced)
    return PipelineSettings(goes_on)


def read_reuse(node: Node | None, key: str, context: Context) -> bool:
    """Whether results of an earlier job may replace a run of the step. `node`: its `is_deterministic`.

    The step must allow it, or, with `settings.force_rerun: false`, not forbid it. Without either, all steps run, unlike
    in Azure ML: there, a script sees only its inputs and its environment, which are compared; here, it may read
    anything on the machine. Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps.
    """
    given = None
    if node is not None and not is_null(node):
        given = read_scalar(node, STEP["is_deterministic"], f"{key}.is_deterministic", context)
    if context.force_rerun is not None:
        context.origins[f"{key}.reuse"] = context.origins["settings.force_rerun"]
    if node is not None and given is not None and not context.force_rerun:
        context.origins[f"{key}.reuse"] = origin_of(node)
    if context.force_rerun:
        return False
    return given is True or (given is None and context.force_rerun is False)


def read_compute(node: Node | None, key: str, context: Context, resolve: Resolve | None = None) -> str | None:
    """The name of a pool of nodes; "" for any node; None if the key is absent or, with an error, not a name.
    `azureml:<name>` and a long id (`/subscriptions/…/computes/<name>`) mean the same; `local` and `serverless` mean
    no pool.
    """
    text = read_text(node, key, context, resolve)
    if node is None or text is None:
        return None
    name = text.strip().removeprefix("azureml:").rstrip("/").rpartition("/")[2]
    if name.casefold() in ANY_NODE:
        return ""
    if not NAME.fullmatch(name):
        context.problems.error(
            node,
            key,
            f"is {shown(node)}; it must be the name of a pool of nodes, optionally after azureml:, with at most 64 "
            "ASCII letters, digits, _ and -.",
        )
        return None
    return name


def _default_datastore(node: Node | None, context: Context) -> str:
    """The name of the datastore that `${{default_datastore}}` means; "" for the master's own default one."""
    text = read_text(node, "settings.default_datastore", context)
    if node is None or text is None:
        return ""
    name = text.strip().removeprefix("azureml:").rstrip("/").rpartition("/")[2]
    if name in (*DEFAULT_DATASTORES, DEFAULT, ""):
        return ""
    if context.embedded and name not in context.datastores:
        context.problems.warn(
            node,
            "settings.default_datastore",
            f"{shown(node)} has no effect: this run has no datastore {name!r}, so outputs without a path go to "
            f"Windrow's default place for outputs. Give the run that datastore with --datastore {name}=PLACE.",
        )
        return ""
    return name
