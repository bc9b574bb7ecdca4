"""Tables: from a slice of a delimited, JSON lines or Parquet file to the DataFrame that `run()` gets.

The planner decides columns, types and cuts by the same code: `columns` and `dates` (types), `delimited_text` and
`json_lines` (records), `encodings`. Those modules need the standard library only. Importing this package imports
neither pandas nor pyarrow; making a loader does.
"""

from __future__ import annotations

from windrow_worker.loaded import MissingLibrary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from windrow_worker.loaded import Loader


def make_loader(reader: Dict[str, Any], exact_integers: bool = False) -> Loader:
    """The loader for a reader document of kind `table`. `exact_integers`: integers beside nulls stay integers, in
    columns of objects.

    Raises MissingLibrary if pandas (for Parquet also pyarrow) is not installed, what the import raises if it does not
    work, ValueError for an unknown format.
    """
    try:
        import pandas  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingLibrary("A table as input", "pandas", error) from error
    if reader["format"] == "sorted_rows":
        try:
            from windrow_worker.tables.sorted_rows import SortedRowsLoader
        except ModuleNotFoundError as error:
            raise MissingLibrary("A table that is divided by columns of its data", "pyarrow", error) from error
        return _with_null_columns(SortedRowsLoader(reader), reader)
    # Steps that change nothing are left out, but decide types of Parquet's values.
    has_steps = bool(reader.get("steps") or reader.get("by_row"))
    loader: Loader = _make_reading_loader(reader, exact_integers or has_steps)
    if "path_columns" in reader:
        from windrow_worker.tables.path_columns import PathColumnsLoader

        loader = PathColumnsLoader(loader, reader["path_columns"])
    if has_steps:
        from windrow_worker.tables.stepped import SteppedLoader

        loader = SteppedLoader(loader, reader.get("steps", ()), exact_integers)
    if "partition" in reader:
        from windrow_worker.tables.partitions import FileGroupTableLoader

        loader = FileGroupTableLoader(loader, reader["partition"]["keys"])
    return loader if exact_integers else _with_null_columns(loader, reader)


def _with_null_columns(loader: Loader, reader: Dict[str, Any]) -> Loader:
    """The loader; columns without values are objects: all if `null_objects` in the reader is true, or those that it
    lists."""
    columns = reader.get("null_objects")
    if not columns:
        return loader
    from windrow_worker.tables.null_columns import NullColumnsLoader

    return NullColumnsLoader(loader, None if columns is True else columns)


def _make_reading_loader(reader: Dict[str, Any], exact_integers: bool) -> Loader:
    """The loader of a format. `exact_integers`: as in `make_loader`; steps need it."""
    made = reader["format"]
    if made == "delimited":
        from windrow_worker.tables.delimited import DelimitedLoader

        return DelimitedLoader(reader, exact_integers=exact_integers)
    if made == "json_lines":
        # If pandas cannot be used, this fails here, not at the first mini-batch.
        import windrow_worker.tables.frames  # noqa: F401
        from windrow_worker.tables.json_lines import JsonLinesLoader

        return JsonLinesLoader(reader, exact_integers)
    if made == "parquet":
        try:
            from windrow_worker.tables.parquet import ParquetLoader
        except ModuleNotFoundError as error:
            raise MissingLibrary("A Parquet table as input", "pyarrow", error) from error
        return ParquetLoader(reader, exact_integers)
    raise ValueError("unknown table format %r; known: delimited, json_lines, parquet" % made)
