"""Valid names: of jobs, of steps, their inputs and outputs, of files and of entry scripts."""

from __future__ import annotations

import re

JOB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
NAME = re.compile(r"[A-Za-z0-9_][\w-]{0,63}", re.ASCII)
"""Names of steps, inputs and outputs. They hold no dots: expressions separate names by dots."""
STEP_NAME_MAX = 128
STEP_NAME = re.compile(rf"[A-Za-z0-9_][\w-]{{0,{STEP_NAME_MAX - 1}}}", re.ASCII)
"""Names of steps in a job. Steps of a nested pipeline are prefixed with its name and two underscores."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_file_name(name: str) -> bool:
    """Whether a text can be the name of a file in a folder."""
    return (
        bool(name)
        and "/" not in name
        and "\0" not in name
        and name not in (".", "..")
        and len(name.encode(errors="surrogateescape")) <= 255
    )


ROWS_FILE_NAME_REFUSED = '~"#%&*:<>?/\\{|}'
"""Characters that `append_row_file_name` may not hold. Reference: docs/reference/azure-ml/parallel-job.md#version-1."""


def is_rows_file_name(name: str) -> bool:
    """Whether a text can be the `append_row_file_name` of a step."""
    return is_file_name(name) and not any(char in name for char in ROWS_FILE_NAME_REFUSED)


def is_entry_script(script: str) -> bool:
    """Whether a text is a relative `.py` path that stays inside its folder, or a dotted module."""
    if script.endswith(".py"):
        return not script.startswith("/") and all(part not in ("", "..") for part in script.split("/"))
    return bool(_MODULE.fullmatch(script))


def is_encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, or is a file name from `os.fsdecode`. JSON can also carry other lone
    surrogates, which nothing can encode.
    """
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
