"""A pipeline of v1 steps as the tree of a v1 file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from windrow.errors import UsageError
from windrow.ml.v1.bindings import NamedInput, Output, OutputTable, PipelineData, PipelineParameter, data_behind
from windrow.ml.v1.datastores import DEFAULT_NAME, DataPath, DataReference, Datastore
from windrow.ml.v1.steps import NOT_IN_NAMES, ParallelRunStep, PipelineStep, PythonScriptStep, step_key, value_of
from windrow.spec.reading.from_python import from_plain, mapping, scalar
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Place
from windrow.spec.v1.data import default_place, run_id


class Graph:
    """Builds the tree from data references, parameters and steps.

    Not the `Graph` of `windrow.spec.job`, which reads that tree.
    """

    def __init__(
        self,
        parameters: Mapping[str, Any],
        folder: str,
        place: Place,
        *,
        datastore: Datastore | None = None,
        source_directory: str | None = None,
    ) -> None:
        """`parameters`: values given at submission; `folder`: for MLTable files; `datastore`, `source_directory`: for
        outputs and steps that name none."""
        self._given = parameters
        self._folder = folder
        self._place = place
        self._datastore = datastore
        self._source_directory = scalar(source_directory, place) if source_directory else None
        self._references: dict[str, Node | None] = {}
        self._referenced: dict[int, str] = {}
        self._parameters: dict[str, Node | None] = {}
        self._keys: dict[Any, str] = {}
        """By step: its name in the tree."""
        self._destinations: dict[Output, str] = {}
        self._sources: set[str] = set()
        """All names that a `source` may use: of data references, parameters and destinations."""
        self._held: list[Any] = []
        """Keeps the objects alive whose `id` is a key."""

    def tree(self, steps: Sequence[PipelineStep], *, description: str | None, compute: str | None) -> MappingNode:
        """The tree of the file."""
        keys: set[str] = set()
        for step in steps:
            named = (*step.arguments, *step.params.values())
            self._sources.update(_name(item.name) for item in named if isinstance(item, PipelineParameter))
            self._keys[step] = free_name(step_key(step.name), keys)
            keys.add(self._keys[step])
        entries = {self._keys[step]: self._step(step) for step in steps}
        pipeline = {
            "description": scalar(description, self._place) if description else None,
            "default_compute": scalar(compute, self._place) if compute else None,
            "data_references": mapping(self._references, self._place) if self._references else None,
            "parameters": mapping(self._parameters, self._place) if self._parameters else None,
            "steps": mapping(entries, self._place),
        }
        return mapping({"pipeline": mapping(pipeline, self._place)}, self._place)

    def _step(self, step: PipelineStep) -> Node:
        inputs: dict[str, Any] = {}
        side: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        names: dict[int, str] = {}
        outputs = self._written(step)
        for port in step.inputs:
            name = self._input(port, inputs, divided=isinstance(step, ParallelRunStep))
            names[id(port)] = f"input:{name}"
            names.setdefault(id(data_behind(port)), names[id(port)])
        for port in step.side_inputs:
            name = self._input(port, side, taken=inputs)
            names[id(port)] = f"side_input:{name}"
            names.setdefault(id(data_behind(port)), names[id(port)])
        arguments = [self._argument(item, inputs, side, parameters, names, step) for item in step.arguments]
        waits = side if isinstance(step, ParallelRunStep) else inputs
        for other in step.run_after_steps:
            source = {"source": self._destination(other.outputs[0]), "bind_mode": "direct"}
            waits[free_name(f"after_{self._keys[other]}", inputs, side)] = from_plain(source, step.place)
        common = {
            "name": step.name if step_key(step.name) == self._keys[step] else None,
            "arguments": arguments or None,
            "parameters": parameters or None,
            "inputs": inputs or None,
            "outputs": outputs or None,
            "allow_reuse": step.allow_reuse,
        }
        if isinstance(step, ParallelRunStep):
            config = step.parallel_run_config
            settings = {"source_directory": self._source_directory, **config.to_plain(self._given)}
            own = {
                "type": "ParallelRunStep",
                "parallel_run_config": from_plain(settings, config._place),
                "side_inputs": side or None,
            }
        else:
            assert isinstance(step, PythonScriptStep)
            own = {"type": "PythonScriptStep", **self._script(step, parameters)}
            common["parameters"] = parameters or None
        there = {key: value for key, value in {**own, **common}.items() if value is not None}
        return from_plain(there, step.place)

    def _script(self, step: PythonScriptStep, parameters: dict[str, Any]) -> dict[str, Any]:
        for name, value in step.params.items():
            parameters[name] = self._parameter(value) if isinstance(value, PipelineParameter) else value
        run = step.runconfig
        environment = run.environment.to_plain() if run else None
        if run and environment is not None and run.environment_variables:
            environment["environmentVariables"] = {**run.environment.environment_variables, **run.environment_variables}
        target = step.compute_target or (run.target if run else None)
        return {
            "script_name": step.script_name,
            "source_directory": step.source_directory or self._source_directory,
            "compute": None if target is None else str(getattr(target, "name", target)),
            "environment": environment,
        }

    def _written(self, step: PipelineStep) -> dict[str, Any]:
        """The step's outputs. Raises UsageError for an output that another step also writes."""
        written: dict[str, Any] = {}
        for port in step.outputs:
            if port.producer is not step:
                other = port.producer.name if port.producer else ""
                raise UsageError(
                    f"The output {port.name} of the step {step.name} is also one of the step {other}. Make an output "
                    "for each of the two; a step that reads it names it among its inputs."
                )
            name, key = _name(port.output_name), self._keys[step]
            below = port.path_on_datastore
            if below:
                below = below.replace("{run-id}", run_id(key)).replace("{output-name}", name)
            store = port.datastore or self._datastore
            entry: dict[str, Any] = {
                "destination": self._destination(port),
                "bind_mode": port.output_mode,
                "register_as": port.registered_as,
                "path_on_compute": port.path_on_compute,
                # A PipelineData of a script is none before the script makes it, or writes a file of that name.
                "make_folder": None if isinstance(port, PipelineData) or isinstance(step, ParallelRunStep) else True,
            }
            if port.destination:
                entry["path"] = port.destination
            elif store is not None and store.is_folder and (store.name != DEFAULT_NAME or below):
                entry["path"] = store.place_of(below or default_place(key, name))
            elif store is not None:
                entry["datastore"] = store.name
                entry["path_on_datastore"] = below
            there = {setting: value for setting, value in entry.items() if value is not None}
            written[name] = from_plain(there, port.place)
        return written

    def _input(
        self, port: Any, inputs: dict[str, Any], *, taken: Mapping[str, Any] | None = None, divided: bool = False
    ) -> str:
        """Adds an input; returns its name. `divided`: into mini-batches."""
        named = port if isinstance(port, NamedInput) else NamedInput(getattr(port, "name", None) or "dataset", port)
        name = free_name(_name(named.name), inputs, taken or ())
        mode = named.mode or getattr(port, "mode", None)
        entry: dict[str, Any] = {"source": self._source(named.dataset, name)}
        if mode:
            entry["bind_mode"] = mode
        if wanted := named.path_on_compute or getattr(port, "path_on_compute", None):
            entry["path_on_compute"] = wanted
        if divided and isinstance(port, OutputTable):
            entry["as_table"] = True
        inputs[name] = from_plain(entry, named.place)
        return name

    def _source(self, data: Any, name: str) -> str:
        """The `source` of an input: a destination, a data reference or a parameter that is data."""
        if isinstance(data, Output):
            return self._destination(data)
        if isinstance(data, NamedInput):
            return self._source(data.dataset, name)
        if isinstance(data, PipelineParameter):
            given = value_of(data, self._given)
            return self._referred(given.dataset if isinstance(given, NamedInput) else given, data.name, data)
        return self._referred(data, name, data)

    def _referred(self, data: Any, wanted: str, key: Any) -> str:
        known = self._referenced.get(id(key))
        if known is not None:
            return known
        name = free_name(_name(wanted), self._sources)
        self._sources.add(name)
        place = getattr(data, "place", self._place)
        if isinstance(data, (DataPath, DataReference)):
            entry: dict[str, Any] = {"path": data.location}
        elif hasattr(data, "reference"):
            entry = data.reference(self._folder)
        else:
            raise TypeError(
                f"the input {wanted} is {type(data).__name__}; it must be a dataset, a data reference or an output of "
                "a step"
            )
        self._references[name] = from_plain(entry, place)
        self._referenced[id(key)] = name
        self._held.append(key)
        return name

    def _destination(self, port: Output) -> str:
        """The name of an output as a `source`."""
        if port not in self._destinations:
            name = self._destinations[port] = free_name(port.name, self._sources)
            self._sources.add(name)
        return self._destinations[port]

    def _parameter(self, parameter: PipelineParameter) -> dict[str, str]:
        value = value_of(parameter, self._given)
        self._parameters[_name(parameter.name)] = from_plain(value, parameter.place)
        return {"source": _name(parameter.name)}

    def _argument(
        self,
        item: Any,
        inputs: dict[str, Any],
        side: dict[str, Any],
        parameters: dict[str, Any],
        names: dict[int, str],
        step: PipelineStep,
    ) -> Any:
        if isinstance(item, PipelineParameter):
            parameters[_name(item.name)] = self._parameter(item)
            return f"parameter:{_name(item.name)}"
        if id(item) in names:
            return names[id(item)]
        data = data_behind(item)
        if isinstance(data, Output) and data.producer is step:
            return f"output:{_name(data.output_name)}"
        if isinstance(item, (Output, NamedInput, DataReference)) or hasattr(item, "reference"):
            # Named only by an argument, it still is an input.
            if isinstance(step, ParallelRunStep):
                name, mark = self._input(item, side, taken=inputs), "side_input"
            else:
                name, mark = self._input(item, inputs), "input"
            names[id(item)] = f"{mark}:{name}"
            return names[id(item)]
        # As v1 passes it to the script, not as YAML writes it.
        return str(item) if isinstance(item, bool) else item


def _name(text: str) -> str:
    return NOT_IN_NAMES.sub("_", text).strip("-") or "data"


def free_name(wanted: str, *taken: Collection[str]) -> str:
    """A free name: the wanted one, numbered if it is taken."""
    name, number = wanted, 1
    while any(name in names for names in taken):
        number += 1
        name = f"{wanted}_{number}"
    return name
