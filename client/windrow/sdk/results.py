"""The outputs of a job: their names, downloads, and the rows as lines or as a DataFrame."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import JobFailed, NotFound, UsageError
from windrow.rpc.errors import OUTPUT_UNKNOWN
from windrow.sdk.job import Job

if TYPE_CHECKING:
    import pandas as pd

    from windrow.rpc.connection import Connection


class RowsFile(NamedTuple):
    """The file of rows in an output. `output`: the output's name for downloads; `path`: the file's path in the output,
    b"" if the output is that file; `place`: its absolute path on the master's machine; `to_csv`: how DataFrames were
    written into it; `format`: one of `windrow.spec.settings.schema.ROW_FORMATS` (`to_csv` and `header` matter for text
    only).
    """

    output: str
    path: bytes
    place: str
    to_csv: Mapping[str, Any] = MappingProxyType({})
    header: bool = False
    format: str = "text"


def output_names(job: Job, document: Mapping[str, Any]) -> list[str]:
    """The names of a job's outputs for downloads: the pipeline's own, otherwise `step.output`."""
    named = {(bound["step"], bound["output"]): name for name, bound in document.get("outputs", {}).items()}
    return [named.get((step.name, out.name), f"{step.name}.{out.name}") for step in job.steps for out in step.outputs]


def single_name(job: Job, document: Mapping[str, Any], name: str) -> str:
    """The file name of an output that is one file. Raises NotFound."""
    bound = document.get("outputs", {}).get(name)
    step_name, _, output = (bound["step"], "", bound["output"]) if bound else name.partition(".")
    for step in job.steps:
        for out in step.outputs:
            if (step.name, out.name) == (step_name, output):
                return Path(out.path).name or name
    raise NotFound(
        f"Job {job.job_id} has no output {name!r}. Its outputs: {', '.join(output_names(job, document)) or '(none)'}.",
        reason=OUTPUT_UNKNOWN,
    )


def rows_files(job: Job, document: Mapping[str, Any]) -> list[RowsFile]:
    """The files of rows of a job, in the order of its steps; those of steps that no pipeline output names last."""
    from windrow.spec import DEFAULT_ROWS_FILE

    named = {(bound["step"], bound["output"]): name for name, bound in document.get("outputs", {}).items()}
    found: list[RowsFile] = []
    for step in job.steps:
        wanted: dict[str, Any] = next((s for s in document.get("steps", ()) if s["name"] == step.name), {})
        for out in step.outputs:
            if out.name != wanted.get("append_row_to"):
                continue
            spec = wanted["outputs"][out.name]
            file_name = (spec.get("file_name") or DEFAULT_ROWS_FILE).replace("${{name}}", job.job_id)
            is_file = spec["type"] == "uri_file"
            rows = wanted.get("rows", {})
            found.append(
                RowsFile(
                    output=named.get((step.name, out.name), f"{step.name}.{out.name}"),
                    path=b"" if is_file else os.fsencode(file_name),
                    place=out.path if is_file else f"{out.path.rstrip('/')}/{file_name}",
                    to_csv=rows.get("dataframe_to_csv", {}),
                    header=rows.get("dataframe_header", False),
                    format=rows.get("format", "text"),
                )
            )
    return sorted(found, key=lambda file: "." in file.output)


def rows_file(job: Job, document: Mapping[str, Any], output: str | None) -> RowsFile:
    """The file of rows of an output, or the only one. Raises NotFound, UsageError."""
    found = rows_files(job, document)
    names = ", ".join(file.output for file in found) or "(none)"
    if output is not None:
        found = [file for file in found if file.output == output]
        if not found:
            raise NotFound(
                f"Job {job.job_id} has no output {output!r} that holds rows. Those that do: {names}.",
                reason=OUTPUT_UNKNOWN,
            )
    if not found:
        raise NotFound(
            f"Job {job.job_id} gathers no rows: none of its steps has append_row_to. "
            f"Download its outputs instead: windrow job download {job.job_id}",
            reason=OUTPUT_UNKNOWN,
        )
    if len(found) > 1:
        raise UsageError(f"Job {job.job_id} has several outputs that hold rows: {names}. Choose one.")
    return found[0]


def need_succeeded(job: Job) -> None:
    """Raise JobFailed unless the job's outputs are complete."""
    if not job.state.ended:
        raise JobFailed(
            f"Job {job.job_id} has not ended yet (it is {job.state.value}). Wait for it: windrow job stream "
            f"{job.job_id}",
            job=job,
        )
    if not job.state.succeeded:
        why = f": {job.message}" if job.message else ""
        raise JobFailed(f"Job {job.job_id} is {job.state.value}{why}. Its outputs are not complete.", job=job)


