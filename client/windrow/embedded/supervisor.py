"""The private master and agent: started together, restarted when one dies, ended in order.

States of each process: starting -> ready -> (dead -> starting)* -> ended; states of the pair: up -> draining ->
ended, or up -> failed -> ended. Edges: a death while `up` restarts the process after a pause; RESTARTS_MAX deaths
within RESTART_WINDOW_S, or exit code 2 (it cannot start with this configuration) make the pair `failed`.

1. At most one master and one agent of this supervisor run.
2. Once draining or failed, it starts nothing.
3. When the pair has ended, both processes have been reaped and the socket's folder is gone.
4. Should this process die, both see the end of the lifeline and end by themselves (`windrow.embedded.child`).
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import os
import select
import signal
import threading
import time

from windrow.common.signal_names import signal_name
from windrow.embedded.process import Process, spawn
from windrow.embedded.state_folder import RUN_FOLDER_VARIABLE, remove_run_folder
from windrow.errors import MasterFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESTARTS_MAX = 5
RESTART_WINDOW_S = 60.0
RESTART_PAUSE_S = 0.05
RESTART_PAUSE_MAX_S = 2.0
CANNOT_BEGIN = 2
STATE_DAMAGED = 3
"""The master has found its state damaged, and said so: to start it again would not help."""
POLL_S = 0.2
MASTER_END_S = 120.0
HURRY_S = 2.0
DRAIN_GRACE_S = 30.0
"""How long running mini-batches may continue after Ctrl-C before they are handed back."""


class _Role:
    """One of the two processes: how to start it, and how often it has died."""

    def __init__(self, name: str, module: str, arguments: list[str], log: str, environment: dict[str, str]) -> None:
        self.name = name
        self.module = module
        self.arguments = arguments
        self.log = log
        self.environment = environment
        self.process: Process | None = None
        self.deaths: list[float] = []
        self.start_at: float | None = None
        """When to start it again; None if it lives, or is not wanted."""


class Supervisor:
    """Starts master and agent in its constructor. `watch`, in a thread, keeps them alive; `end` ends them.

    Not the agent's `Supervisor`, which looks after workers.
    """

    def __init__(
        self,
        state: str,
        run_folder: str,
        *,
        python: str | None,
        interpreter: str,
        environments: str,
        slots: int | None,
        sandbox: str,
        with_agent: bool,
        datastores: Mapping[str, str],
    ) -> None:
        """`state`: the prepared folder, absolute. `run_folder`: a fresh one, for the socket. `python`: the one given
        for scripts, if any. `interpreter`: the one that scripts run in. `environments`: build or own. `sandbox`: off,
        auto, given or strict. `datastores`: of the master, by name."""
        self.run_folder = run_folder
        self.address = f"unix:{run_folder}/master"
        self.failure: MasterFailed | None = None
        self._listener: Callable[[str], None] | None = None
        self._unheard: list[str] = []
        self.on_change: Callable[[], None] = lambda: None
        """Called by the watching thread after it has restarted a process, or when it gives up."""
        self._lifeline, self._lifeline_end = os.pipe()
        self._wake, self._wake_end = os.pipe()
        self._ending = False
        self._acting = threading.Lock()
        """Held while processes are started, reaped or ended, so that `watch` and `end` exclude each other."""
        self._ready_text = b""
        self.master_ready = False
        self._roles = [
            _Role(
                "master",
                "windrow_master",
                ["--state", state, "--listen", self.address, "--embedded"]
                + [f"--datastore={name}={place}" for name, place in datastores.items()]
                + [f"--scripts-run-in={environments}:{interpreter}" if with_agent else "--no-agent"],
                os.path.join(state, "master.stderr.log"),
                {RUN_FOLDER_VARIABLE: run_folder},
            )
        ]
        try:
            self._spawn(self._roles[0])
            if with_agent:
                config = write_agent_config(state, run_folder, self.address, python, environments, slots, sandbox)
                log = os.path.join(state, "agent.stderr.log")
                self._roles.append(_Role("agent", "windrow_agent", ["--config", config], log, {}))
                self._spawn(self._roles[1])
        except BaseException as error:
            self.end(now=True)
            self.close()
            if not isinstance(error, OSError):
                raise
            raise MasterFailed(
                f"The private master and agent cannot be started: {error.strerror} ({error.filename or 'fork'}). "
                f"Check the state folder {state} and the limits of this user (ulimit -u, ulimit -n)."
            ) from error

    @property
    def master_pid(self) -> int | None:
        """Process id of the master."""
        return self._pid(0)

    @property
    def agent_pid(self) -> int | None:
        """Process id of the agent."""
        return self._pid(1)

    def log_of(self, name: str) -> str:
        """The file that holds the standard error of a process."""
        return next(role.log for role in self._roles if role.name == name)

    def wait_ready(self, seconds: float, check: Callable[[], None] = lambda: None) -> bool:
        """Wait until the master serves; False if that takes too long. Not while `watch` runs.

        `check`: called while it waits; it may raise. Raises MasterFailed.
        """
        deadline = time.monotonic() + seconds
        while not self.master_ready and time.monotonic() < deadline:
            check()
            self.step(min(POLL_S, max(0.0, deadline - time.monotonic())))
            if self.failure is not None:
                raise self.failure
        return self.master_ready

    def listen(self, listener: Callable[[str], None]) -> None:
        """Pass messages for people (a restart, the final failure) to `listener`, from the watching thread.

        Messages from before come first.
        """
        with self._acting:
            self._listener = listener
            for message in self._unheard:
                listener(message)
            self._unheard.clear()

    def watch(self) -> None:
        """Keep both processes alive until `end` or a failure. Runs in its own thread."""
        while not self._ending and self.failure is None:
            self.step(POLL_S)
        if self.failure is not None:
            self.on_change()

    def step(self, seconds: float) -> None:
        """Wait at most `seconds` for an event, then handle all that happened."""
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        now = time.monotonic()
        for role in self._roles:
            if role.start_at is not None:
                seconds = min(seconds, max(0.0, role.start_at - now))
            elif role.process is not None:
                if role.process.pidfd >= 0:
                    poller.register(role.process.pidfd, select.POLLIN)
                if role.process.output >= 0:
                    poller.register(role.process.output, select.POLLIN)
        poller.poll(seconds * 1000)
        with self._acting:
            if not self._ending:
                self._act()

    def _act(self) -> None:
        for role in self._roles:
            if role.process is not None:
                self._read_output(role.process)
                code = role.process.exit_code()
                if code is not None:
                    self._bury(role, role.process, code)
            if role.start_at is not None and time.monotonic() >= role.start_at and self.failure is None:
                self._start_again(role)

    def end(
        self,
        *,
        now: bool = False,
        hurry: Callable[[], bool] = lambda: False,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        """End agent, then master, and remove the socket's folder.

        The agent first finishes what runs, within DRAIN_GRACE_S, or hands it back. When `hurry` returns True, or with
        `now`, that stops at once. `drained` is called after it, while the master still answers. May be called again.
        """
        self._ending = True
        if self._wake_end >= 0:
            os.write(self._wake_end, b"x")
        with self._acting:
            agent = self._roles[1].process if len(self._roles) > 1 else None
            master = self._roles[0].process
            if agent is not None:
                self._end_agent(agent, lambda: now or hurry())
                agent.close()
            if master is not None:
                drained()
                master.send(signal.SIGTERM)
                self._end_master(master, lambda: now or hurry())
                master.close()
            for role in self._roles:
                role.process = None
            remove_run_folder(self.run_folder)

    def close(self) -> None:
        """Close the pipes. Call it after `end`, when the watching thread has ended."""
        for descriptor in (self._lifeline, self._lifeline_end, self._wake, self._wake_end):
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline = self._lifeline_end = self._wake = self._wake_end = -1

    def _end_agent(self, agent: Process, hurry: Callable[[], bool]) -> None:
        agent.send(signal.SIGTERM)
        deadline = time.monotonic() + DRAIN_GRACE_S + HURRY_S
        while agent.exit_code() is None and time.monotonic() < deadline and not hurry():
            agent.wait(0.05)
        # A second SIGTERM ends a draining agent at once, and lets it kill what its workers left behind.
        agent.send(signal.SIGTERM)
        if agent.wait(HURRY_S) is None:
            agent.send(signal.SIGKILL)
            agent.wait(MASTER_END_S)

    def _end_master(self, master: Process, hurry: Callable[[], bool]) -> None:
        """End the master, which first writes its last reports. With millions of mini-batches that takes seconds."""
        deadline = time.monotonic() + MASTER_END_S
        while master.wait(0.05) is None and time.monotonic() < deadline and not hurry():
            pass
        if master.wait(HURRY_S) is None:
            master.send(signal.SIGKILL)
            master.wait(HURRY_S)

    def _pid(self, index: int) -> int | None:
        process = self._roles[index].process if index < len(self._roles) else None
        return process.pid if process is not None else None

    def _spawn(self, role: _Role) -> None:
        role.start_at = None
        if role.name == "master":
            self.master_ready = False
            self._ready_text = b""
        role.process = spawn(
            role.name,
            role.module,
            role.arguments,
            lifeline=self._lifeline,
            log=role.log,
            environment=role.environment,
        )

    def _read_output(self, process: Process) -> None:
        while process.output >= 0:
            try:
                content = os.read(process.output, 65536)
            except BlockingIOError:
                return
            if not content:
                os.close(process.output)
                process.output = -1
            elif process.name == "master" and not self.master_ready:
                self._ready_text = (self._ready_text + content)[-65536:]
                self.master_ready = b'"ready"' in self._ready_text and b"\n" in self._ready_text

    def _bury(self, role: _Role, process: Process, code: int) -> None:
        role.process = None
        process.close()
        now = time.monotonic()
        role.deaths = [death for death in role.deaths if now - death < RESTART_WINDOW_S] + [now]
        how = signal_name(-code) if code < 0 else f"exit code {code}"
        said = process.said()
        if code == STATE_DAMAGED:
            self.failure = MasterFailed(f"{said}\nIts log: {role.log}")
            self._tell(str(self.failure))
        elif code == CANNOT_BEGIN:
            self._fail(f"The private {role.name} cannot start:", said, role)
        elif len(role.deaths) > RESTARTS_MAX:
            self._fail(
                f"The private {role.name} died {len(role.deaths)} times within a minute, last by {how}.", said, role
            )
        else:
            pause = 0.0 if len(role.deaths) == 1 else RESTART_PAUSE_S * 4 ** (len(role.deaths) - 1)
            role.start_at = now + min(pause, RESTART_PAUSE_MAX_S)
            self._tell(f"The {role.name} died by {how}; it is restarted, and nothing is lost.")

    def _start_again(self, role: _Role) -> None:
        try:
            # If something has removed the folder, the master could not make its socket.
            os.makedirs(self.run_folder, mode=0o700, exist_ok=True)
            if role.name == "master":
                # A killed master leaves its socket behind. Agents and clients must not wait on it.
                try:
                    os.unlink(self.address.removeprefix("unix:"))
                except FileNotFoundError:
                    pass
            self._spawn(role)
            self.on_change()
        except OSError as error:
            self._fail(f"The private {role.name} cannot be restarted: {error.strerror}.", "", role)

    def _fail(self, what: str, said: str, role: _Role) -> None:
        message = f"{what}\n{said}" if said else what
        self.failure = MasterFailed(
            f"{message}\nWhat is done is kept in the state folder; the same command continues it. Its log: {role.log}"
        )
        self._tell(str(self.failure))

    def _tell(self, message: str) -> None:
        if self._listener is not None:
            self._listener(message)
        else:
            self._unheard.append(message)


def write_agent_config(
    state: str,
    run_folder: str,
    address: str,
    python: str | None,
    environments: str,
    slots: int | None,
    sandbox: str,
) -> str:
    """The agent's configuration as a file in the socket's folder; returns its path."""
    import json

    kept = os.environ.get("WINDROW_ENVIRONMENTS_FOLDER")
    config = {
        "folder": os.path.join(state, "agent"),
        "master_addresses": [address],
        "python": python,
        "environments": environments,
        "environments_folder": os.path.abspath(kept) if kept else None,
        "slots": slots,
        "drain_grace_s": DRAIN_GRACE_S,
        "sandbox": sandbox,
        "control_groups": "off",
        "allowed_paths": os.environ.get("WINDROW_ALLOW_PATH", "").split(),
        "job_paths": os.environ.get("WINDROW_JOB_PATHS", "").split(),
        "closed_paths": [state, run_folder],
    }
    path = os.path.join(run_folder, "agent.json")
    with open(path, "w") as file:
        json.dump({key: value for key, value in config.items() if value is not None}, file)
    return path
