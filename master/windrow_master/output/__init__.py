"""Rows on their way into one output file: appended to segments as they arrive, concatenated in order at the end.

- `segments`, `staging`  take rows in
- `concatenation`        makes the output from committed rows; `parquet_file` writes it as Parquet
- `extents`              reads committed rows and verifies them
- `target`, `remote`     decide whether the file or object at the output's place may be replaced
- `file_operations`      every change of the disk, so that tests can cut the power between two of them
"""
