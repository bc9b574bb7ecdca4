"""The entry point: from the path of a job file to a checked job."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from windrow.spec.job.pipeline import LoadedJob, read_pipeline
from windrow.spec.job.sets import apply_sets
from windrow.spec.reading.context import Context, ListPools
from windrow.spec.reading.nodes import Mapping, Node, Source, source_label
from windrow.spec.reading.problems import JobFileError
from windrow.spec.reading.yaml_files import read_yaml

if TYPE_CHECKING:
    from windrow.spec.naming.assets import OpenLookup


def is_v1(root: Node) -> bool:
    """Whether this is a file of Azure ML v1: a pipeline of ParallelRunSteps, or a ParallelRunConfig."""
    return (
        isinstance(root, Mapping)
        and "type" not in root.entries
        and not {"pipeline", "parallel_run_config"}.isdisjoint(root.entries)
    )


class JobTree(NamedTuple):
    """A job file as a tree of v2, not yet checked; `context` holds the problems met so far, and collects others.
    `root`: None if it cannot be read.
    """

    file: str
    root: Node | None
    context: Context

    def load(self) -> LoadedJob:
        """The checked job. Raises JobFileError with all problems of the file."""
        loaded = None if self.root is None else read_pipeline(self.root, self.file, self.context)
        if loaded is None:
            raise JobFileError(self.context.problems.errors, self.context.problems.warnings, self.context.codes)
        return loaded


def load_job(
    path: str | os.PathLike[str],
    sets: Sequence[str] = (),
    *,
    embedded: bool = True,
    datastores: Collection[str] = (),
    assets: OpenLookup | None = None,
    pools: ListPools | None = None,
    sets_folder: str | None = None,
) -> LoadedJob:
    """Reads and checks a job file (v2, or v1), and everything it names on this machine.

    `sets` are `path=value` texts put over the file. `embedded`: the job runs on this machine, so absolute paths are
    checked, too; otherwise they are the master's. `datastores`: names of the datastores of an embedded run. `assets`:
    opens the registry of assets; called when the file names one. `pools`: lists those of the cluster; called when the
    file has an `instance_type`. `sets_folder`: where relative paths in `sets` begin
    [default: at the file]. Raises `JobFileError` with all problems of the file.
    """
    return read_job(
        path, sets, embedded=embedded, datastores=datastores, assets=assets, pools=pools, sets_folder=sets_folder
    ).load()


def read_job(
    path: str | os.PathLike[str],
    sets: Sequence[str] = (),
    *,
    embedded: bool = True,
    datastores: Collection[str] = (),
    assets: OpenLookup | None = None,
    pools: ListPools | None = None,
    sets_folder: str | None = None,
) -> JobTree:
    """Reads a job file (v2, or v1) as `load_job` does, and checks nothing yet."""
    job_file = os.path.abspath(path)
    context = Context(
        Source("job", source_label(job_file), os.path.dirname(job_file)),
        embedded=embedded,
        datastores=datastores,
        assets=assets,
        pools=pools,
    )
    set_source = context.source if sets_folder is None else context.source._replace(folder=sets_folder)
    root = read_yaml(job_file, "job", context.problems)
    if root is not None and is_v1(root):
        # Few job files are: the others do without these imports.
        from windrow.spec.v1.pipeline import own_sets, translate

        own, sets = own_sets(sets)
        root = translate(apply_sets(root, own, context.problems, set_source), sets, context)
    if root is not None:
        root = apply_sets(root, sets, context.problems, set_source)
    return JobTree(job_file, root, context)
