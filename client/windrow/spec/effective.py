"""The effective job: what a job file means once every spelling, binding, default and override is resolved.

The client makes it from a job file, the master reads it again from a submission and trusts nothing (`effective_json`).
Format: docs/contracts.md, section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from windrow.spec.expressions import substitute

FORMAT = 1
DEFAULT_ROWS_FILE = "parallel_run_step.txt"
"""Name of the file of rows where an output names only a folder. Reference: parallel-job.md, 6.3."""

DATAFRAME_DEFAULTS: dict[str, Any] = {"sep": " ", "index": False}
"""How DataFrame rows are written unless `parallel_run_step.settings.json` says otherwise.

Reference: parallel-job.md, 6.2.
"""


@dataclass(frozen=True, slots=True)
class LiteralInput:
    """An input that is text; `value` is what the script gets."""

    value: str


@dataclass(frozen=True, slots=True)
class DataInput:
    """An input that is data at an absolute `path`; `type` is uri_folder, uri_file or mltable."""

    type: str
    mode: str
    path: str


@dataclass(frozen=True, slots=True)
class OutputInput:
    """An input that is the output of another step."""

    step: str
    output: str
    type: str
    mode: str


StepInput: TypeAlias = LiteralInput | DataInput | OutputInput


@dataclass(frozen=True, slots=True)
class StepOutput:
    """Where a step writes.

    `path` is absolute, or None for the master's default place (a folder of the output's own). `file_name` names the
    file of rows inside it when the place is a folder (None: DEFAULT_ROWS_FILE). Both may hold `${{name}}`, for which
    the master puts the job's name.
    """

    type: str
    mode: str
    path: str | None = None
    file_name: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """How returned DataFrames become rows.

    Keyword arguments of `DataFrame.to_csv` in full, and whether a header stands once on top.
    """

    dataframe_to_csv: dict[str, Any] = field(default_factory=DATAFRAME_DEFAULTS.copy)
    dataframe_header: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveStep:
    """One parallel step. Times are whole seconds; None means the master's own default.

    Reference: parallel-job.md, 1.2, 1.3 and 2.2.
    """

    name: str
    depends_on: tuple[str, ...] = ()
    code_digest: str
    entry_script: str
    arguments: tuple[str, ...] = ()
    environment_variables: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, StepInput]
    outputs: dict[str, StepOutput] = field(default_factory=dict)
    input_data: str
    append_row_to: str | None = None
    mini_batch_size: int | None = None
    partition_keys: tuple[str, ...] = ()
    instance_count: int = 1
    max_concurrency_per_instance: int | None = None
    logging_level: str = "INFO"
    error_threshold: int = -1
    mini_batch_error_threshold: int = -1
    allowed_failed_percent: float = 100.0
    max_retries: int = 2
    run_invocation_timeout_s: int = 60
    task_overhead_timeout_s: int = 600
    progress_update_timeout_s: int | None = None
    first_task_creation_timeout_s: int = 600
    rows: Rows = field(default_factory=Rows)


@dataclass(frozen=True, slots=True)
class PipelineOutput:
    """Which output of which step a pipeline output is."""

    step: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveJob:
    """One job, ready to be submitted. `steps` are in the order of the job file."""

    name: str | None = None
    display_name: str = ""
    experiment_name: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    job_file: str
    priority: int = 0
    weight: int = 1
    warnings: tuple[str, ...] = ()
    steps: tuple[EffectiveStep, ...]
    outputs: dict[str, PipelineOutput] = field(default_factory=dict)

    @property
    def run_digest(self) -> str:
        """sha256 (hexadecimal) of what decides the work.

        Steps, their code and pipeline outputs; not names, texts, priority or the file's place.
        """
        from windrow.spec.effective_json import run_digest

        return run_digest(self)

    def to_json(self) -> str:
        """The canonical document: sorted keys, no blanks, ASCII only, so that equal jobs give equal bytes."""
        from windrow.spec.effective_json import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes) -> EffectiveJob:
        """Reads and checks a document. Raises `effective_json.DocumentError` with everything that is wrong."""
        from windrow.spec.effective_json import from_json

        return from_json(document)


def resolve_arguments(
    step: EffectiveStep, input_paths: Mapping[str, str], output_paths: Mapping[str, str]
) -> list[str]:
    """The script's arguments on one node.

    `input_paths` and `output_paths` hold local paths of the step's data inputs and of its outputs by name. Literal
    inputs are in the step. A value stays one argument, whatever blanks it holds. Raises KeyError for a name without a
    path.
    """

    def value_of(scope: str, name: str) -> str:
        if scope == "outputs":
            return output_paths[name]
        given = step.inputs.get(name)
        return given.value if isinstance(given, LiteralInput) else input_paths[name]

    return [
        substitute(argument, lambda reference: value_of(reference.scope, reference.name)) for argument in step.arguments
    ]
