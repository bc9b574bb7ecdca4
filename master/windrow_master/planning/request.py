"""What the planner is asked: the line it gets on stdin."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from windrow.storage.urls import is_remote

from windrow_master.datastores import Datastores
from windrow_master.planning.checkpoint import Checkpoint
from windrow_master.planning.errors import SYSTEM_ERROR, PlanningError
from windrow_master.roots import Roots

INPUT_TYPES = ("uri_folder", "uri_file", "mltable")


class Request(NamedTuple):
    """A step to plan. `input_type` None: so many mini-batches as `rank_mini_batch_count` says, without input.
    `mini_batch_size`: files for a file list, bytes for a table; `mini_batch_rows`: records, where `file_format` is
    jsonl; `exact_row_index`: count the records of tables; `roots`: where everything that is read must lie, None:
    anywhere; `datastores`: what their addresses in MLTable files mean; `mode`: of the input; `rows_folder`: where
    sorted rows go, so that agents can read them, None: there is no such place. Source: docs/contracts.md, section 3."""

    step_folder: bytes
    input_type: str | None
    path: bytes
    mini_batch_size: int | None
    partition_keys: tuple[str, ...]
    checkpoint: Checkpoint | None
    roots: Roots | None
    rank_mini_batch_count: int
    file_format: str | None
    mini_batch_rows: int | None
    exact_row_index: bool
    datastores: Datastores
    mode: str
    rows_folder: bytes | None

    @property
    def copies(self) -> bool:
        """Whether workers get files of their own, to do with what they like."""
        return self.mode in ("download", "eval_download")

    @property
    def is_remote(self) -> bool:
        """Whether the input lies in remote storage."""
        return is_remote(os.fsdecode(self.path))


def parse_request(line: bytes) -> Request:
    """Read the request. Raises PlanningError: SystemError if it breaks the contract, UserError for values a user
    gave."""
    try:
        value = json.loads(line)
        stored, size, given = value["checkpoint"], value["mini_batch_size"], value["input"]
        request = Request(
            os.fsencode(value["step_folder"]),
            None if given is None else given["type"],
            b"" if given is None else os.fsencode(given["path"]),
            size,
            tuple(value["partition_keys"]),
            None if stored is None else Checkpoint.from_json(stored),
            None if value["roots"] is None else Roots(value["roots"]),
            value["rank_mini_batch_count"],
            value["file_format"],
            value["mini_batch_rows"],
            value["exact_row_index"],
            Datastores(value["datastores"]),
            "" if given is None else given["mode"],
            None if value["rows_folder"] is None else os.fsencode(value["rows_folder"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PlanningError(f"The request to the planner is not understood: {error!r}.", SYSTEM_ERROR) from error
    if request.input_type is None:
        return request
    if request.input_type not in INPUT_TYPES:
        raise PlanningError(
            f'The type of the input is "{request.input_type}"; input_data must be one of {", ".join(INPUT_TYPES)}.'
        )
    if size is not None and (type(size) is not int or size < 1):
        raise PlanningError(f"mini_batch_size is {size}; it must be at least 1.")
    if request.partition_keys and request.input_type != "mltable":
        raise PlanningError(
            f"The input is divided by the partition keys {', '.join(request.partition_keys)}, but is a "
            f"{request.input_type}, which has none. Make it type: mltable, with an MLTable file whose "
            "extract_columns_from_partition_format names them."
        )
    if not os.path.isabs(request.path) and not request.is_remote:
        raise PlanningError(f"The path of the input must be absolute, not {os.fsdecode(request.path)!r}.", SYSTEM_ERROR)
    return request
