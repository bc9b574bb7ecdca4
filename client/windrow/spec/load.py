"""The entry point: from the path of a job file to a checked job."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from windrow.spec.nodes import Source, read_yaml, source_label
from windrow.spec.pipeline import LoadedJob, read_pipeline
from windrow.spec.problems import JobFileError
from windrow.spec.reading import Context
from windrow.spec.sets import apply_sets


def load_job(
    path: str | os.PathLike[str],
    sets: Sequence[str] = (),
    *,
    embedded: bool = True,
    datastores: Collection[str] = (),
) -> LoadedJob:
    """Reads and checks a job file, and everything it names on this machine.

    `sets` are `path=value` texts put over the file. `embedded`: the job runs on this machine, so that absolute paths
    are checked too; otherwise they are the master's. `datastores`: names of those that an embedded run has. Raises
    `JobFileError` with all the problems of the file, not only the first.
    """
    job_file = os.path.abspath(path)
    context = Context(
        Source("job", source_label(job_file), os.path.dirname(job_file)), embedded=embedded, datastores=datastores
    )
    root = read_yaml(job_file, "job", context.problems)
    if root is not None:
        root = apply_sets(root, sets, context.problems, context.source)
        loaded = read_pipeline(root, job_file, context)
        if loaded:
            return loaded
    raise JobFileError(context.problems.errors, context.problems.warnings, context.codes)
