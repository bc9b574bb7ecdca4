"""The paths and path columns that the MLTable file of an input names, found without reading any data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from windrow_master.planning.errors import PlanningError
from windrow_master.planning.listing.opening import read_within
from windrow_master.planning.listing.patterns import compile_pattern, is_wild
from windrow_master.roots import Roots

FILE_NAME = b"MLTable"


def definition_of(path: bytes) -> bytes | None:
    """The MLTable file of an input: the named file itself, or the one in the named folder; None if there is none."""
    if os.path.basename(path) == FILE_NAME and os.path.isfile(path):
        return path
    definition = os.path.join(path, FILE_NAME)
    return definition if os.path.isfile(definition) else None


def read_definition(path: bytes, roots: Roots | None) -> tuple[bytes, bytes] | None:
    """The MLTable file of an input, as of `definition_of`, with its content; None if there is none, or none in `roots`
    that can be read. Who reads the input says why.

    What is read is what was opened, wherever links lead by then, and nothing else in its place holds it up.
    """
    # Imported here: most inputs are not tables, and need no YAML.
    from windrow.spec.reading.yaml_files import FILE_BYTES_MAX

    definition = definition_of(path)
    if definition is None:
        return None
    try:
        return definition, read_within(definition, roots, FILE_BYTES_MAX + 1)
    except (OSError, PlanningError):
        return None


def places_in(definition: bytes, content: bytes) -> Iterator[tuple[str, bytes]]:
    """The entries of an MLTable file, each with its key and the absolute path of the folder or file that holds all it
    names.

    A file with errors yields nothing: they are reported when the data is read. `content`: of the file.
    """
    # Imported here: most inputs are not tables, and need no YAML.
    from windrow.spec.naming.locations import is_elsewhere
    from windrow.spec.reading.problems import Problems
    from windrow.spec.tables.mltable import read_mltable

    table = read_mltable(os.fsdecode(definition), Problems(), content)
    for index, entry in enumerate(table.paths if table is not None else ()):
        text = os.fsencode(entry.text)
        if is_elsewhere(entry.text):
            # The planner finds out which files a pattern names; here, the part before the first wildcard will do.
            fixed = re.split(rb"[*?\[]", text)[0] if entry.kind == "pattern" else text
            # Keep the slash: without it, azureml://datastores/data/paths/ would not be an address.
            yield f"paths[{index}].{entry.kind}", fixed if fixed == text else fixed[: fixed.rindex(b"/") + 1]
            continue
        if entry.kind == "pattern" and is_wild(text):
            text = compile_pattern(text).base
        yield f"paths[{index}].{entry.kind}", os.path.normpath(os.path.join(os.path.dirname(definition), text))


def keys_in_paths(definition: bytes, content: bytes) -> tuple[str, ...] | None:
    """The columns that the MLTable file with this content takes from the paths of files, by which input can be divided
    without sorting rows.

    None if the file has errors, names a list of files, or names a Delta table, whose log has more such columns:
    planning reports on these.
    """
    from windrow.spec.reading.problems import Problems
    from windrow.spec.tables.delta import ReadDelta
    from windrow.spec.tables.mltable import read_mltable
    from windrow.spec.tables.partition_format import columns_of

    table = read_mltable(os.fsdecode(definition), Problems(), content)
    if table is None or table.read is None or isinstance(table.read, ReadDelta):
        return None
    return columns_of((*table.before, *table.after))
