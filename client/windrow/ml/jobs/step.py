"""A step of a pipeline as a Python object; calling it makes further steps from it as their component.

Settings are kept as they were written (values, or nodes of a file), and become a node of `jobs` with the pipeline.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from collections.abc import Mapping as MappingType
from typing import Any, NoReturn, Self

from windrow.errors import UsageError
from windrow.ml.attributes import Attributes
from windrow.ml.jobs.ports import Ports, StepInput, StepOutput
from windrow.ml.places import calling_place
from windrow.spec.job.components import MERGED_KEYS
from windrow.spec.naming.expressions import has_expression
from windrow.spec.reading.from_python import mapping, scalar
from windrow.spec.reading.nodes import Mapping, Node, Scalar, is_null
from windrow.spec.reading.problems import did_you_mean, listed

_OF_COMPONENTS = ("display_name", "description")
_NOT_IN_NAMES = re.compile(r"[^\w-]+", re.ASCII)


class Step(Attributes):
    """One step. Its settings are attributes with their names in YAML; inputs and outputs are `Ports`.

    Not the `Step` of `windrow.sdk.job`, which belongs to a submitted job.

    Calling it makes another step with the same settings and the inputs of the call; inside a pipeline's function, a
    step of that pipeline.
    """

    _is_copied = True

    def __init__(
        self,
        kind: str,
        settings: MappingType[str, Any],
        *,
        inputs: MappingType[str, Any] | None = None,
        outputs: MappingType[str, Any] | None = None,
        component: Mapping | None = None,
    ) -> None:
        """`kind`: the type of the step. `component`: read from a file; the step's own settings come beside it."""
        super().__init__(**settings)
        self._kind = kind
        self._key = self._renamed = ""
        self._component = component
        declared = _entries(component, "inputs")
        self._declared = declared
        self._inputs = Ports("input", self._owner, {}, make=self._make_input, declared=declared)
        self._outputs = Ports("output", self._owner, {}, make=self._make_output)
        for name, given in (inputs or {}).items():
            self._inputs._members[name] = StepInput(None, given)
        for name, written in (outputs or {}).items():
            self._outputs._members[name] = _output(self, name, written)
        for name in _entries(component, "outputs"):
            if name not in self._outputs:
                self._outputs._members[name] = StepOutput(self, name, None)
        _register(self)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "name":
            self._renamed = value

    @property
    def type(self) -> str:
        """`parallel`, `command` or `pipeline`."""
        return self._kind

    @property
    def key(self) -> str:
        """The step's name in the pipeline: its own, or that of its variable once the pipeline is made."""
        return self._key or self.default_key

    @property
    def default_key(self) -> str:
        """The name of the step if nothing else gives one."""
        name = self._own_name or self._kind
        return _NOT_IN_NAMES.sub("_", str(name)).strip("_").lower()[:56] or self._kind

    @property
    def inputs(self) -> Ports:
        """The inputs by name."""
        return self._inputs

    @property
    def outputs(self) -> Ports:
        """The outputs by name."""
        return self._outputs

    @property
    def component(self) -> Self:
        """The step itself: component and step share their settings."""
        return self

    @property
    def is_component(self) -> bool:
        """Whether the step was read from a component's file."""
        return self._component is not None

    @property
    def _owner(self) -> str:
        return f"step {self._own_name or self._kind!r}"

    @property
    def _own_name(self) -> str:
        return str(Attributes.get(self, "name") or "") or _text(self._component, "name")

    @property
    def _func(self) -> Callable[..., Step]:
        """A function with the step's inputs as parameters, for `help()`."""

        def make(**inputs: Any) -> Step:
            return self(**inputs)

        make.__name__ = make.__qualname__ = self.default_key
        make.__doc__ = str(Attributes.get(self, "description") or "") or _text(self._component, "description")
        names = [name for name in dict.fromkeys([*self._declared, *self._inputs]) if name.isidentifier()]
        shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        make.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # what `help()` looks at
        return make

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting of the step, or else of its component. A version is text."""
        there = self._component.entries.get(name) if self._component else None
        if name == "version" and name not in self._values and isinstance(there, Scalar):
            return there.text  # 1.10 as a number would be 1.1
        if name not in self._values and there is not None:
            if isinstance(there, Mapping):
                # Once written to, it replaces the component's as a whole, so it starts as a copy of all of it.
                self._values[name] = Attributes(there)
            else:
                return Attributes(mapping({name: there}, there.place))[name]
        return super().get(name, default)

    def __call__(self, **inputs: Any) -> Step:
        """Make a step with these inputs: literals, `Input`s, inputs of the pipeline, outputs of other steps. Raises
        TypeError for a name that the step does not have.
        """
        known = [*self._declared, *self._inputs]
        for name in inputs:
            if name not in known:
                raise TypeError(
                    f"{self._owner} has no input {name!r}.{did_you_mean(name, known)} Its inputs: {listed(known)}."
                )
        made = copy.deepcopy(self)
        made._key = made._renamed = ""
        made._place = calling_place()
        made._inputs = Ports(
            "input", self._owner, dict(made._inputs._members), make=made._make_input, declared=made._declared
        )
        made._outputs = Ports("output", self._owner, {}, make=made._make_output)
        for name, port in self._inputs.items():
            made._inputs._members[name] = copy.deepcopy(port)
        for name, port in self._outputs.items():
            made._outputs._members[name] = StepOutput(made, name, mapping(port.settings(), port._place))
        for name, given in inputs.items():
            setattr(made._inputs, name, given)
        _unregister(self)
        _register(made)
        return made

    def set_resources(self, **values: Any) -> None:
        """Set `resources`, such as `instance_count`."""
        self.resources.update(values)

    def sweep(self, **more: Any) -> NoReturn:
        """Raises UsageError: Windrow does not have sweeps."""
        raise UsageError(
            f"{self._owner}: steps that search hyperparameters are not supported. Give the step its values itself, "
            "or make a parallel step whose items are the values to try."
        )

    def set_limits(self, **values: Any) -> None:
        """Set `limits`, such as `timeout`."""
        self.limits.update(values)

    def to_node(self) -> Mapping:
        """The entry in the pipeline's `jobs`."""
        settings = super().to_node()
        ports = {
            name: port.to_node()
            for name, port in self._inputs.items()
            if name not in self._declared or port._values or port.get("optional")
        }
        entries: dict[str, Node | None] = {
            "type": scalar(self._kind, self._place),
            **{name: node for name, node in settings.entries.items() if name not in ("type", "version")},
            "inputs": mapping(ports, self._place),
            "outputs": mapping({name: _output_node(port) for name, port in self._outputs.items()}, self._place),
        }
        if self._component is not None:
            entries["component"] = self._component
        return mapping(entries, self._place)

    def to_component(self, name: str) -> Mapping:
        """The step as the file of a component: its settings, and what it declares of its inputs and outputs."""
        settings = self.to_node().entries
        given = self._component.entries if self._component is not None else {}
        kept = {key: node for key, node in settings.items() if key in (*MERGED_KEYS[self._kind], *_OF_COMPONENTS)}
        ports = self._component if self._component is not None else self.to_node()
        inputs, outputs = _entries(ports, "inputs"), _entries(ports, "outputs")
        entries: dict[str, Node | None] = {
            **{key: node for key, node in given.items() if key != "version"},
            **kept,
            "name": scalar(name, self._place),
            "type": scalar(self._kind, self._place),
            "inputs": mapping({key: _declared(node) for key, node in inputs.items()}, self._place),
            "outputs": mapping({key: _declared(node, output=True) for key, node in outputs.items()}, self._place),
        }
        return mapping(entries, self._place)

    def _make_input(self, name: str, given: Any) -> StepInput:
        known = [*self._declared, *self._inputs]
        if known and name not in known:
            raise AttributeError(
                f"{self._owner} has no input {name!r}.{did_you_mean(name, known)} Its inputs: {listed(known)}."
            )
        declared = self._inputs.get(name)
        kind = _entries(self._component, "inputs").get(name) if declared is None else None
        port = StepInput(declared, None)
        typed = kind.entries.get("type") if isinstance(kind, Mapping) else None
        if isinstance(typed, Scalar) and not port._values:
            # The component's declaration is read with the step; its type only decides whether a text is a path.
            port._values["type"] = typed
            port._give(given)
            if port._values.get("type") is typed:
                del port._values["type"]
        else:
            port._give(given)
        return port

    def _make_output(self, name: str, written: Any) -> StepOutput:
        return _output(self, name, written)


