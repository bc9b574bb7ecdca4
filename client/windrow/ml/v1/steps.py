"""Steps of v1 pipelines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from windrow.errors import UsageError
from windrow.ml.exceptions import job_file_error
from windrow.ml.places import calling_place
from windrow.ml.v1.absent import tell_no_effect
from windrow.ml.v1.bindings import (
    NamedInput,
    Output,
    OutputFileDatasetConfig,
    PipelineData,
    PipelineParameter,
    data_behind,
)
from windrow.ml.v1.datastores import DataPathComputeBinding
from windrow.ml.v1.environment import Environment, RunConfiguration
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import from_plain
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Source, source_label, to_plain
from windrow.spec.v1.environments import read_environment
from windrow.spec.v1.run_config import SETTINGS, read_config_file, read_run_config

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


BINDABLE = {
    **SETTINGS,
    "node_count": "resources.instance_count",
    "run_invocation_timeout": "retry_settings.timeout",
}
"""By setting of a ParallelRunConfig: the key of a step that can refer to an input of the pipeline instead."""
NOT_IN_NAMES = re.compile(r"[^\w-]+", re.ASCII)


class ParallelRunConfig:
    """How a ParallelRunStep runs. Reference: docs/reference/azure-ml/parallel-job.md#version-1."""

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
        """Raises windrow.spec.JobFileError with all problems."""
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
        """Write the configuration to a ParallelRunConfig file."""
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump({"parallel_run_config": self.to_plain()}, file, sort_keys=False, allow_unicode=True)

    @staticmethod
    def load_yaml(workspace: Any, path: str) -> ParallelRunConfig:
        """Read a ParallelRunConfig file. Raises windrow.spec.JobFileError, OSError. The paths of its environment start
        where those of a job file do, all others at the working folder, as in v1.
        """
        path, folder = os.path.abspath(path), os.getcwd()
        context = Context(Source("job", source_label(path), os.path.dirname(path)), embedded=True)
        config = read_config_file(path, context)
        if config is None:
            raise job_file_error(context)
        environment = read_environment(config, "parallel_run_config", folder, context)
        if context.problems.errors:
            raise job_file_error(context)
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
            raise job_file_error(context)


class PipelineStep:
    """A step: what it reads and writes, and which steps must be done before it. Reference:
    docs/reference/azure-ml/parallel-job.md#version-1.

    Not v2's `PipelineStep`, which holds a pipeline of its own.
    """

    def __init__(
        self,
        name: str,
        *,
        inputs: Sequence[Any] | None,
        side_inputs: Sequence[Any] | None,
        outputs: Sequence[Any] | None,
        arguments: Sequence[Any] | None,
        params: Mapping[str, Any] | None,
        allow_reuse: bool | None,
    ) -> None:
        """An OutputFileDatasetConfig that is only named in `arguments` is also an output. Raises UsageError for
        anything in `outputs` that is not an output.
        """
        self.name = name
        bound: dict[int, NamedInput] = {}
        self.inputs = [_bound(item, bound) for item in inputs or ()]
        self.side_inputs = [_bound(item, bound) for item in side_inputs or ()]
        self.arguments = [_bound(item, bound) for item in arguments or ()]
        self.params = dict(params or {})
        self.allow_reuse = allow_reuse
        self.run_after_steps: list[PipelineStep] = []
        self.place = calling_place()
        read = [data_behind(item) for item in (*self.inputs, *self.side_inputs)]
        written = [data_behind(item) for item in outputs or ()]
        named = map(data_behind, self.arguments)
        written += [item for item in named if isinstance(item, OutputFileDatasetConfig) and item not in read]
        self.outputs: list[Output] = []
        for output in dict.fromkeys(written):
            self._write(output)

    def run_after(self, step: PipelineStep) -> None:
        """Begin only when another step is done, whatever that one writes. As in v1, a step without outputs gets one for
        this.
        """
        if not step.outputs:
            step._write(PipelineData("_run_after_output"))
        self.run_after_steps.append(step)

    @property
    def before(self) -> list[PipelineStep]:
        """The steps that must be done first: those whose outputs this one reads, and those given to `run_after`."""
        data = map(data_behind, (*self.inputs, *self.side_inputs, *self.arguments))
        producers = [item.producer for item in data if isinstance(item, Output)]
        steps = dict.fromkeys([*producers, *self.run_after_steps])
        return [step for step in steps if isinstance(step, PipelineStep) and step is not self]

    @property
    def parameters(self) -> list[PipelineParameter]:
        """The pipeline parameters that the step names."""
        named = (*self.inputs, *self.side_inputs, *self.arguments, *self.params.values(), *self._settings())
        return [item for item in map(data_behind, named) if isinstance(item, PipelineParameter)]

    def _settings(self) -> Iterable[Any]:
        """Further settings whose values may be pipeline parameters; steps that have some override this."""
        return ()

    def _write(self, output: Any) -> None:
        if not isinstance(output, Output):
            raise UsageError(
                f"An output of the step {self.name} is {type(output).__name__}; it must be PipelineData or "
                "OutputFileDatasetConfig."
            )
        if any(other.output_name == output.output_name for other in self.outputs):
            raise UsageError(
                f"The step {self.name} has two outputs with the name {output.output_name}; rename one of the two."
            )
        # If a notebook's cell is run again, the newest step counts.
        output.producer = self
        self.outputs.append(output)


