"""The settings of a step other than data and task: from its keys, then from the runtime arguments, which win.

Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps, #program-arguments, #reading-arguments;
docs/reference/azure-ml/client.md#spellings, #refusals, #zero-and-unset.
"""

from __future__ import annotations

import json
from typing import Any

from windrow.spec.naming.expressions import AlreadyReported, has_expression, substitute
from windrow.spec.naming.names import ROWS_FILE_NAME_REFUSED, is_rows_file_name
from windrow.spec.reading.context import Context, Origin, origin_of
from windrow.spec.reading.keys import Resolve, as_mapping, check_keys, parse_resolved, read_scalar, read_texts
from windrow.spec.reading.nodes import Mapping, Node, Place, Scalar, is_null, shown
from windrow.spec.settings.arguments import (
    ALL_ARGUMENTS,
    REPORT_ARGUMENTS,
    SCRIPTS_TOO,
    TOLD_IF_SCRIPTS,
    FoundArgument,
    checked_partition_keys,
    find_runtime_arguments,
    parse_partition_keys,
)
from windrow.spec.settings.fields import Field, step_needs
from windrow.spec.settings.pace import parse_rate
from windrow.spec.settings.schema import RESOURCES, RETRY_SETTINGS, STEP

DEFAULTS: dict[str, Any] = {
    "mini_batch_size": None,
    "rank_mini_batch_count": 0,
    "file_format": None,
    "mini_batch_rows": None,
    "exact_row_index": False,
    "mixed_types": False,
    "partition_keys": (),
    "instance_count": -1,
    "max_concurrency_per_instance": None,
    "cpus_per_worker": None,
    "memory_per_worker": 0,
    "gpus_per_worker": 0,
    "min_nodes": 1,
    "shared_memory_bytes": 0,
    "idle_gpu_timeout_s": None,
    "logging_level": "INFO",
    "error_threshold": -1,
    "mini_batch_error_threshold": -1,
    "allowed_failed_percent": 100.0,
    "max_retries": 2,
    "retry_delay_s": 0.0,
    "rate_limit": None,
    "speculate": False,
    "allow_path": (),
    "split": None,
    "returns": None,
    "run_invocation_timeout_s": 60,
    "task_overhead_timeout_s": 600,
    "progress_update_timeout_s": None,
    "first_task_creation_timeout_s": 600,
    "copy_logs_to_parent": False,
    "resource_monitor_interval_s": 600,
    "metrics_name_prefix": "",
    "push_metrics_to_parent": False,
    "profiling_module": None,
    "resume_from": None,
    "dataframe_header": None,
    "append_row_file_name": None,
    "append_row_format": None,
}
"""Effective names of the settings read here, with their defaults. The last three end in `rows` and in an output."""

THRESHOLDS = ("error_threshold", "mini_batch_error_threshold", "allowed_failed_percent")


