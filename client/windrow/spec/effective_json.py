"""The effective job as JSON, both ways. Reading checks everything: a master takes documents from the network.

Format: docs/contracts.md, section 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from windrow.spec.effective import (
    FORMAT,
    DataInput,
    EffectiveJob,
    EffectiveStep,
    LiteralInput,
    OutputInput,
    PipelineOutput,
    Rows,
    StepInput,
    StepOutput,
)
from windrow.spec.expressions import references
from windrow.spec.fields import INT_MAX, SIZE_MAX, TIMEOUT_S_MAX
from windrow.spec.graph import find_cycle
from windrow.spec.names import JOB_NAME, NAME, is_encodable, is_entry_script, is_file_name
from windrow.spec.schema import DATA_TYPES, INPUT_MODES, OUTPUT_MODES

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
STEPS_MAX = 1000
ENTRIES_MAX = 10_000
TEXT_MAX = 64 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ENVIRONMENT_NAME = re.compile(r"[^=\0]+")
TO_CSV_REFUSED = ("path_or_buf", "mode", "compression", "storage_options")
"""Keyword arguments of `DataFrame.to_csv` that say where and how a file is written; Windrow writes the file itself."""

_KINDS: dict[type, str] = {LiteralInput: "literal", DataInput: "data", OutputInput: "output"}
_LABELS = (
    "name",
    "display_name",
    "experiment_name",
    "description",
    "tags",
    "job_file",
    "priority",
    "weight",
    "warnings",
    "run_digest",
)
_T = TypeVar("_T")


class DocumentError(ValueError):
    """A document that is no valid effective job; `problems` are texts of the form `path: what is wrong`."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        shown = "; ".join(self.problems[:20])
        more = len(self.problems) - 20
        super().__init__(f"{shown}; and {more} more" if more > 0 else shown)


def to_document(job: EffectiveJob) -> dict[str, Any]:
    """The document as plain dicts and lists, `run_digest` included."""
    document = _plain_document(job)
    document["run_digest"] = _digest(document)
    return document


def to_json(job: EffectiveJob) -> str:
    """See `EffectiveJob.to_json`."""
    return _canonical(to_document(job))


def run_digest(job: EffectiveJob) -> str:
    """See `EffectiveJob.run_digest`."""
    return _digest(_plain_document(job))


