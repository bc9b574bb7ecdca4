"""The core takes commands, and gives replies, effects and dirty rows.

reply = core.handle(command, now)      changes the state in memory at once; no I/O, no clock, no randomness
core.pick(now)                         once a group: offers steps and hands out leases
effects = core.take_effects()          what the world has to do; some of it only after the commit
dirty = core.take_dirty()              what has to be durable before the group's replies are released
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windrow_master.core import (
    admission,
    attempts,
    blame,
    commands,
    endings,
    lost_rows,
    nodes,
    plans,
    queues,
    reasons,
    recovery,
    scheduling,
    steps,
    ticks,
)
from windrow_master.core.commands import UNANSWERED, Command, Moment, StepsRaised
from windrow_master.core.effects import Effect
from windrow_master.core.ids import StepId
from windrow_master.core.records import Dirty, Snapshot
from windrow_master.core.settings import Timing
from windrow_master.core.state import CoreState
from windrow_master.limits import Limits

Handler = Callable[[CoreState, Any, Moment], Any]


def _of_fleets(name: str) -> Handler:
    """A handler of `fleets`, which runs on one machine never load."""

    def handle(state: CoreState, command: Any, now: Moment) -> Any:
        from windrow_master.core import fleets

        return getattr(fleets, name)(state, command, now)

    return handle


HANDLERS: dict[type, Handler] = {
    commands.SubmitJob: admission.on_submit_job,
    commands.AdoptJob: recovery.on_adopt_job,
    commands.Settle: lambda state, command, now: None,
    commands.CancelJob: steps.on_cancel_job,
    commands.SetQueues: queues.on_set_queues,
    commands.UpdateJob: queues.on_update_job,
    commands.SyncFleet: _of_fleets("on_sync_fleet"),
    commands.BeginAllocations: _of_fleets("on_begin_allocations"),
    commands.UpdateFleet: _of_fleets("on_update_fleet"),
    commands.DeleteFleet: _of_fleets("on_delete_fleet"),
    commands.ForgetJob: steps.on_forget_job,
    commands.ClockSetBack: steps.on_clock_set_back,
    commands.ExplainJob: reasons.on_explain_job,
    commands.PauseJob: steps.on_pause_job,
    commands.BeginWork: steps.on_begin_work,
    commands.StartStep: steps.on_start_step,
    commands.AwaitPlanner: plans.on_await_planner,
    commands.ReuseStep: steps.on_reuse_step,
    commands.PlanGroup: plans.on_plan_group,
    commands.FailStep: steps.on_fail_step,
    commands.FinishStep: steps.on_finish_step,
    commands.PostponeFinish: steps.on_postpone_finish,
    commands.RequeueLostRows: lost_rows.on_requeue_lost_rows,
    commands.ConfirmStepEnd: endings.on_confirm_step_end,
    commands.RegisterNode: nodes.on_register_node,
    commands.HeartbeatNode: nodes.on_heartbeat_node,
    commands.OpenWork: nodes.on_open_work,
    commands.CloseWork: nodes.on_close_work,
    commands.SetCapacity: nodes.on_set_capacity,
    commands.DrainNode: nodes.on_drain_node,
    commands.CordonNode: nodes.on_cordon_node,
    commands.RemoveNode: nodes.on_remove_node,
    commands.Tick: ticks.on_tick,
    commands.CompleteAttempts: attempts.on_complete_attempts,
    commands.NoteProgress: attempts.on_note_progress,
    commands.ReleaseLeases: attempts.on_release_leases,
    commands.ReportWorkerFailure: blame.on_report_worker_failure,
}


class Core:
    """The state machine of one master incarnation."""

    def __init__(
        self,
        incarnation: int,
        lease_prefix: int,
        timing: Timing | None = None,
        *,
        held: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """`lease_prefix`: 31 bits, distinct from those of all earlier incarnations. `held`: until BeginWork."""
        self.state = CoreState(incarnation, lease_prefix, timing or Timing(), limits or Limits(), held=held)

    def load(self, snapshot: Snapshot, settings_of: recovery.SettingsOf, now: Moment) -> None:
        """Start from the state that an earlier incarnation left."""
        recovery.load(self.state, snapshot, settings_of, now)

    def handle(self, command: Command, now: Moment) -> Any:
        """Carry out a command; its reply is documented at the command.

        Never raises for anything that a peer can send. Raises StepsRaised for a bug that affects only some steps.
        """
        try:
            reply = HANDLERS[type(command)](self.state, command, now)
        except StepsRaised:
            raise
        except Exception as error:
            if not self.state.raised:
                raise
            at = getattr(command, "step_id", StepId(0))
            raise StepsRaised({**self.state.take_raised(), at: error}, UNANSWERED) from error
        if self.state.raised:
            raise StepsRaised(self.state.take_raised(), reply)
        return reply

    def next_due(self, now: Moment) -> float:
        """The moment (monotonic seconds) when a Tick will have something to do, unless another command comes first;
        inf: never.
        """
        return ticks.next_due(self.state, now)

    def pick(self, now: Moment) -> None:
        """Schedule, and admit jobs, if there is a reason to. If a bug affects some steps, raises StepsRaised; the
        other steps get their leases.
        """
        scheduling.pick(self.state, now)
        admission.admit(self.state, now)
        if self.state.raised:
            raise StepsRaised(self.state.take_raised(), UNANSWERED)

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call, in order."""
        effects, self.state.effects = self.state.effects, []
        return effects

    def take_dirty(self) -> Dirty:
        """The rows changed since the last call, as they are now. Those of the last call must be durable."""
        return self.state.take_dirty()
