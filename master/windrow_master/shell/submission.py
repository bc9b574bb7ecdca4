"""Turns a submitted document into a command for the core. Reference: docs/contracts.md, section 1."""

from __future__ import annotations

import importlib.util
import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.spec.effective.changes import changes
from windrow.spec.effective.document import DocumentError
from windrow.spec.effective.job import (
    DataInput,
    EffectiveJob,
    EffectiveStep,
    OutputInput,
    StepInput,
    default_progress_update_timeout_s,
    outputs_elsewhere,
)
from windrow.spec.one_line.request import is_one_line
from windrow.storage.urls import is_remote

from windrow_master.assets import AssetRefused, Assets
from windrow_master.core import commands
from windrow_master.core.ids import JobKey
from windrow_master.core.settings import Iteration, JobSettings, RunIf, StepSettings
from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.identity.principals import EVERYBODY, Principal
from windrow_master.jobs import Jobs
from windrow_master.kept_folders import KeptFolders
from windrow_master.limits import Limits, how_to_raise
from windrow_master.planning.table_paths import definition_of, keys_in_paths, places_in, read_definition
from windrow_master.roots import Roots
from windrow_master.shell.earlier import EarlierJobs, NothingToResume
from windrow_master.shell.errors import SubmissionInvalid
from windrow_master.shell.preparation import resolved
from windrow_master.shell.project_turns import ProjectThreads

THREADS, OF_ONE_PROJECT = 8, 6
"""Threads that look at what jobs name, before they are accepted: in all, and of one project at most."""


