"""A ParallelRunConfig as the settings of a parallel step.

Reference: docs/reference/azure-ml/parallel-job.md#version-1.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow.spec.naming.names import ROWS_FILE_NAME_REFUSED, is_rows_file_name
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import from_plain, mapping, scalar
from windrow.spec.reading.nodes import Mapping, Node, Scalar, shown
from windrow.spec.reading.nodes import Sequence as ListNode
from windrow.spec.reading.yaml_files import read_yaml
from windrow.spec.settings.arguments import checked_partition_keys
from windrow.spec.v1.environments import merged_variables, read_environment
from windrow.spec.v1.reading import checked, entry, found_from, read_mapping, text_of
from windrow.spec.v1.schema import RUN_CONFIG

SETTINGS = {
    "error_threshold": "error_threshold",
    "allowed_failed_count": "mini_batch_error_threshold",
    "process_count_per_node": "max_concurrency_per_instance",
    "mini_batch_size": "mini_batch_size",
    "logging_level": "logging_level",
}
"""Keys whose values are a key of the step."""


class RunConfig(NamedTuple):
    """The content of a ParallelRunConfig, for a step. `entries` and `task`: v2's keys with their values;
    `arguments`: settings that have no key in v2; `spelled`: the user's spelling of each v2 key.
    """

    entries: dict[str, Node | None]
    task: dict[str, Node | None]
    arguments: list[str]
    append_row: bool
    spelled: dict[str, str]
    is_whole: bool
    """Whether it has everything that a step needs."""


NO_CONFIG = RunConfig({}, {}, [], append_row=False, spelled={}, is_whole=False)


def read_config_file(path: str, context: Context) -> Mapping | None:
    """Reads the ParallelRunConfig in a file. None, with an error, if there is none."""
    root = read_yaml(path, "job", context.problems)
    config = root.entries.get("parallel_run_config") if isinstance(root, Mapping) else None
    if isinstance(config, Mapping):
        return config
    if root is not None:
        context.problems.error(
            root, "parallel_run_config", "is missing; a ParallelRunConfig's file has its settings below this key."
        )
    return None


def read_run_config(config: Mapping, key: str, folder: str, context: Context) -> RunConfig:
    """Reads and checks a ParallelRunConfig; notes an error for each value that is not allowed.

    `folder`: the base of relative paths that do not exist relative to the config's own file. In v1, paths start at the
    working folder, which is mostly the folder of the pipeline's file.
    """
    read_mapping(config, RUN_CONFIG, key, context)

    def value(name: str) -> Node | None:
        return checked(config, RUN_CONFIG, name, key, context)

    entries: dict[str, Node | None] = {name: value(v1) for v1, name in SETTINGS.items()}
    is_whole = True
    for name in ("error_threshold", "output_action", "entry_script"):
        if entry(config, name) is None:
            is_whole = False
            context.problems.error(
                config, f"{key}.{name}", f"is missing; a ParallelRunConfig needs it{_allowed(name)}."
            )
    entries["partition_keys"] = _partition_keys(config, key, context)
    timeout, tries = value("run_invocation_timeout"), value("run_max_try")
    retries = from_plain(int(tries.text) - 1, tries.place) if isinstance(tries, Scalar) else None
    if timeout or retries:
        entries["retry_settings"] = mapping({"timeout": timeout, "max_retries": retries}, config.place)
    nodes = value("node_count")
    entries["resources"] = mapping({"instance_count": nodes}, config.place) if nodes else None
    entries["compute"] = text_of(config, "compute_target_name", key, context) or text_of(
        config, "compute_target", key, context
    )
    environment = read_environment(config, key, folder, context)
    entries["environment_variables"] = merged_variables(environment, entry(config, "environment_variables"))
    code, script = code_and_script(config, "entry_script", key, folder, context)
    task: dict[str, Node | None] = {
        "type": scalar("run_function", config.place),
        "code": code,
        "entry_script": script,
        "environment": environment.node,
    }
    action = value("output_action")
    append_row = isinstance(action, Scalar) and action.value == "append_row"
    return RunConfig(entries, task, _arguments(config, key, append_row, context), append_row, _spelled(key), is_whole)


def code_and_script(
    owner: Mapping, script_key: str, key: str, folder: str, context: Context
) -> tuple[Scalar | None, Scalar | None]:
    """Finds the code folder and the script in it. Without a `source_directory`, the folder is the script's own."""
    script = text_of(owner, script_key, key, context)
    code = text_of(owner, "source_directory", key, context)
    if code is None and script is not None:
        path = found_from(_slashes(script), folder)
        head, tail = os.path.split(path.text.strip())
        return scalar(head or ".", path.place), scalar(tail, path.place)
    return code and found_from(_slashes(code), folder), script and _slashes(script)


def _slashes(path: Scalar) -> Scalar:
    r"""A relative path that may have been written on Windows (`.\scripts`), with forward slashes."""
    if "\\" not in path.text or "/" in path.text:
        return path
    return scalar(path.text.replace("\\", "/"), path.place)


def _partition_keys(config: Mapping, key: str, context: Context) -> Node | None:
    node = entry(config, "partition_keys")
    if node is None:
        return None
    key = f"{key}.partition_keys"
    names = [item.text for item in node.items if isinstance(item, Scalar)] if isinstance(node, ListNode) else []
    if not isinstance(node, ListNode) or len(names) < len(node.items):
        context.problems.error(node, key, f"is {shown(node)}; it must be a list of text.")
        return None
    try:
        checked_partition_keys(names)
    except ValueError as error:
        context.problems.error(node, key, f"is wrong: {error}.")
        return None
    if names and entry(config, "mini_batch_size") is not None:
        context.problems.error(
            node, key, "cannot be combined with mini_batch_size: both say what a mini-batch is; remove one of the two."
        )
        return None
    return node


def _arguments(config: Mapping, key: str, append_row: bool, context: Context) -> list[str]:
    """The settings that v2 has only as program arguments."""
    arguments: list[str] = []
    percent = checked(config, RUN_CONFIG, "allowed_failed_percent", key, context)
    if isinstance(percent, Scalar):
        arguments += ["--allowed_failed_percent", percent.text]
    name = text_of(config, "append_row_file_name", key, context)
    if name is None or not append_row:
        return arguments
    if not is_rows_file_name(name.text):
        context.problems.error(
            name,
            f"{key}.append_row_file_name",
            f"is {shown(name)}; it must be the name of a file, without a folder and without any of "
            f"{' '.join(ROWS_FILE_NAME_REFUSED)}",
        )
        return arguments
    return [*arguments, "--append_row_file_name", name.text]


def _allowed(name: str) -> str:
    table = RUN_CONFIG[name]
    return f": {table.allowed}" if table.kind != "text" else ""


def _spelled(key: str) -> dict[str, str]:
    keys = {
        **{v2: v1 for v1, v2 in SETTINGS.items()},
        "partition_keys": "partition_keys",
        "retry_settings.timeout": "run_invocation_timeout",
        "retry_settings.max_retries": "run_max_try",
        "resources.instance_count": "node_count",
        "compute": "compute_target_name",
        "environment_variables": "environment_variables",
        "task.code": "source_directory",
        "task.entry_script": "entry_script",
        "task.environment": "environment",
        "task.append_row_to": "output_action",
    }
    return {v2: f"{key}.{v1}" for v2, v1 in keys.items()}
