"""The key of a step: a digest of all settings that affect the step's output."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import windrow
from windrow.spec.effective.job import EffectiveStep, LiteralInput

_UNDECISIVE = frozenset(
    (
        "inputs",
        "outputs",
        "depends_on",
        "table_digests",
        # Where the step runs, and how many workers at a time.
        "compute",
        "instance_count",
        "max_concurrency_per_instance",
        "cpus_per_worker",
        "memory_per_worker",
        "gpus_per_worker",
        "min_nodes",
        "shared_memory_bytes",
        "idle_gpu_timeout_s",
        # How failures are handled: a step that had any is not reused.
        "error_threshold",
        "mini_batch_error_threshold",
        "allowed_failed_percent",
        "tolerates_all",
        "max_retries",
        "split",
        "retry_delay_s",
        "rate_limit",
        "speculate",
        # What a script may reach decides whether it works, not what it makes.
        "allow_path",
        "run_invocation_timeout_s",
        "task_overhead_timeout_s",
        "progress_update_timeout_s",
        "first_task_creation_timeout_s",
        "may_shut_down",
        # What is logged.
        "logging_level",
        "copy_logs_to_parent",
        "resource_monitor_interval_s",
        "metrics_name_prefix",
        "push_metrics_to_parent",
        "profiling_module",
        "resume_from",
        "reuse",
        # Whether it runs.
        "run_if",
        "iterations",
    )
)


def settings_key(step: EffectiveStep, inputs: Mapping[str, str], scripts_run_in: str, project: str) -> str:
    """Return the sha256 (hexadecimal) of everything that decides what a step makes, except the contents of its inputs.

    `step`: without addresses of datastores; `inputs`: where its inputs are; `scripts_run_in`: what is known of the
    agents' Python; `project`: whose jobs may reuse it. The version of Windrow is part of the key: another version may
    write rows differently.
    """
    decisive = {
        "windrow": windrow.__version__,
        "scripts_run_in": scripts_run_in,
        "project": project,
        "settings": {name: value for name, value in step._asdict().items() if name not in _UNDECISIVE},
        "inputs": {
            name: ["literal", given.value]
            if isinstance(given, LiteralInput)
            else [given.type, given.mode, inputs[name]]
            for name, given in step.inputs.items()
        },
        "outputs": {name: [out.type, out.mode, out.path, out.file_name] for name, out in step.outputs.items()},
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=dict).encode()).hexdigest()
