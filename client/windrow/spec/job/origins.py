"""Origins of settings that have no reader of their own, and where code is named: for checks and plans."""

from __future__ import annotations

from windrow.spec.reading.context import Context, origin_of
from windrow.spec.reading.nodes import Mapping, Node, is_null
from windrow.spec.reading.problems import StepCode


def note_pipeline_origins(settings: Node | None, context: Context) -> None:
    """Notes the origins of the pipeline's own settings, each as `settings.<name>`."""
    for name, node in settings.entries.items() if isinstance(settings, Mapping) else ():
        if not is_null(node):
            context.origins[f"settings.{name}"] = origin_of(node)


def note_origins(key: str, entries: dict[str, Node], context: Context) -> None:
    """Notes the origins of a step's keys that `StepSettings` does not read."""
    task = entries.get("task")
    below = task.entries if isinstance(task, Mapping) else {}
    given = {
        "compute": entries.get("compute"),
        "environment_variables": entries.get("environment_variables"),
        "command": entries.get("command"),
        "environment": below.get("environment", entries.get("environment")),
        "entry_script": below.get("entry_script"),
        "code": below.get("code", entries.get("code")),
        "append_row_to": below.get("append_row_to"),
        "arguments": below.get("program_arguments", below.get("args")),
    }
    for name, node in given.items():
        if node is not None and not is_null(node):
            context.origins[f"{key}.{name}"] = origin_of(node)
    if f"{key}.compute" not in context.origins and "settings.default_compute" in context.origins:
        context.origins[f"{key}.compute"] = context.origins["settings.default_compute"]


def note_code(
    name: str, task: Node | None, folder: str, script: str, variables: dict[str, str], context: Context
) -> None:
    """Notes a step's code for checks that look into it."""
    if not isinstance(task, Mapping):
        return
    code, entry = task.entries.get("code", task), task.entries.get("entry_script", task)
    spelled = context.problems.as_spelled
    code_key, script_key = spelled(f"jobs.{name}.task.code"), spelled(f"jobs.{name}.task.entry_script")
    context.codes.append(StepCode(name, folder, code.place, code_key, script, entry.place, script_key, variables))
