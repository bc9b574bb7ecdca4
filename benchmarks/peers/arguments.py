"""The arguments that all peers take, the sorted listing, and the file of rows."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.work import batch_work


@dataclass(frozen=True)
class Arguments:
    """The arguments of one run."""

    work: str
    folder: str
    batch_size: int
    output: str
    stamps: str
    workers: int


def parse() -> Arguments:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", choices=batch_work.WORK, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--stamps", required=True)
    parser.add_argument("--workers", type=int, default=2)
    return Arguments(**vars(parser.parse_args()))


def mini_batches(arguments: Arguments) -> Iterable[list[str]]:
    """The sorted paths of the folder, `batch_size` at a time."""
    with os.scandir(arguments.folder) as entries:
        paths = sorted(entry.path for entry in entries)
    size = arguments.batch_size
    return (paths[first : first + size] for first in range(0, len(paths), size))


def write_rows(rows_of_batches: Iterable[list[str]], output: str) -> None:
    """Write one line for each row. The file appears when it is complete."""
    with open(output + ".partial", "w") as file:
        for rows in rows_of_batches:
            file.writelines(row + "\n" for row in rows)
    os.rename(output + ".partial", output)
