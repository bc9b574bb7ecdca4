"""The workers of all steps: how many each step should have, how they are started, and what is done when they end."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.device_packing import choose, is_fraction, take
from windrow.common.interpreter import find_interpreter
from windrow.common.journal import say
from windrow.common.trees import make_folders
from windrow.rpc.log_paths import worker_place
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.config import AgentConfig, BadConfig
from windrow_agent.node import mps, strays
from windrow_agent.node.capacity import NOTHING, Capacity
from windrow_agent.node.gpus import NVIDIA, GpuIndices
from windrow_agent.node.strays import mark_of
from windrow_agent.results.kept_models import KeptModels
from windrow_agent.steps.reach import Reach
from windrow_agent.steps.step import Step, StepState
from windrow_agent.supervision.allotment import Demand, allot
from windrow_agent.supervision.worker_config import as_config, hosting, script_config, variables
from windrow_agent.workers.death import Exit
from windrow_agent.workers.noted_folder import PASSABLE, PRIVATE
from windrow_agent.workers.output_folder import OutputFolder
from windrow_agent.workers.page import Page
from windrow_agent.workers.process import LAUNCH, Channels, SpawnFailed, WorkerProcess
from windrow_agent.workers.process_log import ProcessLog
from windrow_agent.workers.script_socket import ScriptSocket, SocketFolder
from windrow_agent.workers.variables import worker_environment

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import ControlGroups, WorkerGroup
    from windrow_agent.node.gpu_watch import GpuWatch
    from windrow_agent.sandbox.job_users import JobUsers
    from windrow_agent.sandbox.worker_sandbox import WorkerSandbox

NOT_CONFINED = "off: scripts can do whatever the agent's user can"
"""What confines the workers of a node without a sandbox, in words."""

AWAY_NS = 10_000_000_000
"""How long the master may be away before the node shares its slots out by itself."""

IDLE_NS = 2_000_000_000
"""How long a step may have no work before it leaves its slots to other steps."""


@dataclass(slots=True)
class Shares:
    """How many workers each step should have on this node, as the master has decided."""

    workers: dict[int, int] = field(default_factory=dict)
    """By step id; others should have none."""
    reclaim_after_ns: int = 0
    """How long a worker whose place another step waits for may go on with the mini-batch that it runs."""
    away_since_ns: int = 0
    """When the master went away; 0: it is there."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What workers get to know about this node; not the master's record of it. `open_files`: soft limit for scripts.
    `memory_bytes`: what workers may use, by what their steps say that they need.
    """

    node_id: str
    node_incarnation: str
    slots: int
    boot: Path
    open_files: int
    memory_bytes: int = 0


class Workforce:
    """All worker processes of this node. Not a pool, which is a name for some nodes.

    `inline_rows_bytes_max` is the master's, once that is known.
    """

    def __init__(self, config: AgentConfig, node: NodeFacts, gpus: GpuIndices, environment: Mapping[str, str]) -> None:
        self.node = node
        self.workers: dict[int, WorkerProcess] = {}
        self.shares: Shares | None = None
        """None: no master has decided yet."""
        self.inline_rows_bytes_max = 256 << 10
        self._config = config
        self._gpus = gpus
        self.gpu_watch: GpuWatch | None = None
        """What watches the GPUs, if there are some."""
        self._environment = environment
        self.kept_models = KeptModels()
        self._records = config.folder / "workers"
        self.users: JobUsers | None = None
        """The users of jobs, if each job has one of its own."""
        self._why_no_users = ""
        if config.job_users != "off":
            self.users, self._why_no_users = _job_users(config)
        if self.users is None and (config.folder / "job-users").exists():
            from windrow_agent.sandbox.job_users import put_away

            put_away(config)
        self._keys = 0
        self._sandbox = None
        if config.sandbox != "off" or self.users is not None:
            self._sandbox = _sandbox(config, environment, job_users=self.users is not None)
        # Where jobs have users, those of others can change nothing there.
        inside = self.users is None and self._sandbox is not None and self._sandbox.only_closes_folder
        mode = PRIVATE if self.users is None else PASSABLE
        self._sockets = SocketFolder(config.folder, environment, mode, inside=inside)
        self.groups: ControlGroups | None = None
        """The control groups of this node, if it has some."""
        self._limits = ""
        if config.control_groups != "off":
            self.groups, self._limits = _control_groups(config, node)

    @property
    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        is_off = self._sandbox is None or self._config.sandbox == "off"
        protection = NOT_CONFINED if is_off or self._sandbox is None else self._sandbox.protection()
        if self.users is not None:
            mode, _, rest = protection.partition(":")
            rest = rest.replace("the agent's user", "the user of its job")
            protection = f"{mode} + job users:{rest}; {self.users.protection()}"
        elif self._why_no_users:
            protection += f"; {self._why_no_users}"
        if self.groups is not None:
            mode, _, rest = protection.partition(":")
            protection = f"{mode} + control groups:{rest}"
        return f"{protection}; {self._limits}" if self._limits else protection

    @property
    def closes_folder(self) -> bool:
        """Whether no script can write in the agent's folder, apart from what is its own worker's."""
        return self.users is not None or (self._sandbox is not None and self._sandbox.closes_folder)

    def may_show_model(self, path: str, place: str, *, handed_in: bool) -> bool:
        """Whether the agent may open the files of a registered model for a script, which might not read them itself."""
        return self._sandbox is None or self._sandbox.may_show_model(path, place, handed_in=handed_in)

    def reach_of_copies(self, step: Step) -> Reach:
        """What the agent may copy for scripts of a step, which might not read it themselves."""
        return Reach.of_datastores(step) if self._sandbox is None else self._sandbox.reach_of_copies(step)

    # The users of jobs. What follows takes its time: not on the event loop's thread.

    def take_user(self, step: Step) -> str:
        """Gives a step the user of its job; returns why it can have none, "" on success."""
        if self.users is None:
            return ""
        from windrow_agent.sandbox.job_users import UsersExhausted

        try:
            self.users.take(step)
        except UsersExhausted as error:
            return str(error)
        except OSError as error:
            return f"Step {step.spec.step_name!r} could not get the user of its job on this node: {error}"
        return ""

    def give_code(self, step: Step, copy: Path) -> None:
        """Gives the user of its job a copy of the code. Raises OSError."""
        if step.user is not None:
            from windrow_agent.sandbox.access_lists import give_tree

            give_tree(copy, step.user)

    def open_to_user(self, step: Step) -> str:
        """Lets the user of its job write the outputs of a step, and looks whether it can read what the step needs;
        returns what it cannot, in words.
        """
        if self.users is None or step.user is None:
            return ""
        from windrow_agent.sandbox.job_users import obstacles

        python = str(step.environment.python) if step.environment is not None else self._python()
        inputs = _existing([*step.spec.read_paths, *map(str, step.side_inputs.values())])
        try:
            notes = self.users.open_outputs(step)
            read = [str(LAUNCH), str(self.node.boot), *inputs]
            found, closed = obstacles(step.user, python, read, _existing(step.spec.write_paths))
        except OSError as error:
            return f"Step {step.spec.step_name!r} could not be prepared for the user of its job: {error}"
        step.notes += notes or [f"user {step.user}, as whom the script runs, {why}" for why in closed]
        if not found:
            return ""
        return (
            f"User {step.user}, as whom this node runs the scripts of job {step.spec.job_id}, {'; '.join(found)}. Let "
            "all users read it (chmod o+r, and o+x for folders), or start the agent with --job-users off"
        )

    def leave_outputs(self, step: Step) -> None:
        """The step has no process here any more: its outputs become their owners'."""
        if self.users is not None:
            self.users.leave_outputs(step)

    def dropped(self, step: Step) -> None:
        """The folder of a step is gone."""
        if self.users is not None:
            self.users.leave(step)

    def allot(self, steps: Mapping[int, Step], held: Container[int], now_ns: int, *, first: int | None = None) -> None:
        """Sets every step's `target`. `held`: steps with unfinished leases; `first`: a step that gets a worker before
        all others.
        """
        serving = [step for step in steps.values() if step.state is not StepState.ENDING]
        if self.is_shared_out(now_ns):
            self._follow(serving, first)
            return
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
                Demand(
                    spec.step_id,
                    spec.priority,
                    max(1, spec.weight),
                    limit,
                    spec.max_concurrency_per_instance > 0,
                    step.need,
                )
            )
        targets = allot(self.capacity, demands)
        if first is not None and targets.get(first) == 0 and any(d.step_id == first and d.workers_max for d in demands):
            most = max(targets, key=lambda step_id: targets[step_id])
            targets[most] -= 1
            targets[first] = 1
        if not any(targets.values()):
            # All are idle: keep the workers, so that they are ready for the next mini-batch.
            targets = {step.step_id: len(step.live) for step in serving}
        for step in serving:
            step.target = targets[step.step_id]

    def is_shared_out(self, now_ns: int) -> bool:
        """Whether the master decides how many workers each step has here; otherwise the node does."""
        shares = self.shares
        return shares is not None and not (shares.away_since_ns and now_ns - shares.away_since_ns > AWAY_NS)

    def _follow(self, serving: list[Step], first: int | None) -> None:
        """Sets every step's `target` as the master has decided."""
        assert self.shares is not None
        for step in serving:
            wanted = self.shares.workers.get(step.step_id, 0)
            if not step.takes_work:
                wanted = 0
            elif step.given_up:
                wanted = min(wanted, len(step.live))
            elif step.step_id == first:
                wanted = max(1, wanted)
            step.target = wanted

    def yielding(self, now_ns: int) -> list[WorkerProcess]:
        """Workers that have had their time to leave their place to another step, those first whose mini-batches have
        run least.
        """
        shares = self.shares
        if shares is None or not shares.reclaim_after_ns:
            return []
        over = [
            worker
            for worker in self.workers.values()
            if worker.yields_since_ns
            and now_ns - worker.yields_since_ns > shares.reclaim_after_ns
            and worker.killed_for is None
        ]
        return sorted(over, key=lambda worker: -worker.look().phase_start_ns)

    @property
    def capacity(self) -> Capacity:
        """What this node has for its workers."""
        return Capacity(self.node.slots, self.node.memory_bytes, self._gpus.count)

    def may_start(self, step: Step, steps: Mapping[int, Step]) -> bool:
        """Whether there is room for one more worker of a step now. Ending ones count until they are gone."""
        needs = {one.step_id: one.need for one in steps.values()}
        if all(need == NOTHING for need in needs.values()):
            return self.room(steps) > 0
        there: dict[int, int] = {step.step_id: 1}
        for worker in self.workers.values():
            there[worker.step_id] = there.get(worker.step_id, 0) + 1
            needs.setdefault(worker.step_id, NOTHING)
        # More workers than slots, where a step says nothing but its number.
        slots = sum(one.target * (1.0 if one.need.cpus is None else one.need.cpus) for one in steps.values())
        if self._waits_for_gpu_memory(step):
            return False
        return self.capacity.fits(there, needs, slots) and self._gpus.has_room(step.need.gpus)

    @property
    def gpu_trouble(self) -> str:
        """Why GPUs of this node cannot be seen, used or measured, in words; "" if they can, or there are none."""
        now = "" if self.gpu_watch is None else self.gpu_watch.trouble
        return now or self._gpus.trouble

    def _waits_for_gpu_memory(self, step: Step) -> bool:
        """Whether a worker is to get a part of a GPU's memory, and the driver has not said yet how much that has."""
        watch = self.gpu_watch
        return watch is not None and is_fraction(step.need.gpus) and not watch.has_looked and self._mps is not None

    @property
    def _mps(self) -> Path | None:
        """Where MPS listens for this node's workers; None if there is none. It serves one user at a time."""
        return mps.pipe_folder(self._environment) if self.users is None else None

    def _gpu_bounds(self, gpus: tuple[int, ...], share: float) -> dict[str, str]:
        """Variables that keep a worker within its part of a GPU."""
        folder = self._mps if is_fraction(share) and self._gpus.variable == NVIDIA else None
        if folder is None:
            return {}
        memory = 0 if self.gpu_watch is None else self.gpu_watch.memory_of(gpus[0])
        return mps.client_variables(folder, share, memory)

    def in_the_way(self, steps: Mapping[int, Step]) -> list[WorkerProcess]:
        """Workers that share a GPU which a step lacks as a whole, if they and that step's worker fit elsewhere: they
        have to be started again.
        """
        if any(worker.retiring for worker in self.workers.values()):
            return []
        for step in steps.values():
            need = step.need.gpus
            if step.may_start and len(step.live) < step.target and need and not self._gpus.has_room(need):
                for keys in self._gpus.sharing():
                    there = [self.workers[key] for key in keys if key in self.workers]
                    free = self._gpus.without(keys)
                    shares = [steps[worker.step_id].need.gpus for worker in there if worker.step_id in steps]
                    if len(shares) == len(keys) and all(
                        _takes(free, each) for each in sorted([need, *shares], reverse=True)
                    ):
                        return there
        return []

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
        python = self._python() if built is None else str(built.python)
        scratch = step.scratch / name
        gpus = self._gpus.take(key, step.need.gpus)
        if gpus is None:
            raise SpawnFailed(f"The node has no GPUs left for a worker that needs {step.need.gpus:g}.")
        channels: Channels | None = None
        page: Page | None = None
        requests: ScriptSocket | None = None
        group: WorkerGroup | None = None
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            script_log = step.log_file(rpc.LOG_KIND_ENTRY_SCRIPT, number).path
            metrics = step.log_file(rpc.LOG_KIND_METRICS, number)
            for file in (script_log, metrics.path):
                file.parent.mkdir(parents=True, exist_ok=True)
            outputs = OutputFolder(step.outputs / name, step.spec.stored_outputs) if step.saves_outputs else None
            places = outputs.places if outputs is not None else {}
            output_path = step.localised(step.spec.output_path, places)
            # A sandbox that gives outputs makes their folders itself: scripts may lay links on the way to them.
            made = step.spec.write_paths if sandbox is not None and sandbox.makes_outputs else ()
            for folder in (output_path, *step.spec.output_folders):
                if folder and folder not in made:
                    make_folders(folder)
            channels = Channels.open()
            requests = self._sockets.open()
            page = Page(step.scratch / f"{name}.page")
            config = step.scratch / f"{name}.json"
            document = self._worker_config(step, number, channels, page, scratch, script_log.parent, metrics.path)
            document |= {**script_config(step, places), "output_path": output_path, "requests_path": str(requests.path)}
            config.write_bytes(as_config(document))
            log = ProcessLog(step.log_file(rpc.LOG_KIND_PROCESS, number))
            worker = WorkerProcess(
                key,
                step.step_id,
                number,
                gpus,
                page,
                channels,
                stdout,
                stderr,
                metrics,
                scratch,
                log,
                step.code,
                requests,
                checks_code=step.code_sums is not None,
                outputs=outputs,
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
                gpu_device=self._gpus.device(gpus),
                gpu_variable=self._gpus.variable,
                gpu_bounds=self._gpu_bounds(gpus, step.need.gpus),
            )
            if self.groups is not None:
                worker.group = group = self.groups.open(key, step.slots_each(self.node.slots))
            entrances = os.pathsep.join(group.entrances) if group is not None else ""
            command = [
                str(word)
                for word in (python, LAUNCH, self.node.boot, config, os.getpid(), self.node.open_files, entrances)
            ]
            notes = [self._limits] if self._limits else []
            if sandbox is not None:
                confined = sandbox.confine(step, worker, config, command, environment, step_variables)
                command, environment, notes = confined.command, confined.environment, [*confined.notes, *notes]
            worker.spawn(command, environment)
            if step.pace.duration_s is None:
                worker.prepare_us = max(0, worker.spawned_ns - step.opened_ns) // 1000
        except (OSError, SpawnFailed) as error:
            self._gpus.give_back(key)
            if channels is not None:
                channels.close()
            if page is not None:
                page.close()
            if requests is not None:
                requests.close()
            if self.groups is not None and group is not None:
                self.groups.leave(group)
            step.end_logs(number)
            if isinstance(error, SpawnFailed):
                raise
            raise SpawnFailed(
                f"The node could not prepare a worker: {error}. Check the disk and the permissions of {step.folder}"
            ) from error
        strays.record(self._records, worker.pid)
        self.workers[key] = step.workers[key] = worker
        log.begin(name, self.node.node_id, worker.pid, python, step.spec.job_id, step.spec.step_name, notes)
        say(logging.INFO, "worker started", step=step.step_id, process=name, pid=worker.pid, gpus=list(gpus))
        return worker

    def _python(self) -> str:
        """The interpreter of scripts for which no environment is built. Raises NoInterpreter."""
        return find_interpreter(self._config.python, self._environment)

    def bury(self, step: Step | None, worker: WorkerProcess) -> Exit:
        """Cleans up after a dead worker: kills what it left behind, and frees what it had. `step`: None when the agent
        ends.
        """
        exit_ = worker.reap()
        strays.forget(self._records, worker.pid)
        self._gpus.give_back(worker.key)
        worker.close()
        if self.groups is not None and worker.group is not None:
            self.groups.leave(worker.group)
        if step is not None:
            step.end_logs(worker.process_number)
            step.workers.pop(worker.key, None)
        self.workers.pop(worker.key, None)
        self.end_orphans()
        return exit_

    def close(self) -> None:
        """Removes what workers have left outside the folder of the agent, which ends."""
        self._sockets.close()
        if self._sandbox is not None:
            self._sandbox.close()
        if self.groups is not None:
            self.groups.close()
        if self.users is not None:
            self.users.close()

    def end_orphans(self) -> int:
        """Kills processes that dead workers left behind; returns how many of them were in no control group."""
        if self.groups is not None:
            self.groups.sweep()
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


