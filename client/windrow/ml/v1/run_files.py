"""The files of a run: its logs, and the metrics and tags in them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.common.removal import temporary_tree
from windrow.errors import NotFound, UsageError
from windrow.ml.operations.logs import fetch_log
from windrow.sdk.metrics import Logged, as_dictionary, logged
from windrow.spec.reading.problems import did_you_mean

if TYPE_CHECKING:
    from windrow.ml.v1.models import Model
    from windrow.sdk.client import Client

LOGS = "logs/"
"""As there; below it a run's logs have the names that docs/reference/files.md has."""
UPLOADED = "user/files/"
"""Below a run's logs: the files that its scripts have uploaded, which have the names that the scripts gave them."""
_WHOLE = 1 << 20
"""`get_details_with_logs` returns at most this many bytes of a file, from its end."""


class RunFiles:
    """The files of a run of a pipeline or step. A step's files are those in its folder of the job's logs."""

    id: str

    def _owner(self) -> tuple[Client, str, str]:
        """The client, the job, and the step's folder in the job's logs (empty for the job itself)."""
        raise NotImplementedError

    def get_details(self) -> dict[str, Any]:
        """Everything known about the run."""
        raise NotImplementedError

    def _files(self) -> dict[str, tuple[str, int]]:
        """For each file, by name: its path in the job's logs, and its length in bytes."""
        client, job_id, folder = self._owner()
        found: dict[str, tuple[str, int]] = {}
        for file in client.logs(job_id):
            if file.path.startswith(folder):
                below = file.path.removeprefix(folder)
                name = below.removeprefix(UPLOADED) if below.startswith(UPLOADED) else LOGS + below
                found[name] = file.path, file.length
        return found

    def get_file_names(self) -> list[str]:
        """Return the names of the logs, such as `logs/user/error.txt` of a step, and of the files that its scripts have
        uploaded, such as `outputs/model.pkl`.
        """
        return sorted(self._files())

    def download_file(self, name: str, output_file_path: str | None = None, **more: Any) -> None:
        """Download a file to a path or into a folder; by default into the working folder. Raises NotFound."""
        place = output_file_path or os.path.basename(name)
        if os.path.isdir(place):
            place = os.path.join(place, os.path.basename(name))
        self._fetch(self._path(name), place)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: list[str] | None = None,
        batch_size: int = 100,
        append_prefix: bool = True,
        timeout_seconds: int | None = None,
    ) -> None:
        """Download the files whose names start with `prefix` (by default all) into a folder. They keep their names,
        or lose the prefix if `append_prefix` is False. `output_paths`: the places to use instead, in the order of
        the names.
        """
        paths = {name: path for name, (path, _) in sorted(self._files().items()) if name.startswith(prefix or "")}
        below = [name if append_prefix else name.removeprefix(prefix or "").lstrip("/") for name in paths]
        places = [os.path.join(output_directory or ".", place) for place in output_paths or below]
        for path, place in zip(paths.values(), places, strict=bool(output_paths)):
            self._fetch(path, place)

    def get_metrics(self, name: str | None = None, recursive: bool = False, **more: Any) -> dict[str, Any]:
        """Return the metrics, or the one of that name.

        Those that scripts have logged: a value, a list if a name was logged several times, a dictionary of columns for
        a table. Of `Processed Items`, `Failed Items`, … the newest values, as in `metrics.csv`. A step has its own
        metrics; a run has those that its scripts log by `run.parent`, and that its steps push to it
        (`--push_metrics_to_parent`). `recursive`: of the run and its steps, by id.
        """
        client, job_id, _ = self._owner()
        calls = sorted(logged(client, job_id), key=lambda one: one.time)
        if not recursive:
            return self._metrics(calls, name)
        return {run.id: run._metrics(calls, name) for run in (self, *self.get_children())}

    def get_children(self) -> Iterable[RunFiles]:
        """Return nothing: a step has none."""
        return ()

    def _metrics(self, calls: Iterable[Logged], name: str | None) -> dict[str, Any]:
        known = self._files().get(f"{LOGS}metrics.csv")
        rows = csv.DictReader(self._text(known[0]).splitlines()) if known else ()
        values: dict[str, Any] = {row["Name"]: float(row["Value"]) for row in rows}
        values |= as_dictionary((one.name, one.kind, one.value) for one in calls if self._is_own(one))
        return {key: value for key, value in values.items() if name in (None, key)}

    def _is_own(self, one: Logged) -> bool:
        """Whether it was logged by this run."""
        raise NotImplementedError

    def get_tags(self) -> dict[str, Any]:
        """Return the tags that scripts and notebooks have given the run; of the whole run, also those that it was
        submitted with. Of each, the newest value counts.
        """
        return self._tags(is_property=False)

    def get_properties(self) -> dict[str, Any]:
        """Return the properties that scripts and notebooks have given the run. Of each, the first value counts."""
        return self._tags(is_property=True)

    tags = property(get_tags)
    properties = property(get_properties)

    def tag(self, key: str, value: Any = None) -> None:
        """Give the run a tag. It is kept when the call returns. Raises NotFound, RequestRefused."""
        self.set_tags({key: value})

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Give the run several tags."""
        client, job_id, folder = self._owner()
        client.tag(job_id, _texts_of(tags), step=folder.rstrip("/"))

    def remove_tags(self, tags: Iterable[str]) -> None:
        """Remove tags."""
        client, job_id, folder = self._owner()
        client.tag(job_id, remove=[tags] if isinstance(tags, str) else tags, step=folder.rstrip("/"))

    def add_properties(self, properties: Mapping[str, Any]) -> None:
        """Give the run properties. One that it has already stays as it is."""
        client, job_id, folder = self._owner()
        client.tag(job_id, properties=_texts_of(properties), step=folder.rstrip("/"))

    def _submitted_tags(self) -> Mapping[str, str]:
        """The tags that it was submitted with: only the whole run has some."""
        return {}

    def _tags(self, *, is_property: bool) -> dict[str, Any]:
        client, job_id, folder = self._owner()
        tags = client.tags(job_id, self._submitted_tags())
        return {tag.name: tag.value for tag in tags if (tag.step, tag.is_property) == (folder.rstrip("/"), is_property)}

    def register_model(
        self,
        model_name: str,
        model_path: str | None = None,
        tags: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        description: str | None = None,
        **more: Any,
    ) -> Model:
        """Register a file or folder of the run as a model, as `Model.register` does. `model_path`: its name among the
        files that scripts have uploaded, or, of an output, the output's name and the path below it; by default the
        model's name. `outputs/…` is also the path below the output `artifacts`. Raises NotFound.
        """
        from windrow.ml.v1.models import Model

        path = (model_path or model_name).strip("/")
        with temporary_tree("windrow-model-") as folder:
            place = self._fetched(path, folder)
            given = {"tags": tags, "properties": properties, "description": description, **more}
            return Model.register(self._workspace(), place, model_name, **given)

    def _fetched(self, path: str, folder: str) -> str:
        """Download a file or folder of the run into a folder, and return its place there. Raises NotFound."""
        uploaded = {name: file for name, (file, _) in self._files().items() if not name.startswith(LOGS)}
        place = os.path.join(folder, os.path.basename(path))
        if path in uploaded:
            self._fetch(uploaded[path], place)
            return place
        for name, file in uploaded.items():
            if name.startswith(f"{path}/"):
                self._fetch(file, os.path.join(place, name.removeprefix(f"{path}/")))
        if os.path.lexists(place):
            return place
        if (found := self._fetched_output(path, folder)) is not None:
            return found
        raise NotFound(
            f"{self!r} has no file {path!r}. Its files: {', '.join(sorted(uploaded)) or 'none'}. A script gives it "
            "files by run.upload_file(name, path) or run.upload_folder(name, path); "
            "get_output_data(name).download(folder) fetches an output, and Model.register registers a path."
        )

    def _fetched_output(self, path: str, folder: str) -> str | None:
        """Download an output, and return the place of a path in it; None if there is no such output, or path in it."""
        return None

    def _workspace(self) -> Any:
        """The workspace of the run."""
        raise NotImplementedError

    def log(self, name: str, *value: Any, **more: Any) -> NoReturn:
        """Raises UsageError: only scripts log values of this run."""
        raise UsageError(
            f"{name!r} cannot be logged from here: a run of a pipeline has what its scripts log, by "
            "Run.get_context().log(name, value). For values of the notebook: run = experiment.start_logging()."
        )

    log_list = log_row = log_table = log_image = log

    def get_details_with_logs(self) -> dict[str, Any]:
        """Return everything known about the run, and under `logFiles` the text of each log; of a log over 1 MiB, only
        its end.
        """
        texts = {
            name: self._text(path, offset=max(0, length - _WHOLE))
            for name, (path, length) in self._files().items()
            if name.startswith(LOGS)
        }
        return {**self.get_details(), "logFiles": texts}

    def get_job_log(self) -> str:
        """Return how the run ended, and why (`job_result.txt`); an empty text until then."""
        return self._texts("job_result.txt")

    def get_stdout_log(self) -> str:
        """Return the stdout of the scripts, worker by worker. The last lines may arrive a moment after the end."""
        return self._texts("user/stdout/")

    def get_stderr_log(self) -> str:
        """Return the stderr of the scripts, worker by worker."""
        return self._texts("user/stderr/")

    def _texts(self, prefix: str) -> str:
        found = {name: path for name, (path, _) in sorted(self._files().items()) if name.startswith(LOGS + prefix)}
        if len(found) == 1:
            return "".join(map(self._text, found.values()))
        return "\n".join(f"==> {name} <==\n{self._text(path)}" for name, path in found.items())

    def _path(self, name: str) -> str:
        known: Mapping[str, tuple[str, int]] = self._files()
        if name not in known:
            raise NotFound(
                f"{self!r} has no file {name!r}.{did_you_mean(name, known)} get_file_names() lists the files; "
                "get_output_data(name).download(folder) fetches an output."
            )
        return known[name][0]

    def _text(self, path: str, offset: int = 0) -> str:
        client, job_id, _ = self._owner()
        return b"".join(client.read_log(job_id, path, offset=offset)).decode("utf-8", "replace")

    def _fetch(self, path: str, place: str) -> None:
        client, job_id, _ = self._owner()
        fetch_log(client, job_id, path, Path(place))


def _texts_of(values: Mapping[str, Any]) -> dict[str, str | None]:
    return {str(name): None if value is None else str(value) for name, value in values.items()}
