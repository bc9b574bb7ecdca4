"""The Python SDK: `windrow.Client` talks to one master.

Example:
    with windrow.Client("127.0.0.1:8470") as client:
        job = client.submit("job.yml")
        for moment in client.progress(job.job_id):
            print(moment.items.ended, "of", moment.items.total)
        frame = client.to_dataframe(job.job_id)
"""

from __future__ import annotations

import collections
import json
import os
import shlex
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc

from windrow.embedded import interrupts
from windrow.errors import DeadlinePassed, UsageError, WindrowError
from windrow.rpc.connection import Connection, Patience
from windrow.rpc.contexts import Access, find_access
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2_grpc
from windrow.sdk.job import Job, StepReason, id_of, job_from_message, moment_of, no_work
from windrow.sdk.master import Master
from windrow.sdk.node import Node, node_from_message
from windrow.sdk.results import RowsFile, download_outputs, need_succeeded, read_frame, rows_file, rows_of

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

    from windrow.sdk.asset import Asset, Registry
    from windrow.sdk.committed_rows import CommittedRows
    from windrow.sdk.deletion import Deletion
    from windrow.sdk.fleet import Fleets
    from windrow.sdk.job_warnings import JobWarnings
    from windrow.sdk.metrics import Metric, Tag
    from windrow.sdk.mini_batch import MiniBatch, MiniBatchDetails
    from windrow.sdk.private_master import PrivateMaster
    from windrow.sdk.queue import Queues
    from windrow.sdk.token import Tokens
    from windrow.spec import EffectiveJob, LoadedJob
    from windrow.spec.load import JobTree
    from windrow.spec.naming.assets import AssetLookup
    from windrow.transfer.local_data import OnUpload

REPORT_TIMEOUT_S = 300.0
"""For a job of a million mini-batches, which the master reads from disk."""
DELETION_TIMEOUT_S = 600.0
"""For a job of a million mini-batches, whose rows a private master removes before it answers."""
WATCH_TIMEOUT_S = 60.0
"""A stream is reopened this often, so a connection that died silently is noticed by then."""


class LogFile(NamedTuple):
    """A log file of a job: its path below the job's logs folder, its length in bytes.

    Not the agent's `LogFile`, which is a file of a worker on its node.
    """

    path: str
    length: int


