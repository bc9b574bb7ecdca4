"""Bindings: inputs and outputs of the pipeline and of all steps, each followed to what it finally means.

Reference: docs/reference/azure-ml/parallel-job.md#expressions; docs/reference/azure-ml/client.md#dumped-jobs (outputs
that vanished in a dump, though something is bound to them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windrow.spec.effective.job import LiteralInput, OutputInput, PipelineOutput, StepInput, StepOutput
from windrow.spec.job.components import StepNodes
from windrow.spec.job.graph import Graph
from windrow.spec.job.inputs import InputSpec, Resolved, read_input, resolve_input
from windrow.spec.job.outputs import OutputSpec, make_output, read_output
from windrow.spec.naming.expressions import AlreadyReported, Reference, whole_reference, written
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_name, unknown_name
from windrow.spec.reading.nodes import Mapping, Node, Place, is_null, shown
from windrow.spec.reading.problems import did_you_mean
from windrow.spec.settings.fields import Field, parse_value

if TYPE_CHECKING:
    from windrow.spec.job.control import Choice, Loop

LITERALS_ONLY = "a setting can refer to literal inputs only; data reaches the script by task.program_arguments"


class _PipelineOutput(NamedTuple):
    """An output of a pipeline.

    `given`: what the pipeline, and the pipelines around it, say of the output; `declared`: what their components say.
    `name`: the job's output that it becomes, if any.
    """

    given: tuple[OutputSpec, ...]
    declared: tuple[OutputSpec, ...] = ()
    name: str | None = None


class Bindings:
    """Inputs and outputs of a job, and of the pipelines in it. Steps are named as in the job (`Graph`).

    References to steps that could not be read are skipped: an error already says why.
    """

    def __init__(self, inputs: Mapping | None, outputs: Mapping | None, graph: Graph, context: Context) -> None:
        self._context = context
        self._graph = graph
        self._steps = graph.nodes
        self._pipeline_inputs = self._read_pipeline_inputs(inputs)
        self._output_nodes = outputs
        self._pipeline_specs: dict[tuple[str, str], _PipelineOutput] = {}
        self._bound: dict[tuple[str, str], PipelineOutput] = {}
        """By pipeline ("" is the job) and output: the output of a step that is bound to it."""
        self._outputs: dict[str, dict[str, StepOutput]] = {}
        self._inputs: dict[tuple[str, str], Resolved] = {}
        self._following: list[tuple[str, str]] = []
        self.waits: dict[str, set[str]] = {}
        """By step or pipeline: the sibling steps whose outputs it reads. Complete once all inputs are read."""

    # Outputs -----------------------------------------------------------------------------------------------------

    def read_outputs(self) -> None:
        """Reads the outputs of the job and of all steps; must come before anything reads an input."""
        places = self._output_nodes.key_places if self._output_nodes else {}
        for name, node in self._output_nodes.entries.items() if self._output_nodes else ():
            key = f"outputs.{name}"
            check_name(name, "an output", node, key, self._context)
            spec = read_output(node, key, self._context)
            self._pipeline_specs["", name] = _PipelineOutput((spec or OutputSpec(node),), name=name)
            if spec and spec.binding:
                self._refuse_binding(spec, name, node, key)
        for step_name, nodes in self._steps.items():
            if nodes and nodes.type == "pipeline":
                self._read_pipeline_outputs(step_name, nodes)
            elif nodes:
                self._outputs[step_name] = self._read_step_outputs(step_name, nodes)
        for pipeline, name in self._pipeline_specs if self._graph.is_whole else ():
            if (pipeline, name) in self._bound:
                continue
            nodes = self._steps[pipeline] if pipeline else None
            if nodes is None:
                place, key = places[name], f"outputs.{name}"
            elif name in nodes.declared_outputs:
                place, key = nodes.declared_outputs[name].place, f"jobs.{pipeline}.component.outputs.{name}"
            else:
                continue
            self._context.problems.warn(
                place,
                key,
                f"is not written by any step; bind a step's output to ${{{{parent.outputs.{name}}}}}.",
            )

    def outputs_of(self, step: str) -> dict[str, StepOutput]:
        """A step's outputs by name."""
        return self._outputs[step]

    def pipeline_outputs(self) -> dict[str, PipelineOutput]:
        """The job's outputs that a step writes."""
        found = {name: self._written_by("", name) for pipeline, name in self._bound if not pipeline}
        return {name: written_by for name, written_by in found.items() if written_by}

    def _written_by(self, pipeline: str, name: str) -> PipelineOutput | None:
        """The step output behind an output of a pipeline, followed into nested pipelines."""
        bound = self._bound.get((pipeline, name))
        while bound is not None and bound.step in self._graph.members:
            bound = self._bound.get((bound.step, bound.output))
        return bound

    def _read_pipeline_outputs(self, step: str, nodes: StepNodes) -> None:
        for name in self._output_names(nodes):
            own, declared = self._output_specs(step, name, nodes)
            if declared and declared.binding:
                self._refuse_binding(declared, name, declared.place, f"jobs.{step}.component.outputs.{name}")
            outer = self._bind(step, name, own, nodes) or _PipelineOutput(())
            self._pipeline_specs[step, name] = _PipelineOutput(
                (own, *outer.given), (*((declared,) if declared else ()), *outer.declared), outer.name
            )

    def _read_step_outputs(self, step: str, nodes: StepNodes) -> dict[str, StepOutput]:
        made: dict[str, StepOutput] = {}
        for name in self._output_names(nodes):
            own, declared = self._output_specs(step, name, nodes)
            outer = self._bind(step, name, own, nodes) or _PipelineOutput(())
            # Azure ML's default place: one folder for each output of the pipeline.
            made[name] = make_output(
                (own, *outer.given),
                (*((declared,) if declared else ()), *outer.declared),
                f"jobs.{step}.outputs.{name}",
                outer.name or f"{step}/{name}",
                self._context,
            )
            if nodes.type != "command" and not made[name].make_folder:
                self._context.problems.warn(
                    own.place, f"jobs.{step}.outputs.{name}.make_folder", "has no effect: it is for commands."
                )
                made[name] = made[name]._replace(make_folder=True)
        return made

    def _output_names(self, nodes: StepNodes) -> list[str]:
        return list(dict.fromkeys([*nodes.declared_outputs, *nodes.outputs]))

    def _output_specs(self, step: str, name: str, nodes: StepNodes) -> tuple[OutputSpec, OutputSpec | None]:
        """A step's output as the step writes it, and as its component declares it."""
        key = f"jobs.{step}.outputs.{name}"
        declared_node, node = nodes.declared_outputs.get(name), nodes.outputs.get(name)
        check_name(name, "an output", node or declared_node or nodes.place, key, self._context)
        declared = (
            read_output(declared_node, f"jobs.{step}.component.outputs.{name}", self._context)
            if declared_node
            else None
        )
        own = read_output(node, key, self._context) if node else None
        return own or OutputSpec(nodes.place), declared

    def _refuse_binding(self, spec: OutputSpec, name: str, node: Node, key: str) -> None:
        """Notes an error for a pipeline's own output that is bound to something."""
        if spec.binding:
            self._context.problems.error(
                node,
                key,
                f"is bound to {written(spec.binding)}; bind it the other way round: "
                f"${{{{parent.outputs.{name}}}}} in the outputs of that step.",
            )

    def _bind(self, step: str, name: str, own: OutputSpec, nodes: StepNodes) -> _PipelineOutput | None:
        """The output of the surrounding pipeline that a step's output is bound to. None if it is not bound or, with an
        error, if the binding is not valid.
        """
        reference, problems, pipeline = own.binding, self._context.problems, self._graph.homes[step]
        key = f"jobs.{step}.outputs.{name}"
        if reference is None:
            return None
        if reference.scope != "parent.outputs":
            problems.error(
                own.place,
                key,
                f"is bound to {written(reference)}; an output can only be bound to one of the pipeline's, "
                "as in ${{parent.outputs.x}}.",
            )
            return None
        wanted = (pipeline, reference.name)
        if wanted not in self._pipeline_specs:
            if not nodes.inline_component:
                known = [other for home, other in self._pipeline_specs if home == pipeline]
                problems.error(own.place, key, unknown_name("pipeline output", reference.name, known))
                return None
            # A dump leaves out pipeline outputs without settings of their own.
            problems.warn(
                own.place,
                key,
                f"the pipeline output {reference.name} is not in the file; it is taken for one that a dump left out.",
            )
            name_in_job = None if pipeline else reference.name
            self._pipeline_specs[wanted] = _PipelineOutput((OutputSpec(own.place),), name=name_in_job)
        if wanted in self._bound:
            other = self._bound[wanted]
            problems.error(
                own.place,
                key,
                f"the pipeline output {reference.name} is already bound to {other.output} of step "
                f"{self._graph.own_name(other.step)}; bind this one to another pipeline output.",
            )
            return None
        self._bound[wanted] = PipelineOutput(step, name)
        return self._pipeline_specs[wanted]

    # Inputs ------------------------------------------------------------------------------------------------------

    def input_names(self, step: str) -> list[str]:
        """Names of a step's inputs, declared or given."""
        nodes = self._steps[step]
        return list(dict.fromkeys([*(nodes.declared_inputs or {}), *nodes.inputs])) if nodes else []

    def inputs_of(self, step: str) -> dict[str, StepInput]:
        """A step's inputs that have a value; notes errors for those that must have one and do not."""
        nodes, problems = self._steps[step], self._context.problems
        inputs: dict[str, StepInput] = {}
        for name in self.input_names(step) if nodes else ():
            resolved = self.resolved(step, name)
            if nodes is None or resolved is None or resolved.broken:
                continue
            if resolved.value is not None:
                inputs[name] = resolved.value
            elif not resolved.optional and nodes.type != "pipeline":
                place, key = resolved.missing or self._place_of(step, name, nodes)
                problems.error(
                    place, key, "has no value; give it a path, a value or a binding (or mark it optional: true)."
                )
            if nodes.declared_inputs is not None and name not in nodes.declared_inputs:
                hint = did_you_mean(name, nodes.declared_inputs)
                problems.warn(
                    nodes.inputs[name],
                    f"jobs.{step}.inputs.{name}",
                    f"is not an input that the component declares.{hint}",
                )
        return inputs

    def input_state(self, step: str, name: str) -> bool | None:
        """Whether a step has a value for an input, or an error was noted because it must have one. None if there is
        no such input.
        """
        found = self.resolved(step, name)
        return None if found is None else found.broken or found.value is not None or not found.optional

    def literal(self, step: str, reference: Reference) -> str:
        """The text of a literal that a setting of a step refers to.

        Raises ValueError, saying why, if it is not a literal; AlreadyReported if an error already says so.
        """
        if reference.scope == "inputs":
            resolved = self.resolved(step, reference.name)
            if resolved is None:
                raise ValueError(unknown_name("input", reference.name, self.input_names(step)))
        elif reference.scope in ("parent.inputs", "parent.jobs.inputs"):
            resolved = self._lookup(step, reference)
        else:
            raise ValueError(f"{written(reference)} cannot be used here; {LITERALS_ONLY}")
        if resolved.broken:
            raise AlreadyReported
        if resolved.value is None:
            raise ValueError(f"{written(reference)} has no value; give that input one, or remove this setting")
        if isinstance(resolved.value, OutputInput) and resolved.value.is_value:
            maker = self._graph.own_name(resolved.value.step)
            raise ValueError(
                f"{written(reference)} is known only when step {maker} has ended; settings are fixed "
                "before. Pass it to the script, as an argument"
            )
        if not isinstance(resolved.value, LiteralInput):
            raise ValueError(f"{written(reference)} is data; {LITERALS_ONLY}")
        return resolved.value.value

    def condition(self, choice: Choice) -> bool | tuple[str, str] | None:
        """What decides an `if_else` node: a value that is known, or an output of a step. None, with an error, if it is
        neither.
        """
        node, key, problems = choice.condition, f"jobs.{choice.name}.condition", self._context.problems
        try:
            reference = whole_reference(node.text)
            found = Resolved(LiteralInput(node.text), node.place) if reference is None else None
            if reference is not None:
                found = self._lookup(choice.name, reference)
            value = found.value if found is not None else None
            if found is None or found.broken:
                return None
            if isinstance(value, LiteralInput):
                try:
                    return bool(parse_value(Field("bool"), value.value))
                except ValueError:
                    raise ValueError(
                        f'its value is "{value.value}", but a condition is true or false'
                        if reference is not None
                        else "a condition is true, false, or a binding as in ${{parent.jobs.check.outputs.go}}"
                    ) from None
            if isinstance(value, OutputInput):
                return self._boolean(value.step, value.output)
            raise ValueError("it has no value" if value is None else "it is data; a condition is true or false")
        except ValueError as error:
            problems.error(node, key, f"is {shown(node)}; {error}.")
        return None

    def loop_condition(self, loop: Loop, iteration: str) -> tuple[str, str] | None:
        """The output of an iteration that says whether the loop goes on. None if it has none, or, with an error, if it
        is not a condition.
        """
        if loop.condition is None:
            return None
        try:
            found = self._output_of(iteration, loop.condition_output, loop.body).value
            return self._boolean(found.step, found.output) if isinstance(found, OutputInput) else None
        except ValueError as error:
            self._context.problems.error(
                loop.condition, f"jobs.{loop.name}.condition", f"is {shown(loop.condition)}; {error}."
            )
        return None

    def _boolean(self, step: str, output: str) -> tuple[str, str]:
        """An output of a step as a condition. Raises ValueError if it does not hold a boolean."""
        if self._outputs[step][output].value != "boolean":
            raise ValueError(
                f"output {output} of step {self._graph.own_name(step)} is no condition; declare it with type: boolean, "
                "and let the step write true or false into that file"
            )
        return step, output

    def resolved(self, step: str, name: str) -> Resolved | None:
        """The value of a step's input, resolved; None if the step has no such input."""
        nodes = self._steps.get(step)
        if nodes is None or name not in self.input_names(step):
            return None
        known = self._inputs.get((step, name))
        if known is None:
            key = f"jobs.{step}.inputs.{name}"
            if (step, name) in self._following:
                self._context.problems.error(
                    nodes.inputs.get(name, nodes.place), key, "refers to itself; give it a value."
                )
                return Resolved(None, nodes.place.place, broken=True)
            self._following.append((step, name))
            known = self._inputs[step, name] = self._resolve(step, name, nodes, key)
            self._following.pop()
        return known

    def _resolve(self, step: str, name: str, nodes: StepNodes, key: str) -> Resolved:
        node, declared_node = nodes.inputs.get(name), (nodes.declared_inputs or {}).get(name)
        broken = Resolved(None, nodes.place.place, broken=True)
        check_name(name, "an input", node or declared_node or nodes.place, key, self._context)
        declared = None
        if declared_node is not None and not is_null(declared_node):
            declared = read_input(declared_node, f"jobs.{step}.component.inputs.{name}", self._context)
            if declared is None:
                return broken
        spec = read_input(node, key, self._context) if node is not None else InputSpec(nodes.place)
        if spec is None:
            return broken
        found = resolve_input(spec, declared, key, self._context, lambda reference, _: self._lookup(step, reference))
        if nodes.type == "pipeline" and found.value is None and not found.broken and not found.missing:
            # The steps inside decide whether this is an error: some may not need the input.
            return found._replace(missing=self._place_of(step, name, nodes))
        return found

    def _place_of(self, step: str, name: str, nodes: StepNodes) -> tuple[Place, str]:
        return nodes.inputs.get(name, nodes.place).place, f"jobs.{step}.inputs.{name}"

    def _lookup(self, step: str, reference: Reference) -> Resolved:
        """What a reference in a step's inputs means. Raises ValueError if it means nothing."""
        match reference.scope:
            case "parent.inputs":
                return self._pipeline_input(self._graph.homes[step], reference.name)
            case "parent.jobs.inputs":
                other = self._sibling(step, reference)
                found = self.resolved(other, reference.name)
                if found is None and self._steps[other]:
                    raise ValueError(
                        f"step {reference.step}: {unknown_name('input', reference.name, self.input_names(other))}"
                    )
                return found or self._unknown()
            case "parent.jobs.outputs":
                other = self._sibling(step, reference)
                self.waits.setdefault(step, set()).add(other)
                return self._output_of(other, reference.name, reference.step)
            case "parent.outputs":
                bound = self._bound.get((self._graph.homes[step], reference.name))
                if bound is None and self._graph.is_whole:
                    raise ValueError(f"the pipeline output {reference.name} is not written by any step")
                if bound is None:
                    return self._unknown()
                self.waits.setdefault(step, set()).add(bound.step)
                return self._output_of(bound.step, bound.output, self._graph.own_name(bound.step))
            case "inputs" | "outputs":
                raise ValueError(
                    f"in a step's inputs, write ${{{{parent.{reference.scope}.{reference.name}}}}} for those of the "
                    "pipeline"
                )
            case "name" if self._context.job_name:
                place = Place(self._context.source)
                return Resolved(LiteralInput(self._context.job_name), place)
        raise ValueError(f"{written(reference)} cannot be used here")

    def _pipeline_input(self, pipeline: str, name: str) -> Resolved:
        if not pipeline:
            if name not in self._pipeline_inputs:
                raise ValueError(unknown_name("pipeline input", name, list(self._pipeline_inputs)))
            given = self._pipeline_inputs[name]
            if given.value is None and not given.broken and not given.optional:
                return given._replace(missing=(given.place, f"inputs.{name}"))
            return given
        found = self.resolved(pipeline, name)
        if found is None:
            raise ValueError(unknown_name("pipeline input", name, self.input_names(pipeline)))
        return found

    def _output_of(self, owner: str, name: str, shown: str) -> Resolved:
        """An output of a step, or the one behind an output of a pipeline. `shown`: the step's name in messages."""
        nodes = self._steps[owner]
        if nodes is None:
            return self._unknown()
        known = self._output_names(nodes)
        if name not in known:
            raise ValueError(f"step {shown}: {unknown_name('output', name, known)}")
        if nodes.type == "pipeline":
            bound = self._written_by(owner, name)
            if bound is None and self._graph.is_whole:
                raise ValueError(
                    f"no step of the pipeline {shown} writes its output {name}; bind the output of one of them to "
                    f"${{{{parent.outputs.{name}}}}}"
                )
            if bound is None:
                return self._unknown()
            owner, name = bound
        output = self._outputs[owner][name]
        kind = output.value or output.type
        return Resolved(OutputInput(owner, name, kind, "ro_mount"), Place(self._context.source))

    def _sibling(self, step: str, reference: Reference) -> str:
        """The step that a setting of another step names. Raises ValueError if there is none."""
        found = self._graph.sibling(step, reference.step)
        if found not in self._steps:
            known = self._graph.names(self._graph.homes[step])
            why = unknown_name("step", reference.step, known)
            if self._following:
                reader, name = self._following[-1]
                key = self._context.problems.as_spelled(f"jobs.{reader}.inputs.{name}")
                why += f". If that step was left out, give this input the data that it made: --set {key}=./path"
            raise ValueError(why)
        return found

    def _unknown(self) -> Resolved:
        return Resolved(None, Place(self._context.source), broken=True)

    def _read_pipeline_inputs(self, inputs: Mapping | None) -> dict[str, Resolved]:
        resolved: dict[str, Resolved] = {}
        for name, node in inputs.entries.items() if inputs else ():
            key = f"inputs.{name}"
            check_name(name, "an input", node, key, self._context)
            spec = read_input(node, key, self._context)
            resolved[name] = (
                Resolved(None, node.place, broken=True)
                if spec is None
                else resolve_input(spec, None, key, self._context, _no_reference)
            )
        return resolved


def _no_reference(reference: Reference, node: Node) -> Resolved:
    raise ValueError(f"{written(reference)} cannot be used in the pipeline's own inputs; give a path or value")