class Submissions:
    """Checks submitted documents. The master trusts nothing that a client says."""

    def __init__(
        self,
        jobs: Jobs,
        artifacts: ArtifactFolder,
        outputs_root: Path,
        places: Datastores,
        datastores: Roots | None = None,
        kept: KeptFolders | None = None,
        assets: Assets | None = None,
        earlier: EarlierJobs | None = None,
        limits: Limits | None = None,
        *,
        sorts_rows: bool = False,
    ) -> None:
        """Make a checker.

        - `outputs_root`: the folder of outputs without a path.
        - `places`: resolves addresses of datastores.
        - `datastores`: every path must be in these, links followed; None for an embedded master, which allows any path.
        - `kept`: folders that no job writes to.
        - `assets`: the registered assets.
        - `earlier`: finds jobs whose results may be taken over.
        - `sorts_rows`: there is a datastore named default, where agents can read sorted rows.
        """
        self._limits = limits or Limits()
        self._assets = assets
        self._earlier = earlier
        self._jobs = jobs
        self._artifacts = artifacts
        self._outputs_root = outputs_root
        self._outputs = Roots([outputs_root])
        self._places = places
        self._datastores = datastores
        self._kept = kept or KeptFolders(())
        self._sorts_rows = sorts_rows
        self._threads = ProjectThreads(THREADS, OF_ONE_PROJECT, "submissions")

    async def command(
        self,
        request_id: str,
        document: bytes,
        by: Principal = EVERYBODY,
        project: str = "",
        deadline: float | None = None,
    ) -> commands.SubmitJob | JobKey:
        """The command to submit; or, if this request made a job already, that job. `project`: the caller's own if
        empty. Raises SubmissionInvalid.
        """
        if not 1 <= len(request_id) <= 64:
            raise SubmissionInvalid("REQUEST_ID_INVALID", "request_id must have 1 to 64 characters.")
        known = self._jobs.find_request(request_id)
        if known is not None:
            if not by.sees(self._jobs.get(known)[0].queue):
                raise SubmissionInvalid("REQUEST_ID_INVALID", "This request_id is another's. Submit with a new one.")
            return known
        job = await self.check(document, by)
        if self._assets is not None and any(out.asset_name for step in job.steps for out in step.outputs.values()):
            try:
                await self._threads.run(by.submits_to, self._assets.refuse_taken, job.steps)
            except AssetRefused as error:
                raise SubmissionInvalid(error.reason, str(error)) from error
        changed = await self._threads.run(by.submits_to, self._check_earlier, job)
        job_id = job.name or make_job_id(job)
        if self._jobs.find(job_id) is not None:
            # The same words whoever has it: they say nothing of another project but that somebody took the name.
            raise SubmissionInvalid(
                "JOB_EXISTS",
                f"The name {job_id!r} is taken: a job of this master has it, and all projects share the names of "
                "jobs. Choose another name, or leave it out.",
            )
        return commands.SubmitJob(
            job_id=job_id,
            request_id=request_id,
            document=document,
            run_digest=job.run_digest,
            steps=tuple(map(step_settings, job.steps)),
            priority=job.priority,
            weight=job.weight,
            warnings=(*job.warnings, *changed),
            continue_on_step_failure=job.continue_on_step_failure,
            project=project or by.submits_to,
            submitter=by.name,
            deadline=deadline,
        )

    def changed(self, before: EffectiveStep, step: EffectiveStep) -> list[str]:
        """What has changed of a step, so that its results may now be others. Raises SubmissionInvalid."""
        with _code_readable(step):
            return changes(before, step, self._artifacts.path)

    def _check_earlier(self, job: EffectiveJob) -> list[str]:
        """Check that the results that steps take over are there, and are what the steps would make now. Return what is
        to be told of those that are not, where the job allows it. Raises SubmissionInvalid, StateError.
        """
        told = []
        for step in job.steps if self._earlier is not None else ():
            assert self._earlier is not None
            try:
                earlier = self._earlier.find(step)
            except NothingToResume as error:
                raise SubmissionInvalid("JOB_INVALID", str(error)) from error
            with _code_readable(step):
                changed = None if earlier is None else self._earlier.changed(earlier, step, self._artifacts.path)
            if changed is None:
                continue
            if not job.resume_changed:
                raise SubmissionInvalid(
                    "CODE_CHANGED",
                    f"Step {step.name!r} would take over {changed.results}, but what made them has changed since: "
                    f"{changed.what}. Choose what happens: with --code-change rerun everything runs again, with "
                    "--code-change mix those results stay as they are, beside those of the rest.",
                )
            told.append(
                f"Step {step.name!r}: {changed.results} stay as they are, although this has changed since: "
                f"{changed.what}."
            )
        return told

    async def check(self, document: bytes, by: Principal = EVERYBODY) -> EffectiveJob:
        """Parse and check a document. Raises SubmissionInvalid."""
        most = self._limits.document_bytes
        if len(document) > most:
            raise SubmissionInvalid(
                "LIMIT_REACHED",
                f"The job document has {len(document):,} bytes, and the limit document_bytes of this master is "
                f"{most:,}. Make several jobs of it; or "
                f"{how_to_raise('document_bytes', len(document))}.",
            )
        try:
            job = EffectiveJob.from_json(document)
        except DocumentError as error:
            raise SubmissionInvalid("JOB_INVALID", f"The job document is not valid: {error}") from error
        for earlier in {step.resume_from for step in job.steps if step.resume_from is not None}:
            found = self._jobs.find(earlier)
            if found is not None and not by.sees(found[0].queue):
                raise SubmissionInvalid(
                    "JOB_INVALID",
                    f"There is no job named {earlier!r}, whose results are to be taken over, in the project "
                    f"{by.project}. The token {by.name!r} sees the jobs of that project only.",
                )
        self._check_counts(job)
        missing = sorted({step.code_digest for step in job.steps if self._artifacts.path(step.code_digest) is None})
        if missing:
            raise SubmissionInvalid(
                "ARTIFACT_MISSING",
                f"The job's code has not been uploaded yet: {', '.join(missing)}. Upload it, then submit again.",
                {"digests": ",".join(missing)},
            )
        job_places = self._resolved(job)
        if self._datastores is not None:
            # In a thread, because a datastore may be on a slow share.
            await self._threads.run(by.submits_to, self._check_paths, job_places, self._datastores)
        return job

    def _check_counts(self, job: EffectiveJob) -> None:
        """Raise SubmissionInvalid if the job names more mini-batches than it may have. How many an input is cut into,
        planning finds out (`core.plans`)."""
        counts = {step.name: step.rank_mini_batch_count for step in job.steps}
        for name, count in counts.items():
            if count > (most := self._limits.mini_batches_per_step):
                raise SubmissionInvalid(
                    "LIMIT_REACHED",
                    f"Step {name!r} asks for {count:,} mini-batches (--rank_mini_batch_count), and the limit "
                    f"mini_batches_per_step of this master is {most:,}. Give it fewer; or "
                    f"{how_to_raise('mini_batches_per_step', count)}.",
                )
        if (total := sum(counts.values())) > (most := self._limits.mini_batches_per_job):
            raise SubmissionInvalid(
                "LIMIT_REACHED",
                f"The steps ask for {total:,} mini-batches in all (--rank_mini_batch_count), and the limit "
                f"mini_batches_per_job of this master is {most:,}. Give them fewer; or "
                f"{how_to_raise('mini_batches_per_job', total)}.",
            )

    def _resolved(self, job: EffectiveJob) -> EffectiveJob:
        """The job with its datastore addresses resolved. Raises SubmissionInvalid."""
        embedded = self._datastores is None
        try:
            return job._replace(steps=tuple(resolved(step, self._places, lenient=embedded) for step in job.steps))
        except UnknownDatastore as error:
            raise SubmissionInvalid("JOB_INVALID", str(error)) from error

    def _check_paths(self, job: EffectiveJob, datastores: Roots) -> None:
        """Raise SubmissionInvalid for a path that the master may not use.

        Links and tables may change later, so planning checks whatever it reads again.
        """
        readable = Roots([*datastores.folders, *self._outputs.folders])
        for step in job.steps:
            for what, path in _places(step, self._places, readable):
                # The output of an earlier job may be an input, as a registered asset for example.
                if not datastores.hold(path) and not (what.startswith("input") and self._outputs.hold(path)):
                    raise SubmissionInvalid(
                        "JOB_INVALID",
                        f"Step {step.name!r}, {what}: {path} is outside the datastores of this master ({datastores}). "
                        f"Put the data there, or start the master with --datastore NAME={path}.",
                    )
            for name, given in step.inputs.items():
                here = isinstance(given, DataInput) and not is_remote(given.path)
                if isinstance(given, DataInput) and here and not os.path.exists(given.path):  # noqa: PTH110  # no UTF-8?
                    raise SubmissionInvalid(
                        "JOB_INVALID",
                        f"Step {step.name!r}, input {name!r}: {given.path} does not exist on the master's "
                        f"machine. An absolute path names data in a datastore of the master ({datastores}); a "
                        "relative path names data on the submitting machine, which is uploaded with the job.",
                    )
            self._check_partition(step, readable)
            for name, output in step.outputs.items():
                if output.path is not None and is_remote(output.path):
                    continue
                place, later, _ = (output.path or str(self._outputs_root)).partition("${{")
                why = "" if output.path is None else self._kept.refuse(place, below=bool(later))
                if why:
                    raise SubmissionInvalid("JOB_INVALID", f"Step {step.name!r}, output {name!r}: {why}.")
                why = _why_unwritable(Path(place))
                if why:
                    raise SubmissionInvalid(
                        "JOB_INVALID",
                        f"Step {step.name!r}, output {name!r}: the master cannot write to {place}: {why}. Give "
                        "the output another path, or give the master's user write permission there.",
                    )

    def _check_partition(self, step: EffectiveStep, readable: Roots) -> None:
        """Raise SubmissionInvalid if rows must be sorted, but cannot be, or not where agents can read them."""
        if not any(self._must_sort(step, step.inputs[name], readable) for name in step.input_data):
            return
        what = f"Step {step.name!r}: partition_keys ({', '.join(step.partition_keys)}) are columns of the data. "
        if not self._sorts_rows:
            raise SubmissionInvalid(
                "JOB_INVALID",
                what + "The sorted rows must be where the agents can read them, but this master has no "
                "datastore named default. Start it with --datastore default=PATH for a folder that all "
                "nodes see.",
            )
        if importlib.util.find_spec("duckdb") is None:
            raise SubmissionInvalid(
                "JOB_INVALID",
                what + "Sorting the rows needs DuckDB, which is not installed where the master runs. Install it there "
                "with: pip install 'windrow[partition]'.",
            )

    @staticmethod
    def _must_sort(step: EffectiveStep, given: StepInput, readable: Roots) -> bool:
        """Whether the rows of an input must be sorted by its partition keys, as far as is known before planning."""
        if not step.partition_keys or not isinstance(given, DataInput) or given.type != "mltable":
            return False
        if is_remote(given.path):
            # Planning finds out where the keys come from.
            return False
        definition = read_definition(os.fsencode(given.path), readable)
        in_paths = () if definition is None else keys_in_paths(*definition)
        return in_paths is not None and not set(step.partition_keys) <= set(in_paths)


