"""Where the data of a step is: its inputs, its outputs, and the file of its rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepPaths:
    """Where a step's data is. `outputs[x]` is what `${{outputs.x}}` means; `append_row` the file of aggregated rows.

    `reused_from`: the earlier job that made the outputs, if one did; `why_run`: why a step that could have been reused
    was not. `values`: what outputs hold that are one value, where other steps need it. `places`: where links in the
    paths of outputs, and of the folders that hold them, led when the step began; None if it began in a version that did
    not remember this.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    append_row: str | None
    reused_from: str = ""
    why_run: str = ""
    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] | None = None

    def to_json(self) -> bytes:
        """Return the form that is stored with the step."""
        written = {
            name: value
            for name, value in asdict(self).items()
            if value != "" and (value or name != "values") and (value is not None or name != "places")
        }
        return json.dumps(written, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> StepPaths:
        """Read the stored form; empty before the step began."""
        value: dict[str, Any] = json.loads(text or b"{}")
        return cls(
            value.get("inputs", {}),
            value.get("outputs", {}),
            value.get("append_row"),
            value.get("reused_from", ""),
            value.get("why_run", ""),
            value.get("values", {}),
            value.get("places"),
        )
