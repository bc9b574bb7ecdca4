"""The request to a planner: the line that it reads from stdin."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.storage.urls import is_remote

from windrow_master.datastores import Datastores
from windrow_master.files.state_files import StepFiles
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError
from windrow_master.planning.plan_files.checkpoint import Checkpoint
from windrow_master.roots import Roots

if TYPE_CHECKING:
    from windrow_master.planning.earlier.earlier import EarlierJob

INPUT_TYPES = ("uri_folder", "uri_file", "mltable")


class DividedInput(NamedTuple):
    """An input of the step that is divided; `type` is one of INPUT_TYPES."""

    name: str
    type: str
    path: bytes
    mode: str

    @property
    def copies(self) -> bool:
        """Whether workers get copies of the files, which they may change."""
        return self.mode in ("download", "eval_download")

    @property
    def is_remote(self) -> bool:
        """Whether the input is in remote storage."""
        return is_remote(os.fsdecode(self.path))


class Request(NamedTuple):
    """A step to plan. Source: docs/contracts.md, section 3.

    - `inputs`: the inputs to divide, in this order. A step without inputs does not need a planner (`no_input`).
    - `mini_batch_size`: files for a file list, bytes for a table. `mini_batch_rows`: records, if `file_format` is
      jsonl.
    - `exact_row_index`: count the records of tables.
    - `mixed_types`: columns of JSON lines keep values of several kinds.
    - `roots`: everything that is read must be below these; anywhere if None.
    - `datastores`: resolves their addresses in MLTable files.
    - `rows_folder`: a folder for sorted rows that agents can read; None if there is none.
    - `earlier`: the step whose results are taken over.
    - `memory_bytes_max`: the memory of the planner; None: without a bound.
    - `slow`: the ranks of mini-batches that were slow in an earlier job, by length and crc32 of their recipes.
    """

    files: StepFiles
    inputs: tuple[DividedInput, ...]
    mini_batch_size: int | None
    partition_keys: tuple[str, ...]
    checkpoint: Checkpoint | None
    roots: Roots | None
    file_format: str | None
    mini_batch_rows: int | None
    exact_row_index: bool
    mixed_types: bool
    datastores: Datastores
    rows_folder: bytes | None
    earlier: EarlierJob | None
    slow: Mapping[tuple[int, int], int]
    memory_bytes_max: int | None

    @property
    def several(self) -> bool:
        """Whether there is more than one input, so that messages have to name the input."""
        return len(self.inputs) > 1


def parse_request(line: bytes) -> Request:
    """Read the request. Raises PlanningError: SystemError if it breaks the contract, UserError for values a user
    gave."""
    try:
        value = json.loads(line)
        stored, size = value["checkpoint"], value["mini_batch_size"]
        request = Request(
            StepFiles(Path(value["step_folder"])),
            tuple(
                DividedInput(given["name"], given["type"], os.fsencode(given["path"]), given["mode"])
                for given in value["inputs"]
            ),
            size,
            tuple(value["partition_keys"]),
            None if stored is None else Checkpoint.from_json(stored),
            None if value["roots"] is None else Roots(value["roots"]),
            value["file_format"],
            value["mini_batch_rows"],
            value["exact_row_index"],
            value["mixed_types"],
            Datastores(value["datastores"]),
            None if value["rows_folder"] is None else os.fsencode(value["rows_folder"]),
            _earlier_of(value["earlier"]),
            {(length, crc32): rank for length, crc32, rank in value["slow"]},
            value.get("memory_bytes_max"),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PlanningError(f"The request to the planner is not understood: {error!r}.", SYSTEM_ERROR) from error
    for given in request.inputs:
        _check_input(given, request)
    return request


def _earlier_of(given: dict[str, Any] | None) -> EarlierJob | None:
    if given is None:
        return None
    # Imported here: few steps take results over, and the first run() waits for imports.
    from windrow_master.planning.earlier.earlier import EarlierJob

    return EarlierJob(given)


def _check_input(given: DividedInput, request: Request) -> None:
    """Raise PlanningError if the input cannot be divided as requested."""
    what = f"input {given.name}" if request.several else "input"
    size = request.mini_batch_size
    if given.type not in INPUT_TYPES:
        raise PlanningError(
            f'The type of the {what} is "{given.type}"; input_data must be one of {", ".join(INPUT_TYPES)}.'
        )
    if size is not None and (type(size) is not int or size < 1):
        raise PlanningError(f"mini_batch_size is {size}; it must be at least 1.")
    if request.partition_keys and given.type != "mltable":
        raise PlanningError(
            f"The {what} is divided by the partition keys {', '.join(request.partition_keys)}, but is a "
            f"{given.type}, which has none. Make it type: mltable, with an MLTable file whose "
            "extract_columns_from_partition_format names them."
        )
    if not os.path.isabs(given.path) and not given.is_remote:
        raise PlanningError(f"The path of the {what} must be absolute, not {os.fsdecode(given.path)!r}.", SYSTEM_ERROR)
