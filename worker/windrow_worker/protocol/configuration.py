"""The worker's configuration, a file that the agent writes before it starts a worker (docs/contracts.md, section 4)."""

from __future__ import annotations

import json
import os
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


class BadConfiguration(Exception):
    """The configuration cannot be used; the message names the file and the key."""


class Configuration:
    """What a worker hosts. Attributes are the keys of the file; paths are absolute."""

    __slots__ = (
        "arguments",
        "artifacts",
        "code_folder",
        "code_sums",
        "code_sums_crc32",
        "command",
        "entry_script",
        "inline_rows_bytes_max",
        "install_hint",
        "job_id",
        "log_folder",
        "logging_level",
        "metrics_path",
        "node_id",
        "node_rank",
        "output_files",
        "output_path",
        "page_path",
        "process_name",
        "process_number",
        "profile_path",
        "profiling_module",
        "reader",
        "requests_path",
        "result_fd",
        "rows",
        "scratch_folder",
        "step_name",
        "unmade_outputs",
        "work_fd",
    )

    def __init__(self, document: Dict[str, Any]) -> None:
        """Raises BadConfiguration."""
        take = _Taker(document)
        self.work_fd: int = take("work_fd", int)
        self.result_fd: int = take("result_fd", int)
        self.page_path: str = take("page_path", str)
        self.code_folder: str = os.path.abspath(take("code_folder", str))
        self.code_sums: str = take("code_sums", str, "")
        self.code_sums_crc32: int = take("code_sums_crc32", int, 0)
        self.command: str = take("command", str, "")
        self.entry_script: str = take("entry_script", str)
        self.arguments: List[str] = [str(argument) for argument in take("arguments", list)]
        self.logging_level: str = take("logging_level", str, "INFO")
        self.job_id: str = take("job_id", str, "")
        self.step_name: str = take("step_name", str, "")
        self.node_id: str = take("node_id", str, "")
        self.node_rank: int = take("node_rank", int, 0)
        self.process_name: str = take("process_name", str)
        self.process_number: int = take("process_number", int)
        self.log_folder: str = take("log_folder", str)
        self.metrics_path: str = take("metrics_path", str, "")
        self.requests_path: str = take("requests_path", str, "")
        self.artifacts: str = take("artifacts", str, "")
        self.output_files: Dict[str, str] = take("output_files", dict, {})
        self.unmade_outputs: Dict[str, str] = take("unmade_outputs", dict, {})
        self.output_path: str = take("output_path", str, "")
        self.scratch_folder: str = take("scratch_folder", str)
        self.inline_rows_bytes_max: int = take("inline_rows_bytes_max", int)
        self.install_hint: str = take("install_hint", str, "")
        self.profiling_module: str = take("profiling_module", str, "")
        self.profile_path: str = take("profile_path", str, "")
        self.reader: Dict[str, Any] = take("reader", dict)
        self.rows: Dict[str, Any] = take("rows", dict)


class _Taker:
    """Reads keys of a document, each with its type."""

    def __init__(self, document: Dict[str, Any]) -> None:
        self._document = document

    def __call__(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._document.get(key)
        if value is None:
            value = default
        if not isinstance(value, kind):
            raise BadConfiguration(f"key {key!r} must be of type {kind.__name__}, not {value!r}")
        return value


def read_configuration(path: str) -> Tuple[Configuration, Dict[str, Any]]:
    """Reads the file; also returns the whole object. Raises BadConfiguration, also for a file that cannot be read or
    does not match its checksum.
    """
    try:
        with open(path, "rb") as file:
            head, _, content = file.read().partition(b"\n")
        if head != b"%08x" % crc32(content):
            raise BadConfiguration("it has changed since it was written: check this node's disk")
        document = json.loads(content)
        if not isinstance(document, dict):
            raise BadConfiguration("it is not a JSON object")
        return Configuration(document), document
    except (OSError, ValueError, BadConfiguration) as error:
        raise BadConfiguration(f"the worker's configuration {path} cannot be used: {error}") from error
