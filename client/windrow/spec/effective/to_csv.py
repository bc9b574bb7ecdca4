"""Keyword arguments of `DataFrame.to_csv` that rows may be written with.

Reference: docs/reference/azure-ml/parallel-job.md#dataframe-settings.
"""

from __future__ import annotations

TO_CSV_REFUSED = ("path_or_buf", "mode", "compression", "storage_options")
"""Keyword arguments of `DataFrame.to_csv` that say where and how a file is written; Windrow writes the file itself."""

TO_CSV_KNOWN = (
    "columns",
    "chunksize",
    "date_format",
    "decimal",
    "doublequote",
    "encoding",
    "errors",
    "escapechar",
    "float_format",
    "header",
    "index",
    "index_label",
    "line_terminator",
    "lineterminator",
    "na_rep",
    "quotechar",
    "quoting",
    "sep",
)
"""The others, of all versions of pandas."""
