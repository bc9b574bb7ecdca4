"""Which steps wait for which, including nested pipelines.

As in Azure ML, a nested pipeline starts when all its inputs are there, whichever step reads them, and its outputs are
there when all its steps are done. Notebooks order steps by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.spec.effective.job import EffectiveStep
from windrow.spec.job.graph import Graph, full_name


def order_steps(made: list[EffectiveStep], graph: Graph, waits: Mapping[str, set[str]]) -> list[EffectiveStep]:
    """The steps, each with all the steps that have to be done before it.

    `waits`: by step or pipeline, the siblings whose outputs it reads.
    """
    if len(graph.members) == 1:
        return made
    needs = {step.name: dict.fromkeys(step.depends_on) for step in made}
    leaves: dict[str, list[str]] = {}
    for pipeline in reversed(graph.members):
        members = [full_name(pipeline, name) for name in graph.members[pipeline]]
        for member in members:
            leaves.setdefault(member, [member] if member in needs else [])
        last = {member: _last(leaves[member], needs) for member in members}
        for member in members:
            before = [step for other in waits.get(member, ()) for step in last[other]]
            for step in _first(leaves[member], needs):
                needs[step].update(dict.fromkeys(before))
        leaves[pipeline] = [leaf for member in members for leaf in leaves[member]]
    place = {step.name: index for index, step in enumerate(made)}
    return [step._replace(depends_on=tuple(sorted(needs[step.name], key=place.__getitem__))) for step in made]


def _first(steps: list[str], needs: Mapping[str, dict[str, None]]) -> list[str]:
    """The steps that wait for no other of `steps`."""
    return [step for step in steps if needs[step].keys().isdisjoint(steps)]


def _last(steps: list[str], needs: Mapping[str, dict[str, None]]) -> list[str]:
    """The steps for which no other of `steps` waits."""
    awaited = {other for step in steps for other in needs[step]}
    return [step for step in steps if step not in awaited]
