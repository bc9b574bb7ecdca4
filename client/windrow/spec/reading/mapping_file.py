"""Files that are one mapping: of an asset, of queues, of prices."""

from __future__ import annotations

import os

from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Mapping, Source, shown, source_label
from windrow.spec.reading.problems import Problems
from windrow.spec.reading.yaml_files import read_yaml


def read_mapping_file(path: str | os.PathLike[str], kind: str, what: str) -> tuple[Mapping, Context]:
    """Read a file; return its mapping, and what notes the problems of its parts. `kind`: of its values, for messages;
    `what`: a sentence that says what the file has to be. Raises JobFileError if it is none.
    """
    file = os.path.abspath(path)
    problems = Problems()
    root = read_yaml(file, kind, problems)
    context = Context(Source(kind, source_label(file), os.path.dirname(file)), embedded=True)
    context.problems = problems
    if root is not None and not isinstance(root, Mapping):
        problems.error(root, "", f"is {shown(root)}; {what}")
    problems.raise_errors()
    assert isinstance(root, Mapping)
    return root, context