@contextmanager
def _code_readable(step: EffectiveStep) -> Iterator[None]:
    """Turns an OSError, where the code of a step is compared with that of an earlier one, into SubmissionInvalid."""
    try:
        yield
    except OSError as error:
        raise SubmissionInvalid(
            "CODE_UNREADABLE",
            f"Step {step.name!r} would keep results of an earlier run, and whether its code is still that which made "
            f"them is not known: the archive {error.filename} on the master's machine cannot be read "
            f"({error.strerror}). Let the master's user read it, or check that disk, and repeat the command; or submit "
            "the job as a new one, without the earlier results.",
        ) from error


def _why_unwritable(path: Path) -> str:
    """Why nothing can be written at a path, which may not exist yet; empty if it seems possible."""
    nearest = path
    while not os.path.lexists(nearest):
        nearest = nearest.parent
    if not nearest.is_dir():
        return "" if nearest == path and os.access(path, os.W_OK) else f"{nearest} is not a folder"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} does not allow it"


def _places(step: EffectiveStep, datastores: Datastores, readable: Roots) -> Iterator[tuple[str, str]]:
    """The paths that a step names, each with a description. If an MLTable file can be read now, its paths are included.
    `readable`: where that has to be.

    Raises SubmissionInvalid.
    """
    for name, data in step.inputs.items():
        if not isinstance(data, DataInput):
            continue
        yield f"input {name!r}", data.path
        local_table = data.type == "mltable" and not is_remote(data.path)
        definition = definition_of(os.fsencode(data.path)) if local_table else None
        if definition is not None:
            yield f"input {name!r}", os.fsdecode(definition)
        read = read_definition(os.fsencode(data.path), readable) if local_table else None
        if read is not None:
            for key, path in places_in(*read):
                what = f"input {name!r}, {key} of its MLTable file"
                try:
                    place = datastores.resolve(os.fsdecode(path))
                except UnknownDatastore as error:
                    raise SubmissionInvalid("JOB_INVALID", f"Step {step.name!r}, {what}: {error}") from error
                yield what, place
    for name, output in step.outputs.items():
        if output.path is not None:
            yield f"output {name!r}", output.path


