"""Steps of v1 pipelines."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from windrow.ml.places import calling_place
from windrow.ml.v1.environment import Environment, RunConfiguration
from windrow.ml.v1.named import NamedInput, PipelineParameter
from windrow.spec.building import from_plain
from windrow.spec.nodes import Mapping as MappingNode
from windrow.spec.nodes import Source, source_label, to_plain
from windrow.spec.problems import JobFileError
from windrow.spec.reading import Context
from windrow.spec.v1.environments import read_environment
from windrow.spec.v1.run_config import read_config_file, read_run_config

CONFIG_KEYS = (
    "mini_batch_size",
    "partition_keys",
    "error_threshold",
    "allowed_failed_count",
    "allowed_failed_percent",
    "output_action",
    "logging_level",
    "node_count",
    "process_count_per_node",
    "entry_script",
    "source_directory",
    "description",
    "run_invocation_timeout",
    "run_max_try",
    "append_row_file_name",
    "environment_variables",
)


NOT_IN_NAMES = re.compile(r"[^\w-]+", re.ASCII)


class ParallelRunConfig:
    """How a ParallelRunStep runs. Reference: parallel-job.md, section 1.5."""

    def __init__(
        self,
        environment: Environment | None = None,
        entry_script: str | None = None,
        error_threshold: int | None = None,
        output_action: str | None = None,
        compute_target: Any = None,
        node_count: Any = None,
        process_count_per_node: Any = None,
        mini_batch_size: Any = None,
        source_directory: str | None = None,
        description: str | None = None,
        logging_level: Any = None,
        run_invocation_timeout: Any = None,
        run_max_try: Any = None,
        append_row_file_name: str | None = None,
        allowed_failed_count: int | None = None,
        allowed_failed_percent: float | None = None,
        partition_keys: Any = None,
        environment_variables: Mapping[str, str] | None = None,
    ) -> None:
        """Raises windrow.spec.JobFileError with all that is wrong."""
        self.environment = environment
        self.entry_script = entry_script
        self.error_threshold = error_threshold
        self.output_action = output_action
        self.compute_target = compute_target
        self.node_count = node_count
        self.process_count_per_node = process_count_per_node
        self.mini_batch_size = mini_batch_size
        self.source_directory = source_directory
        self.description = description
        self.logging_level = logging_level
        self.run_invocation_timeout = run_invocation_timeout
        self.run_max_try = run_max_try
        self.append_row_file_name = append_row_file_name
        self.allowed_failed_count = allowed_failed_count
        self.allowed_failed_percent = allowed_failed_percent
        self.partition_keys = partition_keys
        self.environment_variables = dict(environment_variables or {})
        self._place = calling_place()
        self._check()

    def to_plain(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The content of `parallel_run_config:`. `parameters`: values of pipeline parameters by name."""
        plain: dict[str, Any] = {}
        if self.environment is not None:
            plain["environment"] = self.environment.to_plain()
        for key in CONFIG_KEYS:
            value = value_of(getattr(self, key), parameters or {})
            if key == "partition_keys" and isinstance(value, str):
                value = yaml.safe_load(value)
            if value is not None and value != {}:
                plain[key] = value
        if self.compute_target is not None:
            plain["compute_target_name"] = str(getattr(self.compute_target, "name", self.compute_target))
        return plain

    def save_to_yaml(self, path: str) -> None:
        """Write it as a ParallelRunConfig file."""
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump({"parallel_run_config": self.to_plain()}, file, sort_keys=False, allow_unicode=True)

    @staticmethod
    def load_yaml(workspace: Any, path: str) -> ParallelRunConfig:
        """From a ParallelRunConfig file. Raises windrow.spec.JobFileError, OSError.

        Paths of its environment start as in a job's file, others at the working folder, as in v1.
        """
        path, folder = os.path.abspath(path), os.getcwd()
        context = Context(Source("job", source_label(path), os.path.dirname(path)), embedded=True)
        config = read_config_file(path, context)
        if config is None:
            raise JobFileError(context.problems.errors)
        environment = read_environment(config, "parallel_run_config", folder, context)
        context.problems.raise_errors()
        plain: Any = to_plain(config)
        return ParallelRunConfig(
            environment=Environment.from_written(environment, workspace),
            compute_target=plain.get("compute_target_name") or plain.get("compute_target"),
            **{key: plain.get(key) for key in CONFIG_KEYS},
        )

    def _check(self) -> None:
        context = Context(Source("python", self._place.source.label, self._place.source.folder), embedded=True)
        tree = from_plain(self.to_plain(), self._place)
        assert isinstance(tree, MappingNode)
        read_run_config(tree, "ParallelRunConfig", self._place.source.folder, context)
        if context.problems.errors:
            raise JobFileError(context.problems.errors)


class ParallelRunStep:
    """A step that divides its inputs. Reference: parallel-job.md, section 1.5."""

    def __init__(
        self,
        name: str,
        parallel_run_config: ParallelRunConfig,
        inputs: Sequence[Any] | None = None,
        output: Any = None,
        side_inputs: Sequence[Any] | None = None,
        arguments: Sequence[Any] | None = None,
        allow_reuse: bool | None = None,
    ) -> None:
        """`inputs`: what is divided; `arguments` may hold side inputs and pipeline parameters; `allow_reuse`: None is
        not True, other than in Azure ML (docs/compatibility.md)."""
        self.name = name
        self.parallel_run_config = parallel_run_config
        self.inputs = list(inputs or ())
        self.outputs = [output] if output is not None else []
        self.side_inputs = list(side_inputs or ())
        self.arguments = list(arguments or ())
        self.allow_reuse = allow_reuse
        self.place = calling_place()
        self.run_after_steps: list[Any] = []


class PythonScriptStep:
    """A step that runs a script once. Reference: parallel-job.md, section 1.4."""

    def __init__(
        self,
        script_name: str,
        name: str | None = None,
        arguments: Sequence[Any] | None = None,
        compute_target: Any = None,
        runconfig: RunConfiguration | None = None,
        runconfig_pipeline_params: Any = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        source_directory: str | None = None,
        allow_reuse: bool | None = None,
        version: str | None = None,
        hash_paths: Any = None,
    ) -> None:
        """`arguments` may hold inputs, outputs and pipeline parameters."""
        self.script_name = script_name
        self.name = name or script_name
        self.arguments = list(arguments or ())
        self.compute_target = compute_target
        self.runconfig = runconfig
        self.inputs = list(inputs or ())
        self.outputs = list(outputs or ())
        self.params = dict(params or {})
        self.source_directory = source_directory
        self.allow_reuse = allow_reuse
        self.place = calling_place()


def step_key(name: str) -> str:
    """What a step of that name is called in its job, where no other one is called so."""
    return NOT_IN_NAMES.sub("_", name) or "step"


def value_of(value: Any, parameters: Mapping[str, Any]) -> Any:
    """A setting, where it is a pipeline parameter its value."""
    if isinstance(value, PipelineParameter):
        return parameters.get(value.name, value.default_value)
    return value


__all__ = [
    "NOT_IN_NAMES",
    "NamedInput",
    "ParallelRunConfig",
    "ParallelRunStep",
    "PythonScriptStep",
    "step_key",
    "value_of",
]
