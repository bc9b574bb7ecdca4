"""The files of a run: its logs, and the metrics in them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.errors import NotFound, UsageError
from windrow.ml.operations.logs import fetch_log
from windrow.sdk.metrics import Logged, as_dictionary, logged
from windrow.spec.reading.problems import did_you_mean

if TYPE_CHECKING:
    from windrow.sdk.client import Client

LOGS = "logs/"
"""As there; below it a run's files have the names that docs/reference/files.md has."""
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
        """For each log, by name: its path in the job's logs, and its length in bytes."""
        client, job_id, folder = self._owner()
        return {
            LOGS + file.path.removeprefix(folder): (file.path, file.length)
            for file in client.logs(job_id)
            if file.path.startswith(folder)
        }

    def get_file_names(self) -> list[str]:
        """Return the names of the logs, such as `logs/user/error.txt` of a step."""
        return sorted(self._files())

    def download_file(self, name: str, output_file_path: str | None = None, **more: Any) -> None:
        """Download a log to a path or into a folder; by default into the working folder. Raises NotFound."""
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
        """Download the logs whose names start with `prefix` (by default all) into a folder. They keep their names,
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
            name: self._text(path, offset=max(0, length - _WHOLE)) for name, (path, length) in self._files().items()
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