def step_settings(step: EffectiveStep) -> StepSettings:
    """What the core needs to know of a step."""
    return StepSettings(
        name=step.name,
        depends_on=tuple(step.depends_on),
        reads=tuple(dict.fromkeys(given.step for given in step.inputs.values() if isinstance(given, OutputInput))),
        run_if=tuple(RunIf(*condition) for condition in step.run_if),
        iterations=tuple(Iteration(*iteration) for iteration in step.iterations),
        append_row=step.append_row_to is not None,
        row_format=step.rows.format,
        ends_workers_first=step.may_shut_down or bool(outputs_elsewhere(step)),
        without_input=step.rank_mini_batch_count > 0,
        is_command=step.command is not None,
        reuse=step.reuse,
        reads_outputs=any(isinstance(given, OutputInput) for given in step.inputs.values()),
        compute=step.compute,
        instance_count=None if step.instance_count < 0 else step.instance_count,
        error_threshold=step.error_threshold,
        mini_batch_error_threshold=step.mini_batch_error_threshold,
        allowed_failed_percent=step.allowed_failed_percent,
        max_retries=step.max_retries,
        retry_delay_s=step.retry_delay_s,
        rate_per_s=math.inf if step.rate_limit is None else step.rate_limit.per_s,
        rate_counts_items=step.rate_limit is not None and step.rate_limit.counts_items,
        speculate=step.speculate,
        split=step.split_at_a_time,
        returns_items=step.rows_stand_for == "per_item",
        first_task_creation_timeout_s=step.first_task_creation_timeout_s,
        progress_update_timeout_s=step.progress_update_timeout_s or default_progress_update_timeout_s(step),
        max_concurrency_per_instance=step.max_concurrency_per_instance,
        cpus_per_worker=step.cpus_per_worker,
        memory_per_worker=step.memory_per_worker,
        gpus_per_worker=step.gpus_per_worker,
        min_nodes=step.min_nodes,
        idle_gpu_timeout_s=step.idle_gpu_timeout_s,
    )


def settings_of(document: bytes) -> JobSettings:
    """What the core needs to know of the job of a stored document."""
    job = EffectiveJob.from_json(document)
    return JobSettings(tuple(map(step_settings, job.steps)), job.continue_on_step_failure)


def name_stem(job: EffectiveJob) -> str:
    """The beginning of the name that a job gets if it has none: its experiment, or of a run without a job file the
    name of its script, since all such runs in a folder would be called alike.
    """
    named = job.display_name if is_one_line(job.job_file) else job.experiment_name
    stem = "".join(char if char.isascii() and (char.isalnum() or char in "-_") else "-" for char in named)
    return stem.strip("-_")[:30] or "job"


def make_job_id(job: EffectiveJob) -> str:
    """A name for a job that has none: what it is, when it was submitted, and four random characters."""
    return f"{name_stem(job)}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
