"""Data of a v1 pipeline: references, parameters, and how the inputs and outputs of steps refer to them. Reference:
docs/reference/azure-ml/parallel-job.md#version-1.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from windrow.spec.naming.datastores import DEFAULT_DATASTORES
from windrow.spec.naming.locations import absolute, parse_location
from windrow.spec.reading.context import Context
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.keys import as_mapping, check_name, warn_of_unknown
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null, shown
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.v1.reading import choose_mode, entry, read_mapping, text_of
from windrow.spec.v1.schema import DATA_REFERENCE, INPUT, INPUT_MODES, OUTPUT, OUTPUT_MODES, PARAMETER_TYPES

_FILE_NAME = re.compile(r"[^/]*\.[A-Za-z]\w{0,7}")
PARAMETER_KEYS = ("type", "default", "value")


class Written(NamedTuple):
    """The step output that writes to a `destination`. Not the worker's `Written`, which counts rows."""

    step: str
    output: str


class Sources:
    """The sources that inputs and parameters of steps can name: data references, parameters, destinations."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.inputs: dict[str, Node] = {}
        """The pipeline's inputs of v2: data references and parameters."""
        self._broken: set[str] = set()
        """Names for which an error was noted."""
        self.written: dict[str, Written] = {}

    def read_references(self, node: Node | None, key: str) -> None:
        """Reads `data_references`."""
        references = as_mapping(node, key, self._context)
        for name, reference in references.entries.items() if references else ():
            data = data_reference(reference, f"{key}.{name}", self._context)
            self._add(name, data, f"{key}.{name}", reference)

    def read_parameters(self, node: Node | None, key: str) -> None:
        """Reads the pipeline's `parameters`."""
        parameters = as_mapping(node, key, self._context)
        for name, parameter in parameters.entries.items() if parameters else ():
            self._add(name, self._parameter(parameter, f"{key}.{name}"), f"{key}.{name}", parameter)

    def _add(self, name: str, value: Node | None, key: str, place: Node) -> None:
        check_name(name, "a data reference or parameter", place, key, self._context)
        if name in self.inputs:
            self._context.problems.error(place, key, f'the name "{name}" is taken; rename one of the two.')
        elif value is None:
            self._broken.add(name)
        else:
            self.inputs[name] = value
            self._context.problems.spelled[f"inputs.{name}"] = key

    def _parameter(self, node: Node, key: str) -> Node | None:
        """Turns a parameter into an input: a literal, or (type dataPath) data."""
        if isinstance(node, Scalar) and not is_null(node):
            return node
        parameter = as_mapping(node, key, self._context)
        if parameter is None:
            return None
        kind = text_of(parameter, "type", key, self._context)
        default = entry(parameter, "default") or entry(parameter, "value")
        warn_of_unknown(parameter, PARAMETER_KEYS, key, self._context)
        written = kind.text.strip().casefold() if kind else "string"
        if written == "datapath":
            return data_reference(default or parameter, f"{key}.default", self._context)
        literal = PARAMETER_TYPES.get(written)
        if literal is None:
            self._context.problems.error(
                kind or parameter,
                f"{key}.type",
                f"is {shown(kind or parameter)}; it must be one of {', '.join(PARAMETER_TYPES)}, dataPath.",
            )
            return None
        if default is None:
            self._context.problems.error(parameter, f"{key}.default", "is missing; a parameter needs a value.")
            return None
        return mapping({"type": kind and scalar(literal, kind.place), "value": default}, parameter.place)

    def read_outputs(self, step: str, node: Node | None, key: str) -> dict[str, Node]:
        """Turns a step's outputs into those of v2, and notes the names of their destinations."""
        outputs = as_mapping(node, key, self._context)
        made: dict[str, Node] = {}
        before = len(self._context.problems.errors)
        for name, output in outputs.entries.items() if outputs else ():
            made[name] = self._output(step, name, output, f"{key}.{name}")
            spelled = self._context.problems.spelled
            spelled[f"jobs.{step}.outputs.{name}"] = f"{key}.{name}"
            spelled[f"jobs.{step}.outputs.{name}.name"] = f"{key}.{name}.register_as"
        if len(self._context.problems.errors) > before:
            self._context.broken_steps.add(step)
        return made

    def _output(self, step: str, name: str, node: Node, key: str) -> Node:
        destination: Node | None = node if isinstance(node, Scalar) and not is_null(node) else None
        output = None if destination or is_null(node) else read_mapping(node, OUTPUT, key, self._context)
        entries: dict[str, Node | None] = {"type": scalar("uri_folder", node.place)}
        if output:
            destination = text_of(output, "destination", key, self._context)
            entries["mode"] = choose_mode(output, OUTPUT_MODES, key, self._context)
            entries["name"] = text_of(output, "register_as", key, self._context)
            entries["make_folder"] = entry(output, "make_folder")
            path = text_of(output, "path", key, self._context)
            entries["path"] = path or self._in_datastore(output, default_place(step, name), key)
        called = destination.text.strip() if isinstance(destination, Scalar) else name
        if called in self.written or called in self.inputs:
            self._context.problems.error(
                destination or node,
                f"{key}.destination",
                f'"{called}" already names something else; give each output a different destination.',
            )
        self.written[called] = Written(step, name)
        return mapping(entries, node.place)

    def _in_datastore(self, output: Mapping, default: str, key: str) -> Scalar | None:
        """The address of an output in a datastore; None for Windrow's default place. `default`: the path in a
        datastore that is named without one.
        """
        datastore = text_of(output, "datastore", key, self._context)
        path = text_of(output, "path_on_datastore", key, self._context)
        if path is None and (datastore is None or datastore.text.strip() in DEFAULT_DATASTORES):
            return None
        place = (path or datastore or output).place
        store = datastore.text.strip() if datastore else "${{default_datastore}}"
        below = path.text.strip().strip("/") if path else default
        return scalar(f"azureml://datastores/{store}/paths/{below}", place)

    def read_inputs(self, step: str, node: Node | None, key: str) -> dict[str, Node]:
        """Turns a step's inputs (or side inputs) into those of v2."""
        inputs = as_mapping(node, key, self._context)
        made: dict[str, Node] = {}
        for name, given in inputs.entries.items() if inputs else ():
            bound = self._input(given, f"{key}.{name}")
            self._context.problems.spelled[f"jobs.{step}.inputs.{name}"] = f"{key}.{name}"
            if bound is None:
                self._context.broken_steps.add(step)
            else:
                made[name] = bound
        return made

    def _input(self, node: Node, key: str) -> Node | None:
        source: Node | None = node if isinstance(node, Scalar) and not is_null(node) else None
        mode = table = None
        if source is None:
            given = read_mapping(node, INPUT, key, self._context)
            if given is None:
                if is_null(node):
                    self._context.problems.error(node, key, "is empty; name its source.")
                return None
            source = text_of(given, "source", key, self._context)
            mode = choose_mode(given, INPUT_MODES, key, self._context)
            table = entry(given, "as_table")
            if table is not None and not (isinstance(table, Scalar) and isinstance(table.value, bool)):
                self._context.problems.error(table, f"{key}.as_table", f"is {shown(table)}; it must be true or false.")
                return None
            if source is None:
                self._context.problems.error(given, f"{key}.source", f"is missing; there are: {self._names()}")
                return None
        assert isinstance(source, Scalar)
        path = self.reference(source, f"{key}.source")
        kind = scalar("mltable", table.place) if isinstance(table, Scalar) and table.value is True else None
        return None if path is None else mapping({"type": kind, "path": path, "mode": mode}, node.place)

    def reference(self, source: Scalar, key: str) -> Scalar | None:
        """The v2 binding to what a `source` names. None, with an error, if there is no such source."""
        name = source.text.strip()
        if name in self.written:
            step, output = self.written[name]
            return scalar(f"${{{{parent.jobs.{step}.outputs.{output}}}}}", source.place)
        if name in self.inputs:
            return scalar(f"${{{{parent.inputs.{name}}}}}", source.place)
        if name in self._broken:
            return None
        known = [*self.inputs, *self.written]
        self._context.problems.error(
            source,
            key,
            f'there is no data reference, parameter or destination "{name}".{did_you_mean(name, known)} '
            f"Available: {self._names()}",
        )
        return None

    def _names(self) -> str:
        return listed([*self.inputs, *self.written])


