"""`azureml.core.Run`: what a script logs by it becomes metrics of its step
(docs/reference/azure-ml/parallel-job.md#metrics).

Each call appends one row to a file of the worker, which the agent pushes like its other logs. Processes that the script
starts append to the same file, also those that have nothing of the worker but the environment variable.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import sys
from datetime import datetime, timezone

from .workspace import OWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, NoReturn, Optional, Set

    from .inputs import Places
    from .workspace import Workspace

__all__ = ["Run"]

VARIABLE = "WINDROW_RUN"
"""JSON: `job_id`, `step_name`, and `metrics_path`, the file of the worker."""
COLUMNS = ("Utc Time", "Name", "Value", "Kind", "Run")
ROW_BYTES_MAX = 64 << 10

_REPORTED = "Write it into an output of the step, as a file"
_FILES = "the files that a step keeps are those that it writes into its outputs: give the step one, and write there"
_NO_CHILDREN = "a step is one run. Log with a name that says which part it is, such as run.log('fold 1/loss', value)"
_SECRETS = "secrets are not kept. Read an environment variable; windrow agent --pass-env NAME lets it through"
_INSTEAD = {
    **dict.fromkeys(("get_secret", "get_secrets"), _SECRETS),
    **dict.fromkeys(("upload_file", "upload_files", "upload_folder", "download_file", "download_files"), _FILES),
    **dict.fromkeys(("child_run", "create_children", "submit_child"), _NO_CHILDREN),
    "cancel": "windrow job cancel JOB cancels a job",
    "fail": "a step fails when its script raises an exception, or ends with an exit code other than 0",
    "get_metrics": "a worker knows only what it has logged itself. windrow job show JOB --metrics shows all of it",
    "register_model": "write the model into an output of the step, and register it: windrow model create",
}

_told: Set[str] = set()


def absent(name: str) -> ModuleNotFoundError:
    """The error of an import that needs the real package."""
    return ModuleNotFoundError(
        f"No module named 'azureml' that has {name}: the package azureml-core is not installed in this Python, and of "
        "its names Windrow offers azureml.core.Run and Model, and no workspace",
        name="azureml",
    )


def _tell_once(what: str, words: str) -> None:
    """Writes to stderr, once for each kind in this process."""
    if what not in _told:
        _told.add(what)
        print(f"windrow: {words}.", file=sys.stderr, flush=True)


class _Limited:
    """A base of classes: an attribute that is missing by design says what to do instead."""

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError."""
        if name.startswith("__"):
            raise AttributeError(name)
        why = _INSTEAD.get(name)
        public = type(self).__name__.replace("_Own", "")
        raise AttributeError(
            f"{public}.{name} is not there in Windrow: {why}."
            if why
            else f"{public} has no {name} in Windrow, which offers of it what logs values. Leave it out, "
            "or install azureml-core in the Python of the step."
        )


class Experiment(_Limited):
    """The experiment of a run: only its name is known."""

    def __init__(self, name: str) -> None:
        """`name`: as in the job."""
        self.name = name

    @property
    def workspace(self) -> Workspace:
        """What `Model(workspace, name)` takes; it has nothing else."""
        return OWN


