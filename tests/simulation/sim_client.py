"""The simulated client: submits jobs, cancels some, and retries those that have not ended well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim_config import JobPlan, QueuePlan
from sim_network import call
from sim_view import document_of, settings_of
from sim_world import Process
from windrow_master.core import commands
from windrow_master.core.counters import Counters
from windrow_master.core.records import StepRow
from windrow_master.core.states import ENDED_JOBS, JobState, StepState
from windrow_master.store.records import ReopenedJob, Reopening

if TYPE_CHECKING:
    from sim_run import Simulation


class Client:
    """Asks the master, whichever it is, until there is an answer."""

    retry_every_s = 0.3
    """How often it looks for jobs to retry. Planted faults that strike in between are helped by looking more often."""
    master_dies = 0.3
    """The chance that the master dies before it takes up a job that is retried, once faults begin."""

    def __init__(self, run: Simulation) -> None:
        self._run = run
        self._process = Process(run.world)

    def _ask(self, command: Any, done: Any, answered: Any = lambda reply: None) -> None:
        """Ask until there is an answer."""
        config = self._run.config
        call(self._process, self._run.master, config.latency_s, config.loss, command, answered,
             lambda: self._process.after(0.3, lambda: None if done() else self._ask(command, done, answered))
        )  # fmt: skip

    def submit(self, job: JobPlan) -> None:
        """When the job whose results it takes over, if there is one, has ended."""
        if job.since and self._stored_state(job.since) not in ENDED_JOBS:
            self._process.after(0.5, lambda: self.submit(job))
            return
        goes_on = job.continue_on_step_failure
        document = document_of(job.settings, continue_on_step_failure=goes_on)
        command = commands.SubmitJob(
            job.job_id, f"request-{job.job_id}", document, "digest", job.settings,
            continue_on_step_failure=goes_on, project=job.project,
        )  # fmt: skip
        self._ask(command, lambda: self._stored_state(job.job_id) is not None)

    def set_queues(self, plan: QueuePlan) -> None:
        """All at once. Which answer is lost is asked for again, with the same settings."""
        told = False

        def answered(_: Any) -> None:
            nonlocal told
            told = True

        command = commands.SetQueues(plan.queues, only=True, overcommit=True)
        self._ask(command, lambda: told, answered)

    def cancel(self, job: JobPlan) -> None:
        """Unless it has ended before."""
        state = self._stored_state(job.job_id)
        if state is None:
            self._process.after(0.5, lambda: self.cancel(job))
        elif state not in ENDED_JOBS:
            self._ask(commands.CancelJob(job.job_id), lambda: self._stored_state(job.job_id) in ENDED_JOBS)

    def retry(self, job: JobPlan) -> None:
        """Again, when it has ended otherwise than well, for as long as somebody cares. The store opens it again at
        once; the master may die before it takes it over."""
        if self._stored_state(job.job_id) == JobState.COMPLETED:
            return
        if self._run.master is not None and self._stored_state(job.job_id) in ENDED_JOBS:
            master = self._run.master
            master.submit(commands.Settle(), lambda _: self._reopen(job) if master is self._run.master else None)
        if job.retries:
            self._process.after(self._run.world.around(self.retry_every_s), lambda: self.retry(job))

    def _reopen(self, job: JobPlan) -> None:
        if job.retries and self._run.master is not None and self._stored_state(job.job_id) in ENDED_JOBS:
            tables, rng = self._run.disk.tables, self._run.world.rng
            stored = next(row for row in tables.jobs.values() if row.job_id == job.job_id)
            steps = {
                row.step_id: Reopening.KEPT if self._is_done(row) else rng.choice([Reopening.RESUMED, Reopening.ANEW])
                for row in tables.steps.values()
                if row.job_key == stored.job_key
            }
            job.retries -= 1
            wanted = ReopenedJob(stored.job_key, stored.generation, stored.document, stored.run_digest, steps)
            snapshot = tables.reopen(wanted)
            self._run.world.trace("job retried", job.job_id, stored.generation + 1)
            self._run.checkers.adopting += 1
            if self._run.world.faulty and rng.random() < self.master_dies:
                self._run.end_master()
            else:
                self._run.master.submit(commands.AdoptJob(snapshot, settings_of(stored.document)))

    def _is_done(self, step: StepRow) -> bool:
        counters = Counters.from_json(step.counters)
        return step.state == StepState.COMPLETED and not counters.failed and not counters.items_failed

    def _stored_state(self, job_id: str) -> JobState | None:
        found = (JobState(job.state) for job in self._run.disk.tables.jobs.values() if job.job_id == job_id)
        return next(found, None)