def run_id(step: str) -> str:
    """The id of a step's run within the path of an output: `<job>/<step>`, filled in when the job has its name."""
    return f"${{{{name}}}}/{step}"


def default_place(step: str, output: str) -> str:
    """The path of a step's output in a datastore that is named without one: a folder of its own, as in v2."""
    return f"azureml/{run_id(step)}/{output}"


def data_reference(node: Node, key: str, context: Context) -> Node | None:
    """Turns a data reference into an input object of v2. None, with an error, if it does not name data."""
    reference = read_mapping(node, DATA_REFERENCE, key, context)
    if reference is None:
        if is_null(node):
            context.problems.error(node, key, "is empty; give dataset_name, datastore and path_on_datastore, or path.")
        return None
    mode = choose_mode(reference, INPUT_MODES, key, context)
    kind = entry(reference, "type")
    path = text_of(reference, "path", key, context)
    dataset = text_of(reference, "dataset_name", key, context)
    datastore = text_of(reference, "datastore", key, context)
    below = text_of(reference, "path_on_datastore", key, context)
    given = [name for name in ("path", "dataset_name", "datastore") if entry(reference, name) is not None]
    if len(given) != 1:
        what = f"gives {' and '.join(given)}" if given else "names no data"
        context.problems.error(
            reference, key, f"{what}; give one of dataset_name, datastore with path_on_datastore, and path."
        )
        return None
    if dataset:
        version = text_of(reference, "dataset_version", key, context)
        name = dataset.text.strip()
        newest = version is None or version.text.strip() in ("latest", "*")
        path = scalar(
            f"azureml:{name}@latest" if newest or version is None else f"azureml:{name}:{version.text.strip()}",
            dataset.place,
        )
    elif datastore:
        rest = below.text.strip().lstrip("/") if below else ""
        path = scalar(f"azureml://datastores/{datastore.text.strip()}/paths/{rest}", (below or datastore).place)
        if kind is None and is_file_name(rest.rpartition("/")[2]):
            kind = scalar("uri_file", path.place)
    if path is not None and kind is None and _is_table(path):
        kind = scalar("mltable", path.place)
    return mapping({"type": kind, "path": path, "mode": mode}, reference.place)


def is_file_name(name: str) -> bool:
    """Whether the last part of a path that cannot be looked at is taken for a file's name, by its suffix."""
    return _FILE_NAME.fullmatch(name) is not None


def _is_table(path: Scalar) -> bool:
    """Whether a path is a tabular dataset: a local folder with an MLTable file."""
    location = parse_location(path.text.strip())
    folder = absolute(location.value, path.place.source.folder) if location.kind == "local" else ""
    return bool(folder) and os.path.isfile(os.path.join(folder, "MLTable"))
