"""A step's reader document (docs/contracts.md, section 3): whether data is fetched, and what workers get of it."""

from __future__ import annotations

from typing import Any


def needs_fetching(reader: Any) -> bool:
    """Whether some of the step's input is in remote storage, or workers get copies of it."""
    return isinstance(reader, dict) and bool(reader.get("remote") or reader.get("copy"))


def local_reader(reader: dict[str, Any]) -> dict[str, Any]:
    """The reader document for workers, which know nothing of stores."""
    made = {key: value for key, value in reader.items() if key not in ("remote", "copy")}
    if made.get("kind") == "inputs":
        return {**made, "inputs": [local_reader(one) for one in made["inputs"]]}
    if made.get("kind") != "files":
        return made
    made["root"] = ""
    if "partition" in made:
        made["partition"] = {**made["partition"], "listed": True}
    return made
