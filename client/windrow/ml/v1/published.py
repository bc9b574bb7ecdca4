"""Published pipelines of v1 notebooks: job files that the master keeps under a name."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import RequestRefused, UsageError
from windrow.ml.exceptions import JobWarning
from windrow.ml.v1.absent import Refusing, tell_no_effect
from windrow.ml.v1.asset_names import asset_name
from windrow.ml.v1.bindings import NamedInput
from windrow.ml.v1.datastores import DataPath, DataReference
from windrow.ml.v1.runs import PipelineRun, RunWorkspace
from windrow.ml.v1.steps import step_key

if TYPE_CHECKING:
    from windrow.sdk.asset import Asset
    from windrow.spec import LoadedJob
    from windrow.spec.load import JobTree
    from windrow.spec.naming.assets import OpenLookup
    from windrow.spec.reading.context import ListPools

_NAME_TAG = "name"
"""The tag with the name as the notebook gives it, which may hold what names of assets do not."""
_VERSION_TAG = "version"
"""The same for the version."""


class Publishable(Protocol):
    """What can be published; a `windrow.ml.v1.pipelines.Pipeline` is it."""

    workspace: RunWorkspace

    def publish(self, name: str | None = None, description: str | None = None) -> PublishedPipeline:
        """Keep it under a name."""


class PublishedPipeline(Refusing):
    """A version of a published pipeline. Command lines know it, too: `windrow pipeline run NAME:VERSION`."""

    def __init__(self, workspace: RunWorkspace, asset: Asset) -> None:
        """`asset`: what the master keeps."""
        self.workspace = workspace
        self._asset = asset
        self.id = f"{asset.name}:{asset.version}"
        self.name = asset.tags.get(_NAME_TAG, asset.name)
        self.version = asset.tags.get(_VERSION_TAG, asset.version)
        self.description = asset.description
        self.status = "Active"

    @staticmethod
    def get(workspace: RunWorkspace, id: str, **more: Any) -> PublishedPipeline:
        """Return a published pipeline by its id, `name:version`; with a name alone, its latest version. Raises
        NotFound.
        """
        name, _, version = id.partition(":")
        return PublishedPipeline(workspace, workspace.ml_client.windrow.pipeline(name, version or None))

    @staticmethod
    def list(workspace: RunWorkspace, active_only: bool = True, **more: Any) -> list[PublishedPipeline]:
        """Return all versions of all published pipelines."""
        client = workspace.ml_client.windrow
        return [
            PublishedPipeline(workspace, asset)
            for newest in client.list_pipelines()
            for asset in client.list_pipelines(newest.name)
        ]

    get_all = list

    @property
    def endpoint(self) -> str:
        """The command that runs the pipeline, with a warning: there is no address for HTTP requests."""
        tell_no_effect("endpoint", "Windrow has no addresses for HTTP requests; published_pipeline.submit(...) or this "
                       f"command runs the pipeline: {self.command}")  # fmt: skip
        return self.command

    @property
    def command(self) -> str:
        """The command that runs the pipeline."""
        return f"windrow pipeline run {self.id}{self.workspace.ml_client.connection.place_options()}"

    def submit(
        self,
        workspace: RunWorkspace,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        parent_run_id: str | None = None,
        *,
        tags: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Run the pipeline. `pipeline_parameters`: values of its parameters, by name. Raises UsageError for an unknown
        parameter.
        """
        if parent_run_id:
            tell_no_effect("parent_run_id", "jobs have no parents; give them the same experiment")
        sets = [f"experiment_name={experiment_name}"] if experiment_name else []
        if continue_on_step_failure is not None:
            sets.append(f"settings.continue_on_step_failure={str(continue_on_step_failure).lower()}")
        sets += [f"tags.{key}={value}" for key, value in (tags or {}).items()]
        return PipelineRun(workspace, _submit(workspace, self._asset, pipeline_parameters or {}, sets))

    def __repr__(self) -> str:
        """Show name and id."""
        return f"PublishedPipeline(name={self.name!r}, id={self.id!r})"


