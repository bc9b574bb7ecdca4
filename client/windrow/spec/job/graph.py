"""All steps of a job, including those of nested pipelines.

Reference: docs/reference/azure-ml/parallel-job.md#pipelines.

A pipeline that is a step has a component of type pipeline, with inputs, outputs and jobs. It does not run as a unit:
its steps become steps of the job, under names that begin with its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.spec.effective.checks import STEPS_MAX
from windrow.spec.job.components import Components, StepNodes, control_type, is_left_out
from windrow.spec.naming.names import STEP_NAME_MAX
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import as_mapping, check_name, unknown_name
from windrow.spec.reading.nodes import DEPTH_MAX, Mapping, Node, is_null

if TYPE_CHECKING:
    from windrow.spec.job.control import Choice, Loop

SEPARATOR = "__"
"""Between the name of a pipeline and the name of a step in it."""


class Graph:
    """The steps of a job by the names that they have in it (`train__fit` for `fit` in the step `train`).

    Not the `Graph` of `windrow.ml.v1`, which builds the tree of a job file from Python objects.

    A pipeline that is a step stands before the steps in it. `nodes` holds None for what cannot be read.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, StepNodes | None] = {}
        """All steps and nested pipelines."""
        self.members: dict[str, list[str]] = {"": []}
        """By pipeline ("" is the job): the names that its steps have in it."""
        self.homes: dict[str, str] = {}
        """By step or control node: the pipeline that it is in ("" is the job)."""
        self.choices: list[Choice] = []
        """The `if_else` nodes, by their names in the job."""
        self.loops: dict[str, Loop] = {}
        """The `do_while` nodes, by the step that they repeat."""
        self.iterations: dict[str, tuple[str, int]] = {}
        """By step that is an iteration of a loop: the loop's body, and the number of the iteration, from 1."""
        self._is_broken = False

    @property
    def is_whole(self) -> bool:
        """Whether all steps could be read."""
        return all(self.nodes.values()) and not self._is_broken

    def note_broken(self) -> None:
        """Note that a control node could not be read."""
        self._is_broken = True

    def steps(self) -> dict[str, StepNodes]:
        """The steps that do work (not pipelines) and could be read."""
        return {name: nodes for name, nodes in self.nodes.items() if nodes and nodes.type != "pipeline"}

    def own_name(self, step: str) -> str:
        """A step's name in its own pipeline, as a file has it: iterations have that of the loop's body."""
        written = self.iterations[step][0] if step in self.iterations else step
        return written.removeprefix(full_name(self.homes[step], ""))

    def names(self, pipeline: str) -> list[str]:
        """The names of a pipeline's steps, as a file has them."""
        members = self.members[pipeline]
        return [name for name in members if self.iterations.get(full_name(pipeline, name), ("", 1))[1] == 1]

    def sibling(self, step: str, name: str) -> str:
        """The name in the job of the step that `step` calls `name`. The body of a loop is its last iteration, except
        for other iterations.
        """
        found = full_name(self.homes[step], name)
        is_inside = step in self.iterations and self.iterations[step][0] == found
        return found if is_inside else self.last_iteration(found)

    def last_iteration(self, step: str) -> str:
        """The last iteration of a loop's body; any other step itself."""
        if step not in self.loops:
            return step
        from windrow.spec.job.control import iteration_name

        return iteration_name(step, self.loops[step].most)

    def around(self, step: str) -> list[str]:
        """The step and the pipelines that it is in, the outermost first."""
        found = [step]
        while self.homes[found[0]]:
            found.insert(0, self.homes[found[0]])
        return found


def full_name(pipeline: str, step: str) -> str:
    """The name in the job of a step in a pipeline ("" is the job itself)."""
    return f"{pipeline}{SEPARATOR}{step}" if pipeline else step


def read_graph(pipeline: Mapping, context: Context) -> Graph:
    """The steps of a job. A step that cannot be read is None, and an error is noted."""
    reader = _Reader(context)
    reader.read(pipeline.entries.get("jobs"), pipeline, "", ())
    return reader.graph


