"""Gives a step its Python environment before its first worker starts, or says why it cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from windrow.common.journal import Condition, Repeated, say
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.outgoing import completions
from windrow_agent.steps.step import Step, StepState

if TYPE_CHECKING:
    from windrow_agent.environments.provider import Environments

_NOT_BUILT = (
    "windrow: no environment is built for this step: this agent runs all scripts in its own Python "
    "(--python, or --environments own)\n"
)


class StepEnvironments:
    """`make` is called when the first step asks for an environment. If None, scripts run in the node's own Python."""

    def __init__(self, make: Callable[[], Environments] | None) -> None:
        self._make = make
        self._environments: Environments | None = None
        self._not_here = Condition(
            logging.ERROR,
            "this node cannot build environments: steps that need a new one do not run here",
            "this node can build environments again",
        )
        self._repeated = Repeated()

    def begin(self, step: Step) -> None:
        """The step is new on this node: while it waits for an environment, it takes no work."""
        step.takes_work = self._make is None or not step.spec.HasField("environment")

    async def provide(self, step: Step) -> rpc.WorkerFailure | None:
        """Sets the step's environment; returns the failure for the master if this node cannot have one.

        In the agent's log, a node that can make no environments says so once, and once when it can again. What is wrong
        with a step's own list is logged for each step, a few times a minute at most.
        """
        log = step.log_file(rpc.LOG_KIND_ENVIRONMENT, 0)
        try:
            if self._make is None:
                log.write(_NOT_BUILT.encode())
                return None
            failure = await self._provide(step, self._make)
            self._report(step, failure)
            return failure
        except OSError as error:
            text = f"The environment of step {step.spec.step_name!r} could not be prepared on this node: {error}"
            failure = completions.worker_failure(step.step_id, work.CAUSE_NODE_FAULT, text, "", 0)
            self._report(step, failure)
            return failure
        finally:
            log.end()
            step.building_since_ns = 0
            step.takes_work = True

    def close(self) -> None:
        """Ends what is being built."""
        if self._environments is not None:
            self._environments.close()

    def _report(self, step: Step, failure: rpc.WorkerFailure | None) -> None:
        if failure is None:
            # An environment that was there already does not show that others can be made.
            if step.environment is not None and step.building_since_ns:
                self._not_here.is_over()
        elif failure.cause == work.CAUSE_NODE_FAULT:
            self._not_here.goes_on(step=step.step_id, why=failure.message)
        else:
            self._repeated.say("list", logging.ERROR, failure.message, step=step.step_id)

    async def _provide(self, step: Step, make: Callable[[], Environments]) -> rpc.WorkerFailure | None:
        # Not at the top: most steps ask for none, and the first run() waits for imports.
        from windrow_agent.environments.failures import EnvironmentFailed
        from windrow_agent.environments.libraries import needed_libraries
        from windrow_agent.environments.process import Abandoned

        self._environments = self._environments or make()

        def begin() -> None:
            if not step.building_since_ns:
                say(logging.INFO, "environment is being built", step=step.step_id)
                step.building_since_ns = monotonic_ns()

        libraries = needed_libraries(step.reader, step.rows)
        try:
            held = await self._environments.provide(
                step.spec.environment,
                code=step.code,
                libraries=libraries,
                log=step.log_file(rpc.LOG_KIND_ENVIRONMENT, 0),
                is_wanted=lambda: step.state is StepState.PREPARING,
                on_build=begin,
            )
        except Abandoned:
            return None
        except EnvironmentFailed as failed:
            cause = work.CAUSE_NODE_FAULT if failed.of_node else work.CAUSE_INIT_FAILED
            text = f"The environment of step {step.spec.step_name!r} could not be built: {failed}"
            return completions.worker_failure(step.step_id, cause, text, failed.detail, 0)
        if held.missing:
            held.release()
            names = " and ".join(held.missing)
            text = (
                f"The environment of step {step.spec.step_name!r} has no {names}, which the step needs for its table: "
                f"add {names} to the dependencies of its conda_file"
            )
            return completions.worker_failure(step.step_id, work.CAUSE_INIT_FAILED, text, "", 0)
        step.environment = held
        return None
