"""What a step's gathered rows become: lines of text as the original writes them, or a file of a format of its own.

`--append_row_format csv|jsonl|parquet` is Windrow's own; without it, rows are written as Azure ML
writes them (docs/reference/azure-ml/parallel-job.md#rows).
"""

from __future__ import annotations

import os

from windrow.spec.effective import DEFAULT_ROWS_FILE, Rows, StepOutput
from windrow.spec.nodes import Place
from windrow.spec.reading import Context

CSV_KEYWORDS = ("columns", "date_format", "float_format", "header", "na_rep")
"""Keyword arguments of `DataFrame.to_csv` that leave a file what RFC 4180 calls CSV."""


def make_rows(
    written: Rows, header: bool | None, row_format: str | None, place: Place | None, key: str, context: Context
) -> Rows:
    """The rows of a step, from its settings file (`written`) and its arguments, which are at `place`.

    `header` and `row_format`: what the arguments say; None where they say nothing.
    """
    keywords = written.dataframe_to_csv
    if row_format in (None, "text") or place is None:
        if header is None:
            return written
        return Rows(keywords if header else {k: v for k, v in keywords.items() if k != "header"}, header)
    kept = {name: value for name, value in keywords.items() if row_format == "csv" and name in CSV_KEYWORDS}
    idle = sorted(set(keywords) - set(kept))
    if idle:
        context.problems.warn(
            place,
            key,
            f"--append_row_format {row_format} decides how rows are written: {', '.join(idle)} of "
            "parallel_run_step.settings.json has no effect.",
        )
    if header is False and row_format == "csv":
        context.problems.warn(
            place,
            key,
            "--append_row_dataframe_header False has no effect: a file of format csv begins with its header.",
        )
    return Rows(kept, False, str(row_format))


def name_rows_file(
    output: StepOutput,
    file_name: str | None,
    row_format: str,
    place: Place,
    key: str,
    context: Context,
    *,
    is_placed: bool = False,
) -> StepOutput:
    """The output of a step's rows, its file named. `file_name` is `--append_row_file_name`, for files in a folder: an
    output that is a file of its own keeps its name, which a warning tells. `is_placed`: nobody has named it, its path
    is what it is by default.

    Notes an error where the name ends otherwise than the format.
    """
    if is_placed and output.type == "uri_file" and output.path is not None:
        folder = output._replace(type="uri_folder", path=output.path.rpartition("/")[0])
        named = name_rows_file(folder, file_name, row_format, place, key, context)
        return output._replace(path=f"{folder.path}/{named.file_name or DEFAULT_ROWS_FILE}")
    is_file = output.type == "uri_file" and (output.path is not None or output.file_name is not None)
    if file_name and not is_file:
        output = output._replace(file_name=file_name)
    name = output.path if is_file and output.path is not None else output.file_name
    if file_name and name and os.path.basename(name) != file_name:
        context.problems.warn(
            place,
            key,
            f'--append_row_file_name {file_name} has no effect: the output is the file "{os.path.basename(name)}"; '
            "change its path, or make the output a uri_folder.",
        )
    if row_format == "text":
        return output
    if name is None:
        stem, _ = os.path.splitext(DEFAULT_ROWS_FILE)
        return output._replace(file_name=f"{stem}.{row_format}")
    if not name.endswith(f".{row_format}"):
        context.problems.error(
            place,
            key,
            f'--append_row_format is {row_format}, but the file of rows is "{os.path.basename(name)}"; give it a name '
            f"that ends in .{row_format}, or take --append_row_format out to get lines of text.",
        )
    return output
