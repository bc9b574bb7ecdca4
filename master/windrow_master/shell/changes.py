"""What clients change, as commands for the core: the answers come once the changes are durable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from windrow_master.core import commands
from windrow_master.core.ids import JobKey, NodeId
from windrow_master.core.reasons import Reason
from windrow_master.core.refused import Refused
from windrow_master.core.state import CoreState, Node, Queue
from windrow_master.identity.principals import Principal
from windrow_master.shell.retrying import Retries
from windrow_master.shell.submission import Submissions
from windrow_master.shell.writer import Writer

if TYPE_CHECKING:
    from windrow_master.core.allocations import Fleet
    from windrow_master.core.fleets import Synced


class Changes:
    """Takes the changes of all clients, and what only the core can tell them. Use it on the event loop's thread."""

    def __init__(self, writer: Writer, submissions: Submissions, retries: Retries) -> None:
        self._writer = writer
        self._submissions = submissions
        self._retries = retries

    @property
    def state(self) -> CoreState:
        """The state of the core. Only the writer changes it."""
        return self._writer.core.state

    @property
    def refusal(self) -> str:
        """Why clients cannot make changes now, and what to do; empty if they can."""
        return self._writer.refusal

    async def submit(
        self, request_id: str, document: bytes, by: Principal, project: str = "", deadline: float | None = None
    ) -> JobKey | Refused:
        """Submit a job; a repeated request gets the job that it made before. Raises SubmissionInvalid, StateError."""
        command = await self._submissions.command(request_id, document, by, project, deadline)
        if not isinstance(command, commands.SubmitJob):
            return command
        # Not always the job of this command: the same request may have made one while this one was checked.
        reply: JobKey | Refused = await self._writer.submit(command)
        return reply

    async def retry(self, job_id: str, generation: int, document: bytes, by: Principal) -> JobKey | Refused:
        """See `Retries.retry`."""
        return await self._retries.retry(job_id, generation, document, by)

    def begin_work(self) -> None:
        """Begin the work of an embedded master, which runs nothing before a client submits or follows a job: see
        `CoreState.held`.
        """
        if self.state.held:
            self._writer.submit(commands.BeginWork())

    def cancel(self, job_id: str) -> asyncio.Future[JobKey | Refused]:
        """Cancel a job."""
        return self._writer.submit(commands.CancelJob(job_id))

    def update(self, command: commands.UpdateJob) -> asyncio.Future[JobKey | Refused]:
        """Change what an open job is worth."""
        return self._writer.submit(command)

    def set_queues(self, command: commands.SetQueues) -> asyncio.Future[list[Queue] | Refused]:
        """Change what projects may have."""
        return self._writer.submit(command)

    def sync_fleet(self, command: commands.SyncFleet) -> asyncio.Future[Synced | Refused]:
        """Hear the program of a fleet."""
        return self._writer.submit(command)

    def begin_allocations(self, command: commands.BeginAllocations) -> asyncio.Future[Refused | None]:
        """Write what a fleet is about to ask an engine for."""
        return self._writer.submit(command)

    def update_fleet(self, command: commands.UpdateFleet) -> asyncio.Future[Fleet | Refused]:
        """Pause or resume a fleet, or change how many agents its groups may have."""
        return self._writer.submit(command)

    def delete_fleet(self, command: commands.DeleteFleet) -> asyncio.Future[Refused | None]:
        """Forget a fleet."""
        return self._writer.submit(command)

    def explain(self, job_id: str) -> asyncio.Future[list[Reason] | Refused]:
        """Why the steps of a job are in their states; refused if the core does not have the job."""
        return self._writer.submit(commands.ExplainJob(job_id))

    def drain(self, node_id: str) -> asyncio.Future[Node | Refused]:
        """Ask a node to leave."""
        return self._writer.submit(commands.DrainNode(NodeId(node_id)))

    def cordon(self, node_id: str, cordoned: bool) -> asyncio.Future[Node | Refused]:
        """Set whether a node gets new leases."""
        return self._writer.submit(commands.CordonNode(NodeId(node_id), cordoned))

    def remove(self, node_id: str, *, force: bool) -> asyncio.Future[Any]:
        """Forget a node that is gone."""
        return self._writer.submit(commands.RemoveNode(NodeId(node_id), force))