def download_outputs(
    connection: Connection,
    job: Job,
    document: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    outputs: Sequence[str] | None,
    on_bytes: Callable[[int], None],
) -> list[Path]:
    """Download outputs of a job that has succeeded, each into a folder of its name; return the files received.

    If `folder` is None, each goes where the job file places it on this machine, else into a folder of the job's name.
    Raises NotFound, TransferFailed.
    """
    from windrow.transfer.download import Download
    from windrow.transfer.fetch_places import fetch_places, is_one_file

    job_id = job.job_id
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
            connection, job_id, job.generation, name, target, single_name=single, on_bytes=on_bytes
        ).run()
    return received


def rows_of(chunks: Iterable[bytes], place: RowsFile) -> Iterator[str]:
    """Yield rows as text, without line ends. Rows of Parquet become JSON objects, like the lines of a JSON lines file.
    Rows of CSV, whose header comes first, may hold line ends inside quotes.
    """
    if place.format == "parquet":
        return _json_of(chunks)
    encoding = place.to_csv.get("encoding")
    if encoding:
        content = io.TextIOWrapper(io.BufferedReader(_Chunks(chunks), 1 << 20), encoding, "replace", newline="\n")
        return (line.removesuffix("\n") for line in content)
    return records_of(lines_of(chunks)) if place.format == "csv" else lines_of(chunks)


def lines_of(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield lines without their ends. Only `\\n` ends a line: rows may contain other line separators."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield os.fsdecode(line)
    if rest:
        yield os.fsdecode(rest)


def records_of(lines: Iterable[str]) -> Iterator[str]:
    """Join lines of CSV while a quote is open."""
    record: list[str] = []
    quotes = 0
    for line in lines:
        record.append(line)
        quotes += line.count('"')
        if quotes % 2 == 0:
            yield "\n".join(record)
            record, quotes = [], 0
    if record:
        yield "\n".join(record)


@contextlib.contextmanager
def _parquet(chunks: Iterable[bytes]) -> Iterator[Any]:
    """Open chunks as a Parquet file. They are kept on disk, since the footer is read first."""
    import tempfile

    import pyarrow.parquet

    with tempfile.TemporaryFile() as file:
        for chunk in chunks:
            file.write(chunk)
        file.seek(0)
        with pyarrow.parquet.ParquetFile(file) as parquet:
            yield parquet


def _json_of(chunks: Iterable[bytes]) -> Iterator[str]:
    import json

    with _parquet(chunks) as parquet:
        for batch in parquet.iter_batches():
            for row in batch.to_pylist():
                yield json.dumps(row, ensure_ascii=False, default=str, separators=(",", ":"))


def read_frame(chunks: Iterable[bytes], place: RowsFile, read_csv: Mapping[str, Any]) -> pd.DataFrame:
    """Read rows into a DataFrame with the settings that they were written with; `read_csv` overrides. Raises UsageError
    if `read_csv` is given for rows of another format.
    """
    import pandas as pd

    if place.format in ("jsonl", "parquet"):
        if read_csv:
            raise UsageError(
                f"{', '.join(read_csv)}: keywords of pandas.read_csv are for text and CSV; the format of "
                f"{place.output!r} is {place.format}. Leave them out."
            )
        if place.format == "parquet":
            with _parquet(chunks) as parquet:
                return parquet.read().to_pandas()
        import json

        return pd.DataFrame([json.loads(line) for line in lines_of(chunks)])
    content = _Chunks(chunks)
    try:
        return pd.read_csv(io.BufferedReader(content, 1 << 20), **{**_read_options(place), **read_csv})
    except pd.errors.EmptyDataError:
        return pd.DataFrame()


def _read_options(place: RowsFile) -> dict[str, Any]:
    if place.format == "csv":
        return {"header": 0}
    options: dict[str, Any] = {
        "sep": place.to_csv.get("sep", " "),
        "header": 0 if place.header else None,
        "index_col": 0 if place.to_csv.get("index") else None,
    }
    for name in ("quotechar", "escapechar", "doublequote", "decimal", "quoting", "encoding"):
        if name in place.to_csv:
            options[name] = place.to_csv[name]
    return options


class _Chunks(io.RawIOBase):
    """An iterator of chunks as a file, so that rows are parsed as they arrive."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
