"""One line for each group of a table, with pandas in a pool of processes.

`--by pandas` groups in memory. With `--by duckdb`, DuckDB first writes a file for each group (`COPY … PARTITION_BY`).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator

import pandas as pd

from benchmarks.peers import csv_ranges
from benchmarks.work import batch_work

CHUNK = 256


def line_of(group: tuple[str, pd.DataFrame]) -> str:
    """The line of a group: key, number of rows, sum."""
    key, rows = group
    batch_work.stamped(list, [])
    return f"{key},{len(rows)},{rows['amount'].sum()}"


def line_of_folder(folder: str) -> str:
    """The line of a group, from the file that DuckDB wrote into a folder named `key=…`."""
    (file,) = os.scandir(folder)
    return line_of((os.path.basename(folder).partition("=")[2], pd.read_parquet(file.path)))


def folders(path: str, place: str) -> Iterator[str]:
    """Have DuckDB write its folders; yield them in the order of their keys."""
    import duckdb

    # Otherwise what DuckDB does not hold in memory goes to the working folder, until the disk is full.
    duckdb.sql(f"SET temp_directory = '{place}.temporary'; SET max_temp_directory_size = '20GB'")
    copy = f"COPY (FROM read_csv('{path}')) TO '{place}' (FORMAT parquet, PARTITION_BY (key))"
    duckdb.sql(copy)
    return iter(sorted(entry.path for entry in os.scandir(place)))


def main() -> None:
    options = csv_ranges.parse(("pandas", "duckdb"))
    place = options.output + ".groups"
    with multiprocessing.Pool(options.workers, batch_work.stamp_into, (options.stamps,)) as pool:
        if options.by == "duckdb":
            lines = pool.imap(line_of_folder, folders(options.input, place), CHUNK)
        else:
            lines = pool.imap(line_of, pd.read_csv(options.input).groupby("key"), CHUNK)
        with open(options.output + ".partial", "w") as file:
            file.writelines(line + "\n" for line in lines)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(options.output + ".partial", options.output)


if __name__ == "__main__":
    main()
