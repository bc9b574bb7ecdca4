"""Confines one worker after the other, and gives it to the user of its job, if that has one: makes its private folders,
its policy and its command.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windrow.common.beneath import make_folder
from windrow.rpc.log_paths import worker_place
from windrow.rpc.v1 import agent_service_pb2 as rpc

from windrow_agent.config import AgentConfig
from windrow_agent.node.strays import MARK
from windrow_agent.sandbox.policy import (
    Given,
    NotPermitted,
    Sandbox,
    needs_new_start,
    python_places,
    real_paths,
    start_variables,
)
from windrow_agent.sandbox.temporary import TemporaryFolders
from windrow_agent.steps.code_cache import sums_of
from windrow_agent.steps.reach import Reach
from windrow_agent.steps.step import Step
from windrow_agent.workers.death import changed_of
from windrow_agent.workers.noted_folder import PASSABLE, PRIVATE
from windrow_agent.workers.process import LAUNCH, SpawnFailed, WorkerProcess


def _give(user: int, worker: WorkerProcess, own: Sequence[Path]) -> None:
    """Gives what is a worker's own to its user. All of it is in folders in which no script makes anything. Raises
    OSError.
    """
    for captured in (worker.stdout, worker.stderr):
        os.close(captured.open_for_writing())
    inside = [] if worker.temporary is None else [worker.temporary]
    inside += [place for place in (worker.scratch / "home", worker.scratch / "tmp") if place.exists()]
    outputs = [] if worker.outputs is None else [entry for entry in worker.outputs.root.iterdir() if entry.is_dir()]
    for path in (*inside, *outputs, *own, worker.requests.path):
        os.chown(path, user, user, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Confined:
    """How to start a worker. `notes`: for its log."""

    command: list[str]
    environment: dict[str, str]
    notes: list[str]


class WorkerSandbox:
    """The sandboxes of all workers of this node."""

    def __init__(self, config: AgentConfig, environment: Mapping[str, str], *, job_users: bool) -> None:
        """`job_users`: each job has a user of its own."""
        self._sandbox = Sandbox(config, environment, job_users=job_users)
        self._agent_environment = environment
        self._temporary = TemporaryFolders(config.folder, environment, PASSABLE if job_users else PRIVATE)

    def protection(self) -> str:
        """What protects this node from scripts, in one line."""
        return self._sandbox.protection()

    @property
    def makes_outputs(self) -> bool:
        """Whether it makes the folders of outputs that a script is given."""
        return self._sandbox.mode != "auto"

    @property
    def closes_folder(self) -> bool:
        """Whether no script reaches the agent's folder, apart from what is its own worker's."""
        return self._sandbox.closes_folder

    @property
    def only_closes_folder(self) -> bool:
        """Whether scripts can write wherever their user can, but not in the agent's folder."""
        return self._sandbox.mode == "auto" and self._sandbox.closes_folder

    def reach_of_copies(self, step: Step) -> Reach:
        """What the agent may copy for scripts of a step (`Sandbox.reach_of_copies`)."""
        return self._sandbox.reach_of_copies(step)

    def may_show_model(self, path: str, place: str, *, handed_in: bool) -> bool:
        """Whether the agent may open the files of a registered model for a script (`Sandbox.may_show_model`)."""
        return self._sandbox.may_show_model(path, place, handed_in=handed_in)

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
        given = self._sandbox.of_step(step)
        private = dict(environment)
        if step.user is not None or self._sandbox.mode in ("given", "strict"):
            private |= self._private_folders(step, worker, environment, given)
        real = self._sandbox.own
        # What is not there when the process is confined cannot be given to it.
        for path in (real(step.fetched), *given.outputs):
            make_folder(path)
        own: list[Path] = [worker.code, worker.scratch, worker.page.path, worker.stdout.path, worker.stderr.path]
        own += [step.log_file(kind, number).path.parent for kind in (rpc.LOG_KIND_ENTRY_SCRIPT, rpc.LOG_KIND_METRICS)]
        if step.spec.profiling_module:
            profiles = step.log_folder / Path(worker_place(rpc.LOG_KIND_PROFILE, step.node_id, number)).parent
            profiles.mkdir(parents=True, exist_ok=True)
            own.append(profiles)
        if worker.outputs is not None:
            own.append(worker.outputs.root)
        if step.code_sums is not None:
            changed = changed_of(sums_of(worker.code))
            changed.touch()
            given.read.append(real(step.code_sums.path))
            own.append(changed)
        given.write += map(real, own)
        given.read.append(real(config))
        given.execute += real_paths(LAUNCH, Path(command[2]).parent)
        if "HOME" in self._agent_environment:
            local = Path(self._agent_environment["HOME"], ".local")
            given.execute += real_paths(local / "lib", local / "bin")

        python, start, first = None, private, command[0]
        if step.environment is not None:
            given.execute += real_paths(*step.environment.reads)
            python, first = command[0], sys.executable
        elif step.user is not None or needs_new_start(variables, self._agent_environment):
            given.execute += real_paths(*python_places(Path(command[0])))
            python = command[0]
        if step.user is not None:
            # Until it is the user of the job, it is the agent's: nothing of the job runs then, not even a Python that
            # the job's list has made, or that looks for modules in its HOME.
            first = sys.executable
            private |= dict.fromkeys(("USER", "LOGNAME"), f"windrow-{step.user}")
            _give(step.user, worker, own)
        if python is not None:
            variables, start = private | variables, start_variables(private)
        policy = worker.scratch.with_name(f"{worker.scratch.name}.policy")
        document = self._sandbox.policy(given, variables, python, step.user)
        policy.write_text(json.dumps(document))
        # Isolated, so that nothing in a folder of the job is imported before the process is confined.
        words = [first, *(["-I"] if python is not None else []), *command[1:], str(policy)]
        notes = [*given.notes, *step.notes]
        if step.user is not None:
            notes.insert(0, f"the script runs as user {step.user}, which is this job's alone")
        return Confined(words, start, notes if self._sandbox.mode == "off" else [self.protection(), *notes])

    def _private_folders(
        self, step: Step, worker: WorkerProcess, environment: Mapping[str, str], given: Given
    ) -> dict[str, str]:
        """Makes its HOME and TMPDIR; returns the variables that lead there. Raises OSError."""
        temporary = self._temporary.make(f"{worker.key}", worker.scratch)
        if temporary.parent != worker.scratch:
            worker.temporary = temporary
        # No script can write where a short one lies.
        given.write.append(f"{real_paths(temporary.parent)[0]}/{temporary.name}")
        home = worker.scratch / "home"
        home.mkdir()
        found = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        found |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
        if step.environment is None and "HOME" in environment:
            # Packages that pip has installed for the user are there, whatever HOME is.
            found["PYTHONUSERBASE"] = environment.get("PYTHONUSERBASE", f"{environment['HOME']}/.local")
        return found

    def close(self) -> None:
        """Removes the folders of workers that are outside the agent's folder."""
        self._temporary.close()
