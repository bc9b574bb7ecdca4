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

from ._agent import NoAgent, ask, files_below
from ._stand_ins import names_of
from ._told import TOLD, VARIABLE
from .workspace import OWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

    from .child_run import ChildRun
    from .inputs import Places
    from .model import Model
    from .workspace import Workspace

__all__ = ["Run"]

COLUMNS = ("Utc Time", "Name", "Value", "Kind", "Run")
ROW_BYTES_MAX = 64 << 10

_REPORTED = "Write it into an output of the step, as a file"
_SUBMITS = "a script submits nothing. run.child_run(name) is a part of the run, for what the script does itself"
_SECRETS = "secrets are not kept. Read an environment variable; windrow agent --pass-env NAME lets it through"
_INSTEAD = {
    **dict.fromkeys(("get_secret", "get_secrets"), _SECRETS),
    "submit_child": _SUBMITS,
    "cancel": "windrow job cancel JOB cancels a job",
    "fail": "a step fails when its script raises an exception, or ends with an exit code other than 0",
}

_told: Set[str] = set()


def tell_once(what: str, words: str) -> None:
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
        """What `Model(workspace, name)` and `Dataset.get_by_name(workspace, name)` take."""
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
        tell_once("log_image", f"run.log_image keeps no images. {_REPORTED}: plot.savefig(...)")

    def log_confusion_matrix(self, name: str, value: Any, description: str = "") -> None:
        """Says that it is not kept."""
        tell_once("log_confusion_matrix", f"run.log_confusion_matrix keeps nothing. {_REPORTED}")

    def log_accuracy_table(self, name: str, value: Any, description: str = "") -> None:
        """Says that it is not kept."""
        tell_once("log_accuracy_table", f"run.log_accuracy_table keeps nothing. {_REPORTED}")

    def log_residuals(self, name: str, value: Any, description: str = "") -> None:
        """Says that they are not kept."""
        tell_once("log_residuals", f"run.log_residuals keeps nothing. {_REPORTED}")

    def log_predictions(self, name: str, value: Any, description: str = "") -> None:
        """Says that they are not kept."""
        tell_once("log_predictions", f"run.log_predictions keeps nothing. {_REPORTED}")

    def get_metrics(
        self,
        name: Optional[str] = None,
        recursive: bool = False,
        run_type: Any = None,
        populate: bool = False,
        **more: Any,
    ) -> Dict[str, Any]:
        """What the run has logged so far, or the one of that name: a value, a list if it was logged several times, a
        dictionary of columns for a table. What other workers have logged within the last second may not be there yet.

        `recursive`: by the id of the run. Raises RuntimeError for `recursive` of the run of the job.
        """
        from ._logged import as_dictionary, rows_of

        if recursive and self.parent is None:
            raise RuntimeError(
                "A script gets the metrics of its own step and of the job, not those of other steps. A notebook has "
                "all of them: run.get_metrics(recursive=True)"
            )
        found = as_dictionary(row for row in rows_of(self.parent is None) if name in (None, row[1]))
        return {self.id: found} if recursive else found

    def _keep(self, name: str, kind: str, value: Any) -> None:
        """Appends a row to the file. Raises ValueError for what is no row."""
        what = "metric" if kind in ("value", "list", "row", "table") else "tag" if "tag" in kind else "property"
        if not isinstance(name, str) or not name or "\n" in name or "\r" in name:
            raise ValueError(f"The name of a {what} is one line of text, not {name!r}")
        line = io.StringIO()
        moment = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        level = "job" if self.parent is None else "step"
        csv.writer(line, lineterminator="\n").writerow((moment, name, json.dumps(value), kind, level))
        row = line.getvalue().encode("utf-8", "backslashreplace")
        if len(row) > ROW_BYTES_MAX:
            raise ValueError(
                f"The {what} {name!r} would need a row of {len(row):,} bytes, and {ROW_BYTES_MAX:,} are the most. Log "
                "it in several calls, or write it into an output of the step"
            )
        if not _METRICS_PATH:
            tell_once("path", f"what run.log is given is not kept: ${VARIABLE}, which says where, is not set")
            return
        try:
            _append(row)
        except OSError as error:
            tell_once("OSError", f"the {what} {name!r} could not be kept, as others may not: {error}")

    # Files -----------------------------------------------------------------------------------------------------------

    def upload_file(self, name: str, path_or_stream: Any, datastore_name: Optional[str] = None) -> None:
        """Keeps a file, or what an open file holds, as a file of the run; returns when it is kept for good. A file of
        the same name is replaced. Raises OSError, RuntimeError.
        """
        if not hasattr(path_or_stream, "read"):
            self._upload([(name, os.fspath(path_or_stream))])
            return
        import tempfile

        content = path_or_stream.read()
        with tempfile.NamedTemporaryFile() as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            self._upload([(name, file.name)])

    def upload_files(
        self, names: Sequence[str], paths: Sequence[str], return_artifacts: bool = False, **more: Any
    ) -> None:
        """Keeps several files. Raises as `upload_file` does."""
        if len(names) != len(paths):
            raise ValueError(f"run.upload_files needs a path for each name; it has {len(names)} and {len(paths)}")
        self._upload([(name, os.fspath(path)) for name, path in zip(names, paths)])

    def upload_folder(self, name: str, path: str, datastore_name: Optional[str] = None) -> None:
        """Keeps the files of a folder, below `name`. Raises as `upload_file` does."""
        found = files_below(name.strip("/"), path)
        if not found:
            raise FileNotFoundError(f"run.upload_folder({name!r}): there is no file below {os.path.abspath(path)}")
        self._upload(found)

    def _upload(self, files: List[Tuple[str, str]]) -> None:
        try:
            ask({"do": "keep", "of_job": self.parent is None}, files)
        except NoAgent as error:
            tell_once("upload", f"{files[0][0]!r} is not kept: {error}")

    def get_file_names(self) -> List[str]:
        """The names of the files that were uploaded."""
        _, parts = ask({"do": "names", "of_job": self.parent is None})
        return [part["name"] for part in parts]

    def download_file(
        self, name: str, output_file_path: Optional[str] = None, _validate_checksum: bool = False, **more: Any
    ) -> None:
        """Writes a file of the run to a path or into a folder; by default into the working folder. Raises
        FileNotFoundError.
        """
        place = output_file_path or os.path.basename(name)
        if os.path.isdir(place) or place.endswith("/"):
            place = os.path.join(place, os.path.basename(name))
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        begun = f"{place}.{os.getpid()}"
        try:
            with open(begun, "wb") as file:
                ask({"do": "read", "name": name, "of_job": self.parent is None}, brought=file.fileno())
            os.replace(begun, place)
        finally:
            if os.path.exists(begun):
                os.unlink(begun)

    def download_files(
        self,
        prefix: Optional[str] = None,
        output_directory: Optional[str] = None,
        output_paths: Optional[Sequence[str]] = None,
        batch_size: int = 100,
        append_prefix: bool = True,
        timeout_seconds: Optional[int] = None,
    ) -> None:
        """Writes the files whose names start with `prefix` (by default all) into a folder. They keep their names, or
        lose the prefix if `append_prefix` is False. `output_paths`: the places to use instead.
        """
        names = [name for name in self.get_file_names() if name.startswith(prefix or "")]
        below = [name if append_prefix else name[len(prefix or "") :].lstrip("/") for name in names]
        places = list(output_paths) if output_paths else below
        if len(places) != len(names):
            raise ValueError(f"run.download_files: there are {len(names)} files and {len(places)} places for them")
        for name, place in zip(names, places):
            self.download_file(name, os.path.join(output_directory or ".", place))

    def register_model(
        self,
        model_name: str,
        model_path: Optional[str] = None,
        tags: Optional[Mapping[str, Any]] = None,
        properties: Optional[Mapping[str, Any]] = None,
        description: Optional[str] = None,
        **more: Any,
    ) -> Model:
        """Registers a file or folder of the run as a model; `model_path`: its name in the run, by default the model's.
        What was not uploaded, and is there in the working folder, is taken from there, such as `outputs/model.pkl`.

        A step registers the same content under the same name once, also when a mini-batch runs again. Raises
        FileNotFoundError.
        """
        from .model import register

        return register(model_name, model_path or model_name, description, tags, of_run=self)

    # The rest --------------------------------------------------------------------------------------------------------

    def tag(self, key: str, value: Optional[str] = None) -> None:
        """Tags the run. The newest value of a tag counts."""
        self._keep(key, "tag", _text(value))

    def set_tags(self, tags: Mapping[str, Optional[str]]) -> None:
        """Tags the run, with several."""
        for key, value in tags.items():
            self.tag(key, value)

    def remove_tags(self, tags: Sequence[str]) -> None:
        """Removes tags."""
        for key in [tags] if isinstance(tags, str) else tags:
            self._keep(key, "untag", None)

    def add_properties(self, properties: Mapping[str, Optional[str]]) -> None:
        """Gives the run properties. The first value of a property counts."""
        for key, value in properties.items():
            self._keep(key, "property", _text(value))

    def get_tags(self) -> Dict[str, Any]:
        """The tags that scripts and notebooks have given the run; of the job also those that it was submitted with."""
        from ._logged import rows_of, tags_of

        return tags_of(rows_of(self.parent is None, only_tags=True), "tag")

    def get_properties(self) -> Dict[str, Any]:
        """The properties that scripts and notebooks have given the run."""
        from ._logged import rows_of, tags_of

        return tags_of(rows_of(self.parent is None, only_tags=True), "property")

    tags = property(get_tags)
    properties = property(get_properties)

    def get_status(self) -> str:
        """Running: as long as a script can ask, its step has not ended."""
        return "Running"

    status = property(get_status)

    def get_portal_url(self) -> str:
        """An empty text, since there is no portal. `windrow job show` shows the run."""
        return ""

    def get_details(self) -> Dict[str, Any]:
        """The id and the status: what a script can know of its run."""
        return {"runId": self.id, "status": self.status}

    def child_run(
        self, name: Optional[str] = None, run_id: Optional[str] = None, outputs: Any = None, **more: Any
    ) -> ChildRun:
        """A part of this run: its name, which by default nobody else has, stands before the names of what it keeps."""
        from uuid import uuid4

        from .child_run import ChildRun

        return ChildRun(self, name or run_id or uuid4().hex[:8])

    def create_children(
        self, count: Optional[int] = None, tag_key: Optional[str] = None, tag_values: Sequence[str] = ()
    ) -> List[ChildRun]:
        """So many parts, or one for each value of a tag."""
        if tag_key is None:
            return [self.child_run() for _ in range(count or 0)]
        children = [self.child_run() for _ in tag_values]
        for child, value in zip(children, tag_values):
            child.tag(tag_key, value)
        return children

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


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(value)


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


_METRICS_PATH = TOLD["metrics_path"]
_STEP = _OwnRun(
    TOLD["step_name"],
    f"{TOLD['job_id']}/{TOLD['step_name']}",
    _OwnRun(TOLD["job_id"], TOLD["job_id"], None),
)

_SubmittedRun = _OwnRun


class _OfflineRun(Run):
    """What the run of a script is not: many ask by this name whether they run in a job."""


__getattr__ = names_of(__name__)
