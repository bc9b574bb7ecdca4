"""Pipelines of v1 steps, and their submission."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windrow.errors import UsageError
from windrow.ml.exceptions import job_file_error
from windrow.ml.places import calling_file, calling_place
from windrow.ml.v1.absent import Refusing, refuse_unknown, tell_no_effect
from windrow.ml.v1.bindings import Output
from windrow.ml.v1.graph import Graph, free_name
from windrow.ml.v1.interactive import InteractiveRun
from windrow.ml.v1.published import PipelineEndpoint, PublishedPipeline, publish_tree
from windrow.ml.v1.runs import PipelineRun, RunWorkspace
from windrow.ml.v1.script_models import with_datastores, with_models
from windrow.ml.v1.steps import BINDABLE, PipelineStep, bound_settings, step_key
from windrow.spec.load import JobTree
from windrow.spec.reading.context import Context, ListPools
from windrow.spec.reading.from_python import from_plain, mapping, scalar
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.reading.nodes import Node, Source
from windrow.spec.reading.problems import did_you_mean, listed
from windrow.spec.writing.dumping import to_yaml

if TYPE_CHECKING:
    from windrow.ml.v1.datastores import Datastore
    from windrow.ml.v1.registered import Kept
    from windrow.spec import LoadedJob
    from windrow.spec.naming.assets import OpenLookup


_PIPELINE = (
    "workspace",
    "steps",
    "description",
    "default_datastore",
    "default_source_directory",
    "resolve_closure",
)
_SUBMIT = (
    "experiment_name",
    "pipeline_parameters",
    "continue_on_step_failure",
    "regenerate_outputs",
    "parent_run_id",
    "credential_passthrough",
    "tags",
)


class PipelineWorkspace(RunWorkspace, Protocol):
    """What pipelines and experiments need from their workspace; a `windrow.ml.v1.workspace.Workspace` provides it."""

    _experiments: dict[str, Any]
    models: Kept

    @property
    def tables_folder(self) -> str:
        """Where MLTable files of datasets are written."""

    @property
    def models_folder(self) -> str:
        """Where links to models are made, for scripts."""

    def known_folders(self) -> tuple[str, dict[str, str]]:
        """The name of the default datastore, and the folders of those that are some, by name."""

    def datastore_named(self, name: str) -> Datastore:
        """Return a datastore by name."""


class StepSequence:
    """Steps that run one after the other; steps in an inner list run side by side."""

    def __init__(self, steps: Sequence[Any] | None = None, name: str | None = None) -> None:
        """`steps`: as for a `Pipeline`. Raises UsageError."""
        self.steps = list(steps or ())
        self.name = name
        for before, after in itertools.pairwise(self.steps):
            for step, other in itertools.product(_opened([after]), list(_opened([before]))):
                step.run_after(other)


class Pipeline(Refusing):
    """Steps, which run in the order of their inputs and outputs."""

    def __init__(
        self,
        workspace: PipelineWorkspace,
        steps: Any,
        description: str | None = None,
        default_datastore: Any = None,
        default_source_directory: str | os.PathLike[str] | None = None,
        resolve_closure: bool = True,
        **more: Any,
    ) -> None:
        """`steps`: in any order, also in nested lists; an output stands for its step. `default_datastore` (or its
        name): for outputs without one; `default_source_directory`: for steps without one; `resolve_closure`: add steps
        that these depend on. Raises UsageError for an unknown keyword."""
        refuse_unknown("Pipeline", more, _PIPELINE)
        self.workspace = workspace
        self.steps: Sequence[Any] = steps if isinstance(steps, (list, tuple)) else [steps]
        self.description = description
        by_name = isinstance(default_datastore, str)
        self._datastore = workspace.datastore_named(default_datastore) if by_name else default_datastore
        self._source_directory = os.fspath(default_source_directory) if default_source_directory else None
        self._resolve_closure = resolve_closure
        self._file = calling_file()
        self._place = calling_place()

    def validate(self) -> list[Any]:
        """Check the pipeline as `submit` does. Errors are raised as by `load`, so the returned list of errors is
        empty.
        """
        self.workspace.ml_client.jobs.load(Submission(self, "", {}, {}, {}))
        return []

    def submit(
        self,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool = False,
        regenerate_outputs: bool = False,
        parent_run_id: str | None = None,
        credential_passthrough: bool | None = None,
        *,
        tags: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Run the pipeline. `pipeline_parameters`: values of its parameters, by name; `regenerate_outputs`: reuse no
        step; `tags`: of the job. Raises UsageError for an unknown keyword.
        """
        refuse_unknown("Pipeline.submit", more, _SUBMIT)
        if parent_run_id:
            tell_no_effect("parent_run_id", "jobs have no parents; give them the same experiment")
        if credential_passthrough:
            tell_no_effect("credential_passthrough", "nodes read storage with their own credentials")
        said = {"continue_on_step_failure": continue_on_step_failure, "force_rerun": regenerate_outputs}
        settings = {key: value for key, value in said.items() if value}
        submission = Submission(self, experiment_name, pipeline_parameters or {}, settings, tags or {})
        run = PipelineRun(self.workspace, self.workspace.ml_client.jobs.submit(submission).job_id)
        run.pipeline = self
        return run

    def load(
        self,
        *,
        experiment_name: str = "",
        parameters: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        embedded: bool = True,
        datastores: Collection[str] = (),
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> LoadedJob:
        """Read and check it as a job file is. `settings`: of a v2 pipeline.

        Raises windrow.spec.JobFileError with all its problems, and UsageError for unknown parameters and for steps that
        cannot belong to one pipeline.
        """
        from windrow.spec.job.pipeline import read_pipeline

        context = self._context(embedded, datastores, assets, pools)
        root = self._translated(parameters or {}, context)
        if experiment_name:
            root = mapping({**root.entries, "experiment_name": scalar(experiment_name, self._place)}, root.place)
        if tags:
            texts = {str(key): str(value) for key, value in tags.items()}
            root = mapping({**root.entries, "tags": from_plain(texts, self._place)}, root.place)
        if settings:
            root = mapping({**root.entries, "settings": from_plain(settings, self._place)}, root.place)
        loaded = read_pipeline(root, self._file, context)
        if loaded is None:
            raise job_file_error(context)
        return loaded

    def publish(
        self,
        name: str | None = None,
        description: str | None = None,
        version: str | None = None,
        continue_on_step_failure: bool | None = None,
        **more: Any,
    ) -> PublishedPipeline:
        """Keep the pipeline under a name with the master, with its code and environments; it is run with parameters.

        `version`: by default the next number. Parameters of settings that are not for the whole step keep their values,
        with a warning. Raises windrow.spec.JobFileError, UsageError, RequestRefused.
        """
        connection = self.workspace.ml_client.connection
        context = self._context(
            connection.would_be_embedded,
            connection.known_datastores(),
            connection.asset_lookup,
        )
        root = self._with_bound_settings(self._translated({}, context))
        if continue_on_step_failure is not None:
            settings = from_plain({"continue_on_step_failure": continue_on_step_failure}, self._place)
            root = mapping({**root.entries, "settings": settings}, root.place)
        tree = JobTree(self._file, root, context)
        return publish_tree(
            self.workspace, tree, name or self.description or "pipeline", version, description or self.description or ""
        )

    def to_yaml(self) -> str:
        """Return the pipeline as a v2 job file."""
        context = self._context(embedded=True, datastores=())
        root = self._translated({}, context)
        if context.problems.errors:
            raise job_file_error(context)
        return to_yaml(root)

    def _context(
        self,
        embedded: bool,
        datastores: Collection[str],
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> Context:
        source = Source("job", self._place.source.label, os.path.dirname(self._file))
        return Context(source, embedded=embedded, datastores=datastores, assets=assets, pools=pools)

    def _translated(self, parameters: Mapping[str, Any], context: Context) -> MappingNode:
        from windrow.spec.v1.pipeline import translate

        steps = self._all_steps()
        _check_names(parameters, steps)
        graph = Graph(
            parameters,
            self.workspace.tables_folder,
            self._place,
            datastore=self._datastore,
            source_directory=self._source_directory,
        )
        tree = translate(graph.tree(steps, description=self.description, compute=None), (), context)
        if not isinstance(tree, MappingNode):
            raise job_file_error(context)
        workspace = self.workspace
        if context.embedded:
            tree = with_datastores(tree, *workspace.known_folders())
        return with_models(tree, workspace.models, workspace.models_folder, context)

    def _with_bound_settings(self, root: MappingNode) -> MappingNode:
        """The tree of a pipeline in which settings that are parameters refer to inputs of the pipeline."""
        inputs, jobs = dict(_entries(root, "inputs")), dict(_entries(root, "jobs"))
        keys: set[str] = set()
        for step in self._all_steps():
            key = free_name(step_key(step.name), keys)
            keys.add(key)
            for setting, parameter in bound_settings(step):
                path = BINDABLE.get(setting)
                name = step_key(parameter.name)
                if path is None:
                    tell_no_effect(
                        f"The parameter {parameter.name} of a published pipeline",
                        f"{setting} of the step {step.name} stays {parameter.default_value!r}",
                    )
                    continue
                inputs.setdefault(name, from_plain(parameter.default_value, parameter.place))
                value = scalar(f"${{{{parent.inputs.{name}}}}}", parameter.place)
                jobs[key] = _put(jobs[key], path.split("."), value)
        return mapping(
            {**root.entries, "inputs": mapping(inputs, root.place), "jobs": mapping(jobs, root.place)}, root.place
        )

    def _all_steps(self) -> list[PipelineStep]:
        """The given steps, then those that they depend on. Raises UsageError."""
        found = list(dict.fromkeys(_opened(self.steps)))
        known = set(found)
        for step in found:  # also steps that the loop adds
            for other in step.before:
                if other in known:
                    continue
                if not self._resolve_closure:
                    raise UsageError(
                        f"The step {step.name} needs {other.name}, which is not among the steps of the pipeline; add "
                        "it, or leave out resolve_closure=False."
                    )
                known.add(other)
                found.append(other)
        return found


def _opened(steps: Sequence[Any]) -> Iterator[PipelineStep]:
    """The steps in nested lists. Raises UsageError."""
    for item in steps:
        step = item.producer if isinstance(item, Output) else item
        if isinstance(step, (list, tuple, StepSequence)):
            yield from _opened(step.steps if isinstance(step, StepSequence) else step)
        elif isinstance(step, PipelineStep):
            yield step
        else:
            what = f"{item.name}, which no step writes" if isinstance(item, Output) else type(item).__name__
            raise UsageError(
                f"Among the steps of a pipeline is {what}; steps must be ParallelRunStep, PythonScriptStep, their "
                "outputs, StepSequence, or lists of these."
            )


def _entries(root: MappingNode, key: str) -> Mapping[str, Node]:
    node = root.entries.get(key)
    return node.entries if isinstance(node, MappingNode) else {}


def _put(node: Node | None, path: Sequence[str], value: Node) -> Node:
    """A tree with another value at a path."""
    if not path:
        return value
    entries = node.entries if isinstance(node, MappingNode) else {}
    return mapping({**entries, path[0]: _put(entries.get(path[0]), path[1:], value)}, value.place)


def _check_names(parameters: Mapping[str, Any], steps: Sequence[PipelineStep]) -> None:
    """Raise UsageError for the value of a parameter that no step names."""
    known = dict.fromkeys(parameter.name for step in steps for parameter in step.parameters)
    for name in parameters:
        if name not in known:
            raise UsageError(
                f'The pipeline has no parameter "{name}".{did_you_mean(name, known)} Its parameters: {listed(known)}'
            )


class Submission:
    """A pipeline with the parameters and the experiment of one submission."""

    def __init__(
        self,
        pipeline: Pipeline,
        experiment_name: str,
        parameters: Mapping[str, Any],
        settings: Mapping[str, Any],
        tags: Mapping[str, Any],
    ) -> None:
        """Takes the arguments of `Pipeline.submit`, and the `settings` of a v2 pipeline."""
        self._pipeline = pipeline
        self._experiment_name = experiment_name
        self._parameters = parameters
        self._settings = settings
        self._tags = tags

    def load(
        self,
        *,
        embedded: bool,
        datastores: Collection[str],
        assets: OpenLookup | None = None,
        pools: ListPools | None = None,
    ) -> LoadedJob:
        """The same as `Pipeline.load`."""
        return self._pipeline.load(
            experiment_name=self._experiment_name,
            parameters=self._parameters,
            settings=self._settings,
            tags=self._tags,
            embedded=embedded,
            datastores=datastores,
            assets=assets,
            pools=pools,
        )


class Experiment:
    """A name that groups runs."""

    def __init__(self, workspace: PipelineWorkspace, name: str, **more: Any) -> None:
        """`name`: the name of the group."""
        self.workspace = workspace
        self.name = name
        workspace._experiments.setdefault(name, self)

    def submit(
        self,
        config: Pipeline | PublishedPipeline | PipelineEndpoint,
        tags: Mapping[str, str] | None = None,
        *,
        pipeline_parameters: Mapping[str, Any] | None = None,
        pipeline_params: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Run a pipeline, also a published one. `tags`: of its job; `pipeline_params`: the older name of
        `pipeline_parameters`; `more`: as in `Pipeline.submit`. Raises UsageError for anything but a pipeline.
        """
        given = pipeline_parameters if pipeline_parameters is not None else pipeline_params
        if isinstance(config, PublishedPipeline):
            return config.submit(self.workspace, self.name, given, tags=tags, **more)
        if isinstance(config, PipelineEndpoint):
            return config.submit(self.name, given, tags=tags, **more)
        if not isinstance(config, Pipeline):
            raise UsageError(
                f"Experiment.submit takes a Pipeline, not {type(config).__name__}: make a step of it, and "
                "Pipeline(workspace, [step])."
            )
        return config.submit(self.name, given, tags=tags, **more)

    def start_logging(self, outputs: Any = None, snapshot_directory: Any = None, **more: Any) -> InteractiveRun:
        """Return a run for values of the notebook itself. It keeps them in memory: neither files nor a job.
        `more`: `display_name`. Warns (JobWarning) about folders, which are not kept.
        """
        for name, given in (("outputs", outputs), ("snapshot_directory", snapshot_directory)):
            if given:
                tell_no_effect(f"start_logging({name}={given!r})", "files stay where the notebook writes them")
        return InteractiveRun(self, more.get("display_name"))

    @staticmethod
    def list(workspace: Any, experiment_name: str | None = None, **more: Any) -> Sequence[Experiment]:
        """The experiments of a workspace, or the one of that name."""
        found = workspace.experiments
        return [found[name] for name in found if experiment_name in (None, name)]

    def get_runs(self) -> Iterator[PipelineRun]:
        """The runs of this group, newest first."""
        for job in self.workspace.ml_client.windrow.list_jobs():
            if job.experiment_name == self.name:
                yield PipelineRun(self.workspace, job.job_id)
