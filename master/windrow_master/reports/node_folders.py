"""What a node is called in a step's logs: its id; a later incarnation's folders are `<node>.2`, `<node>.3`, …

`logs/<step>/nodes.json` remembers which: node id -> incarnations, in the order in which they brought something.
"""

from __future__ import annotations

import json
from pathlib import Path

from windrow_master.folders import write_durable

REGISTER = "nodes.json"


def read_register(register: Path) -> dict[str, list[str]]:
    """Node id -> its incarnations, oldest first. Raises OSError, but for a file that is not there."""
    try:
        incarnations: dict[str, list[str]] = json.loads(register.read_text())
    except (FileNotFoundError, ValueError):
        # Damaged by a loss of power. Then a later incarnation may go on in the folder of an earlier one.
        return {}
    return incarnations


def write_register(register: Path, incarnations: dict[str, list[str]]) -> None:
    """Durable, whole or not at all. Raises OSError."""
    write_durable(register, json.dumps(incarnations))


def folder_name(node_id: str, number: int) -> str:
    """`number`: which incarnation of the node it is, from 1."""
    return node_id if number == 1 else f"{node_id}.{number}"


def other_names(logs: Path) -> dict[tuple[str, str], str]:
    """(node id, incarnation) -> name, for those that are not called by their id alone. Raises OSError."""
    return {
        (node_id, incarnation): folder_name(node_id, number)
        for node_id, incarnations in read_register(logs / REGISTER).items()
        for number, incarnation in enumerate(incarnations, 1)
        if number > 1
    }