class _Reader:
    def __init__(self, context: Context) -> None:
        self.graph = Graph()
        self._context = context
        self._components = Components(context)
        self._is_full = False

    def read(self, node: Node | None, owner: Mapping, home: str, around: tuple[Mapping, ...]) -> None:
        """Reads the steps of one pipeline. `around`: the components that it is in, the outermost first."""
        context = self._context
        key = f"jobs.{home}.jobs" if home else "jobs"
        jobs = as_mapping(node, key, context)
        if jobs is None or not jobs.entries:
            if is_null(node) or jobs is not None:
                whose = "a pipeline" if home else "a job file"
                context.problems.error(
                    node or owner,
                    key,
                    f"has no steps; {whose} needs at least one, with "
                    '"type: parallel", "type: command" or "type: pipeline".',
                )
            return
        loops = self._controls(jobs, home)
        for name, step in jobs.entries.items():
            if (home and is_left_out(step)) or control_type(step):
                continue
            if name not in loops:
                self._step(name, step, jobs, home, around)
            elif isinstance(step, Mapping):
                self._iterations(name, step, loops.pop(name), jobs, home, around)
        for loop in loops.values():
            known = [name for name, step in jobs.entries.items() if not control_type(step)]
            self._refuse(loop.body_place, loop, "body", unknown_name("step", loop.body, known))

    def _controls(self, jobs: Mapping, home: str) -> dict[str, Loop]:
        """Reads the control nodes of a pipeline. Returns its loops, by the name of the step that they repeat."""
        context, graph = self._context, self.graph
        loops: dict[str, Loop] = {}
        for name, node in jobs.entries.items():
            kind = control_type(node)
            if not kind or not isinstance(node, Mapping):
                continue
            # Few job files have control nodes.
            from windrow.spec.job.control import read_choice, read_loop

            name_in_job = full_name(home, name)
            key = f"jobs.{name_in_job}"
            if home:
                context.problems.spelled.setdefault(key, context.problems.as_spelled(f"jobs.{home}.jobs.{name}"))
            check_name(name, "a node", jobs.key_places[name], key, context)
            graph.homes[name_in_job] = home
            if kind == "if_else":
                choice = read_choice(name_in_job, home, node, key, context)
                if choice is not None:
                    graph.choices.append(choice)
                else:
                    graph.note_broken()
                continue
            loop = read_loop(name_in_job, home, node, key, context)
            if loop is None:
                graph.note_broken()
            elif loop.body in loops:
                other = loops[loop.body].name
                self._refuse(loop.body_place, loop, "body", f"the step {loop.body} is already repeated by {other}.")
            else:
                loops[loop.body] = loop
        return loops

    def _iterations(
        self, name: str, step: Mapping, loop: Loop, jobs: Mapping, home: str, around: tuple[Mapping, ...]
    ) -> None:
        """Reads the body of a loop once for each iteration."""
        from windrow.spec.job.control import iteration_name, iteration_of, ports_of

        graph, body = self.graph, full_name(home, name)
        before = len(graph.nodes)
        self._step(name, iteration_of(step, loop, 1), jobs, home, around)
        nodes = graph.nodes.get(body)
        if nodes is None:
            return
        size = len(graph.nodes) - before
        if before + size * loop.most > STEPS_MAX:
            why = (
                f"{loop.most} iterations of {size} steps are more than the {STEPS_MAX} steps that a job may have; "
                "lower the number of iterations."
            )
            self._refuse(loop.most_place, loop, "limits.max_iteration_count", why)
            return
        outputs, inputs = ports_of(nodes.declared_outputs, nodes.outputs), ports_of(nodes.declared_inputs, nodes.inputs)
        for wanted, (output, place) in loop.feeds.items():
            if output not in outputs:
                self._refuse(place, loop, "mapping", f"step {name}: {unknown_name('output', output, outputs)}")
            elif wanted not in inputs:
                self._refuse(place, loop, "mapping", f"step {name}: {unknown_name('input', wanted, inputs)}")
        if loop.condition is not None and loop.condition_output not in outputs:
            why = f"step {name}: {unknown_name('output', loop.condition_output, outputs)}"
            self._refuse(loop.condition, loop, "condition", why)
        if graph.is_whole:
            graph.loops[body] = loop
            graph.iterations[body] = (body, 1)
            for number in range(2, loop.most + 1):
                again = iteration_name(name, number)
                graph.iterations[full_name(home, again)] = (body, number)
                self._step(again, iteration_of(step, loop, number), jobs, home, around, spelled=name)

    def _refuse(self, place: Node, loop: Loop, key: str, why: str) -> None:
        self.graph.note_broken()
        self._context.problems.error(place, f"jobs.{loop.name}.{key}", why)

    def _step(
        self, name: str, node: Node, jobs: Mapping, home: str, around: tuple[Mapping, ...], *, spelled: str = ""
    ) -> None:
        """Reads a step. `spelled`: the name of the loop's body of which this is a further iteration."""
        context, graph, name_in_job = self._context, self.graph, full_name(home, name)
        key, place = f"jobs.{name_in_job}", jobs.key_places[spelled or name]
        own_key = context.problems.as_spelled(f"jobs.{home}.jobs.{spelled or name}") if home else key
        if spelled:
            own_key = context.problems.as_spelled(f"jobs.{full_name(home, spelled)}")
        if name_in_job in graph.nodes or (home and len(name_in_job) > STEP_NAME_MAX):
            taken = (
                "is that of another step" if name_in_job in graph.nodes else f"has more than {STEP_NAME_MAX} characters"
            )
            if not home:
                context.problems.spelled.pop(key, None)  # of the step that has the name
            why = f'its name in the job is "{name_in_job}", which {taken}; rename it, or the step it is in.'
            context.problems.error(place, own_key, why)
            return
        if home or spelled:
            context.problems.spelled[key] = own_key
        check_name(name, "a step", place, key, context)
        if len(graph.nodes) >= STEPS_MAX:
            if not self._is_full:
                context.problems.error(place, key, f"exceeds the limit of {STEPS_MAX} steps in a job. Split the job.")
            self._is_full = True
            return
        graph.members[home].append(name)
        graph.homes[name_in_job] = home
        graph.nodes[name_in_job] = None
        if (full_name(home, spelled) if spelled else name_in_job) in context.broken_steps:
            return
        step = as_mapping(node, key, context)
        if step is None:
            if is_null(node):
                needed = '"type: parallel", input_data and task, or "type: command" and command'
                context.problems.error(node, key, f"is empty; a step needs {needed}.")
            return
        if home and step.place.source.kind == "--set":
            there = [other for other, given in jobs.entries.items() if given.place.source.kind != "--set"]
            context.problems.error(place, key, f"is not a step of the file: {unknown_name('step', name, there)}.")
            return
        nodes = self._components.step_nodes(step, key)
        if nodes is not None and nodes.type == "pipeline":
            if self._can_be_inside(nodes, step, key, around) and nodes.component is not None:
                graph.nodes[name_in_job] = nodes
                graph.members[name_in_job] = []
                self.read(nodes.settings.entries.get("jobs"), nodes.component, name_in_job, (*around, nodes.component))
            return
        graph.nodes[name_in_job] = nodes

    def _can_be_inside(self, nodes: StepNodes, step: Mapping, key: str, around: tuple[Mapping, ...]) -> bool:
        """Whether a step of type pipeline has a component, and does not contain itself."""
        problems, component = self._context.problems, nodes.component
        given = step.entries.get("jobs")
        if component is None or (given is not None and given.place.source.kind != "--set"):
            problems.error(
                given or step,
                f"{key}.jobs" if given else f"{key}.component",
                "is not allowed in a step; the steps of a pipeline that is a step come from its component: the path of "
                "a file of type pipeline with inputs, outputs and jobs, or these as a mapping."
                if given
                else "is missing; a step of type pipeline needs one: the path of a file of type pipeline with inputs, "
                "outputs and jobs, or these as a mapping.",
            )
            return False
        place = step.entries["component"]
        if any(other is component for other in around):
            labels = [other.place.source.label for other in (*around, component)]
            circle = " -> ".join(labels[next(i for i, other in enumerate(around) if other is component) :])
            problems.error(
                place, f"{key}.component", f"would put a pipeline into itself: {circle}; remove one of these steps."
            )
            return False
        if len(around) >= DEPTH_MAX:
            problems.error(place, f"{key}.component", f"is nested deeper than {DEPTH_MAX} pipelines; write it flatter.")
            return False
        return True
