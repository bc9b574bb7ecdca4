"""Who is bound to whom: inputs and outputs of the pipeline and of all steps, each followed to its end.

Reference: parallel-job.md, section 1.4; client.md, rule 4 (outputs that vanished in a dump, though something is bound
to them).
"""

from __future__ import annotations

from collections.abc import Mapping as MappingType

from windrow.spec.components import StepNodes
from windrow.spec.effective import LiteralInput, OutputInput, PipelineOutput, StepInput, StepOutput
from windrow.spec.expressions import Reference, written
from windrow.spec.inputs import InputSpec, Resolved, read_input, resolve_input
from windrow.spec.nodes import Mapping, Node, Place, is_null
from windrow.spec.outputs import OutputSpec, make_output, read_output
from windrow.spec.problems import did_you_mean
from windrow.spec.reading import Context, check_name, unknown_name

LITERALS_ONLY = "a setting can refer to literal inputs only; data reaches the script by task.program_arguments"


class Bindings:
    """Inputs and outputs of one pipeline.

    Steps that are None could not be read: what is bound to them is passed over in silence.
    """

    def __init__(
        self,
        inputs: Mapping | None,
        outputs: Mapping | None,
        steps: MappingType[str, StepNodes | None],
        context: Context,
    ) -> None:
        self._context = context
        self._steps = steps
        self._pipeline_inputs = self._read_pipeline_inputs(inputs)
        self._output_nodes = outputs
        self._pipeline_specs: dict[str, OutputSpec | None] = {}
        self._bound: dict[str, PipelineOutput] = {}
        self._outputs: dict[str, dict[str, StepOutput]] = {}
        self._inputs: dict[tuple[str, str], Resolved] = {}
        self._following: list[tuple[str, str]] = []

    # Outputs -----------------------------------------------------------------------------------------------------

    def read_outputs(self) -> None:
        """Reads the outputs of the pipeline and of all steps; must come before anything reads an input."""
        for name, node in self._output_nodes.entries.items() if self._output_nodes else ():
            key = f"outputs.{name}"
            check_name(name, "an output", node, key, self._context)
            spec = read_output(node, key, self._context)
            self._pipeline_specs[name] = spec
            if spec and spec.binding:
                self._context.problems.error(
                    node,
                    key,
                    f"is bound to {written(spec.binding)}; bind the other way round: "
                    f"${{{{parent.outputs.{name}}}}} in the outputs of that step.",
                )
        for step_name, nodes in self._steps.items():
            if nodes:
                self._outputs[step_name] = self._read_step_outputs(step_name, nodes)
        for name in self._pipeline_specs:
            if name not in self._bound and all(self._steps.values()) and self._output_nodes:
                place = self._output_nodes.key_places[name]
                self._context.problems.warn(
                    place,
                    f"outputs.{name}",
                    f"is written by no step; bind a step's output to ${{{{parent.outputs.{name}}}}}.",
                )

    def outputs_of(self, step: str) -> dict[str, StepOutput]:
        """A step's outputs by name."""
        return self._outputs[step]

    def pipeline_outputs(self) -> dict[str, PipelineOutput]:
        """The pipeline's outputs that a step writes."""
        return self._bound

    def _read_step_outputs(self, step: str, nodes: StepNodes) -> dict[str, StepOutput]:
        made: dict[str, StepOutput] = {}
        for name in dict.fromkeys([*nodes.declared_outputs, *nodes.outputs]):
            key = f"jobs.{step}.outputs.{name}"
            declared_node, node = nodes.declared_outputs.get(name), nodes.outputs.get(name)
            check_name(name, "an output", node or declared_node or nodes.place, key, self._context)
            declared = (
                read_output(declared_node, f"jobs.{step}.component.outputs.{name}", self._context)
                if declared_node
                else None
            )
            own = read_output(node, key, self._context) if node else OutputSpec(nodes.place)
            if own is None:
                own = OutputSpec(nodes.place)
            pipeline = self._bind(step, name, own, key, nodes) if own.binding else None
            # The reference's default place: one folder for each output of the pipeline (1.1).
            place_name = own.binding.name if own.binding and pipeline else f"{step}/{name}"
            made[name] = make_output(own, declared, pipeline, key, place_name, self._context)
        return made

    def _bind(self, step: str, name: str, own: OutputSpec, key: str, nodes: StepNodes) -> OutputSpec | None:
        reference, problems = own.binding, self._context.problems
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
        if reference.name not in self._pipeline_specs:
            if not nodes.inline_component:
                problems.error(
                    own.place, key, unknown_name("pipeline output", reference.name, list(self._pipeline_specs))
                )
                return None
            # A dump leaves out pipeline outputs without settings of their own.
            problems.warn(
                own.place,
                key,
                f"the pipeline output {reference.name} is not in the file, and taken for one that a dump left out.",
            )
            self._pipeline_specs[reference.name] = OutputSpec(own.place)
        if reference.name in self._bound:
            other = self._bound[reference.name]
            problems.error(
                own.place,
                key,
                f"the pipeline output {reference.name} is already bound to {other.output} of step "
                f"{other.step}; make another one.",
            )
            return None
        self._bound[reference.name] = PipelineOutput(step, name)
        return self._pipeline_specs[reference.name]

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
            elif not resolved.optional:
                key = f"jobs.{step}.inputs.{name}"
                place = nodes.inputs.get(name, nodes.place)
                problems.error(
                    place, key, "has no value; give it a path, a value or a binding (or mark it optional: true)."
                )
            if nodes.declared_inputs is not None and name not in nodes.declared_inputs:
                hint = did_you_mean(name, nodes.declared_inputs)
                problems.warn(
                    nodes.inputs[name], f"jobs.{step}.inputs.{name}", f"is no input that the component declares.{hint}"
                )
        return inputs

    def input_state(self, step: str, name: str) -> bool | None:
        """Whether a step's input has a value; None if the step has no such input."""
        resolved = self.resolved(step, name)
        return None if resolved is None else resolved.broken or resolved.value is not None

    def literal(self, step: str, reference: Reference) -> str:
        """The text of a literal that a setting of a step refers to. Raises ValueError, saying why, if it is none."""
        if reference.scope == "inputs":
            resolved = self.resolved(step, reference.name)
            if resolved is None:
                raise ValueError(unknown_name("input", reference.name, self.input_names(step)))
        elif reference.scope in ("parent.inputs", "parent.jobs.inputs"):
            resolved = self._lookup(step, reference)
        else:
            raise ValueError(f"{written(reference)} cannot stand here; {LITERALS_ONLY}")
        if not isinstance(resolved.value, LiteralInput):
            what = "has no value" if resolved.value is None else "is data"
            raise ValueError(f"{written(reference)} {what}; {LITERALS_ONLY}")
        return resolved.value.value

    def resolved(self, step: str, name: str) -> Resolved | None:
        """What an input of a step came to; None if the step has no such input."""
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
        return resolve_input(spec, declared, key, self._context, lambda reference, _: self._lookup(step, reference))

    def _lookup(self, step: str, reference: Reference) -> Resolved:
        """What a reference in a step's inputs means. Raises ValueError if nothing."""
        match reference.scope:
            case "parent.inputs":
                if reference.name not in self._pipeline_inputs:
                    raise ValueError(unknown_name("pipeline input", reference.name, list(self._pipeline_inputs)))
                return self._pipeline_inputs[reference.name]
            case "parent.jobs.inputs":
                self._check_step(reference)
                found = self.resolved(reference.step, reference.name)
                if found is None and self._steps[reference.step]:
                    raise ValueError(
                        f"step {reference.step}: "
                        f"{unknown_name('input', reference.name, self.input_names(reference.step))}"
                    )
                return found or self._unknown(step)
            case "parent.jobs.outputs":
                self._check_step(reference)
                return self._output_of(reference.step, reference.name, step)
            case "parent.outputs":
                bound = self._bound.get(reference.name)
                if bound is None and all(self._steps.values()):
                    raise ValueError(f"the pipeline output {reference.name} is written by no step")
                return self._output_of(bound.step, bound.output, step) if bound else self._unknown(step)
            case "inputs" | "outputs":
                raise ValueError(
                    f"in a step's inputs, the pipeline is meant by ${{{{parent.{reference.scope}.{reference.name}}}}}"
                )
            case "name" if self._context.job_name:
                place = Place(self._context.source)
                return Resolved(LiteralInput(self._context.job_name), place)
        raise ValueError(f"{written(reference)} cannot stand here")

    def _output_of(self, owner: str, name: str, reader: str) -> Resolved:
        outputs = self._outputs.get(owner)
        if outputs is None:
            return self._unknown(reader)
        if name not in outputs:
            raise ValueError(f"step {owner}: {unknown_name('output', name, list(outputs))}")
        return Resolved(OutputInput(owner, name, outputs[name].type, "ro_mount"), Place(self._context.source))

    def _check_step(self, reference: Reference) -> None:
        if reference.step not in self._steps:
            reader, name = self._following[-1]
            raise ValueError(
                f"{unknown_name('step', reference.step, list(self._steps))}. Where it was left out, give this input "
                f"the data that it made: --set jobs.{reader}.inputs.{name}=./path"
            )

    def _unknown(self, step: str) -> Resolved:
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
    raise ValueError(f"{written(reference)} cannot stand in the pipeline's own inputs; give a path or value")
