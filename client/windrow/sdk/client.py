"""The Python SDK: `windrow.Client` talks to one master.

Example:
    with windrow.Client("127.0.0.1:8470") as client:
        job = client.submit("job.yml")
        for moment in client.progress(job.job_id):
            print(moment.items.ended, "of", moment.items.total)
        frame = client.to_dataframe(job.job_id)
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import grpc

from windrow.errors import DeadlinePassed, UsageError, WindrowError
from windrow.rpc.connection import Connection, Patience
from windrow.rpc.contexts import Access, find_access
from windrow.rpc.v1 import job_service_pb2 as pb
from windrow.rpc.v1 import job_service_pb2_grpc
from windrow.sdk.asset_calls import AssetCalls
from windrow.sdk.job import Job, StepReason, job_from_message, moment_of
from windrow.sdk.looking_closer import LookingCloser
from windrow.sdk.master import Master
from windrow.sdk.node_calls import NodeCalls
from windrow.sdk.output_calls import OutputCalls

if TYPE_CHECKING:
    from windrow.embedded.session import Session
    from windrow.spec import EffectiveJob, LoadedJob
    from windrow.transfer.local_data import OnUpload

WATCH_TIMEOUT_S = 60.0
"""A stream is opened anew so often: a connection that died without a word is noticed by then."""


class LogFile(NamedTuple):
    """A log file of a job: its path below the job's logs folder, its length in bytes."""

    path: str
    length: int


