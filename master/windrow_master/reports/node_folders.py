"""The name of a node in a step's logs: its id; the folders of later incarnations are `<node>.2`, `<node>.3`, …

`logs/<step>/nodes.json` keeps which is which: node id -> incarnations, in the order of their first logs.
"""

from __future__ import annotations

import logging
from pathlib import Path

from windrow.common.journal import say
from windrow.common.notes import NoteDamaged, read_note, write_note

REGISTER = "nodes.json"


def read_register(register: Path) -> dict[str, list[str]]:
    """Node id -> its incarnations, oldest first; empty without the file. Raises OSError."""
    try:
        incarnations: dict[str, list[str]] = (read_note(register) or {"incarnations": {}})["incarnations"]
    except (NoteDamaged, LookupError) as error:
        # A later incarnation may then continue in the folder of an earlier one.
        say(logging.WARNING, "which folder holds the logs of which node is no longer known", reason=str(error))
        return {}
    return incarnations


def write_register(register: Path, incarnations: dict[str, list[str]]) -> None:
    """Write the file durably, whole or not at all. Raises OSError."""
    write_note(register, {"incarnations": incarnations}, durable=True)


def folder_name(node_id: str, number: int) -> str:
    """The folder of a node's logs. `number`: which incarnation of the node this is, counted from 1."""
    return node_id if number == 1 else f"{node_id}.{number}"


def other_names(logs: Path) -> dict[tuple[str, str], str]:
    """(node id, incarnation) -> name, where the name is not the id alone. Raises OSError."""
    return {
        (node_id, incarnation): folder_name(node_id, number)
        for node_id, incarnations in read_register(logs / REGISTER).items()
        for number, incarnation in enumerate(incarnations, 1)
        if number > 1
    }
