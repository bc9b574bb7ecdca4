"""Writes and reads the effective job as JSON. Reading checks everything: documents come from the network. Format:
docs/contracts.md, section 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from windrow.spec.effective.checks import STEPS_MAX, mismatches
from windrow.spec.effective.document_values import ValueReader
from windrow.spec.effective.job import (
    FORMAT,
    DataInput,
    EffectiveJob,
    EffectiveStep,
    Environment,
    Iteration,
    LiteralInput,
    OutputInput,
    PipelineOutput,
    Rows,
    RunIf,
    StepInput,
    StepOutput,
)
from windrow.spec.effective.to_csv import TO_CSV_REFUSED
from windrow.spec.naming.assets import ASSET_NAME, is_asset_version
from windrow.spec.naming.locations import elsewhere, is_elsewhere, parse_location
from windrow.spec.naming.names import JOB_NAME, NAME, STEP_NAME, is_entry_script, is_file_name
from windrow.spec.settings.fields import (
    CPUS_MAX,
    CPUS_MIN,
    INT_MAX,
    MIN_NODES_MAX,
    SIZE_MAX,
    TIMEOUT_S_MAX,
    Field,
    parse_value,
)
from windrow.spec.settings.pace import DELAY_S_MAX, RATE_PER_S_MAX, RATE_PER_S_MIN, Rate
from windrow.spec.settings.schema import (
    DATA_TYPES,
    INPUT_MODES,
    ITERATIONS_MAX,
    LITERAL_TYPES,
    OUTPUT_MODES,
    RETURNS,
    ROW_FORMATS,
)
from windrow.storage.urls import BadUrl

DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ENVIRONMENT_NAME = re.compile(r"[^=\0]+")

_LATER: dict[str, dict[str, Any]] = {
    "job": {"continue_on_step_failure": False, "fetch": {}, "resume_changed": False},
    "step": {
        "command": None,
        "compute": "",
        "rank_mini_batch_count": 0,
        "file_format": None,
        "mini_batch_rows": None,
        "exact_row_index": False,
        "mixed_types": False,
        "table_digests": {},
        "may_shut_down": True,
        "environment": None,
        "copy_logs_to_parent": False,
        "resource_monitor_interval_s": 600,
        "metrics_name_prefix": "",
        "push_metrics_to_parent": False,
        "profiling_module": None,
        "resume_from": None,
        "reuse": False,
        "tolerates_all": False,
        "split": None,
        "returns": None,
        "retry_delay_s": 0.0,
        "rate_limit": None,
        "speculate": False,
        "allow_path": (),
        "cpus_per_worker": None,
        "memory_per_worker": 0,
        "gpus_per_worker": 0,
        "min_nodes": 1,
        "shared_memory_bytes": 0,
        "idle_gpu_timeout_s": None,
        "run_if": (),
        "iterations": (),
    },
    "rows": {"format": "text"},
    "data": {"asset": None},
    "output": {"asset_name": None, "asset_version": None, "value": None, "make_folder": True},
    "environment": {"conda": None},
}
"""Fields that the first documents did not have, each with the value that a document without it means. They are written
only where they differ from that value, so that unfinished jobs of an earlier version stay readable and keep their
digests.
"""

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
    "fetch",
    "resume_changed",
    "run_digest",
)


class DocumentError(ValueError):
    """A document is not a valid effective job; `problems` are texts of the form `path: what is wrong`."""

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
    """The canonical text of a job. Equal jobs give equal texts."""
    return _canonical(to_document(job))


def run_digest(job: EffectiveJob) -> str:
    """sha256 (hexadecimal) of what decides the work of a job, and of nothing else."""
    return _digest(_plain_document(job))


def from_json(document: str | bytes) -> EffectiveJob:
    """Reads and checks a document. Raises DocumentError with everything that is wrong."""
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
        **_written(job._asdict(), "job"),
        "format": FORMAT,
        "steps": [_plain_step(step) for step in job.steps],
        "outputs": {name: output._asdict() for name, output in job.outputs.items()},
    }


def _plain_step(step: EffectiveStep) -> dict[str, Any]:
    return {
        **_written(step._asdict(), "step"),
        "input_data": _plain_input_data(step.input_data),
        "inputs": {name: _plain_input(given) for name, given in step.inputs.items()},
        "outputs": {name: _written(output._asdict(), "output") for name, output in step.outputs.items()},
        **({"environment": _plain_environment(step.environment)} if step.environment is not None else {}),
        **({"rate_limit": step.rate_limit._asdict()} if step.rate_limit is not None else {}),
        **({"run_if": [condition._asdict() for condition in step.run_if]} if step.run_if else {}),
        **({"iterations": [iteration._asdict() for iteration in step.iterations]} if step.iterations else {}),
        "rows": _written(step.rows._asdict(), "rows"),
    }


def _plain_input(given: StepInput) -> dict[str, Any]:
    fields = given._asdict()
    return {"kind": _KINDS[type(given)], **(_written(fields, "data") if isinstance(given, DataInput) else fields)}


def _plain_environment(environment: Environment) -> dict[str, Any]:
    fields = _written(environment._asdict(), "environment")
    return fields if environment.conda is None else {**fields, "conda": environment.conda._asdict()}


def _plain_input_data(names: tuple[str, ...]) -> str | list[str] | None:
    """A single name as text, as it was written before there could be several; otherwise a list."""
    if len(names) > 1:
        return list(names)
    return names[0] if names else None


def _written(fields: dict[str, Any], what: str) -> dict[str, Any]:
    later = _LATER[what]
    return {name: value for name, value in fields.items() if name not in later or value != later[name]}


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
    raise ValueError(f"{text} is not a JSON number")


class _Reader(ValueReader):
    """Reads a whole effective job."""

    def job(self, value: object) -> EffectiveJob | None:
        if not isinstance(value, dict):
            self.problems.append("the document is not a JSON object")
            return None
        if value.get("format") != FORMAT:
            self.problems.append(f"format: is {value.get('format')!r}; this version reads {FORMAT}")
            return None
        readers: dict[str, Callable[[object, str], Any]] = {
            "name": self.optional(lambda name, key: self.matching(name, key, JOB_NAME, "a job name")),
            "display_name": self.text,
            "experiment_name": self.text,
            "description": self.text,
            "tags": self.map_of(self.text),
            "job_file": self.text,
            "priority": self.whole(-INT_MAX, INT_MAX),
            "weight": self.whole(1, INT_MAX),
            "warnings": self.list_of(self.text),
            "steps": self.list_of(self._step, STEPS_MAX),
            "outputs": self.map_of(self._pipeline_output, NAME),
            "continue_on_step_failure": self.flag,
            "fetch": self.map_of(self.text),
            "resume_changed": self.flag,
        }
        whole = {**_LATER["job"], **value}
        fields = self.fields(whole, "", {**readers, "format": _unread, "run_digest": _unread})
        if fields is None or self.problems:
            return None
        del fields["format"], fields["run_digest"]
        job = EffectiveJob(**fields)
        self.problems += mismatches(job)
        return job

    def _step(self, value: object, key: str) -> EffectiveStep | None:
        seconds = self.whole(1, TIMEOUT_S_MAX)
        threshold = self.whole(-1, INT_MAX)
        fields = self.fields(
            _with_later(value, "step"),
            key,
            {
                "name": lambda name, at: self.matching(name, at, STEP_NAME, "a step name"),
                "depends_on": self.list_of(self.text),
                "code_digest": lambda digest, at: self.matching(digest, at, _DIGEST, "a sha256 in hexadecimal"),
                "command": self.optional(self.text),
                "entry_script": self._entry_script,
                "arguments": self.list_of(self.text),
                "environment_variables": self.map_of(self.text, _ENVIRONMENT_NAME),
                "inputs": self.map_of(self._input, NAME),
                "outputs": self.map_of(self._output, NAME),
                "input_data": self._input_names,
                "append_row_to": self.optional(self.text),
                "mini_batch_size": self.optional(self.whole(1, SIZE_MAX)),
                "partition_keys": self.list_of(self.text),
                "rank_mini_batch_count": self.whole(0, INT_MAX),
                "file_format": self.optional(self.one_of("jsonl")),
                "mini_batch_rows": self.optional(self.whole(1, INT_MAX)),
                "exact_row_index": self.flag,
                "mixed_types": self.flag,
                "table_digests": self.map_of(self.text, NAME),
                "compute": self.text,
                "instance_count": self._instance_count,
                "max_concurrency_per_instance": self.optional(self.whole(1, INT_MAX)),
                "logging_level": self.one_of("WARNING", "INFO", "DEBUG"),
                "error_threshold": threshold,
                "mini_batch_error_threshold": threshold,
                "allowed_failed_percent": self._percent,
                "max_retries": self.whole(0, INT_MAX),
                "retry_delay_s": self._retry_delay,
                "rate_limit": self.optional(self._rate),
                "speculate": self.flag,
                "allow_path": self.list_of(self._absolute),
                "cpus_per_worker": self.optional(self._cpus),
                "memory_per_worker": self.whole(0, SIZE_MAX),
                "gpus_per_worker": self._gpus,
                "min_nodes": self.whole(1, MIN_NODES_MAX),
                "shared_memory_bytes": self.whole(0, SIZE_MAX),
                "idle_gpu_timeout_s": self.optional(seconds),
                "split": self.optional(self.whole(0, INT_MAX)),
                "returns": self.optional(self.one_of(*RETURNS)),
                "run_invocation_timeout_s": self.whole(1, INT_MAX),
                "task_overhead_timeout_s": seconds,
                "progress_update_timeout_s": self.optional(seconds),
                "first_task_creation_timeout_s": seconds,
                "may_shut_down": self.flag,
                "environment": self.optional(self._environment),
                "copy_logs_to_parent": self.flag,
                "resource_monitor_interval_s": self.whole(0, INT_MAX),
                "metrics_name_prefix": self.text,
                "push_metrics_to_parent": self.flag,
                "profiling_module": self.optional(self.one_of("cProfile", "profile")),
                "resume_from": self.optional(self.text),
                "reuse": self.flag,
                "tolerates_all": self.flag,
                "run_if": self.list_of(self._run_if),
                "iterations": self.list_of(self._iteration),
                "rows": self._rows,
            },
        )
        return EffectiveStep(**fields) if fields else None

    def _absolute(self, value: object, key: str) -> str:
        text = self.text(value, key)
        if text and not text.startswith("/"):
            self.problems.append(f"{key}: must be an absolute path, not {text!r}")
        return text

    def _input_names(self, value: object, key: str) -> tuple[str, ...]:
        if isinstance(value, list):
            names = self.list_of(self.text)(value, key)
            if len(names) < 2:
                self.problems.append(f"{key}: is a list of {len(names)}; one name stands alone, none is null")
            return names
        return () if value is None else (self.text(value, key),)

    def _input(self, value: object, key: str) -> StepInput | None:
        kind = value.get("kind") if isinstance(value, dict) else None
        data_type, mode = self.one_of(*DATA_TYPES), self.one_of(*INPUT_MODES)
        match kind:
            case "literal":
                fields = self.fields(value, key, {"kind": _unread, "value": self.text})
                return LiteralInput(fields["value"]) if fields else None
            case "data":
                data = {"type": data_type, "mode": mode, "path": self._path, "asset": self.optional(self.text)}
                fields = self.fields(_with_later(value, "data"), key, {"kind": _unread, **data})
                return DataInput(*(fields[name] for name in data)) if fields else None
            case "output":
                fields = self.fields(
                    value,
                    key,
                    {
                        "kind": _unread,
                        "step": self.text,
                        "output": self.text,
                        "type": self.one_of(*DATA_TYPES, *LITERAL_TYPES),
                        "mode": mode,
                    },
                )
                return OutputInput(fields["step"], fields["output"], fields["type"], fields["mode"]) if fields else None
        self.problems.append(f"{key}.kind: is {kind!r}; it must be literal, data or output")
        return None

    def _output(self, value: object, key: str) -> StepOutput | None:
        fields = self.fields(
            _with_later(value, "output"),
            key,
            {
                "type": self.one_of(*DATA_TYPES),
                "mode": self.one_of(*OUTPUT_MODES),
                "path": self.optional(self._path),
                "file_name": self.optional(self._file_name),
                "asset_name": self.optional(
                    lambda name, at: self.matching(name, at, ASSET_NAME, "a name of a data asset")
                ),
                "asset_version": self.optional(self._asset_version),
                "value": self.optional(self.one_of(*LITERAL_TYPES)),
                "make_folder": self.flag,
            },
        )
        return StepOutput(**fields) if fields else None

    def _run_if(self, value: object, key: str) -> RunIf | None:
        named = self.optional(self.text)
        fields = self.fields(value, key, {"node": self.text, "wanted": self.flag, "step": named, "output": named})
        return RunIf(**fields) if fields else None

    def _iteration(self, value: object, key: str) -> Iteration | None:
        named = self.optional(self.text)
        number = self.whole(2, ITERATIONS_MAX)
        fields = self.fields(
            value,
            key,
            {"node": self.text, "number": number, "follows": self.text, "step": named, "output": named},
        )
        return Iteration(**fields) if fields else None

    def _asset_version(self, value: object, key: str) -> str:
        version = self.text(value, key)
        if not is_asset_version(version):
            self.problems.append(f"{key}: {version[:80]!r} is not a version of a data asset")
        return version

    def _pipeline_output(self, value: object, key: str) -> PipelineOutput | None:
        fields = self.fields(value, key, {"step": self.text, "output": self.text})
        return PipelineOutput(**fields) if fields else None

    def _environment(self, value: object, key: str) -> Environment | None:
        # Most jobs have none.
        from windrow.spec.effective.environment_document import environment_of

        return environment_of(self, _with_later(value, "environment"), key)

    def _rows(self, value: object, key: str) -> Rows | None:
        readers: dict[str, Callable[[object, str], Any]] = {
            "dataframe_to_csv": self._to_csv,
            "dataframe_header": self.flag,
            "format": self.one_of(*ROW_FORMATS),
        }
        fields = self.fields(_with_later(value, "rows"), key, readers)
        return Rows(**fields) if fields else None

    def _to_csv(self, value: object, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.problems.append(f"{key}: is not an object")
            return {}
        for name in value:
            if name in TO_CSV_REFUSED:
                self.problems.append(f"{key}.{name}: cannot be given; Windrow writes the file")
        return value

    def _instance_count(self, value: object, key: str) -> int:
        return -1 if type(value) is int and value == -1 else self.whole(1, INT_MAX)(value, key)

    def _percent(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:
            self.problems.append(f"{key}: is {str(value)[:80]}; it must be a number from 0 to 100")
            return 0.0
        return float(value)

    def _cpus(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not CPUS_MIN <= value <= CPUS_MAX:
            self.problems.append(f"{key}: is {str(value)[:80]}; it must be a number from {CPUS_MIN} to {CPUS_MAX}")
            return 1.0
        return float(value)

    def _gpus(self, value: object, key: str) -> float:
        try:
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ValueError(f"it must be {Field('gpus').allowed}")
            # Whole numbers stay whole: the digest of the document depends on it.
            return cast(float, parse_value(Field("gpus"), value))
        except ValueError as error:
            self.problems.append(f"{key}: is {str(value)[:80]}; {error}")
            return 0

    def _retry_delay(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= DELAY_S_MAX:
            self.problems.append(f"{key}: is {str(value)[:80]}; it must be seconds from 0 to {DELAY_S_MAX:g}")
            return 0.0
        return float(value)

    def _rate(self, value: object, key: str) -> Rate | None:
        fields = self.fields(value, key, {"per_s": self._per_s, "counts_items": self.flag})
        return Rate(**fields) if fields else None

    def _per_s(self, value: object, key: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, int | float) or not is_number or not RATE_PER_S_MIN <= value <= RATE_PER_S_MAX:
            self.problems.append(f"{key}: is {str(value)[:80]}; it must be from one a day to a million a second")
            return 1.0
        return float(value)

    def _path(self, value: object, key: str) -> str:
        path = self.text(value, key)
        if is_elsewhere(path):
            try:
                if elsewhere(parse_location(path), path) != path:
                    self.problems.append(f"{key}: {path[:80]!r} is not written in the canonical way")
            except BadUrl as error:
                self.problems.append(f"{key}: {error}")
        elif not path.startswith("/"):
            self.problems.append(f"{key}: {path[:80]!r} is neither an absolute path nor an address of storage")
        return path

    def _file_name(self, value: object, key: str) -> str:
        name = self.text(value, key)
        if not is_file_name(name):
            self.problems.append(f"{key}: {name[:80]!r} is not a plain file name")
        return name

    def _entry_script(self, value: object, key: str) -> str:
        script = self.text(value, key)
        if script and not is_entry_script(script):
            self.problems.append(
                f"{key}: {script[:80]!r} is neither a relative path of a .py file inside the code folder "
                "nor a dotted module"
            )
        return script


def _with_later(value: object, what: str) -> object:
    """An object of a document with the fields that were added later, which an older document lacks."""
    return {**_LATER[what], **value} if isinstance(value, dict) else value


def _unread(value: object, key: str) -> object:
    return value
