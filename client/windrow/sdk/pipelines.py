"""Published pipelines: job files that the master keeps under names, with all that they name but their data.

Reference: docs/reference/azure-ml/client.md.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.common.removal import discard_tree
from windrow.errors import UsageError
from windrow.sdk import packages
from windrow.sdk.asset import Asset
from windrow.sdk.packages import FOLDER, register
from windrow.sdk.submission import pack_code
from windrow.spec.load import read_job
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import to_plain
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.writing.package import JOB_FILE, package_of

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.job import Job
    from windrow.spec import LoadedJob
    from windrow.spec.load import JobTree
    from windrow.spec.reading.problems import Problem
    from windrow.transfer.local_data import OnUpload


class Published(NamedTuple):
    """What `publish` made. `warnings`: of the job file."""

    asset: Asset
    warnings: tuple[Problem, ...]


def publish(client: Client, tree: JobTree, asset: Asset) -> Published:
    """Keep a job file as a pipeline of the master. `tree`: not yet loaded. `asset`: its name, and what else is given.

    Raises windrow.spec.JobFileError with all problems of the file, UsageError, RequestRefused.
    """
    loaded = tree.load()
    _refuse_own_data(client, loaded)
    assert isinstance(tree.root, MappingNode)
    package = package_of(tree.root, asset.name, tree.context)
    kept = register(client, package, asset, functools.partial(pack_code, loaded))
    return Published(kept, loaded.warnings)


def fetch(client: Client, asset: Asset, folder: str | os.PathLike[str]) -> str:
    """Unpack a pipeline below a folder, unless it is there; return the path of its job file. Raises TransferFailed,
    OSError.
    """
    return str(packages.fetch(client, asset, folder) / JOB_FILE)


@contextmanager
def fetched(client: Client, asset: Asset, state: str | os.PathLike[str] | None) -> Iterator[str]:
    """The path of the job file of a pipeline: below the state folder of a run on this machine, where it stays because
    the run may be continued; without one, in a folder that is removed at the end of the context.
    """
    if state is not None:
        yield fetch(client, asset, Path(state, FOLDER))
        return
    folder = tempfile.mkdtemp(prefix="windrow-pipeline-")
    try:
        yield fetch(client, asset, folder)
    finally:
        discard_tree(folder)


def run(
    client: Client,
    asset: Asset,
    parameters: Mapping[str, str],
    *,
    sets: Sequence[str] = (),
    state: str | os.PathLike[str] | None = None,
    name: str | None = None,
    priority: int = 0,
    on_upload: OnUpload = lambda moment: None,
) -> Job:
    """Submit a pipeline as a job; return the accepted job. `parameters`: YAML texts by name; relative paths among them,
    and in `sets`, begin at the current folder. `state`: of runs on this machine. The rest is as in `Client.submit`.
    Raises UsageError, windrow.spec.JobFileError, RequestRefused.
    """
    with fetched(client, asset, state) as job_file:
        tree = client.read_job(job_file, [*sets_of(job_file, parameters), *sets], sets_folder=str(Path.cwd()))
        loaded = tree.load()
        if state is None:
            loaded = without_file(loaded, asset)
        return client.submit(loaded, name=name, priority=priority, on_upload=on_upload)


def without_file(loaded: LoadedJob, asset: Asset) -> LoadedJob:
    """A pipeline that was loaded from a file that does not stay: its job names the pipeline instead."""
    return loaded._replace(job=loaded.job._replace(job_file=f"{asset.name}:{asset.version}"))


def parameters_of(job_file: str) -> dict[str, Any]:
    """The parameters of a pipeline with their values: the inputs of its job file; of data, the path."""
    root = read_job(job_file).root
    node = root.entries.get("inputs") if isinstance(root, MappingNode) else None
    plain: Any = to_plain(node) if isinstance(node, MappingNode) else {}
    return {name: value.get("path") if isinstance(value, dict) else value for name, value in plain.items()}


def yaml_of(value: Any) -> str:
    """The YAML text of a parameter's value."""
    return json.dumps(value, ensure_ascii=False)


def sets_of(job_file: str, parameters: Mapping[str, str]) -> list[str]:
    """Values of parameters (YAML texts) as settings over the job file. Raises UsageError for an unknown parameter."""
    known = parameters_of(job_file)
    for name in parameters:
        if name not in known:
            has = f"it has {listed(known)}" if known else "it has none"
            raise UsageError(f'"{name}" is not a parameter of the pipeline; {has}.{did_you_mean(name, known)}')
    return [f"inputs.{name}={text}" for name, text in parameters.items()]


def _refuse_own_data(client: Client, loaded: LoadedJob) -> None:
    """Data at relative paths is this machine's, and would have to be where each later job runs."""
    if client.master().embedded or not loaded.own_inputs:
        return
    keys = listed(dict.fromkeys(loaded.own_inputs.values()))
    raise UsageError(
        f"The job file reads data of this machine ({keys}), which a published pipeline would not find. Register it "
        "(windrow data create --name NAME --path PATH) and write azureml:NAME:VERSION, or give an absolute path of the "
        "master's machine or an address in a store."
    )