def _output(step: Step, name: str, written: Any) -> StepOutput:
    """Make an output of a step. `written`: an Output, a mapping, a path, or None."""
    if isinstance(written, (str, bytes)) or hasattr(written, "__fspath__"):
        written = Attributes(path=str(written))
    elif isinstance(written, MappingType):
        written = Attributes(**written)
    return StepOutput(step, name, written if isinstance(written, (Attributes, Mapping, Scalar)) else None)


def _output_node(port: StepOutput) -> Node:
    bound = port.__dict__.get("_pipeline_output")
    if bound is None:
        settings = port.settings()
        return mapping(settings, port._place) if settings else scalar(None, port._place)
    # The pipeline's output has its place; the type decides how other steps read it.
    path = scalar(f"${{{{parent.outputs.{bound}}}}}", port._place)
    kept = {name: node for name, node in port.settings().items() if name in ("type", "mode")}
    return mapping({**kept, "path": path}, port._place) if kept else path


def _declared(port: Node, *, output: bool = False) -> Mapping:
    """What a component declares of an input or output: all but its place, and a value as the default."""
    if not output and isinstance(port, Scalar) and not is_null(port) and not has_expression(port.text):
        kind = next(name for made, name in _LITERALS if isinstance(port.value, made))
        return mapping({"type": scalar(kind, port.place), "default": port}, port.place)
    entries = dict(port.entries) if isinstance(port, Mapping) else {}
    for key in ("path", "name", "version"):
        entries.pop(key, None)
    if "value" in entries:
        entries["default"] = entries.pop("value")
    return mapping({"type": scalar("uri_folder", port.place), **entries}, port.place)