class StepSettings:
    """Gathers a step's settings; each remembers what set it last.

    Not the core's `StepSettings`, which is what the scheduler needs of the result.
    """

    def __init__(self, key: str, context: Context, resolve: Resolve) -> None:
        self.values = dict(DEFAULTS)
        self._key = key
        self._context = context
        self._resolve = resolve
        self._origins = dict.fromkeys(DEFAULTS, Origin("default"))
        self._min_nodes_place: Node | Place | None = None

    def read_keys(self, mapping: Mapping) -> None:
        """Reads the step's keys (a component's merged in)."""
        entries, problems = mapping.entries, self._context.problems
        for name in (
            "mini_batch_size",
            "logging_level",
            "error_threshold",
            "mini_batch_error_threshold",
            "max_concurrency_per_instance",
        ):
            self._read(entries.get(name), STEP[name], f"{self._key}.{name}", name)
        retry_key, resources_key = f"{self._key}.retry_settings", f"{self._key}.resources"
        retry = as_mapping(entries.get("retry_settings"), retry_key, self._context)
        if retry:
            check_keys(retry, RETRY_SETTINGS, retry_key, self._context)
            self._read(
                retry.entries.get("max_retries"),
                RETRY_SETTINGS["max_retries"],
                f"{retry_key}.max_retries",
                "max_retries",
            )
            self._read(
                retry.entries.get("timeout"),
                RETRY_SETTINGS["timeout"],
                f"{retry_key}.timeout",
                "run_invocation_timeout_s",
            )
        resources = as_mapping(entries.get("resources"), resources_key, self._context)
        if resources:
            check_keys(resources, RESOURCES, resources_key, self._context)
            count = resources.entries.get("instance_count")
            self._read(count, RESOURCES["instance_count"], f"{resources_key}.instance_count", "instance_count")
            if count and self.values["instance_count"] == 0:
                problems.error(
                    count,
                    f"{resources_key}.instance_count",
                    "is 0; it must be a whole number from 1, or -1 for all nodes.",
                )
            nested, name = resources.entries.get("max_concurrency_per_instance"), "max_concurrency_per_instance"
            if nested and is_null(entries.get(name)):
                self._read(nested, RESOURCES[name], f"{resources_key}.{name}", name)
            for name in step_needs():
                self._read(resources.entries.get(name), RESOURCES[name], f"{resources_key}.{name}", name)
            self._min_nodes_place = resources.entries.get("min_nodes")
            shared = resources.entries.get("shm_size")
            self._read(shared, RESOURCES["shm_size"], f"{resources_key}.shm_size", "shared_memory_bytes")
        self._read_partition_keys(entries.get("partition_keys"))

    def _read_partition_keys(self, node: Node | None) -> None:
        """Reads partition keys, given as a list, as JSON text or by an expression."""
        if node is None or is_null(node):
            return
        key, problems = f"{self._key}.partition_keys", self._context.problems
        try:
            if isinstance(node, Scalar):
                keys = parse_partition_keys(substitute(node.text, self._resolve))
            else:
                before = len(problems.errors)
                keys = checked_partition_keys(read_texts(node, key, self._context))
                if len(problems.errors) > before:
                    return
        except AlreadyReported:
            return
        except ValueError as error:
            problems.error(node, key, f"is {shown(node)}; {error}.")
            return
        if keys:
            self.values["partition_keys"] = keys
            self._origins["partition_keys"] = origin_of(node)
            self._context.partition_places[self._key] = node.place

    def read_arguments(self, arguments: list[str], place: Place) -> None:
        """Reads the runtime arguments among the program arguments; they stay in the arguments."""
        for found in find_runtime_arguments(arguments):
            self._argument(found, place)

    def finish(self) -> dict[str, Any]:
        """Returns the values, once everything is read; their origins go to the context."""
        most = self.values["instance_count"]
        if 0 < most < self.values["min_nodes"] and self._min_nodes_place is not None:
            self._context.problems.error(
                self._min_nodes_place,
                f"{self._key}.resources.min_nodes",
                f"is {self.values['min_nodes']}, and instance_count allows {most}. Lower it, or raise that.",
            )
        if self._context.embedded and self.values["min_nodes"] > 1 and self._min_nodes_place is not None:
            self._context.problems.warn(
                self._min_nodes_place,
                f"{self._key}.resources.min_nodes",
                f"{self.values['min_nodes']} has no effect: a run on this machine has one node.",
            )
            self.values["min_nodes"] = 1
        # "0" is what a dumped pipeline writes for an unset size.
        if self.values["mini_batch_size"] == 0:
            self.values["mini_batch_size"] = None
        # A file that says "-1" has chosen it; one that says nothing may not know.
        self.values["tolerates_all"] = all(self.values[name] == DEFAULTS[name] for name in THRESHOLDS) and any(
            self._origins[name].kind != "default" for name in THRESHOLDS
        )
        for name, origin in self._origins.items():
            self._context.origins[f"{self._key}.{name}"] = origin
        keys, size = self.values["partition_keys"], self._origins["mini_batch_size"]
        if keys and self.values["mini_batch_size"] is not None:
            self._context.problems.warn(
                self._context.partition_places[self._key],
                f"{self._key}.partition_keys",
                f"{', '.join(keys)} {'wins' if len(keys) == 1 else 'win'} over mini_batch_size, given by {size}: each "
                f"{'value' if len(keys) == 1 else 'combination of their values'} is one mini-batch.",
            )
        return self.values

    def _read(self, node: Node | None, field: Field, key: str, name: str) -> None:
        if node is None or (is_null(node) and field.kind == "size"):
            return
        value = read_scalar(node, field, key, self._context, self._resolve)
        if value is not None:
            self.values[name] = value
            self._origins[name] = origin_of(node)

    def _argument(self, found: FoundArgument, place: Place) -> None:
        problems, key = self._context.problems, f"{self._key}.task.program_arguments"
        argument = ALL_ARGUMENTS[found.name]
        abbreviated = found.written != f"--{found.name}"
        if argument.field.kind == "text" and not argument.field.effect and not argument.sets:
            return
        if abbreviated:
            problems.warn(
                place,
                key,
                f"{found.written} is read as --{found.name}, which it abbreviates; write that out, or rename the "
                "argument if it is the script's own.",
            )
        means = f"{found.written} (read as --{found.name})" if abbreviated else found.written
        advice = "; rename it if it is the script's own argument." if abbreviated else "."
        if found.value is None and found.name in SCRIPTS_TOO:
            return
        if found.value is None:
            problems.error(place, key, f"{means} has no value; give {argument.field.allowed}{advice}")
            return
        try:
            expressed = has_expression(found.value)
            text = substitute(found.value, self._resolve) if expressed else found.value
            value = parse_resolved(argument.field, text, found.value)
        except AlreadyReported:
            return
        except ValueError as error:
            if found.name in TOLD_IF_SCRIPTS:
                problems.warn(
                    place,
                    key,
                    f"{means} {found.value} is read as an argument of the script alone. If Windrow is meant, {error}.",
                )
            if found.name in SCRIPTS_TOO:
                return
            if abbreviated and (argument.field.effect or found.name in REPORT_ARGUMENTS):
                return  # not a setting of ours, nor a value for one: the script's own
            problems.error(place, key, f"{means} is {json.dumps(found.value, ensure_ascii=False)}; {error}{advice}")
            return
        if argument.field.effect:
            if value is not False:
                problems.warn(place, key, f"{means} has no effect: {argument.field.effect}.")
        elif argument.sets:
            self._set(argument.sets, value, means, place)

    def _set(self, name: str, value: Any, means: str, place: Place) -> None:
        problems, key = self._context.problems, f"{self._key}.task.program_arguments"
        told = value
        match name:
            case "min_nodes":
                self._min_nodes_place = place
            case "run_max_try":
                name, value = "max_retries", int(value) - 1
                told = f"{told} (max_retries {value})"
            case "rank_mini_batch_count":
                value = max(0, int(value))
            case "amlbi_async_mode":
                if value:
                    problems.error(
                        place,
                        key,
                        f"{means}: scripts with enqueue() instead of run() are not supported. Where the script has "
                        "a run() as well, set it to False; else write run() and remove it.",
                    )
                return
            case "append_row_file_name" if not is_rows_file_name(str(value)):
                problems.error(
                    place,
                    key,
                    f'{means} is "{value}"; it must be the name of a file, without a folder and without any of '
                    f"{' '.join(ROWS_FILE_NAME_REFUSED)}",
                )
                return
            case "allowed_failed_percent":
                value = float(value)
            case "rate_limit":
                value = parse_rate(str(value))
            case "split":
                value = {"auto": None, "off": 0}.get(str(value), value)
            case "allow_path":
                # Each one counts, unlike of all other arguments.
                if not str(value).startswith("/"):
                    problems.error(place, key, f'{means} is "{value}"; it must be an absolute path on the nodes.')
                    return
                self.values[name] = (*self.values[name], str(value))
                self._origins[name] = Origin("argument", f"{means} in {place}")
                return
            case "partition_keys":
                try:
                    value = parse_partition_keys(str(value))
                except ValueError as error:
                    problems.error(place, key, f"{means} is {json.dumps(value)}; {error}.")
                    return
                self._context.partition_places[self._key] = place
        before = self._origins[name]
        if before.kind != "default" and self.values[name] != value:
            problems.warn(place, key, f"{means} {told} wins over {self.values[name]}, given by {before}.")
        self.values[name] = value
        self._origins[name] = Origin("argument", f"{means} in {place}")
