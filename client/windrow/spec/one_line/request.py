"""What a command line without a job file asks for."""

from __future__ import annotations

import os
from typing import NamedTuple

SCRIPT_SUFFIX = ".py"
ROW_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".txt": "text"}
"""The format of the rows, by the suffix of their file."""

FOLDER = "one-line"
"""In the state folder. Each script and output has a folder there, so that the same command means the same job file."""

KINDS = ("auto", "files", "table")
"""How inputs are read: by their suffix, as lists of files, or as tables."""


class OneLine(NamedTuple):
    """A script and its options, as typed. Paths are relative to the working folder; None means not given.

    `workers`: of the step. `slots`: how many workers there will be, by which a mini-batch size is chosen.
    `keeps_earlier`: mini-batches of an earlier job, of whatever size, are taken over. `name`: of the step and the job,
    if not that of the script. `output_option`: how messages call the output.
    """

    script: str
    inputs: tuple[str, ...] = ()
    output: str = ""
    kind: str = "auto"
    mini_batch_size: str | None = None
    workers: int | None = None
    timeout: int | None = None
    max_retries: int | None = None
    partition_keys: tuple[str, ...] = ()
    returns: str | None = None
    split: str | None = None
    retry_delay: str | None = None
    rate_limit: str | None = None
    cpus_per_worker: str | None = None
    memory_per_worker: str | None = None
    gpus_per_worker: str | None = None
    min_nodes: str | None = None
    idle_gpu_timeout: int | None = None
    speculate: bool = False
    arguments: tuple[str, ...] = ()
    slots: int = 1
    keeps_earlier: bool = False
    name: str = ""
    output_option: str = "-o"


def is_one_line(job_file: str) -> bool:
    """Whether a job file is what a command line without one asked for."""
    return os.path.basename(os.path.dirname(os.path.dirname(job_file))) == FOLDER