class PipelineEndpoint(Refusing):
    """A name under which the newest of its pipelines is run."""

    def __init__(self, workspace: RunWorkspace, asset: Asset) -> None:
        """`asset`: the newest version."""
        self.workspace = workspace
        self._asset = asset
        self.name = asset.tags.get(_NAME_TAG, asset.name)
        self.id = asset.name
        self.description = asset.description
        self.status = "Active"

    @staticmethod
    def publish(
        workspace: RunWorkspace,
        name: str,
        pipeline: Publishable | PublishedPipeline,
        description: str | None = None,
        **more: Any,
    ) -> PipelineEndpoint:
        """Publish a pipeline under a name. Raises UsageError."""
        return PipelineEndpoint(workspace, _published(workspace, name, pipeline, description or ""))

    @staticmethod
    def get(workspace: RunWorkspace, id: str | None = None, name: str | None = None, **more: Any) -> PipelineEndpoint:
        """Return the endpoint of a name. Raises NotFound."""
        if not (name or id):
            raise UsageError("PipelineEndpoint.get needs a name.")
        asset = workspace.ml_client.windrow.pipeline(asset_name(name or id or ""))
        return PipelineEndpoint(workspace, asset)

    @staticmethod
    def list(workspace: RunWorkspace, active_only: bool = True, **more: Any) -> list[PipelineEndpoint]:
        """Return the endpoints: one for each name of a published pipeline."""
        return [PipelineEndpoint(workspace, asset) for asset in workspace.ml_client.windrow.list_pipelines()]

    @property
    def default_version(self) -> str:
        """The newest version, which is run unless another one is named."""
        return self._asset.version

    def get_default_version(self) -> str:
        """The same as `default_version`."""
        return self.default_version

    def get_pipeline(self, version: str | None = None) -> PublishedPipeline:
        """Return the pipeline of a version; by default of the newest. Raises NotFound."""
        client = self.workspace.ml_client.windrow
        return PublishedPipeline(self.workspace, client.pipeline(self._asset.name, version))

    def list_versions(self) -> Sequence[str]:
        """Return the versions, newest first."""
        return [asset.version for asset in self.workspace.ml_client.windrow.list_pipelines(self._asset.name)]

    def list_pipelines(self, active_only: bool = True) -> Sequence[PublishedPipeline]:
        """Return the pipelines of all versions, newest first."""
        found = self.workspace.ml_client.windrow.list_pipelines(self._asset.name)
        return [PublishedPipeline(self.workspace, asset) for asset in found]

    def add_default(self, pipeline: Publishable | PublishedPipeline) -> None:
        """Add a version, which is run from now on."""
        self._asset = _published(self.workspace, self.name, pipeline, self.description)

    def add(self, pipeline: Publishable | PublishedPipeline) -> None:
        """The same as `add_default`, with a warning: the newest version is the default."""
        tell_no_effect("PipelineEndpoint.add", "the newest version becomes the default; submit(pipeline_version=...) "
                       "runs an earlier one")  # fmt: skip
        self.add_default(pipeline)

    @property
    def endpoint(self) -> str:
        """As of `PublishedPipeline`."""
        return PublishedPipeline(self.workspace, self._asset).endpoint

    def submit(
        self,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        pipeline_version: str | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Run a version; by default the newest. Raises NotFound, and what `PublishedPipeline.submit` raises."""
        pipeline = self.get_pipeline(pipeline_version)
        return pipeline.submit(self.workspace, experiment_name, pipeline_parameters, **more)

    def __repr__(self) -> str:
        """Show the name."""
        return f"PipelineEndpoint(name={self.name!r})"


def publish_tree(
    workspace: RunWorkspace, tree: JobTree, name: str, version: str | None, description: str
) -> PublishedPipeline:
    """Publish the tree of a pipeline under a name. A version that another pipeline has gets a number, with a warning,
    as versions of Azure ML need not differ. Raises windrow.spec.JobFileError, UsageError, RequestRefused.
    """
    from windrow.rpc.errors import ASSET_EXISTS
    from windrow.sdk.asset import Asset
    from windrow.sdk.pipelines import publish

    tags = {} if asset_name(name) == name else {_NAME_TAG: name}
    kept_version = asset_name(str(version)) if version else ""
    if kept_version != str(version or ""):
        tags[_VERSION_TAG] = str(version)
    wanted = Asset("pipeline", asset_name(name), kept_version, "", "", False, description, tags)
    for number in itertools.count(2):
        try:
            published = PublishedPipeline(workspace, publish(workspace.ml_client.windrow, tree, wanted).asset)
        except RequestRefused as error:
            if error.reason != ASSET_EXISTS:
                raise
            more = {**tags, _VERSION_TAG: str(version)}
            wanted = wanted._replace(version=f"{kept_version}-{number}", tags=more)
            continue
        if number > 2:
            warnings.warn(
                f"The version {version} of {name} was published before, with another content. This one is "
                f"{published.id}.",
                JobWarning,
                stacklevel=3,
            )
        return published
    raise AssertionError("unreachable")


def _published(
    workspace: RunWorkspace, name: str, pipeline: Publishable | PublishedPipeline, description: str
) -> Asset:
    """A pipeline under a name, where a published one is kept once more."""
    if not isinstance(pipeline, PublishedPipeline):
        return pipeline.publish(name, description)._asset
    tags = {} if asset_name(name) == name else {_NAME_TAG: name}
    same = pipeline._asset._replace(name=asset_name(name), version="", description=description, tags=tags)
    return workspace.ml_client.windrow.registry.create(same)


def _submit(workspace: RunWorkspace, asset: Asset, parameters: Mapping[str, Any], sets: list[str]) -> str:
    from windrow.sdk.pipelines import fetched, sets_of, yaml_of

    connection = workspace.ml_client.connection
    client = connection.client()
    state = connection.state if client.master().embedded else None
    texts = {step_key(name): yaml_of(_plain(name, value)) for name, value in parameters.items()}
    with fetched(client, asset, state) as job_file:
        submission = _Submission(asset, job_file, [*sets, *sets_of(job_file, texts)], stays=state is not None)
        return workspace.ml_client.jobs.submit(submission).job_id


def _plain(name: str, value: Any) -> Any:
    """A parameter's value as a setting; of data, its path."""
    if isinstance(value, NamedInput):
        value = value.dataset
    if isinstance(value, (DataPath, DataReference)):
        return value.location
    if hasattr(value, "plain_path"):
        path = value.plain_path()
        if not path:
            raise UsageError(
                f"The parameter {name} is a table, or has steps; a published pipeline takes data by one path. Register "
                "it (windrow data create --type mltable), and give azureml:NAME:VERSION."
            )
        return path
    return value


class _Submission:
    """A published pipeline with the settings of one submission."""

    def __init__(self, asset: Asset, job_file: str, sets: list[str], *, stays: bool) -> None:
        self._asset = asset
        self._job_file = job_file
        self._sets = sets
        self._stays = stays

    def load(
        self,
        *,
        embedded: bool,
        datastores: Collection[str],
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> LoadedJob:
        """As of a pipeline."""
        from windrow.sdk.pipelines import without_file
        from windrow.spec import load_job

        loaded = load_job(
            self._job_file,
            self._sets,
            embedded=embedded,
            datastores=datastores,
            assets=assets,
            pools=pools,
            sets_folder=os.getcwd(),
        )
        return loaded if self._stays else without_file(loaded, self._asset)
