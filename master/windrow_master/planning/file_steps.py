"""Steps of an MLTable file on its list of files: before it is read, or where it is not read at all.

The list is one partition with one column, `Path`, the absolute path as text; columns that a step takes from the paths
can be used by the filters behind it. Steps that make no sense for it were refused when the MLTable file was read.
Reference: docs/reference/azure-ml/mltable.md#paths, #samples.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import compress

from windrow.spec.tables.partition_format import ExtractColumns
from windrow.spec.tables.steps import PATH, Filter, Sample, SelectPartitions, Skip, Step, Take
from windrow_worker.tables.partition_format import PartitionFormat, PathColumns

from windrow_master.planning.counts import Bound, Counts
from windrow_master.planning.errors import PlanningError, shown


class FileSteps:
    """The steps and their progress; `seen` is part of the checkpoint."""

    def __init__(self, steps: Sequence[Step], base: bytes, seen: Sequence[int] | None = None) -> None:
        """`base`: the folder of the MLTable file."""
        self._steps = steps
        self._base = base
        self._counts = Counts(
            [Bound(isinstance(s, Skip), s.number) for s in steps if isinstance(s, (Take, Skip))], seen
        )
        self._none_selected = any(isinstance(s, SelectPartitions) and not s.numbers for s in steps)
        self._samples = [step for step in steps if isinstance(step, Sample)]

    @property
    def seen(self) -> list[int]:
        """How many files have reached each take and skip."""
        return list(self._counts.seen)

    @property
    def nothing_passes(self) -> bool:
        """Whether no further file gets through, so that listing can stop."""
        return self._none_selected or self._counts.nothing_passes

    def apply(self, folder: bytes, names: list[bytes]) -> list[bytes]:
        """The names, relative to `folder`, that get through all steps."""
        bound, formats = 0, list[PartitionFormat]()
        if self._none_selected:
            return []
        for step in self._steps:
            if isinstance(step, (Take, Skip)):
                first, behind = self._counts.passing(bound, len(names))
                bound += 1
                names = names[first:behind]
            elif isinstance(step, Sample) and names:
                names = self._sampled(step, folder, names)
            elif isinstance(step, Filter) and names:
                names = _filtered(step, folder, names, formats)
            elif isinstance(step, ExtractColumns):
                formats.append(step.format)
        return names

    def nothing_left(self) -> PlanningError:
        """The error for an input of which no file gets through."""
        return PlanningError(
            f"The steps in the MLTable file of the input {shown(self._base)} leave no files; an input needs at least "
            "one."
        )

    def _sampled(self, step: Sample, folder: bytes, names: list[bytes]) -> list[bytes]:
        # Imported only for samples, which need numpy.
        import numpy
        from windrow_worker.tables.steps.sampling import sampled

        salts = numpy.array([salt_of(os.path.join(folder, name), self._base) for name in names], dtype="uint64")
        document = sample_document(step, self._samples.index(step))
        return list(compress(names, sampled(document, 0, salts)))


def sample_document(step: Sample, number: int) -> dict[str, object]:
    """The `number`-th sample of its list of steps, as the worker takes it."""
    return {"step": "sample", "from": step.lower, "to": step.upper, "seed": step.seed, "number": number}


def salt_of(name: bytes, base: bytes) -> int:
    """A number that identifies a file in samples, from its name, relative to `base` if it is below. So a folder that is
    moved gives the same sample."""
    relative = name.removeprefix(os.path.join(base, b""))
    return int.from_bytes(hashlib.blake2b(relative, digest_size=8).digest(), "little")


def _filtered(step: Filter, folder: bytes, names: list[bytes], formats: Sequence[PartitionFormat]) -> list[bytes]:
    """The names whose paths pass a filter. `formats`: of the columns that earlier steps take from the paths."""
    import pandas
    from windrow_worker.tables.frames import series
    from windrow_worker.tables.steps.filtering import FilterFailed, passing

    paths = [os.path.join(folder, name) for name in names]
    columns = PathColumns(formats)
    values = [columns.values(os.fsdecode(path)) for path in paths]
    table = pandas.DataFrame(
        {PATH: list(map(shown, paths))}
        | {
            name: series("datetime" if name in columns.dates else "text", [found[name] for found in values])
            for name in columns.names
        }
    )
    try:
        return list(compress(names, passing(step.expression.tree, table)))
    except FilterFailed as error:
        raise PlanningError(f"{step.place}: filter: {error}.") from error