class Run(_Limited):
    """The run that a script belongs to. `get_context` gives the step's; its `parent` is that of the job."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        """Raises RuntimeError."""
        raise RuntimeError(
            "A script cannot open other runs. Run.get_context() gives its own; windrow job show JOB --metrics shows "
            "what any job has logged."
        )

    id: str
    name: str
    parent: Optional[Run]
    experiment: Experiment

    @classmethod
    def get_context(cls, allow_offline: bool = True, used_for_context_manager: bool = False, **more: Any) -> Run:
        """The run of the step: always the same object."""
        return _STEP

    @property
    def input_datasets(self) -> Places:
        """The inputs by name: each is its path, with the methods of a dataset."""
        from .inputs import Input, Places  # few scripts need what it imports

        return Places("AZURE_ML_INPUT_", "input", Input)

    @property
    def output_datasets(self) -> Places:
        """The paths of the outputs by name."""
        from .inputs import Places

        return Places("AZURE_ML_OUTPUT_", "output", lambda name, place: place)

    # Values ----------------------------------------------------------------------------------------------------------

    def log(self, name: str, value: Any, description: str = "", step: Optional[int] = None) -> None:
        """Logs one number or text. Values are in the order of time: `step` and `description` are not kept."""
        if isinstance(value, (list, tuple, dict, range)):
            raise TypeError(
                f"run.log({name!r}) takes one number or text, not a {type(value).__name__}. Use run.log_list for a "
                "list, run.log_row or run.log_table for a dictionary"
            )
        self._keep(name, "value", _plain(value))

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        """Logs the values of a list, one after the other."""
        self._keep(name, "list", [_plain(one) for one in value])

    def log_row(self, name: str, description: Optional[str] = None, **columns: Any) -> None:
        """Adds a row to a table, with a value for each column."""
        if not columns:
            raise TypeError(f"run.log_row({name!r}) needs columns: run.log_row({name!r}, size=7, fruit='lemon')")
        self._keep(name, "row", {column: _plain(value) for column, value in columns.items()})

    def log_table(self, name: str, value: Mapping[str, Any], description: str = "") -> None:
        """Adds rows to a table. `value`: a list for each column, all of the same length; or a value for each."""
        columns: Dict[str, Any] = {}
        for column, given in value.items():
            is_one = isinstance(given, (str, bytes)) or not hasattr(given, "__iter__")
            columns[str(column)] = [_plain(given)] if is_one else [_plain(one) for one in given]
        if len({len(values) for values in columns.values()}) != 1:
            lengths = ", ".join(f"{column}: {len(values)}" for column, values in columns.items()) or "none"
            raise ValueError(f"run.log_table({name!r}) needs columns of one length. Their lengths: {lengths}")
        self._keep(name, "table", columns)

    def log_image(self, name: str, path: Optional[str] = None, plot: Any = None, description: str = "") -> None:
        """Says that images are not kept."""
        _tell_once("log_image", f"run.log_image keeps no images. {_REPORTED}: plot.savefig(...)")

    def log_confusion_matrix(self, name: str, value: Any, description: str = "") -> None:
        """Says that it is not kept."""
        _tell_once("log_confusion_matrix", f"run.log_confusion_matrix keeps nothing. {_REPORTED}")

    def log_accuracy_table(self, name: str, value: Any, description: str = "") -> None:
        """Says that it is not kept."""
        _tell_once("log_accuracy_table", f"run.log_accuracy_table keeps nothing. {_REPORTED}")

    def log_residuals(self, name: str, value: Any, description: str = "") -> None:
        """Says that they are not kept."""
        _tell_once("log_residuals", f"run.log_residuals keeps nothing. {_REPORTED}")

    def log_predictions(self, name: str, value: Any, description: str = "") -> None:
        """Says that they are not kept."""
        _tell_once("log_predictions", f"run.log_predictions keeps nothing. {_REPORTED}")

    def _keep(self, name: str, kind: str, value: Any) -> None:
        """Appends a row to the file. Raises ValueError for what is no row."""
        if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
            raise ValueError(f"The name of a metric is one line of text, not {name!r}")
        line = io.StringIO()
        moment = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        level = "job" if self.parent is None else "step"
        csv.writer(line, lineterminator="\n").writerow((moment, name, json.dumps(value), kind, level))
        row = line.getvalue().encode("utf-8", "backslashreplace")
        if len(row) > ROW_BYTES_MAX:
            raise ValueError(
                f"The metric {name!r} would need a row of {len(row):,} bytes, and {ROW_BYTES_MAX:,} are the most. Log "
                "it in several calls, or write it into an output of the step"
            )
        if not _METRICS_PATH:
            _tell_once("path", f"what run.log is given is not kept: ${VARIABLE}, which says where, is not set")
            return
        try:
            _append(row)
        except OSError as error:
            _tell_once("OSError", f"the metric {name!r} could not be kept, as others may not: {error}")

    # The rest --------------------------------------------------------------------------------------------------------

    def tag(self, key: str, value: Optional[str] = None) -> None:
        """Says that tags are not kept."""
        _tell_once("tags", f"a step has no tags, so {key!r} is not kept. Log it: run.log({key!r}, value)")

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Says that tags are not kept."""
        for key in tags:
            self.tag(key)

    def add_properties(self, properties: Mapping[str, str]) -> None:
        """Says that properties are not kept."""
        for key in properties:
            words = f"a step has no properties, so {key!r} is not kept. Log it: run.log({key!r}, value)"
            _tell_once("properties", words)

    def get_tags(self) -> Dict[str, str]:
        """An empty dictionary."""
        return {}

    def get_properties(self) -> Dict[str, str]:
        """An empty dictionary."""
        return {}

    tags = property(get_tags)
    properties = property(get_properties)

    def flush(self, timeout_seconds: int = 300) -> None:
        """Does nothing: each value is written at once."""

    def complete(self) -> None:
        """Does nothing: the run ends with its script."""

    def __enter__(self) -> Run:
        """The run itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Does nothing."""

    def __repr__(self) -> str:
        """Shows the id."""
        return f"Run(id={self.id!r})"


class _OwnRun(Run):
    """The run of this step, or of its job."""

    def __init__(self, name: str, id: str, parent: Optional[Run]) -> None:
        self.name = self.display_name = name
        self.id = id
        self.parent = parent
        self.experiment = Experiment(os.environ.get("AZUREML_ARM_PROJECT_NAME", ""))


def _plain(value: Any) -> Any:
    """A number, a text, True, False or None; what is something else becomes text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if callable(getattr(value, "item", None)):
        try:
            # A number of numpy, or a tensor with one element.
            return _plain(value.item())
        except (TypeError, ValueError, RuntimeError):
            pass
    return str(value)


def _append(row: bytes) -> None:
    """Raises OSError."""
    fd = os.open(_METRICS_PATH, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if not size:
            row = ",".join(COLUMNS).encode() + b"\n" + row
        elif os.pread(fd, 1, size - 1) != b"\n":
            # A process was killed while it wrote.
            row = b"\n" + row
        if os.write(fd, row) < len(row):
            raise OSError(f"the disk of {_METRICS_PATH} is full")
    finally:
        # Closing is not enough: another thread may have forked a child, which has the file open as well.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _told_by_worker() -> Dict[str, str]:
    try:
        told: Dict[str, str] = json.loads(os.environ[VARIABLE])
    except (KeyError, ValueError):
        return {"job_id": "", "step_name": "", "metrics_path": ""}  # The script has cleared its environment.
    return told


_TOLD = _told_by_worker()
_METRICS_PATH = _TOLD["metrics_path"]
_STEP = _OwnRun(
    _TOLD["step_name"],
    f"{_TOLD['job_id']}/{_TOLD['step_name']}",
    _OwnRun(_TOLD["job_id"], _TOLD["job_id"], None),
)


def __getattr__(name: str) -> NoReturn:
    """Raises ModuleNotFoundError, as the import of a package that is not installed does."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise absent(f"{__name__}.{name}")
