"""Cuts a CSV into byte ranges at line ends; a pool reads each into a DataFrame and writes it as text."""

from __future__ import annotations

import argparse
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from benchmarks.work import batch_work

RANGE_BYTES = 10 * 1024 * 1024
SAMPLE_ROWS = 200


@dataclass(frozen=True)
class CsvRange:
    """A range of bytes of a file, with what is needed to read it alone."""

    path: str
    start: int
    end: int
    columns: list[str]
    types: dict[str, object]


def parse(by: Iterable[str] = ()) -> argparse.Namespace:
    """Parse `--input`, `--output`, `--stamps`, `--workers`, and `--by` if there are several ways."""
    parser = argparse.ArgumentParser()
    for name in ("--input", "--output", "--stamps"):
        parser.add_argument(name, required=True)
    parser.add_argument("--workers", type=int, default=2)
    if by:
        parser.add_argument("--by", choices=list(by), required=True)
    return parser.parse_args()


def ranges(path: str) -> Iterator[CsvRange]:
    sample = pd.read_csv(path, nrows=SAMPLE_ROWS)
    columns, types = list(sample.columns), sample.dtypes.to_dict()
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.readline()
        start = file.tell()
        while start < size:
            file.seek(min(start + RANGE_BYTES, size))
            file.readline()
            yield CsvRange(path, start, file.tell(), columns, types)
            start = file.tell()


def frame(part: CsvRange) -> pd.DataFrame:
    """The rows of a range."""
    with open(part.path, "rb") as file:
        file.seek(part.start)
        content = file.read(part.end - part.start)
    return pd.read_csv(io.BytesIO(content), names=part.columns, dtype=part.types)


def rewritten(part: CsvRange) -> str:
    """A range as CSV text, by way of a DataFrame."""
    batch_work.stamped(list, [])
    return str(frame(part).to_csv(index=False, header=False))


def rewrite(
    mapped: Callable[[Callable[[CsvRange], str], Iterable[CsvRange]], Iterable[str]], options: argparse.Namespace
) -> None:
    """Write the header and all ranges, in order. The file appears when it is complete."""
    parts = list(ranges(options.input))
    with open(options.output + ".partial", "w", newline="") as file:
        file.write(",".join(parts[0].columns) + "\n")
        for text in mapped(rewritten, parts):
            file.write(text)
    os.rename(options.output + ".partial", options.output)