class Client:
    """A connection to a master. Several threads may share it. Close it, or use it as a context manager.

    Calls survive a restart of the master: they are repeated, without harm, until the master has not answered for
    `patience_s` seconds. Every foreseeable error is a `WindrowError`. A job is named by its id, or by its `Job`.

    Example:
        with windrow.Client("127.0.0.1:8470") as client:
            job = client.submit("job.yml")
            client.wait(job.job_id)
            frame = client.to_dataframe(job.job_id)
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        access: Access | None = None,
        patience_s: float = 15.0,
        new: bool = False,
    ) -> None:
        """Connect to a master. By default to $WINDROW_MASTER, else to the context in use.

        `address`: `host:port`, `unix:/path` or the name of a context. The files that $WINDROW_CA_FILE and
        $WINDROW_TOKEN_FILE name belong to an address. `access`: an address with its certificates and token. `state`:
        the state folder of runs on this machine. If no master serves that folder, or the process that ran it ends, the
        client starts a private master, which answers questions. It runs jobs from the first `submit` or `retry` on,
        until the client is closed: what is unfinished then stays so. `new`: the folder may not exist yet.
        Raises UsageError, StateFolderError, MasterFailed.
        """
        if sum(given is not None for given in (address, state, access)) > 1:
            raise UsageError("Give one of address, state and access.")
        self._private: PrivateMaster | None = None
        self._state, self._named = state, address
        if state is not None:
            from windrow.sdk.private_master import PrivateMaster

            with interrupts.held():
                private = self._private = PrivateMaster(os.fspath(state), new=new)
                weakref.finalize(self, private.let_go).atexit = False
            access = private.access
        access = access or find_access(address, os.environ)
        if access is None:
            raise UsageError(
                "Which master? Give its address (host:port or unix:/path), set WINDROW_MASTER, use a context "
                "(windrow context use NAME), or give a state folder."
            )
        self._connection = Connection(access.address, patience_s=patience_s, access=access)
        if state is not None:
            # Without the client itself, which would otherwise live on when nobody holds it any more.
            self._connection.why_gone = partial(private.why_gone, self._connection)
        self._stub = job_service_pb2_grpc.JobServiceStub(self._connection.channel)
        if self._private is not None:
            # Only now: the first channel takes gRPC a while, in which the master starts.
            self._private.wait_ready()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    @property
    def connection(self) -> Connection:
        """The connection of all calls. Raises UsageError once the client is closed."""
        if self._connection.closed:
            raise UsageError(
                "This client is closed, so it answers nothing more. Make a new windrow.Client, or call it before the "
                "end of its `with` block."
            )
        return self._connection

    @cached_property
    def warnings(self) -> JobWarnings:
        """What `wait` has warned of."""
        from windrow.sdk.job_warnings import JobWarnings

        return JobWarnings()

    @property
    def address(self) -> str:
        """The master's address."""
        return self._connection.address

    @property
    def state(self) -> str | None:
        """The state folder of runs on this machine, if it was given one."""
        return None if self._state is None else os.fspath(self._state)

    @property
    def is_here(self) -> bool:
        """Whether the master works on a state folder of this machine."""
        return self._private is not None

    @property
    def runs_nothing(self) -> bool:
        """Whether the master is this client's own, and has no agent yet: unfinished jobs do not continue."""
        return self._private is not None and self._private.runs_nothing

    @property
    def stands_in(self) -> bool:
        """Whether to start a private master for a state folder when that of another process ends. If False, calls raise
        MasterFailed.
        """
        return self._private is not None and self._private.stands_in

    @stands_in.setter
    def stands_in(self, wanted: bool) -> None:
        if self._private is not None:
            self._private.stands_in = wanted

    def close(self) -> None:
        """Close the connection, and the private master if there is one. May be called again."""
        self._connection.close()
        if self._private is not None:
            self._private.close()

    def _run_jobs(self, job_id: str = "") -> None:
        """See that the private master of a state folder runs jobs, if this is a client of one. `job_id`: run it in the
        Python, and with the datastores, that it had before.
        """
        if self._private is None:
            return
        from windrow.embedded.remembered_options import RememberedOptions, recall

        state = os.fspath(self._state or "")
        self._private.run_jobs(self.connection, recall(state, job_id) if job_id else RememberedOptions())

    def _need_start(self, job_id: str) -> None:
        """Raises UsageError if nothing runs an unfinished job, and never has while this client is open."""
        if not self.runs_nothing:
            return
        job = self.get(job_id)
        # A master alone ends what is to be cancelled.
        if not job.state.ended and job.state not in ("cancelling", "paused"):
            from windrow.common.quantities import counted
            from windrow.sdk.ending import how_to_continue

            raise UsageError(
                f"Job {job_id} is unfinished ({job.items.done:,} of {counted(job.items.total, 'item')} done), and no "
                f"process runs it, so waiting would never end. {how_to_continue(job_id, self.options)}"
            )

    def _need_runner(self, job_id: str, was_attached: bool) -> None:
        """Raises OwnerGone if the process that ran an unfinished job has ended: following it would never end."""
        if was_attached and self.runs_nothing:
            from windrow.common.quantities import counted
            from windrow.embedded.session import OwnerGone
            from windrow.sdk.ending import how_to_continue

            job = self.get(job_id)
            # A master alone ends what is to be cancelled.
            if not job.state.ended and job.state != "cancelling":
                raise OwnerGone(
                    f"The windrow process that ran job {job_id} has ended, and the job is unfinished "
                    f"({job.items.done:,} of {counted(job.items.total, 'item')} done). "
                    f"{how_to_continue(job_id, self.options)}"
                )

    @property
    def options(self) -> str:
        """What commands need to find this master, after a space."""
        if self._state is not None:
            from windrow.sdk.ending import state_option

            return state_option(self._state)
        if not self._named or self._named == os.environ.get("WINDROW_MASTER"):
            return ""
        return f" --master {shlex.quote(self._named)}"

    def master(self) -> Master:
        """The address, version and state of the master."""
        answer = self.connection.call(self._stub.GetMaster, pb.GetMasterRequest())
        return Master(
            address=self.address,
            incarnation=answer.master_incarnation,
            windrow_version=answer.windrow_version,
            read_only_reason=answer.read_only_reason,
            embedded=answer.embedded,
            datastores=dict(answer.datastores),
            certificate_good_until=moment_of(answer, "certificate_good_until"),
        )

    def submit(
        self,
        job: str | os.PathLike[str] | LoadedJob,
        *,
        sets: Sequence[str] = (),
        name: str | None = None,
        priority: int = 0,
        weight: int = 1,
        project: str = "",
        deadline: datetime | None = None,
        since: str | Job = "",
        code_change: str = "ask",
        on_upload: OnUpload = lambda moment: None,
        on_code_change: Callable[[str], str] = lambda told: "ask",
    ) -> Job:
        """Submit a job file, or what `windrow.spec.load_job` made of one; return the accepted job.

        `sets`: overrides, each `path=value`. `name`: overrides the file's. Code is uploaded unless the master has it;
        data at relative paths is uploaded unless the master sees the same folder. `on_upload` is called with the
        progress. Outputs at relative paths that the master cannot write to stay with it until `download` fetches them.
        `priority`: jobs of a higher one go first in their project; then those with the earliest `deadline`; the others
        share by `weight`. `project`: the one that the job belongs to [default: that of the token].
        `since`: an earlier job (`last`: the newest of this file) whose results are taken over for unchanged items.
        `code_change`: what happens if its code or settings were others: "rerun" all, "mix" its results with new ones,
        or "ask" `on_code_change`, which is told what has changed and returns one of these; "ask" again is a refusal.
        Only with `since`, or a job file with `resume_from`.
        Raises windrow.spec.JobFileError with all problems of the file, RequestRefused for what the master refuses.
        """
        from windrow.sdk.arguments import check_choice
        from windrow.sdk.code_change import CHOICES, refuse_without_earlier_job, submit_as_chosen
        from windrow.sdk.python_words import python_words

        check_choice("code_change", code_change, CHOICES)
        if isinstance(job, (str, os.PathLike)):
            job, sets = self.load_job(job, sets), ()
        with python_words():
            refuse_without_earlier_job(job, code_change, id_of(since))
        effective = self._prepared(job, sets, name, priority, weight, on_upload)
        if since:
            from windrow.sdk.earlier_jobs import taking_over

            effective = taking_over(self, effective, id_of(since))
        submit = partial(self.submit_effective, project=project, deadline=deadline)
        return submit_as_chosen(submit, effective, code_change, on_code_change)

    def load_job(self, job_file: str | os.PathLike[str], sets: Sequence[str] = ()) -> LoadedJob:
        """Read and check a job file against the datastores and registry of this master. Nothing is submitted.

        Raises windrow.spec.JobFileError with all problems of the file.
        """
        return self.read_job(job_file, sets).load()

    def publish(
        self,
        name: str,
        job_file: str | os.PathLike[str],
        *,
        version: str | int | None = None,
        sets: Sequence[str] = (),
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Asset:
        """Keep a job file as a pipeline of the master, with its code, components and environments; without a version,
        under the next number. The data that it names stays where it is. Publishing the same again is harmless.

        Raises windrow.spec.JobFileError with all problems of the file, UsageError for data at relative paths unless the
        master is on this machine, RequestRefused (ASSET_EXISTS, ASSET_INVALID).
        """
        from windrow.sdk.asset import Asset
        from windrow.sdk.pipelines import publish

        wanted = Asset("pipeline", name, _version_text(version), "", "", False, description, dict(tags or {}))
        return publish(self, self.read_job(job_file, sets), wanted).asset

    def pipeline(self, name: str, version: str | int | None = None) -> Asset:
        """One version of a published pipeline; by default the latest. Raises NotFound."""
        return self.registry.get("pipeline", name, _version_text(version))

    def list_pipelines(self, name: str = "") -> Iterator[Asset]:
        """All versions of a published pipeline, newest first; without a name the latest version of each."""
        return self.registry.list("pipeline", name)

    def run_pipeline(
        self,
        name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        version: str | int | None = None,
        sets: Sequence[str] = (),
        priority: int = 0,
    ) -> Job:
        """Submit a published pipeline; return the accepted job. `parameters`: values of its inputs, by name; of data,
        its path, where a relative one begins at the current folder. Raises NotFound, UsageError for an unknown
        parameter, and what `submit` raises.
        """
        from windrow.sdk import pipelines

        asset = self.pipeline(name, version)
        texts = {key: pipelines.yaml_of(value) for key, value in (parameters or {}).items()}
        return pipelines.run(self, asset, texts, sets=sets, state=self.state, priority=priority)

    def read_job(
        self, job_file: str | os.PathLike[str], sets: Sequence[str] = (), *, sets_folder: str | None = None
    ) -> JobTree:
        """Read a job file as `load_job` does, and check nothing yet. `sets_folder`: where relative paths in `sets`
        begin [default: at the file].
        """
        from windrow.sdk.arguments import check_path, check_texts
        from windrow.spec.load import read_job

        check_path("job_file", job_file)
        check_texts("sets", sets)
        master = self.master()
        return read_job(
            job_file,
            sets,
            embedded=master.embedded,
            datastores=master.datastores,
            assets=self.asset_lookup,
            pools=self.pools,
            sets_folder=sets_folder,
        )

    def _prepared(
        self,
        job: str | os.PathLike[str] | LoadedJob,
        sets: Sequence[str],
        name: str | None,
        priority: int,
        weight: int,
        on_upload: OnUpload,
    ) -> EffectiveJob:
        """Upload code and data of a job, and return the effective job to submit."""
        master = self.master()
        if isinstance(job, (str, os.PathLike)):
            job = self.load_job(job, sets)
        elif sets:
            raise UsageError("`sets` change a job file while it is loaded; give them to load_job.")
        data_paths = kept_outputs = None
        if not master.embedded:
            from windrow.transfer.local_data import outputs_kept, upload_data

            kept_outputs = outputs_kept(self.connection, job, master.datastores)
            data_paths = upload_data(self.connection, job, master.datastores, on_upload)
        return self.upload_code(
            job, data_paths=data_paths, kept_outputs=kept_outputs, name=name, priority=priority, weight=weight
        )

    def upload_code(
        self,
        loaded: LoadedJob,
        *,
        written: Sequence[str] = (),
        data_paths: dict[tuple[str, str], str] | None = None,
        kept_outputs: dict[tuple[str, str], str | None] | None = None,
        name: str | None = None,
        priority: int = 0,
        weight: int = 1,
    ) -> EffectiveJob:
        """Upload the code folders of a loaded job, and return the effective job to submit.

        `data_paths`: where the data of inputs is, by step and name, if not where the job file says. `kept_outputs`: see
        `windrow.spec.build_effective`. `written`: outputs of other jobs, which are not code even if they are beside it.
        """
        from windrow.sdk.submission import upload_code

        return upload_code(
            self.connection,
            loaded,
            written=written,
            data_paths=data_paths,
            kept_outputs=kept_outputs,
            name=name,
            priority=priority,
            weight=weight,
        )

    def submit_effective(
        self,
        job: EffectiveJob,
        *,
        request_id: str | None = None,
        project: str = "",
        deadline: datetime | None = None,
    ) -> Job:
        """Submit an effective job whose code the master has. Repeating a `request_id` returns the first answer."""
        self._run_jobs()
        request = pb.SubmitJobRequest(
            request_id=request_id or os.urandom(16).hex(), document=job.to_json().encode(), project=project
        )
        if deadline is not None:
            request.deadline.FromDatetime(deadline.astimezone())
        return job_from_message(self.connection.call(self._stub.SubmitJob, request).job)

    def retry(
        self,
        job_id: str | Job,
        job: str | os.PathLike[str] | LoadedJob | None = None,
        *,
        sets: Sequence[str] = (),
        on_upload: OnUpload = lambda moment: None,
    ) -> Job:
        """Run the failed and cancelled parts of an ended job again, into the same outputs. Items with a result keep it.

        `job`: the repaired job file, or what `windrow.spec.load_job` made of it. Its code, arguments, limits and
        retries apply from now on. If None, the job stays as it was. Raises NotFound, RequestRefused (JOB_NOT_ENDED,
        NOTHING_TO_RETRY, JOB_INVALID), and what `submit` raises.
        """
        job_id = id_of(job_id)
        generation = self.get(job_id).generation
        document = b""
        if job is not None:
            from windrow.spec.earlier_results import as_before

            effective = as_before(self._prepared(job, sets, None, 0, 1, on_upload), self.document(job_id))
            document = effective._replace(name=job_id).to_json().encode()
        elif sets:
            raise UsageError("`sets` change a job file; give the job file, too.")
        self._run_jobs(job_id)
        request = pb.RetryJobRequest(job_id=job_id, generation=generation, document=document)
        return job_from_message(self.connection.call(self._stub.RetryJob, request).job)

    def get(self, job_id: str | Job) -> Job:
        """The current state of a job. Raises NotFound."""
        return job_from_message(self.connection.call(self._stub.GetJob, pb.GetJobRequest(job_id=id_of(job_id))).job)

    def find(self, name: str) -> Job:
        """The job that a user means by its name, an unambiguous beginning of it, or `last`, the newest one.

        All other calls take whole names. Raises NotFound, and UsageError if several names begin so.
        """
        from windrow.sdk.job_names import find

        return find(self, name)

    def document(self, job_id: str | Job) -> dict[str, Any]:
        """The effective job as it was submitted (docs/contracts.md, section 1). Raises NotFound."""
        answer = self.connection.call(self._stub.GetJob, pb.GetJobRequest(job_id=id_of(job_id)))
        document: dict[str, Any] = json.loads(answer.document)
        return document

    def explain(self, job_id: str | Job) -> list[StepReason]:
        """Return the reason for the current state of each step, in the order of the steps. Raises NotFound."""
        answer = self.connection.call(self._stub.ExplainJob, pb.ExplainJobRequest(job_id=id_of(job_id)))
        return [StepReason(reason.step, reason.code, reason.message, reason.brief) for reason in answer.reasons]

    def why_no_work(self, job_id: str | Job) -> str:
        """Why no node takes work of a job, and what to check; empty if one does. Raises NotFound."""
        return no_work(self.explain(job_id))

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first, fetched a page at a time."""
        for page in self.connection.pages(self._stub.ListJobs, pb.ListJobsRequest()):
            yield from map(job_from_message, page.jobs)

    def cancel(self, job_id: str | Job) -> Job:
        """Cancel a job. One that has ended stays as it is. Raises NotFound."""
        return job_from_message(
            self.connection.call(self._stub.CancelJob, pb.CancelJobRequest(job_id=id_of(job_id))).job
        )

    def update(
        self,
        job_id: str | Job,
        *,
        priority: int | None = None,
        weight: int | None = None,
        project: str = "",
        deadline: datetime | None = None,
        no_deadline: bool = False,
    ) -> Job:
        """Change what an open job is worth; what is not given stays. `no_deadline`: it has none from now on.

        Raises NotFound, RequestRefused (JOB_ENDED, PROJECT_MISSING, LIMIT_REACHED).
        """
        request = pb.UpdateJobRequest(
            job_id=id_of(job_id), priority=priority, weight=weight, project=project, no_deadline=no_deadline
        )
        if deadline is not None:
            request.deadline.FromDatetime(deadline.astimezone())
        return job_from_message(self.connection.call(self._stub.UpdateJob, request).job)

    def delete(self, job_id: str | Job, *, force: bool = False, dry_run: bool = False) -> Deletion:
        """Delete a job that has ended, with all that the master holds of it. Outputs with a path of their own stay.

        `force`: also if other jobs need it. `dry_run`: change nothing, and say what would happen. Raises NotFound,
        RequestRefused (JOB_NOT_ENDED, JOB_NEEDED).
        """
        from windrow.sdk.deletion import deletion_from_message

        request = pb.DeleteJobRequest(job_id=id_of(job_id), force=force, dry_run=dry_run)
        answer = self.connection.call(self._stub.DeleteJob, request, timeout_s=DELETION_TIMEOUT_S)
        return deletion_from_message(answer.deletion)

    def prune(
        self,
        *,
        older_than_s: float | None = None,
        keep_last: int | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Iterator[Deletion]:
        """Delete old jobs, and yield what became of each that is old, also of those that stay.

        `older_than_s`: only jobs that ended longer ago. `keep_last`: not the jobs that ended last, as many of them.
        Give one of both at least. `force`, `dry_run`: see `delete`.
        """
        from windrow.sdk.deletion import deletion_from_message

        request = pb.PruneJobsRequest(older_than_s=older_than_s, keep_last=keep_last, force=force, dry_run=dry_run)
        patience = Patience(self.connection)
        told: set[str] = set()
        while True:
            try:
                with self.connection.stream(self._stub.PruneJobs(request)) as responses:
                    for response in responses:
                        patience.answered()
                        # Asked again after a broken connection, those that stay are told once more.
                        if response.deletion.job_id not in told:
                            told.add(response.deletion.job_id)
                            yield deletion_from_message(response.deletion)
                return
            except grpc.RpcError as error:
                patience.wait_or_raise(error)

    def progress(self, job_id: str | Job, *, after_seq: int = 0, timeout_s: float | None = None) -> Iterator[Job]:
        """Yield the job now and at each change (at most ten per second), until it has ended or is paused.

        Survives restarts of the master. Raises NotFound, UsageError if nothing runs the job, and DeadlinePassed after
        `timeout_s`.
        """
        job_id = id_of(job_id)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        patience = Patience(self.connection)
        attached = not self.runs_nothing
        self._need_start(job_id)
        while True:
            gone = self.connection.why_gone()
            if gone is not None:
                raise gone
            self._need_runner(job_id, attached)
            left = WATCH_TIMEOUT_S if deadline is None else min(WATCH_TIMEOUT_S, deadline - time.monotonic())
            if left <= 0:
                raise DeadlinePassed(
                    f"Job {job_id} has not ended within {timeout_s} s. It is still running; wait again."
                )
            request = pb.WatchJobRequest(job_id=job_id, after_seq=after_seq)
            try:
                with self.connection.stream(self._stub.WatchJob(request, timeout=left)) as responses:
                    for response in responses:
                        patience.answered()
                        job = job_from_message(response.job)
                        after_seq = job.seq
                        yield job
                        if job.state.ended or job.state == "paused":
                            return
                job = self.get(job_id)
                if job.state.ended:
                    # It had ended before, and nothing is newer than `after_seq`.
                    yield job
                    return
            except grpc.RpcError as error:
                if getattr(error, "code", lambda: None)() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    patience.wait_or_raise(error)

    def end_of(self, job_id: str | Job, *, timeout_s: float | None = None) -> Job:
        """Wait until a job has ended or is paused, and return it: `wait` without anything that is shown or checked.
        Raises NotFound, DeadlinePassed.
        """
        moments = collections.deque(self.progress(job_id, timeout_s=timeout_s), maxlen=1)
        return moments[0] if moments else self.get(job_id)

    def wait(
        self, job_id: str | Job, *, timeout_s: float | None = None, check: bool = True, progress: bool = True
    ) -> Job:
        """Wait until a job has ended or is paused (its `message` says why), and return it.

        `check`: raise JobFailed if it failed or was cancelled. `progress`: show a bar on a terminal, or a card in a
        notebook. What the job warns of are Python warnings (JobWarning), each once. An interrupt ends the waiting, and
        says so. Raises NotFound, DeadlinePassed.
        """
        job_id = id_of(job_id)
        from windrow.sdk.progress_bar import open_bar

        job = None
        bar = open_bar(progress, self.options if progress else "")
        try:
            bar.begin(self, job_id, is_new=False)
            for job in self.progress(job_id, timeout_s=timeout_s):
                bar.show(job)
        except KeyboardInterrupt as interrupt:
            if interrupt.args:
                raise  # by a program that says itself why
            from windrow.sdk.ending import stopped_waiting

            own = self._private is not None and self._private.runs_jobs
            raise KeyboardInterrupt(stopped_waiting(job_id, own=own)) from None
        finally:
            bar.end()
        if job is None:
            job = self.get(job_id)
        self.warnings.tell(job)
        if check:
            from windrow.sdk.ending import need_good_end

            need_good_end(job, self.options)
        return job

    def logs(
        self, job_id: str | Job, *, step: str = "", node: str = "", mini_batch: int | None = None
    ) -> list[LogFile]:
        """The log files of a job, by path.

        `step`, `node`: only of these. `mini_batch`: only of workers that ran it. Raises NotFound.
        """
        if mini_batch is not None and not 0 <= mini_batch < 1 << 63:
            return []  # not the number of a mini-batch
        request = pb.ListLogsRequest(job_id=id_of(job_id), step_name=step, node_id=node, mini_batch_index=mini_batch)
        pages = self.connection.pages(self._stub.ListLogs, request)
        return [LogFile(file.path, file.length) for page in pages for file in page.files]

    def read_log(self, job_id: str | Job, path: str, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Yield a log file from an offset, in chunks; with `follow`, as it grows, until the job has ended.

        Raises NotFound.
        """
        job_id = id_of(job_id)
        patience = Patience(self.connection)
        attached = follow and not self.runs_nothing
        while True:
            self._need_runner(job_id, attached)
            request = pb.ReadLogRequest(job_id=job_id, path=path, offset=offset, follow=follow)
            try:
                with self.connection.stream(self._stub.ReadLog(request, timeout=WATCH_TIMEOUT_S)) as responses:
                    for response in responses:
                        patience.answered()
                        offset = response.offset + len(response.content)
                        yield response.content
                return
            except grpc.RpcError as error:
                if getattr(error, "code", lambda: None)() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    patience.wait_or_raise(error)

    def mini_batches(
        self,
        job_id: str | Job,
        *,
        step: str | None = None,
        state: str | Sequence[str] = (),
        cause: str | None = None,
        newest_first: bool = False,
        page_size: int = 1000,
    ) -> Iterator[MiniBatch]:
        """The mini-batches of a job as they are now, by step and index, fetched a page at a time.

        `state`: only those in these states (`queued`, `leased`, `succeeded`, `failed`, `cancelled`). `cause`: only
        those with an attempt that failed for this cause (`exception`, `timeout`, …; `no_result`: `run()` returned fewer
        results than items). `newest_first`: sort by start time, newest first, without those that never started. Raises
        NotFound, and UsageError for an unknown state or cause.
        """
        job_id = id_of(job_id)
        from windrow.sdk.mini_batch import list_request, mini_batch_from_message

        request = list_request(job_id, step, state, cause, newest_first, page_size)
        for page in self.connection.pages(self._stub.ListMiniBatches, request):
            yield from map(mini_batch_from_message, page.mini_batches)

    def mini_batch(self, job_id: str | Job, index: int, *, step: str | None = None) -> MiniBatchDetails:
        """One mini-batch with all its attempts. `step` may be left out if the job has only one. Raises NotFound."""
        from windrow.sdk.mini_batch import details_from_message

        request = pb.GetMiniBatchRequest(job_id=id_of(job_id), step_name=step or "", mini_batch_index=_index(index))
        return details_from_message(self.connection.call(self._stub.GetMiniBatch, request))

    def replay(self, job_id: str | Job, index: int, *, step: str | None = None) -> pb.GetReplayResponse:
        """All that a replay of a mini-batch needs, as the protocol has it. Raises NotFound, RequestRefused
        (REPLAY_IMPOSSIBLE)."""
        request = pb.GetReplayRequest(job_id=id_of(job_id), step_name=step or "", mini_batch_index=_index(index))
        return self.connection.call(self._stub.GetReplay, request)

    def report(self, job_id: str | Job) -> dict[str, Any]:
        """The figures of a job as of now (docs/contracts.md, section 6). Raises NotFound."""
        request = pb.GetJobReportRequest(job_id=id_of(job_id))
        answer = self.connection.call(self._stub.GetJobReport, request, timeout_s=REPORT_TIMEOUT_S)
        document: dict[str, Any] = json.loads(answer.document)
        return document

    def metrics(self, job_id: str) -> list[Metric]:
        """What the job's scripts have logged so far by `Run.log`: the newest value of each name, and figures. Raises
        NotFound.
        """
        from windrow.sdk.metrics import metrics_of

        return metrics_of(self, job_id)

    def tags(self, job_id: str, submitted: Mapping[str, str] | None = None) -> list[Tag]:
        """The tags and properties that scripts and notebooks have given the job and its steps. `submitted`: tags of the
        job that they replace. Raises NotFound.
        """
        from windrow.sdk.metrics import tags_of

        return tags_of(self, job_id, submitted or {})

    def tag(
        self,
        job_id: str | Job,
        tags: Mapping[str, str | None] | None = None,
        *,
        step: str = "",
        properties: Mapping[str, str | None] | None = None,
        remove: Iterable[str] = (),
    ) -> None:
        """Give a job, or one of its steps, tags and properties. Of a tag the newest value counts, of a property the
        first. `remove`: tags that it has no longer. Raises NotFound, RequestRefused.
        """
        kinds = ((pb.RUN_TAG_KIND_UNSPECIFIED, tags or {}), (pb.RUN_TAG_KIND_PROPERTY, properties or {}))
        wanted = [
            pb.RunTag(name=name, value=value, kind=kind) for kind, those in kinds for name, value in those.items()
        ]
        wanted += [pb.RunTag(name=name, kind=pb.RUN_TAG_KIND_REMOVED) for name in remove]
        self.connection.call(self._stub.TagRun, pb.TagRunRequest(job_id=id_of(job_id), step_name=step, tags=wanted))

    def download_code(self, digest: str, target: Path) -> None:
        """Download a code archive into a file. Continues where it broke off. Raises NotFound, OSError."""
        from windrow.transfer.download import download_artifact

        download_artifact(self.connection, digest, target)

    def results(self, job_id: str | Job, output: str | None = None) -> Iterator[str]:
        """The rows of a finished job, in order, without line ends.

        `output`: a pipeline output or `step.output`; by default the only one that holds rows. Bytes that are not UTF-8
        come as `os.fsdecode` gives them, rows of Parquet as JSON objects. Raises JobFailed unless the job succeeded,
        NotFound.
        """
        place, chunks = self._read_rows(job_id, output)
        return rows_of(chunks, place)

    def to_dataframe(self, job_id: str | Job, output: str | None = None, **read_csv: Any) -> pd.DataFrame:
        """The rows of a finished job as a DataFrame, read with the separator that the job wrote them with.

        `read_csv`: keyword arguments of `pandas.read_csv` that override. Raises as `results` does.
        """
        place, chunks = self._read_rows(job_id, output)
        return read_frame(chunks, place, read_csv)

    def committed_rows(
        self, job_id: str | Job, step: str | None = None, *, as_committed: bool = False, follow: bool = False
    ) -> Iterator[str]:
        """The rows of a job that are committed, without line ends, also while it runs.

        They come in the order of the output, as far as that is whole: up to the first mini-batch without an outcome.
        `as_committed`: all that are there. `follow`: go on until the step has ended; each row comes once, also if the
        master is restarted meanwhile. `step`: by default the only one that gathers rows. Rows of Parquet come as JSON
        objects. Raises NotFound, UsageError.

        Example:
            for row in client.committed_rows("digits-20260501-101500-ab12", follow=True):
                print(row)
        """
        rows = self.open_rows(job_id, step, as_committed=as_committed)
        for found in rows.follow() if follow else rows.read():
            yield from rows.rows(found)

    def query(self, job_id: str | Job, sql: str, step: str | None = None) -> pd.DataFrame:
        """The answer to an SQL query over the committed rows of a job, also while it runs.

        The table `rows` holds those of `step`, by default of the only one that gathers rows; each such step has a table
        of its name. DuckDB answers it. Raises NotFound, UsageError.

        Example:
            client.query("digits-20260501-101500-ab12", "select digit, count(*) from rows group by digit")
        """
        job_id = id_of(job_id)
        import pandas as pd

        from windrow.sdk.row_query import RowQuery, query_rows

        with RowQuery() as database:
            open_rows = partial(self.open_rows, job_id, as_committed=True)
            answer, _ = query_rows(open_rows, self.document(job_id), job_id, step, database, sql)
            return pd.DataFrame([row for page in answer.pages for row in page], columns=answer.columns)

    def open_rows(self, job_id: str | Job, step: str | None = None, *, as_committed: bool = False) -> CommittedRows:
        """As `committed_rows`, by mini-batch, with the header and how far the rows are committed."""
        job_id = id_of(job_id)
        from windrow.sdk.committed_rows import CommittedRows, rows_step

        found = rows_step(job_id, self.document(job_id), step)
        return CommittedRows(self.connection, self._stub, job_id, found, as_committed=as_committed)

    def download(
        self,
        job_id: str | Job,
        folder: str | os.PathLike[str] | None = None,
        *,
        outputs: Sequence[str] | None = None,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> list[Path]:
        """Download outputs, each into a subfolder of its name; return the files received.

        Without a folder, an output with a relative path in the job file goes to that path, if the job file is on this
        machine, and replaces what is there. All others go into a folder named like the job. A download that broke off
        continues where it stopped. Raises JobFailed, NotFound, TransferFailed.
        """
        job_id = id_of(job_id)
        if outputs is not None:
            from windrow.sdk.arguments import check_texts

            check_texts("outputs", outputs)
        job = self.get(job_id)
        need_succeeded(job)
        return download_outputs(self.connection, job, self.document(job_id), folder, outputs, on_bytes)

    def _read_rows(self, job_id: str | Job, output: str | None) -> tuple[RowsFile, Iterator[bytes]]:
        job_id = id_of(job_id)
        from windrow.transfer.download import read_output_file

        job = self.get(job_id)
        need_succeeded(job)
        place = rows_file(job, self.document(job_id), output)
        return place, read_output_file(self.connection, job_id, place.output, place.path)

    def list_nodes(self) -> Iterator[Node]:
        """All nodes, by name, including lost nodes whose names are cordoned."""
        for page in self.connection.pages(self._stub.ListNodes, pb.ListNodesRequest()):
            yield from map(node_from_message, page.nodes)

    def pools(self) -> set[str]:
        """The names of all pools that nodes are in, or for which a fleet gets agents."""
        of_nodes = {pool for node in self.list_nodes() for pool in node.pools}
        return of_nodes | {group.pool for fleet in self.fleets.list() for group in fleet.groups if group.pool}

    def drain_node(self, node_id: str) -> Node:
        """Ask a node to leave; its name stays cordoned. It has left when it is no longer listed, or listed as `lost`.

        Raises RequestRefused (NODE_UNKNOWN).
        """
        return node_from_message(self.connection.call(self._stub.DrainNode, pb.DrainNodeRequest(node_id=node_id)).node)

    def cordon_node(self, node_id: str, cordoned: bool = True) -> Node:
        """Give a node no new work, or (`cordoned=False`) work again. It finishes what it has.

        A cordon belongs to the name: it survives restarts of agent and master. Raises RequestRefused (NODE_UNKNOWN).
        """
        request = pb.CordonNodeRequest(node_id=node_id, cordoned=cordoned)
        return node_from_message(self.connection.call(self._stub.CordonNode, request).node)

    def remove_node(self, node_id: str, *, force: bool = False) -> None:
        """Forget a node that is gone, with its cordon. `force`: also one that is connected; its connection ends.

        Raises RequestRefused (NODE_UNKNOWN, NODE_CONNECTED).
        """
        self.connection.call(self._stub.RemoveNode, pb.RemoveNodeRequest(node_id=node_id, force=force))

    @property
    def tokens(self) -> Tokens:
        """The tokens by which the master knows its clients, and admits nodes."""
        from windrow.sdk.token import Tokens

        return Tokens(self.connection)

    @property
    def queues(self) -> Queues:
        """The queues of the master: what each project may have, and has."""
        from windrow.sdk.queue import Queues

        return Queues(self.connection)

    @property
    def fleets(self) -> Fleets:
        """The fleets of the master: programs that get agents from an engine, as the queue needs them."""
        from windrow.sdk.fleet import Fleets

        return Fleets(self.connection)

    @property
    def registry(self) -> Registry:
        """The assets of the master."""
        from windrow.sdk.asset import Registry

        return Registry(self.connection)

    def asset_lookup(self, state: str | os.PathLike[str] | None = None) -> AssetLookup:
        """What `windrow.spec.load_job` takes as `assets`. `state`: the state folder of runs on this machine [default:
        this client's, if it has one].
        """
        from windrow.sdk.packages import folder_of

        place = self.state if state is None else state
        return self.registry.lookup(lambda asset: folder_of(self, asset, place))

    def create_data(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        type: str = "uri_folder",
        version: str | int | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        on_upload: OnUpload = lambda moment: None,
    ) -> Asset:
        """Register data as `azureml:<name>:<version>`; without a version, with the next number.

        `type`: uri_folder, uri_file or mltable. Data at a relative path is on this machine and is uploaded to a served
        master; an absolute path is the master's. A registered version never changes; registering the same again is
        harmless. Raises UsageError, RequestRefused (ASSET_EXISTS, ASSET_INVALID).
        """
        from windrow.sdk.asset import Asset

        wanted = Asset(
            "data", name, _version_text(version), type, os.fspath(path), False, description, dict(tags or {})
        )
        return self.create_asset(wanted, on_upload=on_upload)

    def create_model(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        type: str = "custom_model",
        version: str | int | None = None,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        on_upload: OnUpload = lambda moment: None,
    ) -> Asset:
        """Register a model (a file or a folder), like `create_data`.

        `type`: custom_model, mlflow_model or triton_model.
        """
        from windrow.sdk.asset import Asset

        wanted = Asset(
            "model", name, _version_text(version), type, os.fspath(path), False, description, dict(tags or {})
        )
        return self.create_asset(wanted, on_upload=on_upload)

    def create_asset(
        self, asset: Asset, *, folder: str | os.PathLike[str] | None = None, on_upload: OnUpload = lambda moment: None
    ) -> Asset:
        """Register an asset, like `create_data`. `folder`: where relative paths begin [default: the current folder]."""
        return self.registry.create(self.place_asset(asset, folder=folder, on_upload=on_upload))

    def place_asset(
        self, asset: Asset, *, folder: str | os.PathLike[str] | None = None, on_upload: OnUpload = lambda moment: None
    ) -> Asset:
        """Return the asset with its path on the master, as `create_asset` would register it: data at a relative path is
        uploaded to a served master. `folder`: where relative paths begin [default: the current folder].

        Raises UsageError, WindrowError.
        """
        from windrow.sdk.asset import place_asset

        master = self.master()
        datastores = None if master.embedded else master.datastores
        start = str(Path(folder or ".").absolute())
        return place_asset(self.connection, asset, start, datastores=datastores, on_upload=on_upload)

    def data(self, name: str, version: str | int | None = None) -> Asset:
        """One version of a data asset; by default the latest. Raises NotFound."""
        return self.registry.get("data", name, _version_text(version))

    def model(self, name: str, version: str | int | None = None) -> Asset:
        """One version of a model; by default the latest. Raises NotFound."""
        return self.registry.get("model", name, _version_text(version))

    def list_data(self, name: str = "") -> Iterator[Asset]:
        """All versions of a data asset, newest first; without a name the latest version of each."""
        return self.registry.list("data", name)

    def list_models(self, name: str = "") -> Iterator[Asset]:
        """All versions of a model, newest first; without a name the latest version of each."""
        return self.registry.list("model", name)


def _index(index: int) -> int:
    if index < 0:
        raise UsageError(f"{index} is not a valid mini-batch index: indexes start at 0.")
    return min(index, (1 << 63) - 1)


def _version_text(version: str | int | None) -> str:
    return "" if version is None else str(version)


__all__ = ["Client", "LogFile", "Master", "WindrowError"]
