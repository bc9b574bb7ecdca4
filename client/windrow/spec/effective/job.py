"""The effective job: what a job file means once every spelling, binding, default and override is resolved.

The client makes it from a job file; the master reads it from a submission and checks everything again (`document`).
Format: docs/contracts.md, section 1.

The records are named tuples, not dataclasses, which would add 12 ms of imports and generated code to every run.
`record._replace(...)` makes a copy with other values.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from windrow.spec.naming.expressions import references, substitute
from windrow.spec.naming.locations import is_elsewhere
from windrow.spec.settings.pace import Rate

FORMAT = 1
DEFAULT_ROWS_FILE = "parallel_run_step.txt"
"""The name of the file of rows if the output names only a folder.

Reference: docs/reference/azure-ml/parallel-job.md#the-rows-file.
"""


_EMPTY: Mapping[str, Any] = {}


class LiteralInput(NamedTuple):
    """An input that is text; `value` is what the script gets."""

    value: str


class DataInput(NamedTuple):
    """An input that is data at an absolute `path`; `type` is uri_folder, uri_file or mltable.

    `asset`: `azureml:<name>:<version>`, where the job file names a registered one; None if it names the path.
    """

    type: str
    mode: str
    path: str
    asset: str | None = None


class OutputInput(NamedTuple):
    """An input that is the output of another step.

    `type` is one of data, or one of LITERAL_TYPES: then the script gets the value that the output holds
    (`StepOutput.value`), as text.
    """

    step: str
    output: str
    type: str
    mode: str

    @property
    def is_value(self) -> bool:
        """Whether the script gets a value, not data."""
        # Where this is asked, the table of the job file's keys is loaded; in the planner it is not.
        from windrow.spec.settings.schema import LITERAL_TYPES

        return self.type in LITERAL_TYPES


StepInput: TypeAlias = LiteralInput | DataInput | OutputInput


class StepOutput(NamedTuple):
    """Where a step writes.

    Not the `StepOutput` of `windrow.ml`, which users bind to inputs.

    `path` is absolute, or None for the master's default place (a folder of the output's own). `file_name` names the
    file of rows inside it when the place is a folder (DEFAULT_ROWS_FILE if None). Both may hold `${{name}}`, for which
    the master puts the job's name. `asset_name`: as what it is registered when the step is done; `asset_version` None:
    the next number. `value`: one of LITERAL_TYPES where the output is a file that holds one value of that type; None
    for data. `make_folder`: whether a folder is there before the step begins; False, of a command alone, if the command
    makes it, or writes one file with its path.
    """

    type: str
    mode: str
    path: str | None = None
    file_name: str | None = None
    asset_name: str | None = None
    asset_version: str | None = None
    value: str | None = None
    make_folder: bool = True


class RunIf(NamedTuple):
    """A step runs only if a condition is met; otherwise it is skipped.

    `node`: the `if_else` node that says so. The condition is the boolean that an output of a step holds, and has to be
    `wanted`. `step` and `output` None: the condition is known, and is not what is wanted, so the step never runs.
    """

    node: str
    wanted: bool
    step: str | None = None
    output: str | None = None


class Iteration(NamedTuple):
    """That a step is the same step of a `do_while` loop once more.

    `node`: the loop. `number`: which iteration this is, from 2; `follows`: the step of the iteration before. The
    iteration runs if the boolean in `output` of `step` (of the iteration before) is true; always if they are None.
    Where the loop has ended, the step is skipped, and its outputs are those of `follows`.
    """

    node: str
    number: int
    follows: str
    step: str | None = None
    output: str | None = None


class Rows(NamedTuple):
    """How returned DataFrames become rows.

    Not the worker's `Rows`, which are the rows of one attempt.

    `dataframe_to_csv` are the user's keyword arguments of `DataFrame.to_csv` (the worker's defaults: a space as
    separator, no index), with `header` only as a list of other names; `dataframe_header`: column names once on top.
    Reference: docs/reference/azure-ml/parallel-job.md#dataframe-settings. `format`: one of ROW_FORMATS; the two others
    are for text alone.
    """

    dataframe_to_csv: Mapping[str, Any] = _EMPTY
    dataframe_header: bool = False
    format: str = "text"

    @property
    def missing(self) -> str:
        """What stands for a missing value."""
        return str(self.dataframe_to_csv.get("na_rep") or "")


class CondaList(NamedTuple):
    """A conda list as it is written, for nodes that can build it with conda's own packages.

    `specs`: conda's match specs, with that of Python; `channels`: where they are looked for, in this order; `pip`: the
    lines for pip, which are among `Environment.requirements`, too.
    """

    specs: tuple[str, ...]
    channels: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


class Environment(NamedTuple):
    """The Python and packages that a step's scripts need, from a conda or pip list.

    Not the `Environment` classes of `windrow.ml`, which users construct.

    `python`: a version, such as 3.10 or >=3.9,<3.12; None for that of the agent's own Python. `requirements` and
    `constraints`: pip's lines; `options`: pip's options, such as `--extra-index-url=https://…`. `conda`: the list as it
    is written, if PyPI does not have all of its packages; nodes that cannot build it so take the rest from PyPI.
    Reference: docs/reference/azure-ml/parallel-job.md#tasks.
    """

    python: str | None = None
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    conda: CondaList | None = None


class EffectiveStep(NamedTuple):
    """One step. Times are whole seconds; None means the master's own default.

    `command`: the shell command of a command step, which has one mini-batch without input, no `entry_script` and no
    `arguments` (docs/reference/azure-ml/parallel-job.md#inputs-and-outputs). None for a parallel step.
    `compute`: the pool of nodes that it runs on; any if "". `instance_count`: the most nodes at a time; all if -1.
    `input_data` names the inputs that are divided, each on its own, in this order
    (docs/reference/azure-ml/parallel-job.md#several-inputs); it is empty exactly where `rank_mini_batch_count` is above
    0, which is then the number of mini-batches without input. `file_format` "jsonl": the input's files are JSON lines,
    and `run()` gets lists of dicts, of `mini_batch_rows` records (if None, by `mini_batch_size`, in bytes).
    `exact_row_index`: records are counted while the input is divided.
    `mixed_types`: a column of JSON lines keeps values of several kinds.
    `resource_monitor_interval_s`: 0 switches the monitor off.
    `may_shut_down`: the script may have a `shutdown()`, which has to end everywhere before the step is done.
    `table_digests`: the sha256 of the MLTable files of divided inputs, if the client has read them.
    `resume_from`: the job whose results are taken over, for mini-batches whose items have not changed since.
    `tolerates_all`: the job file itself switches all thresholds off; they are not off only because it sets none.
    `split`: how many mini-batches at a time are split to find the items that fail (0 for none, None for one).
    `retry_delay_s`: the delay of the first retry of a mini-batch, doubled with each further one. `rate_limit`: of all
    nodes together. `speculate`: a straggler may run twice at the same time. `allow_path`: what it
    asks for beyond its inputs and outputs, where scripts are confined; ":rw" at the end: also to write.
    `cpus_per_worker` (slots; None for one), `memory_per_worker` (bytes) and `gpus_per_worker` (below 1, a part of one):
    what a worker needs of its node; 0 for nothing that is counted. `min_nodes`: it begins on so many at once.
    what a worker needs of its node; 0 for nothing that is counted. `shared_memory_bytes`: what its node must have of
    /dev/shm; 0 for any. `idle_gpu_timeout_s`: for how long a worker may hold a GPU that it does not use, without a
    mini-batch; None for ever.
    `returns`: what the rows of `run()` stand for; if None, `rows_stand_for` says.
    `reuse`: results of an earlier job with the same inputs and code may replace a run.
    `environment`: built on each node that serves the step; None for the node's own Python.
    `run_if`: what must be true for the step to run. `iterations`: the loops that it repeats, the outermost first.
    Reference: docs/reference/azure-ml/parallel-job.md#parallel-steps, #tasks, #program-arguments,
    #undocumented-arguments.
    """

    name: str
    code_digest: str
    entry_script: str
    inputs: Mapping[str, StepInput]
    input_data: tuple[str, ...]
    command: str | None = None
    depends_on: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment_variables: Mapping[str, str] = _EMPTY
    outputs: Mapping[str, StepOutput] = _EMPTY
    append_row_to: str | None = None
    mini_batch_size: int | None = None
    partition_keys: tuple[str, ...] = ()
    rank_mini_batch_count: int = 0
    file_format: str | None = None
    mini_batch_rows: int | None = None
    exact_row_index: bool = False
    mixed_types: bool = False
    table_digests: Mapping[str, str] = _EMPTY
    compute: str = ""
    instance_count: int = -1
    max_concurrency_per_instance: int | None = None
    logging_level: str = "INFO"
    error_threshold: int = -1
    mini_batch_error_threshold: int = -1
    allowed_failed_percent: float = 100.0
    tolerates_all: bool = False
    max_retries: int = 2
    retry_delay_s: float = 0.0
    rate_limit: Rate | None = None
    speculate: bool = False
    allow_path: tuple[str, ...] = ()
    cpus_per_worker: float | None = None
    memory_per_worker: int = 0
    gpus_per_worker: float = 0
    min_nodes: int = 1
    shared_memory_bytes: int = 0
    idle_gpu_timeout_s: int | None = None
    run_invocation_timeout_s: int = 60
    task_overhead_timeout_s: int = 600
    progress_update_timeout_s: int | None = None
    first_task_creation_timeout_s: int = 600
    may_shut_down: bool = True
    environment: Environment | None = None
    copy_logs_to_parent: bool = False
    resource_monitor_interval_s: int = 600
    metrics_name_prefix: str = ""
    push_metrics_to_parent: bool = False
    profiling_module: str | None = None
    resume_from: str | None = None
    reuse: bool = False
    split: int | None = None
    returns: str | None = None
    run_if: tuple[RunIf, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    rows: Rows = Rows()

    @property
    def awaits(self) -> list[str]:
        """The steps whose outputs it reads, or whose outputs decide whether it runs."""
        named = [given.step for given in self.inputs.values() if isinstance(given, OutputInput)]
        named += [condition.step for condition in self.run_if if condition.step is not None]
        for iteration in self.iterations:
            named += [iteration.follows] if iteration.step is None else [iteration.follows, iteration.step]
        return list(dict.fromkeys(named))

    @property
    def rows_stand_for(self) -> str:
        """What the rows that `run()` returns stand for, one of `RETURNS`.

        By default each row of a mini-batch stands for an item, and those of a partition for all of it.
        """
        return self.returns or ("per_group" if self.partition_keys else "per_item")

    @property
    def split_at_a_time(self) -> int:
        """How many mini-batches at a time are split to find the items that fail; none if 0. There are no such items
        where rows do not stand for items, and no use in finding them where one is too many.
        """
        splits = (
            self.command is None
            and not self.rank_mini_batch_count
            and not self.partition_keys
            and self.rows_stand_for == "per_item"
            and 0 not in (self.error_threshold, self.mini_batch_error_threshold, self.allowed_failed_percent)
        )
        return (1 if self.split is None else self.split) if splits else 0

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that may name the step's inputs and outputs: its arguments, or its command."""
        return self.arguments if self.command is None else (self.command,)


def values_needed(job: "EffectiveJob") -> dict[tuple[str, str], bool]:
    """The outputs, by step and name, whose value another step needs. True: it is a condition, so it is a boolean."""
    needed: dict[tuple[str, str], bool] = {}
    for step in job.steps:
        for given in step.inputs.values():
            if isinstance(given, OutputInput) and given.is_value:
                needed.setdefault((given.step, given.output), False)
        conditions: list[RunIf | Iteration] = [*step.run_if, *step.iterations]
        for condition in conditions:
            if condition.step is not None and condition.output is not None:
                needed[condition.step, condition.output] = True
    # Of a step that is skipped as its loop has ended, the outputs are those of the iteration before.
    follows = {step.name: [iteration.follows for iteration in step.iterations] for step in job.steps}
    found = list(needed)
    for owner, output in found:
        for before in follows.get(owner, ()):
            if (before, output) not in needed:
                needed[before, output] = needed[owner, output]
                found.append((before, output))
    return needed


def with_values(step: EffectiveStep, values: Mapping[str, str]) -> EffectiveStep:
    """The step with its inputs that are values of other steps as literals. `values`: what is known of its inputs, by
    name."""
    inputs = {
        name: LiteralInput(values[name])
        if isinstance(given, OutputInput) and given.is_value and name in values
        else given
        for name, given in step.inputs.items()
    }
    return step if inputs == step.inputs else step._replace(inputs=inputs)


def outputs_elsewhere(step: EffectiveStep) -> list[str]:
    """Names of outputs in a store or datastore that the script writes itself, through a local folder.

    Outputs of mode `direct` are not among them: the script gets their address. The output for rows is one only if the
    arguments name it.
    """
    told = {
        reference.name for argument in step.words for reference in references(argument) if reference.scope == "outputs"
    }
    return [
        name
        for name, output in step.outputs.items()
        if output.path is not None
        and is_elsewhere(output.path)
        and output.mode != "direct"
        and (name != step.append_row_to or (name in told and output.type != "uri_file"))
    ]


def default_progress_update_timeout_s(step: EffectiveStep) -> int:
    """The default of `progress_update_timeout`: the seconds without progress after which a step fails.

    It is the sum of all that a mini-batch may take by the step's own limits: the start of a worker (3 x the run timeout
    + 30, docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes), loading, `run()`, writing the result, and
    saving the script's own output to a store. So it ends only what no other limit has ended. Reference:
    docs/reference/azure-ml/parallel-job.md#program-arguments, which says "computed from other settings", without the
    formula.
    """
    overheads = 3 if outputs_elsewhere(step) else 2
    start_s = 3 * step.run_invocation_timeout_s + 30
    return start_s + step.run_invocation_timeout_s + overheads * step.task_overhead_timeout_s


class PipelineOutput(NamedTuple):
    """The step output behind a pipeline output. Not the `PipelineOutput` of `windrow.ml`, which users change."""

    step: str
    output: str


class EffectiveJob(NamedTuple):
    """One job, ready to be submitted. `steps` are in the order of the job file.

    `continue_on_step_failure`: a failed step ends only the steps that wait for it.
    Reference: docs/reference/azure-ml/parallel-job.md#pipelines.
    `resume_changed`: results of an earlier job may be taken over although code or settings have changed since.
    `fetch`: by `<step>.<output>`, the path below the job file's folder to which a client downloads an output that the
    master keeps for it (`windrow.transfer.fetch_places`).
    """

    job_file: str
    steps: tuple[EffectiveStep, ...]
    name: str | None = None
    display_name: str = ""
    experiment_name: str = ""
    description: str = ""
    tags: Mapping[str, str] = _EMPTY
    priority: int = 0
    weight: int = 1
    warnings: tuple[str, ...] = ()
    outputs: Mapping[str, PipelineOutput] = _EMPTY
    continue_on_step_failure: bool = False
    fetch: Mapping[str, str] = _EMPTY
    resume_changed: bool = False

    @property
    def run_digest(self) -> str:
        """sha256 (hexadecimal) of everything that decides the work.

        That is steps, their code and pipeline outputs, but not names, texts, priority or the file's place.
        """
        from windrow.spec.effective.document import run_digest

        return run_digest(self)

    def to_json(self) -> str:
        """The canonical document: sorted keys, no spaces, ASCII only, so that equal jobs give equal bytes."""
        from windrow.spec.effective.document import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, document: str | bytes) -> "EffectiveJob":
        """Reads and checks a document. Raises `document.DocumentError` with everything that is wrong."""
        from windrow.spec.effective.document import from_json

        return from_json(document)


def resolve_arguments(
    step: EffectiveStep, input_paths: Mapping[str, str], output_paths: Mapping[str, str]
) -> list[str]:
    """The script's arguments on one node; of a command step, its command alone.

    `input_paths` and `output_paths` hold local paths of the step's data inputs and outputs by name. Literal inputs are
    in the step. A value stays one argument even if it contains spaces. Raises KeyError for a name without a path.
    """

    def value_of(scope: str, name: str) -> str:
        if scope == "outputs":
            return output_paths[name]
        given = step.inputs.get(name)
        return given.value if isinstance(given, LiteralInput) else input_paths[name]

    return [
        substitute(argument, lambda reference: value_of(reference.scope, reference.name)) for argument in step.words
    ]
