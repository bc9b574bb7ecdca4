"""Opens a state folder: starts a private master (and agent) over it, or attaches to running ones.

States: owner | attached; attached -> owner when the process that started them is gone and its job is not (takeover).
1. An owner publishes the address of its master, and others believe it only while the owner lives.
2. An attached session starts nothing and ends nothing.
3. Interrupts wait while it starts processes; whoever opens a session holds them until `close` is sure to be called.
"""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

import os
import threading
import time

from windrow.common.interpreter import find_interpreter
from windrow.common.open_files import need_open_files
from windrow.common.state_mark import STATE_MARK
from windrow.embedded import interrupts, state_folder
from windrow.embedded.datastores import gather, read
from windrow.embedded.supervisor import Supervisor
from windrow.errors import MasterFailed, StateFolderError, UsageError, WindrowError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

READY_S = 60.0
"""How long a master may take to serve: it may have to recover a large state from a slow disk."""
ATTACH_S = 30.0
ATTACH_TOLD_S = 1.0
POLL_S = 0.01
SANDBOXES = ("off", "auto", "given", "strict")
"""How the workers are confined; each one more than those before it."""


class Session:
    """An open state folder. The caller closes it.

    Not an agent's session with a master, which `windrow_agent.session` holds.
    """

    def __init__(
        self,
        folder: str,
        *,
        python: str | None,
        environments: str,
        slots: int | None,
        sandbox: str,
        with_agent: bool,
        datastores: Sequence[str],
        make_room: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        """Start master and agent, or attach. Use `open_session`."""
        self.address = ""
        self.supervisor: Supervisor | None = None
        self.owner_pid = 0
        self.interpreter = ""
        """The Python that runs scripts; "" if none does, or if the owner has not published it."""
        self.builds_environments = environments == "build" and not python
        """Steps that ask for an environment get one. If false, all scripts run in `interpreter`."""
        # Looked up first, so that a wrong one does not leave a trace on disk.
        self._own_interpreter = find_interpreter(python, os.environ) if with_agent else ""
        need_open_files("The run", (slots or 1) if with_agent else 0)
        self._python = self._own_interpreter if python else None
        self._slots = slots
        self._sandbox = sandbox
        self.with_agent = with_agent
        """Whether this session needs an agent; its own master then has one."""
        self._ownership: state_folder.Ownership | None = None
        self._thread: threading.Thread | None = None
        self._make_room = make_room
        self._tell = tell
        self._given_datastores = read(datastores)
        self.datastores: dict[str, str] = {}
        """The datastores of the master, by name."""
        self.folder = state_folder.prepare(folder)
        self._enter()

    @property
    def attached(self) -> bool:
        """Whether another process started the master and agent."""
        return self.supervisor is None

    def wait_ready(self) -> str:
        """Wait until the master serves; return its address. Raises MasterFailed."""
        with interrupts.held() as held:
            if self.supervisor is not None and self._thread is None:
                try:
                    if not self.supervisor.wait_ready(READY_S, held.check):
                        raise MasterFailed(
                            f"The private master over {self.folder} does not serve after {READY_S:.0f} s. "
                            f"Perhaps the disk is very slow. Its log: {self.supervisor.log_of('master')}"
                        )
                except BaseException:
                    self.close(now=True)
                    raise
                self._publish()
                self.supervisor.on_change = self._publish
                self._thread = threading.Thread(target=self.supervisor.watch, name="supervise", daemon=True)
                self._thread.start()
        return self.address

    def failure(self) -> WindrowError | None:
        """Why the master will not come back; None if it may."""
        if self.supervisor is not None:
            return self.supervisor.failure
        endpoint = state_folder.read_endpoint(self.folder)
        # Another master may serve the folder by now.
        if not state_folder.is_owned(self.folder) or (endpoint and endpoint["address"] != self.address):
            return OwnerGone(f"The windrow process {self.owner_pid} that ran the master over {self.folder} has ended.")
        # Without an agent, its master may answer for as long as that process lives.
        failure = endpoint.get("failure") if endpoint is not None else ""
        return MasterFailed(str(failure)) if failure else None

    def take_over(self) -> bool:
        """After OwnerGone, start a master and agent, or attach if another process was faster. Returns True if this
        session is now the owner.
        """
        self._enter()
        self.wait_ready()
        return not self.attached

    def close(
        self,
        *,
        now: bool = False,
        hurry: Callable[[], bool] = lambda: False,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        """End what this session started (see `Supervisor.end`), and release the folder. May be called again."""
        if self.supervisor is not None:
            self.supervisor.end(now=now, hurry=hurry, drained=drained)
            if self._thread is not None:
                self._thread.join()
                self._thread = None
            self.supervisor.close()
            self.supervisor = None
        if self._ownership is not None:
            self._ownership.release()
            self._ownership = None

    def _enter(self) -> None:
        with interrupts.held() as held:
            self._claim_or_attach(held.check)

    def _claim_or_attach(self, check: Callable[[], None]) -> None:
        begun_s = time.monotonic()
        is_told = False
        while True:
            self._ownership = state_folder.claim(self.folder, check)
            if self._ownership is not None:
                self._start()
                return
            endpoint = state_folder.read_endpoint(self.folder)
            if endpoint is not None:
                self.owner_pid = endpoint.get("pid", 0)
                if not self.with_agent or (endpoint.get("agent_pid") is not None and not endpoint.get("failure")):
                    self.address = endpoint["address"]
                    self._check_same(endpoint)
                    self.interpreter = str(endpoint.get("interpreter") or "")
                    self.builds_environments = bool(endpoint.get("builds_environments", False))
                    return
            waited_s = time.monotonic() - begun_s
            other = f"Another windrow process{f' ({self.owner_pid})' if self.owner_pid else ''} has the state folder "
            other += f"{self.folder} open, but runs nothing there: a windrow.Client that is open, or a command that "
            other += "asks questions. Close or end it, or choose another state folder (--state DIR; in Python, state=)."
            if waited_s > ATTACH_S:
                raise StateFolderError(other)
            if waited_s > ATTACH_TOLD_S and not is_told:
                is_told = True
                self._tell(f"Waiting for at most {ATTACH_S:.0f} s: {other[0].lower()}{other[1:]}")
            self._make_room(self.folder)
            check()
            time.sleep(POLL_S)

    def _start(self) -> None:
        assert self._ownership is not None
        self.interpreter = self._own_interpreter
        try:
            self.datastores = gather(self.folder, self._given_datastores)
            run_folder = state_folder.make_run_folder(self.folder)
            self.supervisor = Supervisor(
                self.folder,
                run_folder,
                python=self._python,
                interpreter=self.interpreter,
                environments="build" if self.builds_environments else "own",
                slots=self._slots,
                sandbox=self._sandbox,
                with_agent=self.with_agent,
                datastores=self.datastores,
            )
        except BaseException:
            self._ownership.release()
            self._ownership = None
            raise
        self.address = self.supervisor.address
        self.owner_pid = os.getpid()

    def _publish(self) -> None:
        if self.supervisor is not None and self._ownership is not None:
            self._ownership.publish(
                {
                    "address": self.address,
                    "pid": os.getpid(),
                    "master_pid": self.supervisor.master_pid,
                    "agent_pid": self.supervisor.agent_pid,
                    "failure": str(self.supervisor.failure or ""),
                    "python": self._python,
                    "interpreter": self.interpreter,
                    "builds_environments": self.builds_environments,
                    "slots": self._slots,
                    "sandbox": self._sandbox,
                    "datastores": self.datastores,
                }
            )

    def _check_same(self, endpoint: dict[str, object]) -> None:
        """Raises UsageError if this session needs another interpreter or datastores than the running pair has."""
        theirs = endpoint.get("datastores")
        self.datastores = theirs if isinstance(theirs, dict) else {}
        if not self._given_datastores.items() <= self.datastores.items():
            raise UsageError(
                f"The state folder {self.folder} is served by another windrow process ({self.owner_pid}), whose master "
                f"has other datastores ({_listed(self.datastores)}, not {_listed(self._given_datastores)}). Wait for "
                "it to finish, or choose another folder with --state DIR."
            )
        if (
            self.with_agent
            and not self.builds_environments
            and endpoint.get("builds_environments")
            and not self._python
        ):
            raise UsageError(
                f"The state folder {self.folder} is served by another `windrow run` (process {self.owner_pid}), which "
                "builds environments. Wait for it to finish, choose another folder with --state DIR, or leave out "
                "--environments own."
            )
        theirs_is = endpoint.get("sandbox", "off")
        if self.with_agent and SANDBOXES.index(self._sandbox) > SANDBOXES.index(str(theirs_is)):
            raise UsageError(
                f"The state folder {self.folder} is served by another `windrow run` (process {self.owner_pid}), whose "
                f"scripts run with --sandbox {theirs_is}, not {self._sandbox}. Wait for it to finish, or choose "
                "another folder with --state DIR."
            )
        if self._python is not None and endpoint.get("python") != self._python:
            python = endpoint.get("python") or "its default interpreter"
            raise UsageError(
                f"The state folder {self.folder} is served by another `windrow run` (process {self.owner_pid}), whose "
                f"workers use {python}, not {self._python}. Wait for it to finish, or choose another folder with "
                "--state DIR."
            )


def _listed(datastores: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={place}" for name, place in sorted(datastores.items())) or "none"


class OwnerGone(MasterFailed):
    """The process that started the master has ended, and the master with it. `Session.take_over` continues."""


def open_session(
    state: str,
    *,
    with_agent: bool,
    python: str | None = None,
    environments: str | None = None,
    slots: int | None = None,
    sandbox: str | None = None,
    datastores: Sequence[str] = (),
    must_exist: bool = False,
    make_room: Callable[[str], None] = lambda folder: None,
    tell: Callable[[str], None] = lambda message: None,
) -> Session:
    """Open a state folder. Master and agent are starting when this returns.

    `with_agent` False: start only a master, which answers questions and runs nothing. `environments`: "build" those
    that steps ask for, or "own" to run all scripts in one Python (implied by `python`); by default what
    $WINDROW_ENVIRONMENTS says, else "build". `datastores`: of the master,
    each `NAME=PLACE`. `sandbox`: one of SANDBOXES, by default what $WINDROW_SANDBOX says, else "off".
    `must_exist`: refuse a folder without state. `make_room`: called with the folder while it waits
    for an owner that runs nothing. `tell`: called with a sentence if that lasts.
    Raises StateFolderError, UsageError, MasterFailed.
    """
    # Jobs without a database are a damaged state, which the master reports.
    if must_exist and not state_folder.has_state(state) and not os.path.exists(os.path.join(state, "jobs")):
        raise StateFolderError(
            f"There is no Windrow state in {os.path.abspath(state)} (no {STATE_MARK}). "
            "Give the folder of a run with --state DIR, or a running master with --master ADDRESS. In Python, "
            "windrow.Client(state=…, new=True) begins there."
        )
    where = "environments" if environments else "$WINDROW_ENVIRONMENTS"
    environments = environments or os.environ.get("WINDROW_ENVIRONMENTS") or "build"
    if environments not in ("build", "own"):
        raise UsageError(f"{where} is {environments!r}; it must be build or own.")
    where = "sandbox" if sandbox else "$WINDROW_SANDBOX"
    sandbox = sandbox or os.environ.get("WINDROW_SANDBOX") or "off"
    if sandbox not in SANDBOXES:
        raise UsageError(f"{where} is {sandbox!r}; it must be off, auto, given or strict.")
    return Session(
        state,
        python=python,
        environments=environments,
        slots=slots,
        sandbox=sandbox,
        with_agent=with_agent,
        datastores=datastores,
        make_room=make_room,
        tell=tell,
    )