class ParallelRunStep(PipelineStep):
    """A step that divides its inputs. Reference: docs/reference/azure-ml/parallel-job.md#version-1."""

    def __init__(
        self,
        name: str,
        parallel_run_config: ParallelRunConfig,
        inputs: Sequence[Any] | None = None,
        output: Any = None,
        side_inputs: Sequence[Any] | None = None,
        arguments: Sequence[Any] | None = None,
        allow_reuse: bool | None = None,
        *,
        models: Sequence[Any] | None = None,
        tags: Any = None,
        properties: Any = None,
        add_parallel_run_step_dependencies: bool = True,
    ) -> None:
        """`inputs`: the data that is divided. `arguments` may hold side inputs and pipeline parameters. `allow_reuse`:
        None does not mean True, unlike in Azure ML (docs/reference/compatibility.md). `models`, `tags`, `properties`
        and the last one are of an older version, and have no effect; of models, a warning says so. Raises UsageError.
        """
        if models:
            tell_no_effect(
                f"{name}: models",
                "a script does not look models up by name; give it the path: arguments=['--model', model.path]",
            )
        super().__init__(
            name,
            inputs=inputs,
            side_inputs=side_inputs,
            outputs=[output] if output is not None else None,
            arguments=arguments,
            params=None,
            allow_reuse=allow_reuse,
        )
        self.parallel_run_config = parallel_run_config

    def _settings(self) -> Iterable[Any]:
        return (getattr(self.parallel_run_config, key) for key in CONFIG_KEYS)


class PythonScriptStep(PipelineStep):
    """A step that runs a script once. Reference: docs/reference/azure-ml/parallel-job.md#command-steps."""

    def __init__(
        self,
        script_name: str,
        name: str | None = None,
        arguments: Sequence[Any] | None = None,
        compute_target: Any = None,
        runconfig: RunConfiguration | None = None,
        runconfig_pipeline_params: Mapping[str, Any] | None = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        params: Mapping[str, Any] | None = None,
        source_directory: str | None = None,
        allow_reuse: bool | None = None,
        version: str | None = None,
        hash_paths: Any = None,
    ) -> None:
        """`arguments` may hold inputs, outputs and pipeline parameters; `runconfig_pipeline_params` have no effect.
        Raises UsageError."""
        super().__init__(
            name or script_name,
            inputs=inputs,
            side_inputs=None,
            outputs=outputs,
            arguments=arguments,
            params=params,
            allow_reuse=allow_reuse,
        )
        self.script_name = script_name
        self.compute_target = compute_target
        self.runconfig = runconfig
        self.runconfig_pipeline_params = dict(runconfig_pipeline_params or {})
        self.source_directory = source_directory

    def _settings(self) -> Iterable[Any]:
        return self.runconfig_pipeline_params.values()


def _bound(item: Any, known: dict[int, NamedInput]) -> Any:
    """Return an input or argument. A parameter with a DataPathComputeBinding becomes an input, the same one
    everywhere.
    """
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], DataPathComputeBinding)):
        return item
    parameter, binding = item
    return known.setdefault(id(parameter), NamedInput(parameter.name, parameter, binding.mode, binding.path_on_compute))


def step_key(name: str) -> str:
    """The name that a step with this name gets in the job, unless another step has it."""
    return NOT_IN_NAMES.sub("_", name) or "step"


def bound_settings(step: PipelineStep) -> list[tuple[str, PipelineParameter]]:
    """The settings of a step that are parameters of the pipeline, by their names in the ParallelRunConfig."""
    if not isinstance(step, ParallelRunStep):
        return []
    config = step.parallel_run_config
    return [(key, value) for key in CONFIG_KEYS if isinstance(value := getattr(config, key), PipelineParameter)]


def value_of(value: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a setting; for a pipeline parameter, its value."""
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
