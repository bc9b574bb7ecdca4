"""Reads the values that outputs of a step hold, where other steps need them: as a condition, or as an input.

Such an output is a file with one value as text (docs/reference/azure-ml/parallel-job.md#control-nodes).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windrow.common.beneath import Folder
from windrow.spec.effective.job import EffectiveJob, values_needed
from windrow.spec.settings.fields import Field, parse_value

from windrow_master.output_places import OutputPlaces
from windrow_master.step_paths import StepPaths

VALUE_BYTES_MAX = 4096
WRITTEN_IN_FOLDER = "output"
"""The file that Azure ML's own tools write where the path of the output is a folder."""

_FIELDS = {"boolean": Field("bool"), "integer": Field("int"), "number": Field("number"), "string": Field("text")}
_EXAMPLES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text in UTF-8",
}


class ValueUnreadable(Exception):
    """An output does not hold a value of its type. The text says what was found, and what to do."""


def needed_of(job: EffectiveJob, step: str) -> dict[str, str]:
    """The outputs of a step whose values other steps need, with their types."""
    outputs = next(one.outputs for one in job.steps if one.name == step)
    return {name: outputs[name].value or "string" for owner, name in values_needed(job) if owner == step}


def read_values(step: str, paths: StepPaths, wanted: Mapping[str, str], places: OutputPlaces) -> dict[str, str]:
    """The values of a step's outputs `wanted` (with their types), as a script gets them. Raises ValueUnreadable."""
    return {name: _read_value(step, name, paths, kind, places) for name, kind in wanted.items()}


def _read_value(step: str, name: str, paths: StepPaths, kind: str, places: OutputPlaces) -> str:
    what = f"Output {name!r} of step {step!r}, which other steps need as a {kind},"
    advice = f"Let the step write {_EXAMPLES[kind]} into that file."
    place = Path(paths.outputs[name])
    try:
        folder, single = places.output(place, paths)
        with folder:
            if not single:
                place /= WRITTEN_IN_FOLDER
            content = _read(folder, single or WRITTEN_IN_FOLDER)
    except FileNotFoundError:
        raise ValueUnreadable(f"{what} was not written: there is no file {place}. {advice}") from None
    except OSError as error:
        raise ValueUnreadable(f"{what} cannot be read from {place}: {error.strerror}. {advice}") from error
    except ValueError as error:
        raise ValueUnreadable(f"{what} cannot be read from {place}: {error}. {advice}") from error
    try:
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise ValueError("NUL")
        text = text.removesuffix("\n").removesuffix("\r") if kind == "string" else text.strip()
        return text if kind == "string" else _as_argument(kind, text)
    except ValueError:
        shown = repr(content[:80])[1:] + ("…" if len(content) > 80 else "")
        raise ValueUnreadable(f"{what} holds {shown}, which is not {_EXAMPLES[kind]} ({place}). {advice}") from None


def _read(folder: Folder, name: str) -> bytes:
    """The content of a file. Raises OSError, and ValueError for a long one."""
    file = folder.read(name)
    try:
        status = os.fstat(file)
        if status.st_size > VALUE_BYTES_MAX:
            raise ValueError(f"it has {status.st_size:,} bytes, more than the {VALUE_BYTES_MAX:,} of a value")
        return os.read(file, VALUE_BYTES_MAX)
    finally:
        os.close(file)


def _as_argument(kind: str, text: str) -> str:
    """A value as a script gets it: `True` and `False` for booleans, numbers as they are written. Raises ValueError."""
    if not text:
        raise ValueError("empty")
    value = parse_value(_FIELDS[kind], text)
    return str(value) if kind in ("boolean", "integer") else text
