"""Prints docs/state-machines.md: `python docs/state_machines.py > docs/state-machines.md`, or `make docs`."""

from __future__ import annotations

from windrow_master.core.transitions import MACHINES, Machine

HEAD = """\
# State machines

The states of jobs, steps, mini-batches, attempts, nodes and allocations, and what changes them. This page is drawn from
`master/windrow_master/core/transitions.py`, where every change of a state is looked up (`make docs` draws it anew).
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(section, MACHINES))


def section(machine: Machine) -> str:
    """A diagram, and the edges in words."""
    name = machine.name.capitalize()
    lines = ["", f"## {name}", "", "```mermaid", "stateDiagram-v2"]
    lines += dict.fromkeys(
        f"    {'[*]' if edge.before is None else edge.before.name} --> {edge.after.name}" for edge in machine.edges
    )
    lines += ["```", ""]
    befores: dict[tuple[str, str], list[str]] = {}
    for edge in machine.edges:
        before = "(new)" if edge.before is None else edge.before.name
        befores.setdefault((edge.after.name, edge.when), []).append(before)
    lines += [f"- {', '.join(before)} → **{after}**: {when}." for (after, when), before in befores.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
