"""The workers of all steps: how many each step should have, how they are started, and what is done when they end."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.interpreter import find_interpreter
from windrow.common.journal import say
from windrow.rpc.log_paths import worker_place
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.config import AgentConfig
from windrow_agent.node import strays
from windrow_agent.node.gpus import GpuIndices
from windrow_agent.node.strays import mark_of
from windrow_agent.steps.step import Step, StepState
from windrow_agent.supervision.allotment import Demand, allot
from windrow_agent.supervision.worker_config import as_config, hosting, script_config, variables
from windrow_agent.workers.death import Exit
from windrow_agent.workers.output_folder import OutputFolder
from windrow_agent.workers.page import Page
from windrow_agent.workers.process import LAUNCH, Channels, SpawnFailed, WorkerProcess
from windrow_agent.workers.process_log import ProcessLog
from windrow_agent.workers.variables import worker_environment

if TYPE_CHECKING:
    from windrow_agent.sandbox.worker_sandbox import WorkerSandbox

NOT_CONFINED = "off: scripts can do whatever the agent's user can"
"""What confines the workers of a node without a sandbox, in words."""

IDLE_NS = 2_000_000_000
"""How long a step may have no work before it leaves its slots to other steps."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What workers get to know about this node; not the master's record of it. `open_files`: soft limit for scripts."""

    node_id: str
    node_incarnation: str
    slots: int
    boot: Path
    open_files: int


