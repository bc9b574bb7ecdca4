"""Data of a job that is in one of its code folders, as beside a script in the working folder.

What the steps divide and where they write is not code: it does not go into the archive, and new results do not make
another run of the same command.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from windrow.common import failure_list
from windrow.common.trees import paths_named
from windrow.spec import DataInput

if TYPE_CHECKING:
    from windrow.spec import EffectiveStep, LoadedJob


def data_in(folder: str, loaded: LoadedJob, written: Iterable[str] = ()) -> frozenset[str]:
    """The paths, relative to a code folder, of divided inputs and outputs below it. Links are not followed.

    `written`: outputs of other jobs.
    """
    steps = [step for step in loaded.job.steps if loaded.code_folders[step.name] == folder]
    code = [os.path.join(folder, step.entry_script) for step in steps]
    found: set[str] = set()
    own = [place for step in loaded.job.steps for place in (*_divided(step), *_written(step))]
    others = [place for output in written if output.startswith(f"{folder}/") for place in (output, *_beside(output))]
    for place in own + others:
        below = os.path.relpath(place, folder)
        # What holds the code, or is the code, is not left out.
        if below != "." and not below.startswith("..") and not any(f"{one}/".startswith(f"{place}/") for one in code):
            found.add(below)
    return frozenset(found)


def _divided(step: EffectiveStep) -> Iterator[str]:
    for name in step.input_data:
        given = step.inputs.get(name)
        if not isinstance(given, DataInput) or not os.path.isabs(given.path):
            continue
        yield given.path
        if given.type == "mltable":
            yield from _named_by(given.path)


def _named_by(path: str) -> Iterator[str]:
    """What an MLTable file names on this machine."""
    # Most jobs divide no such table.
    from windrow.spec.naming.locations import is_elsewhere
    from windrow.spec.reading.problems import Problems
    from windrow.spec.tables.mltable import FILE_NAME, read_mltable

    definition = path if os.path.basename(path) == FILE_NAME else os.path.join(path, FILE_NAME)
    if not os.path.isfile(definition):
        return
    table = read_mltable(definition, Problems())
    for entry in table.paths if table is not None else ():
        if is_elsewhere(entry.text):
            continue
        place = os.path.normpath(os.path.join(os.path.dirname(definition), entry.text))
        if entry.kind == "pattern":
            yield from paths_named(place)
        else:
            yield place


def _written(step: EffectiveStep) -> Iterator[str]:
    for output in step.outputs.values():
        if output.path is not None and os.path.isabs(output.path):
            yield output.path
            yield from _beside(output.path, f"{step.name}.{failure_list.FILE_NAME}")


def _beside(output: str, *names: str) -> Iterator[str]:
    """The lists of failed items beside an output that is a file."""
    for name in (failure_list.FILE_NAME, failure_list.named_for(output), *names):
        yield os.path.join(os.path.dirname(output), name)
