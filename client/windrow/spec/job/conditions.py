"""Puts the conditions of control nodes into the steps that they decide about."""

from __future__ import annotations

from windrow.spec.effective.job import EffectiveStep, Iteration, RunIf
from windrow.spec.job.bindings import Bindings
from windrow.spec.job.control import Choice, iteration_name
from windrow.spec.job.graph import Graph, full_name
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import unknown_name


def with_control(made: list[EffectiveStep], graph: Graph, bindings: Bindings, context: Context) -> list[EffectiveStep]:
    """The steps, each with what has to be true for it to run, and with the loops that it repeats. Notes errors."""
    conditions: dict[str, list[RunIf]] = {}
    for choice in graph.choices:
        _choose(choice, conditions, graph, bindings, context)
    for name, (body, number) in graph.iterations.items():
        if number > 1:
            # Also where no output of one is an input of the other.
            bindings.waits.setdefault(name, set()).add(iteration_name(body, number - 1))
    return [_controlled(step, conditions, graph, bindings) for step in made]


def _controlled(
    step: EffectiveStep, conditions: dict[str, list[RunIf]], graph: Graph, bindings: Bindings
) -> EffectiveStep:
    """A step with its conditions and loops. `conditions`: by the step or pipeline that they decide about."""
    around = graph.around(step.name)
    run_if = tuple(condition for name in around for condition in conditions.get(name, ()))
    again = [name for name in around if graph.iterations.get(name, ("", 1))[1] > 1]
    if not run_if and not again:
        return step
    iterations = tuple(_iteration(step.name, name, graph, bindings) for name in again)
    decided = step._replace(run_if=run_if, iterations=iterations)
    return decided._replace(depends_on=tuple(dict.fromkeys([*step.depends_on, *decided.awaits])))


def _choose(
    choice: Choice, conditions: dict[str, list[RunIf]], graph: Graph, bindings: Bindings, context: Context
) -> None:
    """Notes the condition of an `if_else` node at each node of its blocks."""
    value = bindings.condition(choice)
    for wanted, block in choice.blocks.items():
        for name, place in block:
            named = full_name(choice.home, name)
            decided = _nodes_of(named, graph)
            if not decided and graph.is_whole:
                which = "true_block" if wanted else "false_block"
                why = unknown_name("step", name, graph.names(choice.home))
                context.problems.error(place, f"jobs.{choice.name}.{which}", f"{why}.")
            if value is None or value is wanted:
                continue
            source = (None, None) if isinstance(value, bool) else value
            for one in decided:
                conditions.setdefault(one, []).append(RunIf(choice.name, wanted, *source))


def _nodes_of(named: str, graph: Graph, seen: tuple[str, ...] = ()) -> list[str]:
    """The steps and pipelines that a block means by a name: a step (all its iterations), or what another control node
    decides about. `seen`: the control nodes that led here."""
    found = [choice for choice in graph.choices if choice.name == named]
    if found:
        inner = [full_name(one.home, name) for one in found for block in one.blocks.values() for name, _ in block]
        return [node for name in inner if name not in seen for node in _nodes_of(name, graph, (*seen, named))]
    body = next((body for body, loop in graph.loops.items() if loop.name == named), named)
    if body in graph.loops:
        return [iteration_name(body, number) for number in range(1, graph.loops[body].most + 1)]
    return [named] if named in graph.nodes else []


def _iteration(step: str, iteration: str, graph: Graph, bindings: Bindings) -> Iteration:
    """How a step, which is (or is in) an iteration of a loop, follows the same step of the iteration before."""
    body, number = graph.iterations[iteration]
    loop = graph.loops[body]
    before = iteration_name(body, number - 1)
    condition = bindings.loop_condition(loop, before) or (None, None)
    return Iteration(loop.name, number, before + step.removeprefix(iteration), *condition)