class Workforce:
    """All worker processes of this node. Not a pool, which is a name for some nodes.

    `inline_rows_bytes_max` is the master's, once that is known.
    """

    def __init__(self, config: AgentConfig, node: NodeFacts, gpus: GpuIndices, environment: Mapping[str, str]) -> None:
        self.node = node
        self.workers: dict[int, WorkerProcess] = {}
        self.inline_rows_bytes_max = 256 << 10
        self._config = config
        self._gpus = gpus
        self._environment = environment
        self._records = config.folder / "workers"
        self._keys = 0
        self._sandbox = None if config.sandbox == "off" else _sandbox(config, environment)

    @property
    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        return NOT_CONFINED if self._sandbox is None else self._sandbox.protection()

    def allot(self, steps: Mapping[int, Step], held: Container[int], now_ns: int, *, first: int | None = None) -> None:
        """Sets every step's `target`. `held`: steps with unfinished leases; `first`: a step that gets a worker before
        all others.
        """
        serving = [step for step in steps.values() if step.state is not StepState.ENDING]
        demands: list[Demand] = []
        for step in serving:
            idle = now_ns - step.active_ns > IDLE_NS and step.step_id not in held
            limit = step.workers_max
            if not step.takes_work:
                limit = 0
            elif step.given_up:
                limit = min(limit, len(step.live))
            elif idle and len(serving) > 1:
                limit = 0
            spec = step.spec
            demands.append(
                Demand(spec.step_id, spec.priority, max(1, spec.weight), limit, spec.max_concurrency_per_instance > 0)
            )
        targets = allot(self.node.slots, demands)
        if first is not None and targets.get(first) == 0 and any(d.step_id == first and d.workers_max for d in demands):
            most = max(targets, key=lambda step_id: targets[step_id])
            targets[most] -= 1
            targets[first] = 1
        if not any(targets.values()):
            # All are idle: keep the workers, so that they are ready for the next mini-batch.
            targets = {step.step_id: len(step.live) for step in serving}
        for step in serving:
            step.target = targets[step.step_id]

    def room(self, steps: Mapping[int, Step]) -> int:
        """How many more processes may be started now. Ending ones count until they are gone."""
        return max(self.node.slots, sum(step.target for step in steps.values())) - len(self.workers)

    def start(self, step: Step) -> WorkerProcess:
        """Starts the step's next worker. Raises SpawnFailed, NoInterpreter."""
        sandbox = self._sandbox
        if sandbox is not None:
            sandbox.check(step)
        number = step.lineage.number()
        self._keys += 1
        key = self._keys
        name = f"process{number:03d}"
        stdout = step.log_file(rpc.LOG_KIND_STDOUT, number)
        stderr = step.log_file(rpc.LOG_KIND_STDERR, number)
        built = step.environment
        python = find_interpreter(self._config.python, self._environment) if built is None else str(built.python)
        scratch = step.scratch / name
        gpu = self._gpus.take()
        channels: Channels | None = None
        page: Page | None = None
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            script_log = step.log_file(rpc.LOG_KIND_ENTRY_SCRIPT, number).path
            metrics = step.log_file(rpc.LOG_KIND_METRICS, number)
            for file in (script_log, metrics.path):
                file.parent.mkdir(parents=True, exist_ok=True)
            outputs = OutputFolder(step.outputs / name, step.spec.stored_outputs) if step.saves_outputs else None
            places = outputs.places if outputs is not None else {}
            output_path = step.localised(step.spec.output_path, places)
            for folder in (output_path, *step.spec.output_folders):
                if folder:
                    Path(folder).mkdir(parents=True, exist_ok=True)
            channels = Channels.open()
            page = Page(step.scratch / f"{name}.page")
            config = step.scratch / f"{name}.json"
            document = self._worker_config(step, number, channels, page, scratch, script_log.parent, metrics.path)
            document |= {**script_config(step, places), "output_path": output_path}
            config.write_bytes(as_config(document))
            log = ProcessLog(step.log_file(rpc.LOG_KIND_PROCESS, number))
            worker = WorkerProcess(
                key,
                step.step_id,
                number,
                gpu,
                page,
                channels,
                stdout,
                stderr,
                metrics,
                scratch,
                log,
                step.code,
                outputs,
            )
            step_variables = variables(step, places)
            environment = worker_environment(
                self._environment,
                step_variables if sandbox is None else {},
                passed=self._config.passed_environment,
                built=None if built is None else str(built.folder),
                job_id=step.spec.job_id,
                node_id=self.node.node_id,
                node_rank=self._config.node_rank,
                mark=mark_of(self.node.node_incarnation, key),
                output_path=output_path,
                work_folder=str(step.code),
                gpu_count=len(self._gpus.devices),
                gpu_device=self._gpus.device(gpu),
            )
            command = [
                str(word) for word in (python, LAUNCH, self.node.boot, config, os.getpid(), self.node.open_files)
            ]
            notes: list[str] = []
            if sandbox is not None:
                confined = sandbox.confine(step, worker, config, command, environment, step_variables)
                command, environment, notes = confined.command, confined.environment, confined.notes
            worker.spawn(command, environment)
            if step.pace.duration_s is None:
                worker.prepare_us = max(0, worker.spawned_ns - step.opened_ns) // 1000
        except (OSError, SpawnFailed) as error:
            self._gpus.give_back(gpu)
            if channels is not None:
                channels.close()
            if page is not None:
                page.close()
            step.end_logs(number)
            if isinstance(error, SpawnFailed):
                raise
            raise SpawnFailed(
                f"The node could not prepare a worker: {error}. Check the disk and the permissions of {step.folder}"
            ) from error
        strays.record(self._records, worker.pid)
        self.workers[key] = step.workers[key] = worker
        log.begin(name, self.node.node_id, worker.pid, python, step.spec.job_id, step.spec.step_name, notes)
        say(logging.INFO, "worker started", step=step.step_id, process=name, pid=worker.pid, gpu=gpu)
        return worker

    def bury(self, step: Step | None, worker: WorkerProcess) -> Exit:
        """Cleans up after a dead worker: kills what it left behind, and frees what it had. `step`: None when the agent
        ends.
        """
        exit_ = worker.reap()
        strays.forget(self._records, worker.pid)
        self._gpus.give_back(worker.gpu_index)
        worker.close()
        if step is not None:
            step.end_logs(worker.process_number)
            step.workers.pop(worker.key, None)
        self.workers.pop(worker.key, None)
        self.end_orphans()
        return exit_

    def close(self) -> None:
        """Removes what workers have left outside the folder of the agent, which ends."""
        if self._sandbox is not None:
            self._sandbox.close()

    def end_orphans(self) -> int:
        """Kills processes that dead workers left behind; returns how many."""
        return strays.end_orphans(
            self.node.node_incarnation, {worker.key: worker.pid for worker in self.workers.values()}
        )

    def _worker_config(
        self,
        step: Step,
        number: int,
        channels: Channels,
        page: Page,
        scratch: Path,
        log_folder: Path,
        metrics: Path,
    ) -> dict[str, object]:
        return {
            "work_fd": channels.work_far.fileno(),
            "result_fd": channels.result_far.fileno(),
            "page_path": str(page.path),
            "inline_rows_bytes_max": self.inline_rows_bytes_max,
            "install_hint": self._environment.get("WINDROW_INSTALL_HINT", ""),
            **hosting(step, number, self.node.node_id, self._config.node_rank, scratch, log_folder, metrics),
            "profiling_module": step.spec.profiling_module,
            "profile_path": str(step.log_folder / worker_place(rpc.LOG_KIND_PROFILE, self.node.node_id, number)),
        }


def _sandbox(config: AgentConfig, environment: Mapping[str, str]) -> WorkerSandbox:
    # Not at the top: the first run() waits for imports.
    from windrow_agent.sandbox.worker_sandbox import WorkerSandbox

    return WorkerSandbox(config, environment)
