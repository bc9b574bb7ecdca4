"""Fields: the kind, range and effect of a single setting, and how its text is read.

The same `Field` serves the job file, the program arguments and the check of a submitted document, so that all three
agree. Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps, #program-arguments;
docs/reference/azure-ml/client.md#spellings, #refusals, #zero-and-unset.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from windrow.common.device_packing import DEVICES_MAX
from windrow.spec.settings.pace import DURATION_ALLOWED, RATE_ALLOWED, parse_duration, parse_rate

INT_MAX = 2**31 - 1
TIMEOUT_S_MAX = 259_200
"""Three days; the documented maximum of every timeout."""

_SIZE = re.compile(r"(\d{1,18})([kmg]b)?", re.ASCII | re.IGNORECASE)
_MEMORY = re.compile(r"(\d{1,18})([bkmg])", re.ASCII | re.IGNORECASE)
_MEMORY_UNITS = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SIZE_UNITS = {"": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}
SIZE_MAX = 2**62
CPUS_MIN, CPUS_MAX = 0.01, 4096
MIN_NODES_MAX = 100_000

_TRUE = {"true", "1", "1.0"}
_FALSE = {"false", "0", "0.0"}


class Field(NamedTuple):
    """One setting.

    `kind`: `int`, `number`, `bool`, `size`, `memory` (with Docker's units), `gpus` (whole, or below 1), `duration`
    (read as seconds), `rate` (stays text), `choice` or `text` for scalars; `texts` (list of text), `map` (text to text)
    or `node` (read by code of its own). `minimum` and `maximum` are inclusive. `effect`: empty, or why the setting has
    no effect, for a warning.
    `choices` of a number: words that are allowed besides numbers.
    """

    kind: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    effect: str = ""
    unit: str = ""

    @property
    def allowed(self) -> str:
        """The allowed values, for a message."""
        match self.kind:
            case "int" | "number":
                what = "a whole number" if self.kind == "int" else "a number"
                if self.choices:
                    what = f"{' or '.join(self.choices)}, or {what}"
                if self.unit:
                    what += f" of {self.unit}"
                if self.maximum is None:
                    return what if self.minimum is None else f"{what}, at least {self.minimum:g}"
                return f"{what} from {self.minimum or 0:.15g} to {self.maximum:.15g}"
            case "bool":
                return "true or false"
            case "gpus":
                return "a whole number, or a part of one GPU from 0.01 to 1, such as 0.5"
            case "memory":
                return "a whole number from 1, followed directly by b, k, m or g, such as 512m or 2g"
            case "size":
                return "a whole number, optionally followed directly by kb, mb or gb, such as 10 or 100kb"
            case "duration":
                return DURATION_ALLOWED
            case "rate":
                return RATE_ALLOWED
            case "choice":
                return "one of " + ", ".join(self.choices)
            case "texts":
                return "a list of text"
            case "map":
                return "a mapping of text to text"
        return "text"


def worker_needs() -> dict[str, Field]:
    """What a worker needs of its node, by setting."""
    return {
        "cpus_per_worker": Field("number", CPUS_MIN, CPUS_MAX),
        "memory_per_worker": Field("size"),
        "gpus_per_worker": Field("gpus"),
    }


def step_needs() -> dict[str, Field]:
    """What a step needs of nodes, by setting: what a worker does, and on how many nodes it begins at once."""
    return {**worker_needs(), "min_nodes": Field("int", 1, MIN_NODES_MAX)}


def timeout() -> Field:
    """A timeout in whole seconds."""
    return Field("int", 1, TIMEOUT_S_MAX, unit="seconds")


def threshold() -> Field:
    """The number of failures that are tolerated; -1 switches the check off."""
    return Field("int", -1, INT_MAX)


def parse_value(field: Field, value: str | int | float | bool | None) -> int | float | bool | str:
    """Converts a scalar from YAML or an argument to the field's type. Unambiguous text is accepted (`"3"` for 3,
    `1` for true). Raises ValueError, saying what is allowed.
    """
    text = str(value).strip() if value is not None else ""
    match field.kind:
        case "int" | "number":
            for choice in field.choices:
                if choice == text.casefold():
                    return choice
            number = _number(value, text) if field.kind == "number" else _int(value, text)
            if (
                number is not None
                and (field.minimum is None or number >= field.minimum)
                and (field.maximum is None or number <= field.maximum)
            ):
                return number
        case "bool":
            if text.casefold() in _TRUE:
                return True
            if text.casefold() in _FALSE:
                return False
        case "gpus":
            share = _number(value, text)
            if share is not None and (0.01 <= share <= 1 or (float(share).is_integer() and 0 <= share <= DEVICES_MAX)):
                return int(share) if float(share).is_integer() else share
        case "size":
            found = None if isinstance(value, (bool, float)) else _SIZE.fullmatch(text)
            if found and (size := int(found[1]) * _SIZE_UNITS[(found[2] or "").casefold()]) <= SIZE_MAX:
                return size
        case "memory":
            found = _MEMORY.fullmatch(text)
            if found and 0 < (size := int(found[1]) * _MEMORY_UNITS[found[2].casefold()]) <= SIZE_MAX:
                return size
        case "duration":
            return parse_duration(text)
        case "rate":
            parse_rate(text)
            return text
        case "choice":
            for choice in field.choices:
                if choice.casefold() == text.casefold():
                    return choice
        case _:
            return text if isinstance(value, str) else str(value)
    raise ValueError(f"it must be {field.allowed}")


def _int(value: str | int | float | bool | None, text: str) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    try:
        return int(text) if len(text) <= 20 and text.isascii() else None
    except ValueError:
        return None


def _number(value: str | int | float | bool | None, text: str) -> int | float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
