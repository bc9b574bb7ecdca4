"""What `windrow.Client` offers for the outputs of jobs that have ended: rows, frames, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import JobFailed, NotFound
from windrow.rpc.connection import Connection
from windrow.rpc.errors import OUTPUT_UNKNOWN
from windrow.sdk.job import Job
from windrow.sdk.results import RowsFile, output_names, read_frame, rows_file, rows_of, single_name

if TYPE_CHECKING:
    import pandas as pd


class OutputCalls:
    """Calls of a client. Needs its `connection`, `get()` and `document()`."""

    connection: Connection

    def get(self, job_id: str) -> Job:
        """A job as it stands. Raises NotFound."""
        raise NotImplementedError

    def document(self, job_id: str) -> dict[str, Any]:
        """The effective job as it was submitted. Raises NotFound."""
        raise NotImplementedError

    def results(self, job_id: str, output: str | None = None) -> Iterator[str]:
        """The rows of a finished job, in order, without line ends.

        `output`: a pipeline output or `step.output`; by default the only one that holds rows. Bytes that are no UTF-8
        come as `os.fsdecode` gives them.
        Rows of Parquet come as JSON objects. Raises JobFailed where the job did not end well, NotFound.
        """
        place = self._rows(job_id, output)
        return rows_of(self._read(job_id, place), place)

    def to_dataframe(self, job_id: str, output: str | None = None, **read_csv: Any) -> pd.DataFrame:
        """The rows of a finished job as a DataFrame, read with the separator that the job wrote them with.

        `read_csv`: keyword arguments of `pandas.read_csv` that win. Raises as `results` does.
        """
        place = self._rows(job_id, output)
        return read_frame(self._read(job_id, place), place, read_csv)

    def download(
        self,
        job_id: str,
        folder: str | os.PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> list[Path]:
        """Bring outputs into a folder, each into a subfolder of its name; return the files received.

        Without a folder, an output for which the job file gives a relative path goes there, beside the job file, where
        that is on this machine, and replaces what the path held; all others go into a folder of the job's name. A
        download that was broken off goes on where it stopped. Raises JobFailed, NotFound, TransferFailed.
        """
        from windrow.transfer.download import Download
        from windrow.transfer.fetch_places import fetch_places, is_one_file

        job = self.get(job_id)
        self._check_succeeded(job)
        document = self.document(job_id)
        names = list(outputs) if outputs else output_names(job, document)
        if not names:
            raise NotFound(f"Job {job_id} has no outputs.", reason=OUTPUT_UNKNOWN)
        places = fetch_places(document, job_id) if folder is None else {}
        received: list[Path] = []
        for name in names:
            if "/" in name or name.startswith("."):
                raise NotFound(f"Job {job_id} has no output {name!r}.", reason=OUTPUT_UNKNOWN)
            single = single_name(job, document, name)
            target = places.get(name) or Path(job_id if folder is None else folder) / name
            if name in places and is_one_file(document, name):
                target, single = target.parent, target.name
            received += Download(
                self.connection, job_id, job.generation, name, target, single_name=single, on_bytes=on_bytes
            ).run()
        return received

    def _rows(self, job_id: str, output: str | None) -> RowsFile:
        job = self.get(job_id)
        self._check_succeeded(job)
        return rows_file(job, self.document(job_id), output)

    def _read(self, job_id: str, place: RowsFile) -> Iterator[bytes]:
        from windrow.transfer.download import read_output_file

        return read_output_file(self.connection, job_id, place.output, place.path)

    def _check_succeeded(self, job: Job) -> None:
        if not job.state.ended:
            raise JobFailed(
                f"Job {job.job_id} has not ended yet (it is {job.state.value}). Wait for it: windrow job stream "
                f"{job.job_id}"
            )
        if not job.state.succeeded:
            why = f": {job.message}" if job.message else ""
            raise JobFailed(f"Job {job.job_id} is {job.state.value}{why}. It has no whole outputs.")
