"""Confines one worker after the other: makes its private folders, its policy and its command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windrow.rpc.log_paths import worker_place
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.config import AgentConfig
from windrow_agent.node.strays import MARK
from windrow_agent.sandbox.policy import (
    NotPermitted,
    Sandbox,
    needs_new_start,
    python_places,
    start_variables,
)
from windrow_agent.sandbox.temporary import TemporaryFolders
from windrow_agent.steps.code_cache import sums_of
from windrow_agent.steps.step import Step
from windrow_agent.workers.death import changed_of
from windrow_agent.workers.process import LAUNCH, SpawnFailed, WorkerProcess


@dataclass(frozen=True, slots=True)
class Confined:
    """How to start a worker. `notes`: for its log."""

    command: list[str]
    environment: dict[str, str]
    notes: list[str]


class WorkerSandbox:
    """The sandboxes of all workers of this node."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str]) -> None:
        self._sandbox = Sandbox(config, environment)
        self._agent_environment = environment
        self._temporary = TemporaryFolders(config.folder)

    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        return self._sandbox.protection()

    def check(self, step: Step) -> None:
        """Raises SpawnFailed if no worker of the step may start here."""
        if self._sandbox.cannot:
            raise SpawnFailed(self._sandbox.cannot)
        try:
            self._sandbox.of_step(step)
        except NotPermitted as error:
            raise SpawnFailed(str(error)) from error

    def confine(
        self,
        step: Step,
        worker: WorkerProcess,
        config: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        variables: Mapping[str, str],
    ) -> Confined:
        """`config`: the worker's configuration. `command`, `environment`: as of a worker that is not confined, but
        without the step's own `variables`. Raises OSError.
        """
        variables = {name: value for name, value in variables.items() if name != MARK}
        number = worker.process_number
        temporary = self._temporary.make(f"{worker.key}", worker.scratch)
        if temporary.parent != worker.scratch:
            worker.temporary = temporary
        home = worker.scratch / "home"
        home.mkdir()
        private = dict(environment)
        if step.environment is None and "HOME" in environment:
            # Packages that pip has installed for the user are there, whatever HOME is.
            private.setdefault("PYTHONUSERBASE", f"{environment['HOME']}/.local")
        private |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        private |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))

        given = self._sandbox.of_step(step)
        # What is not there when the process is confined cannot be given to it.
        for path in (str(step.fetched), *(path for path in step.spec.write_paths if path in given.write)):
            Path(path).mkdir(parents=True, exist_ok=True)
        given.write += [str(worker.code), str(worker.scratch), str(temporary), str(worker.page.path)]
        given.write += [str(worker.stdout.path), str(worker.stderr.path)]
        given.write += [
            str(step.log_file(kind, number).path.parent) for kind in (rpc.LOG_KIND_ENTRY_SCRIPT, rpc.LOG_KIND_METRICS)
        ]
        if step.spec.profiling_module:
            profiles = step.log_folder / Path(worker_place(rpc.LOG_KIND_PROFILE, step.node_id, number)).parent
            profiles.mkdir(parents=True, exist_ok=True)
            given.write.append(str(profiles))
        if worker.outputs is not None:
            given.write.append(str(worker.outputs.root))
        if step.code_sums is not None:
            changed = changed_of(sums_of(worker.code))
            changed.touch()
            given.read.append(str(step.code_sums.path))
            given.write.append(str(changed))
        given.read.append(str(config))
        given.execute += [str(LAUNCH), str(Path(command[2]).parent)]
        given.execute += [f"{self._agent_environment['HOME']}/.local/{name}" for name in ("lib", "bin")] * (
            "HOME" in self._agent_environment
        )

        python, start, first = None, private, command[0]
        if step.environment is not None:
            given.execute += [str(step.environment.folder), *python_places(step.environment.python)]
            python, first = command[0], sys.executable
        elif needs_new_start(variables, self._agent_environment):
            given.execute += python_places(Path(command[0]))
            python = command[0]
        if python is not None:
            variables, start = private | variables, start_variables(private)
        policy = worker.scratch.with_name(f"{worker.scratch.name}.policy")
        document = self._sandbox.policy(given, variables, python)
        policy.write_text(json.dumps(document))
        # Isolated, so that nothing in a folder of the job is imported before the process is confined.
        words = [first, *(["-I"] if python is not None else []), *command[1:], str(policy)]
        return Confined(words, start, [self.protection(), *given.notes])

    def close(self) -> None:
        """Removes the folders of workers that are outside the agent's folder."""
        self._temporary.close()
