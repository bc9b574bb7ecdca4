"""The run of a notebook itself: what it logs stays in its memory, and its files in a folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windrow.common.trees import walk
from windrow.errors import NotFound, UsageError
from windrow.ml.v1.absent import Refusing, tell_no_effect
from windrow.ml.v1.models import Model
from windrow.sdk.metrics import as_dictionary


class InteractiveRun(Refusing):
    """What `Experiment.start_logging` returns. It is no job, and no master knows it."""

    parent = None

    def __init__(self, experiment: Any, name: str | None = None) -> None:
        """`name`: what the run is called."""
        self.experiment = experiment
        self.id = str(uuid.uuid4())
        self.name = self.display_name = name or self.id
        self.tags: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}
        self.status = "Running"
        self._calls: list[tuple[str, str, Any]] = []

    # Values ----------------------------------------------------------------------------------------------------------

    def log(self, name: str, value: Any, description: str = "", step: int | None = None) -> None:
        """Keep one number or text. Values are in the order of the calls: `step` and `description` are not kept.

        Raises UsageError for a list or dictionary.
        """
        if isinstance(value, (list, tuple, dict, range)):
            raise UsageError(
                f"run.log({name!r}) takes one number or text, not a {type(value).__name__}. Use run.log_list for a "
                "list, run.log_row or run.log_table for a dictionary."
            )
        self._calls.append((name, "value", value))

    def log_list(self, name: str, value: Iterable[Any], description: str = "") -> None:
        """Keep the values of a list."""
        self._calls.append((name, "list", list(value)))

    def log_row(self, name: str, description: str | None = None, **columns: Any) -> None:
        """Add a row to a table."""
        self._calls.append((name, "row", columns))

    def log_table(self, name: str, value: Mapping[str, Any], description: str = "") -> None:
        """Add rows to a table. `value`: a list for each column, all of the same length; or a value for each. Raises
        UsageError for columns of several lengths.
        """
        columns = {
            column: [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
            for column, given in value.items()
        }
        if len({len(values) for values in columns.values()}) != 1:
            lengths = ", ".join(f"{column}: {len(values)}" for column, values in columns.items()) or "none"
            raise UsageError(f"run.log_table({name!r}) needs columns of one length. Their lengths: {lengths}.")
        self._calls.append((name, "table", columns))

    def log_image(self, name: str, path: str | None = None, plot: Any = None, description: str = "") -> None:
        """Warn (JobWarning) that it has no effect."""
        tell_no_effect("run.log_image", "the notebook shows the image itself, and plot.savefig(path) keeps it")

    def get_metrics(self, name: str | None = None, **more: Any) -> dict[str, Any]:
        """Return what was logged, or what was logged under one name: a value, a list if there were several, a
        dictionary of columns for a table.
        """
        return as_dictionary(call for call in self._calls if name in (None, call[0]))

    # Files -----------------------------------------------------------------------------------------------------------

    def upload_file(self, name: str, path_or_stream: Any, datastore_name: str | None = None) -> None:
        """Keep a copy of a file, or of what an open file holds, under a name such as `outputs/model.pkl`. Raises
        UsageError for a name that is taken, or leads out of the run.
        """
        place = self._place_of(name)
        if os.path.lexists(place):
            raise UsageError(f"run.upload_file: the run has a file {name!r} already. Take another name.")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not hasattr(path_or_stream, "read"):
            shutil.copy2(path_or_stream, place)
            return
        content = path_or_stream.read()
        with open(place, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def upload_files(
        self, names: Sequence[str], paths: Sequence[str], return_artifacts: bool = False, **more: Any
    ) -> None:
        """Keep copies of several files."""
        for name, path in zip(names, paths, strict=True):
            self.upload_file(name, path)

    def upload_folder(self, name: str, path: str, datastore_name: str | None = None) -> None:
        """Keep a copy of the files of a folder."""
        for folder, _, files in walk(path):
            for file in files:
                source = os.path.join(folder, file)
                self.upload_file(os.path.join(name, os.path.relpath(source, path)), source)

    def get_file_names(self) -> list[str]:
        """Return the names of the files."""
        root = self._place_of("")
        found = [os.path.join(folder, file) for folder, _, files in walk(root) for file in files]
        return sorted(os.path.relpath(file, root) for file in found)

    def download_file(self, name: str, output_file_path: str | None = None, **more: Any) -> None:
        """Copy a file to a path, or into a folder; by default into the working folder. Raises NotFound."""
        shutil.copy2(self._found(name), output_file_path or os.path.basename(name))

    def register_model(self, model_name: str, model_path: str | None = None, **more: Any) -> Model:
        """Register a file or folder of the run as a model, as `Model.register` does. `model_path`:
        its name in the run, by default the model's. Raises NotFound.
        """
        place = self._found(model_path or model_name)
        return Model.register(self.experiment.workspace, place, model_name, **more)

    def _place_of(self, name: str) -> str:
        root = os.path.join(self.experiment.workspace.runs_folder, self.id)
        place = os.path.normpath(os.path.join(root, name))
        if os.path.commonpath([root, place]) != root:
            raise UsageError(f"{name!r} is not a name of a file of a run: it leads out of it.")
        return place

    def _found(self, name: str) -> str:
        place = self._place_of(name)
        if not os.path.exists(place):
            there = ", ".join(self.get_file_names()) or "none"
            raise NotFound(
                f"The run has no file {name!r}. Its files: {there}. Only run.upload_file(name, path) and "
                "run.upload_folder(name, path) give it files."
            )
        return place

    # The rest --------------------------------------------------------------------------------------------------------

    def tag(self, key: str, value: str | None = None) -> None:
        """Keep a tag, in `tags`."""
        self.tags[key] = value

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Keep tags, in `tags`."""
        self.tags.update(tags)

    def remove_tags(self, tags: Iterable[str]) -> None:
        """Remove tags from `tags`."""
        for key in [tags] if isinstance(tags, str) else tags:
            self.tags.pop(key, None)

    def get_tags(self) -> dict[str, Any]:
        """Return `tags`."""
        return self.tags

    def add_properties(self, properties: Mapping[str, Any]) -> None:
        """Keep properties, in `properties`. One that is there already stays as it is."""
        for key, value in properties.items():
            self.properties.setdefault(key, value)

    def get_properties(self) -> dict[str, Any]:
        """Return `properties`."""
        return self.properties

    def flush(self, timeout_seconds: int = 300) -> None:
        """Do nothing: what was logged is there at once."""

    def complete(self) -> None:
        """End the run. What was logged stays until the notebook ends."""
        self.status = "Completed"

    def fail(self, error_details: Any = None, error_code: str | None = None) -> None:
        """End the run as failed."""
        self.status = "Failed"

    def cancel(self) -> None:
        """End the run as cancelled."""
        self.status = "Canceled"

    def get_status(self) -> str:
        """Return Running, Completed, Failed or Canceled."""
        return self.status

    def wait_for_completion(self, *arguments: object, **more: object) -> dict[str, Any]:
        """Return `get_details()`: there is nothing to wait for."""
        return self.get_details()

    def get_details(self) -> dict[str, Any]:
        """Return id, status and tags."""
        return {"runId": self.id, "status": self.status, "tags": self.tags}

    def get_portal_url(self) -> str:
        """Return an empty text, since there is no portal. `get_metrics()` has what was logged."""
        return ""

    def __enter__(self) -> InteractiveRun:
        """The run itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """End the run, as failed if there is an exception."""
        if kind is None:
            self.complete()
        else:
            self.fail()

    def __repr__(self) -> str:
        """Show id and state."""
        return f"InteractiveRun(id={self.id!r}, status={self.status!r})"