def from_json(document: str | bytes) -> EffectiveJob:
    """See `EffectiveJob.from_json`."""
    if len(document) > DOCUMENT_BYTES_MAX:
        raise DocumentError([f"the document is larger than {DOCUMENT_BYTES_MAX // 1024**2} MiB"])
    try:
        loaded = json.loads(document, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DocumentError([f"the document is not valid JSON: {error}"]) from None
    reader = _Reader()
    job = reader.job(loaded)
    if job is None or reader.problems:
        raise DocumentError(reader.problems)
    if loaded["run_digest"] != run_digest(job):
        raise DocumentError(
            ["run_digest: does not match the document; it was changed after it was made, or made by another version"]
        )
    return job


def _plain_document(job: EffectiveJob) -> dict[str, Any]:
    return {
        **job._asdict(),
        "format": FORMAT,
        "steps": [_plain_step(step) for step in job.steps],
        "outputs": {name: output._asdict() for name, output in job.outputs.items()},
    }


def _plain_step(step: EffectiveStep) -> dict[str, Any]:
    return {
        **step._asdict(),
        "inputs": {name: {"kind": _KINDS[type(given)], **given._asdict()} for name, given in step.inputs.items()},
        "outputs": {name: output._asdict() for name, output in step.outputs.items()},
        "rows": step.rows._asdict(),
    }


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(document: Mapping[str, Any]) -> str:
    # hashlib brings OpenSSL with it (8 ms); a load that ends with an error never needs it.
    import hashlib

    decisive = {key: value for key, value in document.items() if key not in _LABELS}
    return hashlib.sha256(_canonical(decisive).encode()).hexdigest()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON number")


class _Reader:
    """Reads a document and gathers what is wrong with it.

    A method returns a harmless value where it has noted a problem.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def job(self, value: object) -> EffectiveJob | None:
        if not isinstance(value, dict):
            self.problems.append("the document is not a JSON object")
            return None
        if value.get("format") != FORMAT:
            self.problems.append(f"format: is {value.get('format')!r}; this version reads {FORMAT}")
            return None
        readers: dict[str, Callable[[object, str], Any]] = {
            "name": self._optional(lambda name, key: self._matching(name, key, JOB_NAME, "a job name")),
            "display_name": self._text,
            "experiment_name": self._text,
            "description": self._text,
            "tags": self._map(self._text),
            "job_file": self._text,
            "priority": self._int(-INT_MAX, INT_MAX),
            "weight": self._int(1, INT_MAX),
            "warnings": self._list(self._text),
            "steps": self._list(self._step, STEPS_MAX),
            "outputs": self._map(self._pipeline_output, NAME),
        }
        fields = self._object(value, "", {**readers, "format": _unread, "run_digest": _unread})
        if fields is None or self.problems:
            return None
        del fields["format"], fields["run_digest"]
        job = EffectiveJob(**fields)
        self._references(job)
        return job

    def _references(self, job: EffectiveJob) -> None:
        steps = {step.name: step for step in job.steps}
        if not job.steps:
            self.problems.append("steps: there is none")
        if len(steps) != len(job.steps):
            self.problems.append("steps: two have the same name")
        for index, step in enumerate(job.steps):
            key = f"steps[{index}]"
            needed = {given.step for given in step.inputs.values() if isinstance(given, OutputInput)}
            for given in step.inputs.values():
                if isinstance(given, OutputInput) and (
                    given.step not in steps or given.output not in steps[given.step].outputs
                ):
                    self.problems.append(f"{key}.inputs: there is no output {given.output} of a step {given.step}")
            if set(step.depends_on) != needed:
                self.problems.append(
                    f"{key}.depends_on: must name exactly the steps whose outputs are read: {sorted(needed)}"
                )
            if isinstance(step.inputs.get(step.input_data), LiteralInput | None):
                self.problems.append(f"{key}.input_data: {step.input_data!r} names no data input")
            if step.append_row_to is not None and step.append_row_to not in step.outputs:
                self.problems.append(f"{key}.append_row_to: {step.append_row_to!r} names no output")
            self._argument_references(step, key)
        cycle = find_cycle({step.name: step.depends_on for step in job.steps})
        if cycle:
            self.problems.append(f"steps: wait for each other in a circle: {' -> '.join(cycle)}")
        for name, output in job.outputs.items():
            if output.step not in steps or output.output not in steps[output.step].outputs:
                self.problems.append(f"outputs.{name}: there is no output {output.output} of a step {output.step}")

    def _argument_references(self, step: EffectiveStep, key: str) -> None:
        for number, argument in enumerate(step.arguments):
            try:
                found = references(argument)
            except ValueError as error:
                self.problems.append(f"{key}.arguments[{number}]: {error}")
                continue
            for reference in found:
                known = reference.name in (step.inputs if reference.scope == "inputs" else step.outputs)
                if reference.scope not in ("inputs", "outputs") or not known:
                    self.problems.append(f"{key}.arguments[{number}]: names what the step does not have: {argument!r}")

    def _step(self, value: object, key: str) -> EffectiveStep | None:
        seconds = self._int(1, TIMEOUT_S_MAX)
        threshold = self._int(-1, INT_MAX)
        fields = self._object(
            value,
            key,
            {
                "name": lambda name, at: self._matching(name, at, NAME, "a step name"),
                "depends_on": self._list(self._text),
                "code_digest": lambda digest, at: self._matching(digest, at, _DIGEST, "a sha256 in hexadecimal"),
                "entry_script": self._entry_script,
                "arguments": self._list(self._text),
                "environment_variables": self._map(self._text, _ENVIRONMENT_NAME),
                "inputs": self._map(self._input, NAME),
                "outputs": self._map(self._output, NAME),
                "input_data": self._text,
                "append_row_to": self._optional(self._text),
                "mini_batch_size": self._optional(self._int(1, SIZE_MAX)),
                "partition_keys": self._list(self._text),
                "instance_count": self._instance_count,
                "max_concurrency_per_instance": self._optional(self._int(1, INT_MAX)),
                "logging_level": self._one_of("WARNING", "INFO", "DEBUG"),
                "error_threshold": threshold,
                "mini_batch_error_threshold": threshold,
                "allowed_failed_percent": self._percent,
                "max_retries": self._int(0, INT_MAX),
                "run_invocation_timeout_s": seconds,
                "task_overhead_timeout_s": seconds,
                "progress_update_timeout_s": self._optional(seconds),
                "first_task_creation_timeout_s": seconds,
                "rows": self._rows,
            },
        )
        return EffectiveStep(**fields) if fields else None

    def _input(self, value: object, key: str) -> StepInput | None:
        kind = value.get("kind") if isinstance(value, dict) else None
        data_type, mode = self._one_of(*DATA_TYPES), self._one_of(*INPUT_MODES)
        match kind:
            case "literal":
                fields = self._object(value, key, {"kind": _unread, "value": self._text})
                return LiteralInput(fields["value"]) if fields else None
            case "data":
                fields = self._object(
                    value, key, {"kind": _unread, "type": data_type, "mode": mode, "path": self._path}
                )
                return DataInput(fields["type"], fields["mode"], fields["path"]) if fields else None
            case "output":
                fields = self._object(
                    value,
                    key,
                    {"kind": _unread, "step": self._text, "output": self._text, "type": data_type, "mode": mode},
                )
                return OutputInput(fields["step"], fields["output"], fields["type"], fields["mode"]) if fields else None
        self.problems.append(f"{key}.kind: is {kind!r}; allowed are literal, data, output")
        return None

    def _output(self, value: object, key: str) -> StepOutput | None:
        fields = self._object(
            value,
            key,
            {
                "type": self._one_of(*DATA_TYPES),
                "mode": self._one_of(*OUTPUT_MODES),
                "path": self._optional(self._path),
                "file_name": self._optional(self._file_name),
            },
        )
        return StepOutput(**fields) if fields else None

    def _pipeline_output(self, value: object, key: str) -> PipelineOutput | None:
        fields = self._object(value, key, {"step": self._text, "output": self._text})
        return PipelineOutput(**fields) if fields else None

    def _rows(self, value: object, key: str) -> Rows | None:
        fields = self._object(value, key, {"dataframe_to_csv": self._to_csv, "dataframe_header": self._bool})
        return Rows(**fields) if fields else None

    def _to_csv(self, value: object, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.problems.append(f"{key}: is not an object")
            return {}
        for name in value:
            if name in TO_CSV_REFUSED:
                self.problems.append(f"{key}.{name}: cannot be given; Windrow writes the file")
        return value

    def _object(
        self, value: object, key: str, readers: Mapping[str, Callable[[object, str], Any]]
    ) -> dict[str, Any] | None:
        """All fields of an object, or None if a problem was noted on the way."""
        before = len(self.problems)
        if not isinstance(value, dict):
            self.problems.append(f"{key}: is not an object")
            return None
        prefix = f"{key}." if key else ""
        self.problems += [f"{prefix}{name[:80]}: is unknown" for name in value if name not in readers]
        self.problems += [f"{prefix}{name}: is missing" for name in readers if name not in value]
        fields = {name: read(value[name], prefix + name) for name, read in readers.items() if name in value}
        return fields if len(self.problems) == before else None

    def _list(
        self, read: Callable[[object, str], _T], count_max: int = ENTRIES_MAX
    ) -> Callable[[object, str], tuple[_T, ...]]:
        def read_list(value: object, key: str) -> tuple[_T, ...]:
            if not isinstance(value, list) or len(value) > count_max:
                self.problems.append(f"{key}: is not a list of at most {count_max}")
                return ()
            return tuple(read(item, f"{key}[{index}]") for index, item in enumerate(value))

        return read_list

    def _map(
        self, read: Callable[[object, str], _T], names: re.Pattern[str] | None = None
    ) -> Callable[[object, str], dict[str, _T]]:
        def read_map(value: object, key: str) -> dict[str, _T]:
            if not isinstance(value, dict) or len(value) > ENTRIES_MAX:
                self.problems.append(f"{key}: is not an object of at most {ENTRIES_MAX} entries")
                return {}
            self.problems.extend(
                f"{key}: {name[:80]!r} is not a valid name" for name in value if names and not names.fullmatch(name)
            )
            return {name: read(item, f"{key}.{name[:80]}") for name, item in value.items()}

        return read_map

    def _optional(self, read: Callable[[object, str], _T]) -> Callable[[object, str], _T | None]:
        return lambda value, key: None if value is None else read(value, key)

    def _text(self, value: object, key: str) -> str:
        if not isinstance(value, str) or len(value) > TEXT_MAX or "\0" in value or not is_encodable(value):
            self.problems.append(f"{key}: is not text of at most {TEXT_MAX} characters without NUL")
            return ""
        return value

    def _matching(self, value: object, key: str, pattern: re.Pattern[str], what: str) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.problems.append(f"{key}: {str(value)[:80]!r} is not {what} ({pattern.pattern})")
            return ""
        return value

    def _one_of(self, *choices: str) -> Callable[[object, str], str]:
        def read(value: object, key: str) -> str:
            if value not in choices:
                self.problems.append(f"{key}: is {str(value)[:80]!r}; allowed are {', '.join(choices)}")
            return str(value)

        return read

    def _int(self, minimum: int, maximum: int) -> Callable[[object, str], int]:
        def read(value: object, key: str) -> int:
            if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
                self.problems.append(
                    f"{key}: is {str(value)[:80]}; allowed is a whole number from {minimum} to {maximum}"
                )
                return minimum
            return value

        return read

    def _instance_count(self, value: object, key: str) -> int:
        return -1 if type(value) is int and value == -1 else self._int(1, INT_MAX)(value, key)

    def _percent(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:
            self.problems.append(f"{key}: is {str(value)[:80]}; allowed is a number from 0 to 100")
            return 0.0
        return float(value)

    def _bool(self, value: object, key: str) -> bool:
        if not isinstance(value, bool):
            self.problems.append(f"{key}: is {str(value)[:80]}; allowed are true and false")
        return value is True

    def _path(self, value: object, key: str) -> str:
        path = self._text(value, key)
        if not path.startswith("/"):
            self.problems.append(f"{key}: {path[:80]!r} is not an absolute path")
        return path

    def _file_name(self, value: object, key: str) -> str:
        name = self._text(value, key)
        if not is_file_name(name):
            self.problems.append(f"{key}: {name[:80]!r} is not a plain file name")
        return name

    def _entry_script(self, value: object, key: str) -> str:
        script = self._text(value, key)
        if not is_entry_script(script):
            self.problems.append(
                f"{key}: {script[:80]!r} is neither a relative path of a .py file inside the code folder "
                "nor a dotted module"
            )
        return script


def _unread(value: object, key: str) -> object:
    return value