def _takes(free: list[float], need: float) -> bool:
    """Take what a worker needs off what is free of each GPU; return whether there is so much."""
    chosen = choose(free, need)
    if chosen is None:
        return False
    take(free, chosen, need)
    return True


def _existing(paths: Iterable[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if Path(path).exists()]


def _sandbox(config: AgentConfig, environment: Mapping[str, str], *, job_users: bool) -> WorkerSandbox:
    # Not at the top: the first run() waits for imports.
    from windrow_agent.sandbox.worker_sandbox import WorkerSandbox

    return WorkerSandbox(config, environment, job_users=job_users)


def _job_users(config: AgentConfig) -> tuple[JobUsers | None, str]:
    """The users of jobs, if there can be some, or in words why not. Raises BadConfig where a range is given."""
    from windrow_agent.sandbox.job_users import JobUsers, NoJobUsers

    try:
        return JobUsers(config), ""
    except NoJobUsers as error:
        if config.job_users != "auto":
            raise BadConfig(f"--job-users {config.job_users} is not possible here: {error}") from error
        say(logging.WARNING, "jobs have no users of their own", why=str(error))
        return None, f"jobs have no users of their own, since {error}"


def _control_groups(config: AgentConfig, node: NodeFacts) -> tuple[ControlGroups | None, str]:
    """The control groups of the workers, if there can be some, and in words what they do, or why there are none. Raises
    BadConfig where they are required.
    """
    from windrow_agent.node import resources
    from windrow_agent.node.control_groups import ControlGroups, NoControlGroups

    try:
        groups = ControlGroups(config, node.slots, resources.cpu_count(), resources.memory_bytes())
    except NoControlGroups as error:
        if config.control_groups == "required":
            raise BadConfig(f"control_groups is required, and there can be none here: {error}") from error
        say(logging.WARNING, "workers have no control groups", why=str(error))
        return None, f"no control groups, since {error}: processes and memory of workers have no limit of their own"
    return groups, groups.protection()
