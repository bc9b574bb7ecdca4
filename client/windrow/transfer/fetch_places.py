"""Where a download puts outputs that a job file places beside itself.

A served master cannot write on the machine of a client. It keeps such an output in its default place, and `fetch` in
the job's document holds the path that the client wants, below the folder of the job file. The submitter writes the
document, but a download writes on the machine of somebody else. So a path is used only if the job file is on that
machine, and only for ordinary places below its folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def path_below(path: str, job_file: str) -> str | None:
    """The path of an output relative to the folder of the job file, as in `fetch`. None if it is outside that
    folder."""
    below = os.path.relpath(path, os.path.dirname(job_file))  # noqa: PTH120  also for paths of no machine
    return below if _is_below(below) else None


def fetch_paths(document: Mapping[str, Any], job_id: str) -> dict[str, str]:
    """Where the client wants outputs, below the folder of the job file, by name for downloads."""
    named = {f"{bound['step']}.{bound['output']}": name for name, bound in document.get("outputs", {}).items()}
    return {
        named.get(key, key): path.replace("${{name}}", job_id)
        for key, path in document.get("fetch", {}).items()
        if isinstance(path, str)
    }


def fetch_places(document: Mapping[str, Any], job_id: str) -> dict[str, Path]:
    """Where a download without a folder puts outputs, by name; empty if the job file is not on this machine."""
    job_file = Path(document.get("job_file", ""))
    # Path.is_file would raise where this user may not look.
    if not job_file.is_absolute() or not os.path.isfile(job_file):  # noqa: PTH113
        return {}
    return {
        name: job_file.parent / path
        for name, path in fetch_paths(document, job_id).items()
        if _is_below(path) and job_file.parent / path != job_file
    }


def shown_places(document: Mapping[str, Any], job_id: str) -> list[str]:
    """The paths that a download without a folder fills, as a user would type them."""
    return [shown(place) for place in fetch_places(document, job_id).values()]


def shown(place: Path) -> str:
    """A path as a user would type it: relative to the working folder if it is below that."""
    try:
        return str(place.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(place)


def is_one_file(document: Mapping[str, Any], name: str) -> bool:
    """Whether an output, by its name for downloads, is one file, not a folder."""
    bound = document.get("outputs", {}).get(name)
    step_name, _, output = (bound["step"], "", bound["output"]) if bound else name.partition(".")
    return any(
        step["name"] == step_name and step["outputs"].get(output, {}).get("type") == "uri_file"
        for step in document.get("steps", ())
    )


def _is_below(path: str) -> bool:
    """Whether a path stays below its folder, and names nothing hidden."""
    parts = path.split("/")
    return "\0" not in path and all(part and not part.startswith(".") for part in parts)