class Client(LookingCloser, OutputCalls, NodeCalls, AssetCalls):
    """A connection to a master. Safe for use by several threads; close it, or use it as a context manager.

    Calls outlive a restart of the master: they are repeated (harmlessly) until `patience_s` seconds have passed
    without an answer. Every error raised for a foreseeable cause is a `WindrowError`.
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
        """Connect to a master: at `address` (`host:port`, `unix:/path`, or the name of a context), by an `access`, or
        to that of an embedded run's `state` folder. By default: $WINDROW_MASTER, else the context in use.

        With an address go the files that $WINDROW_CA_FILE and $WINDROW_TOKEN_FILE name. `state`: where no master is
        live over that folder, a private one is started for as long as the client is open, also where the process that
        ran one ends meanwhile; it answers questions but runs nothing; `new`: the folder need not be there yet. Raises
        UsageError, StateFolderError, MasterFailed.
        """
        self.stands_in = True
        """Of a state folder: start a private master where another process's ends. False: calls raise MasterFailed."""
        self._session: Session | None = None
        self._changing_session = threading.Lock()
        if sum(given is not None for given in (address, state, access)) > 1:
            raise UsageError("Give one of address, state and access.")
        if state is not None:
            from windrow.embedded.session import open_session

            self._session = open_session(os.fspath(state), with_agent=False, must_exist=not new)
            try:
                access = Access(self._session.wait_ready())
            except BaseException:
                self._session.close(now=True)
                raise
        access = access or find_access(address, os.environ)
        if access is None:
            raise UsageError(
                "Which master? Give its address (host:port or unix:/path), set WINDROW_MASTER, use a context "
                "(windrow context use NAME), or name a state folder."
            )
        self.connection = Connection(access.address, patience_s=patience_s, access=access)
        if self._session is not None:
            self.connection.why_gone = self._why_gone
        self._stub = job_service_pb2_grpc.JobServiceStub(self.connection.channel)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def address(self) -> str:
        """The master's address."""
        return self.connection.address

    @property
    def is_here(self) -> bool:
        """The master works on a state folder of this machine."""
        return self._session is not None

    @property
    def runs_nothing(self) -> bool:
        """The master is a private one of this client's own, without an agent: unfinished jobs stand still."""
        return self._session is not None and not self._session.attached

    def close(self) -> None:
        """End the connection, and the private master if there is one. Repeatable."""
        self.connection.close()
        # A thread of the caller's may be about to start a private master.
        with self._changing_session:
            if self._session is not None:
                self._session.close()
                self._session = None

    def _why_gone(self) -> WindrowError | None:
        """Why the master of the state folder will not come back; takes the place of one whose process has ended."""
        from windrow.embedded.session import OwnerGone

        with self._changing_session:
            if self._session is None:
                return None
            gone = self._session.failure()
            if not isinstance(gone, OwnerGone) or not self.stands_in or self.connection.closed:
                return gone
            self._session.take_over()
            self.connection.move(self._session.address)
            return None

    def _need_runner(self, job_id: str, was_attached: bool) -> None:
        """Raises OwnerGone where the process that ran an unfinished job has ended: to follow it would never end."""
        if was_attached and self.runs_nothing:
            from windrow.embedded.session import OwnerGone

            job = self.get(job_id)
            # A master alone ends what is to be cancelled.
            if not job.state.ended and job.state != "cancelling":
                raise OwnerGone(
                    f"The windrow process that ran job {job_id} has ended, and the job is unfinished "
                    f"({job.items.done:,} of {job.items.total:,} items done). Continue it with the `windrow run` "
                    "command that began it."
                )

    def master(self) -> Master:
        """What the master is."""
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
        since: str = "",
        on_upload: OnUpload = lambda moment: None,
    ) -> Job:
        """Submit a job file, or what `windrow.spec.load_job` made of one; return the accepted job.

        `sets`: overrides, each `path=value`; `name`: wins over the file's. Code goes along unless the master has it,
        and so does data at relative paths, unless the master sees the same folder; `on_upload` is told how far it is.
        Outputs at relative paths that a served master cannot write to are kept there, and `download` fills the paths.
        `since`: an earlier job whose results are taken over, of items that have not changed (`last`: of this file).
        Raises windrow.spec.JobFileError with all problems of the file, RequestRefused for what the master refuses.
        """
        effective = self._prepared(job, sets, name, priority, weight, on_upload)
        if since:
            from windrow.sdk.earlier_jobs import taking_over

            effective = taking_over(self, effective, since)
        return self.submit_effective(effective)

    def load_job(self, job_file: str | os.PathLike[str], sets: Sequence[str] = ()) -> LoadedJob:
        """A job file, read and checked as one for this master: with its datastores and registry. Nothing is submitted.

        Raises windrow.spec.JobFileError with all problems of the file.
        """
        from windrow.spec import load_job

        master = self.master()
        return load_job(
            job_file, sets, embedded=master.embedded, datastores=master.datastores, assets=self.asset_lookup
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
        """The effective job that can be submitted: its code and data are where the master is."""
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
        data_paths: dict[tuple[str, str], str] | None = None,
        kept_outputs: dict[tuple[str, str], str | None] | None = None,
        name: str | None = None,
        priority: int = 0,
        weight: int = 1,
    ) -> EffectiveJob:
        """Pack the code folders of a loaded job, bring them to the master, and make the job that can be submitted.

        `data_paths`: where the data of inputs is, by step and name, if not where the job file says; `kept_outputs`: as
        of `windrow.spec.build_effective`.
        """
        import tempfile

        from windrow.common.archives import ArchiveError
        from windrow.spec import build_effective
        from windrow.transfer.code_archive import pack
        from windrow.transfer.upload import FileSource, upload_artifact

        digests: dict[str, str] = {}
        for code in sorted(set(loaded.code_folders.values())):
            scripts = {step.entry_script for step in loaded.job.steps if loaded.code_folders[step.name] == code}
            # Without a name: nothing is left behind, however this process ends.
            with tempfile.TemporaryFile() as archive:
                try:
                    packed = pack(code, archive, required=sorted(name for name in scripts if name.endswith(".py")))
                except ArchiveError as error:
                    raise UsageError(str(error)) from error
                except OSError as error:
                    raise UsageError(
                        f"The code folder {code} cannot be packed: {error.filename or code}: {error.strerror}."
                    ) from error
                digests[code] = packed.digest
                upload_artifact(self.connection, packed.digest, FileSource(archive))
        return build_effective(
            loaded,
            digests,
            data_paths=data_paths,
            kept_outputs=kept_outputs,
            name=name,
            priority=priority,
            weight=weight,
        )

    def submit_effective(self, job: EffectiveJob, *, request_id: str | None = None) -> Job:
        """Submit an effective job whose code the master has. The same `request_id` again returns the first answer."""
        request = pb.SubmitJobRequest(request_id=request_id or os.urandom(16).hex(), document=job.to_json().encode())
        return job_from_message(self.connection.call(self._stub.SubmitJob, request).job)

    def retry(
        self,
        job_id: str,
        job: str | os.PathLike[str] | LoadedJob | None = None,
        *,
        sets: Sequence[str] = (),
        on_upload: OnUpload = lambda moment: None,
    ) -> Job:
        """Run what is not done of a job that has ended, into the same outputs; return the job, at work again.

        Items with a result keep it. `job`: the repaired job file, or what `windrow.spec.load_job` made of it, whose
        code, arguments, limits and retries count from now on; None: as the job was. Raises NotFound, RequestRefused
        (JOB_NOT_ENDED, NOTHING_TO_RETRY, JOB_INVALID), and what `submit` raises.
        """
        generation = self.get(job_id).generation
        document = b""
        if job is not None:
            from windrow.spec.earlier_results import as_before

            effective = as_before(self._prepared(job, sets, None, 0, 1, on_upload), self.document(job_id))
            document = effective._replace(name=job_id).to_json().encode()
        elif sets:
            raise UsageError("`sets` change a job file; give that, too.")
        request = pb.RetryJobRequest(job_id=job_id, generation=generation, document=document)
        return job_from_message(self.connection.call(self._stub.RetryJob, request).job)

    def get(self, job_id: str) -> Job:
        """A job as it stands. Raises NotFound."""
        return job_from_message(self.connection.call(self._stub.GetJob, pb.GetJobRequest(job_id=job_id)).job)

    def document(self, job_id: str) -> dict[str, Any]:
        """The effective job as it was submitted (docs/contracts.md, section 1). Raises NotFound."""
        answer = self.connection.call(self._stub.GetJob, pb.GetJobRequest(job_id=job_id))
        document: dict[str, Any] = json.loads(answer.document)
        return document

    def explain(self, job_id: str) -> list[StepReason]:
        """Why each step of a job stands where it stands, in their order. Raises NotFound."""
        answer = self.connection.call(self._stub.ExplainJob, pb.ExplainJobRequest(job_id=job_id))
        return [StepReason(reason.step, reason.code, reason.message) for reason in answer.reasons]

    def why_no_work(self, job_id: str) -> str:
        """Why no node takes work of a job, and what to look at; "" where one does. Raises NotFound."""
        waits = [reason for reason in self.explain(job_id) if reason.waits_for_node]
        return " ".join(dict.fromkeys(reason.message for reason in waits))

    def list_jobs(self) -> Iterator[Job]:
        """All jobs, newest first, fetched a page at a time."""
        for page in self.connection.pages(self._stub.ListJobs, pb.ListJobsRequest()):
            yield from map(job_from_message, page.jobs)

    def cancel(self, job_id: str) -> Job:
        """Ask for a job's end; one that has ended stays as it is. Raises NotFound."""
        return job_from_message(self.connection.call(self._stub.CancelJob, pb.CancelJobRequest(job_id=job_id)).job)

    def progress(self, job_id: str, *, after_seq: int = 0, timeout_s: float | None = None) -> Iterator[Job]:
        """The job now and at each change (at most ten a second), until it has ended or is paused.

        Goes on by itself after a restart of the master. Raises NotFound, and DeadlinePassed after `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        patience = Patience(self.connection)
        attached = not self.runs_nothing
        while True:
            self._need_runner(job_id, attached)
            left = WATCH_TIMEOUT_S if deadline is None else min(WATCH_TIMEOUT_S, deadline - time.monotonic())
            if left <= 0:
                raise DeadlinePassed(f"Job {job_id} has not ended within {timeout_s} s. It goes on; ask again.")
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

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> Job:
        """The job when it has ended (or is paused: its `message` tells why). Raises NotFound, DeadlinePassed."""
        job = None
        for job in self.progress(job_id, timeout_s=timeout_s):  # noqa: B007
            pass
        return job if job is not None else self.get(job_id)

    def logs(self, job_id: str, *, step: str = "", node: str = "", mini_batch: int | None = None) -> list[LogFile]:
        """Names of a job's log files, by path; of those chosen only.

        `mini_batch`: of the workers that it was given to. Raises NotFound.
        """
        if mini_batch is not None and not 0 <= mini_batch < 1 << 63:
            return []  # no number of a mini-batch
        request = pb.ListLogsRequest(job_id=job_id, step_name=step, node_id=node, mini_batch_index=mini_batch)
        pages = self.connection.pages(self._stub.ListLogs, request)
        return [LogFile(file.path, file.length) for page in pages for file in page.files]

    def read_log(self, job_id: str, path: str, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """A log file from an offset, in chunks; with `follow`, as it grows, until the job has ended.

        Raises NotFound.
        """
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


__all__ = ["Client", "LogFile", "Master", "WindrowError"]
