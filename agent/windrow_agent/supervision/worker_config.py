"""The configuration file of a worker, and where the worker's code is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from zlib import crc32

from windrow_agent.steps.reader import local_reader
from windrow_agent.steps.step import Step


def boot_path() -> Path:
    """`boot.py` of the worker, found without importing it. Raises FileNotFoundError."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("windrow_worker")
    if spec is None or not spec.origin:
        raise FileNotFoundError("windrow_worker is not installed beside windrow_agent; install windrow again")
    return Path(spec.origin).with_name("boot.py")


def hosting(
    step: Step, number: int, node_id: str, node_rank: int, scratch: Path, log_folder: Path, metrics: Path
) -> dict[str, object]:
    """The part of a worker's configuration that says what it hosts, not how it is reached."""
    spec = step.spec
    sums = step.code_sums
    return {
        "code_folder": str(step.code),
        "code_sums": "" if sums is None else str(sums.path),
        "code_sums_crc32": 0 if sums is None else sums.crc32,
        "entry_script": spec.entry_script,
        "logging_level": spec.logging_level or "INFO",
        "job_id": spec.job_id,
        "step_name": spec.step_name,
        "node_id": node_id,
        "node_rank": node_rank,
        "process_name": f"process{number:03d}",
        "process_number": number,
        "log_folder": str(log_folder),
        "metrics_path": str(metrics),
        "scratch_folder": str(scratch),
        "reader": local_reader(step.reader) if step.needs_fetching else step.reader,
        "rows": step.rows,
    }


def as_config(document: Mapping[str, object]) -> bytes:
    """The content of the file: the crc32 of the JSON in hexadecimal, a line feed, the JSON."""
    content = json.dumps(document).encode()
    return b"%08x\n%b" % (crc32(content), content)


def variables(step: Step, places: Mapping[str, str]) -> dict[str, str]:
    """The step's environment variables, with paths on this node. `places`: as of `script_config`."""
    return {name: step.localised(value, places) for name, value in step.spec.environment_variables.items()}


def script_config(step: Step, places: Mapping[str, str]) -> dict[str, object]:
    """What its script or command is given, with paths on this node. `places`: paths of stored outputs, by name."""
    spec = step.spec
    return {
        "command": step.localised(spec.command, places),
        "artifacts": step.localised(spec.artifacts, places),
        "output_files": {name: step.localised(path, places) for name, path in spec.output_files.items()},
        "unmade_outputs": {name: step.localised(path, places) for name, path in spec.unmade_outputs.items()},
        "arguments": [step.localised(argument, places) for argument in spec.arguments],
    }