_LITERALS = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def _entries(component: Mapping | None, name: str) -> dict[str, Node]:
    there = component.entries.get(name) if component else None
    return there.entries if isinstance(there, Mapping) else {}


def _text(component: Mapping | None, name: str) -> str:
    there = component.entries.get(name) if component else None
    return there.text if isinstance(there, Scalar) else ""


def resources_of(instance_count: Any, instance_type: Any, docker_args: Any, shm_size: Any) -> dict[str, Any]:
    """`resources`, made from the arguments that stand for its keys. Arguments that are None are left out."""
    given = {
        "instance_count": instance_count,
        "instance_type": instance_type,
        "docker_args": docker_args,
        "shm_size": shm_size,
    }
    return {name: value for name, value in given.items() if value is not None}


_making: list[list[Step]] = []
"""The steps of each pipeline whose function is running, the innermost last."""


def begin_pipeline() -> list[Step]:
    """Start collecting steps: every step made before `end_pipeline` goes into the returned list."""
    steps: list[Step] = []
    _making.append(steps)
    return steps


def end_pipeline() -> None:
    """Stop collecting the steps of the innermost `begin_pipeline`."""
    _making.pop()


def is_inside_pipeline() -> bool:
    """Whether a pipeline's function is running."""
    return bool(_making)


def _register(step: Step) -> None:
    if _making:
        _making[-1].append(step)


def _unregister(step: Step) -> None:
    """Take a step out of the pipeline: it was called in the function that made it, so it was only a component."""
    if _making:
        _making[-1][:] = [other for other in _making[-1] if other is not step]
