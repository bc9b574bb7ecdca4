"""Where a download puts outputs that a job file places beside itself.

A served master cannot write on the machine of a client. It keeps such an output in its default place, and `fetch` in
the job's document holds the path that the client wants, below the folder of the job file. The submitter writes the
document, but a download writes on the machine of somebody else. So a path is used only if the job file is on that
machine and itself names the path as that of an output, and only for ordinary places below its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

JOB_FILE_MAX = 4 << 20
"""In bytes. A larger file is not read: it is no job file."""
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


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
    """Where a download without a folder puts outputs, by name: those that the job file on this machine places there."""
    job_file = Path(document.get("job_file", ""))
    # Path.is_file would raise where this user may not look.
    if not job_file.is_absolute() or not os.path.isfile(job_file):  # noqa: PTH113
        return {}
    wanted = {
        name: path
        for name, path in fetch_paths(document, job_id).items()
        if _is_below(path) and job_file.parent / path != job_file
    }
    named = list(_output_paths(job_file)) if wanted else []
    return {name: job_file.parent / path for name, path in wanted.items() if any(one.fullmatch(path) for one in named)}


def _output_paths(job_file: Path) -> Iterator[re.Pattern[str]]:
    """The relative paths that a file names as those of outputs; an expression in them stands for part of a name."""
    from windrow.spec.reading.nodes import Mapping as MappingNode
    from windrow.spec.reading.nodes import Node, Scalar, Sequence, Source
    from windrow.spec.reading.problems import Problems
    from windrow.spec.reading.yaml_files import parse_yaml

    def texts(node: Node | None, *, of_outputs: bool) -> Iterator[str]:
        if isinstance(node, MappingNode):
            for key, entry in node.entries.items():
                if key != "type":
                    yield from texts(entry, of_outputs=of_outputs or key == "outputs")
        elif isinstance(node, Sequence):
            for item in node.items:
                yield from texts(item, of_outputs=of_outputs)
        elif isinstance(node, Scalar) and of_outputs and not node.text.startswith("${{"):
            yield node.text  # an expression alone is a reference to another output

    try:
        with job_file.open("rb") as file:
            content = file.read(JOB_FILE_MAX + 1)
        text = content.decode() if len(content) <= JOB_FILE_MAX else ""
    except (OSError, UnicodeDecodeError):
        return
    root = parse_yaml(text, Source("job", str(job_file), str(job_file.parent)), Problems())
    for path in texts(root, of_outputs=False):
        # An expression may hold slashes, which separate no folders.
        fixed = _EXPRESSION.split(os.path.normpath(_EXPRESSION.sub("\0", path)).replace("\0", "${{}}"))
        yield re.compile("[^/]*".join(map(re.escape, fixed)))


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
