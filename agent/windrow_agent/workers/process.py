"""One worker process: its start, channels, page, output files and end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.rpc.v1 import work_pb2 as work

from windrow_agent.node.kernel import apart
from windrow_agent.node.oom import make_likely_victim
from windrow_agent.workers.capture import CapturedFile
from windrow_agent.workers.deadlines import Overrun
from windrow_agent.workers.death import Exit
from windrow_agent.workers.frames import BadFrame, FrameReader, Result, shutdown_packet
from windrow_agent.workers.output_folder import OutputFolder
from windrow_agent.workers.page import NOTHING, Look, Page, Phase
from windrow_agent.workers.process_log import ProcessLog
from windrow_agent.workers.script_socket import ScriptSocket
from windrow_agent.workers.stack_dump import WHERE_SIGNAL

if TYPE_CHECKING:
    from windrow_agent.node.control_groups import WorkerGroup

_READ_BYTES = 1 << 18
_PACKET_BYTES = 1 << 17

LAUNCH = Path(__file__).with_name("launch.py")
"""The first code of every worker."""

PACKET_RECIPE_MAX = 60_000
"""Longer recipes go through a file: a packet must fit into the socket's buffer at any setting."""


class SpawnFailed(Exception):
    """The process could not be started; the text says why and what to do."""


@dataclass(slots=True)
class Channels:
    """The sockets of one worker: the agent's ends, and the worker's ends (`far`)."""

    work: socket.socket
    work_far: socket.socket
    result: socket.socket
    result_far: socket.socket

    @classmethod
    def open(cls) -> Channels:
        """Makes both pairs. Raises OSError (no descriptors left)."""
        work, work_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        result, result_far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        work.setblocking(False)
        result.setblocking(False)
        return cls(work, work_far, result, result_far)

    def close(self) -> None:
        """Closes whatever is open."""
        for end in (self.work, self.work_far, self.result, self.result_far):
            end.close()


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """A worker process that runs or has just ended.

    - `key`: the agent's own number for it, never reused.
    - `code`: its copy of the step's code. `outputs`: its folder for outputs that go to a store, if any do. While they
      are being saved (`saving`), it gets no work.
    - `overrun` or `killed_for`: why the agent has killed it, or will; `overrun_ns`: since when; `killed_over`: the
      lease that caused this, 0 for none.
    - `spoilt`: its results can no longer be read, from the first missing one on.
    - `received`: how many results have arrived; `missing_since_ns`: since when the page has counted more; 0 if it
      does not.
    - `retiring`: it was asked to stop; `stopped`: its `shutdown()` is done.
    - `yields_since_ns`: since when it is to leave its place to another step; 0: it is not.
    - `stall_mark_ns`: how long the agent had stalled when the current phase began; -1 if it was not read yet.
    """

    key: int
    step_id: int
    process_number: int
    gpus: tuple[int, ...]
    page: Page
    channels: Channels
    stdout: CapturedFile
    stderr: CapturedFile
    metrics: CapturedFile
    scratch: Path
    log: ProcessLog
    code: Path
    requests: ScriptSocket
    """Where its processes ask (`script_socket`)."""
    checks_code: bool = True
    """Whether it compares the code that it imports with what was unpacked."""
    outputs: OutputFolder | None = None
    temporary: Path | None = None
    """Its TMPDIR, if that is not in `scratch`."""
    group: WorkerGroup | None = None
    """Its control group, if it has one."""
    pid: int = 0
    pidfd: int = -1
    spawned_ns: int = 0
    prepare_us: int = 0
    """How long its node prepared the step before the process was started, if none had run a mini-batch yet."""
    start: work.WorkerStart | None = None
    """How it came to be ready, until that is told with its first attempt."""
    ready: bool = False
    saving: bool = False
    retiring: bool = False
    yields_since_ns: int = 0
    stopped: bool = False
    overrun: Overrun | None = None
    overrun_ns: int = 0
    killed_for: str | None = None
    killed_over: int = 0
    lacked_gpu_memory: bool = False
    """It was killed since it used far more of a GPU's memory than its share."""
    spoilt: bool = False
    received: int = 0
    missing_since_ns: int = 0
    result_open: bool = True
    result_closed_ns: int = 0
    read_bytes: int = 0
    reader: FrameReader = field(default_factory=FrameReader)
    last_look: Look = NOTHING
    idle_since_ns: int = 0
    stall_mark_ns: int = -1
    _process: subprocess.Popen[bytes] | None = None

    @property
    def free(self) -> bool:
        """Whether it may be given work."""
        return self.ready and not self.saving

    def note_ready(self, now_ns: int) -> None:
        """Notes that `init()` has returned. It is known when that began if it took longer than the agent's looks are
        apart; a shorter one counts as a part of the start.
        """
        self.ready = True
        look = self.last_look
        init_ns = now_ns - look.phase_start_ns if look.phase is Phase.INIT and look.phase_start_ns else 0
        start_ns = max(0, now_ns - self.spawned_ns - init_ns)
        self.start = work.WorkerStart(
            prepare_us=self.prepare_us, start_us=start_ns // 1000, init_us=max(0, init_ns) // 1000
        )

    def tell_start(self, completion: work.Completion) -> None:
        """Puts into the completion of its first attempt how it came to be ready."""
        if self.start is not None:
            completion.worker_start.CopyFrom(self.start)
            self.start = None

    def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts the process in the folder of its code, as the leader of its own process group, without a terminal.

        Must be called from the main thread: the kernel ties the worker's life to the thread that starts it. Raises
        SpawnFailed; the caller then closes the worker.
        """
        files: list[int] = []
        try:
            files.append(self.stdout.open_for_writing())
            files.append(self.stderr.open_for_writing())
            far = (self.channels.work_far.fileno(), self.channels.result_far.fileno())
            self._process = subprocess.Popen(
                command,
                cwd=self.code,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=files[0],
                stderr=files[1],
                pass_fds=far,
                **apart(),
            )
        except OSError as error:
            raise SpawnFailed(_why_not(error, command[0], self.code)) from error
        finally:
            for fd in files:
                os.close(fd)
        self.pid = self._process.pid
        self.spawned_ns = time.monotonic_ns()
        make_likely_victim(self.pid)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            self.kill()
            self._process.wait()
            raise SpawnFailed(_why_not(error, command[0], self.code)) from error
        # The worker's end of the result channel is closed here, so that the agent notices when the worker closes it.
        # Its end of the work channel stays open: through it, the agent takes back what the worker has not read.
        self.channels.result_far.close()
        self.channels.work_far.setblocking(False)

    def send(self, packet: bytes) -> bool:
        """Puts a packet into the channel. False: the channel is full, or nobody will read it."""
        try:
            self.channels.work.send(packet)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.EPIPE, errno.ECONNRESET, errno.EMSGSIZE):
                raise
            return False
        return True

    def read_back(self) -> list[bytes]:
        """Takes the unread packets out of the channel, oldest first. A packet is read only once, by worker or agent."""
        packets: list[bytes] = []
        while True:
            try:
                packet = self.channels.work_far.recv(_PACKET_BYTES)
            except BlockingIOError:
                return packets
            except OSError:
                return packets
            if not packet:
                return packets
            packets.append(packet)

    def read_results(self) -> list[Result]:
        """The frames that have arrived, `read_bytes` long. Clears `result_open` at the end of the channel. Raises
        BadFrame.
        """
        try:
            data = self.channels.result.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.result_open = False
            self.result_closed_ns = time.monotonic_ns()
            return []
        self.read_bytes = len(data)
        return self.reader.feed(data, self._alive_us)

    def drain_results(self) -> list[Result]:
        """All remaining frames of a dead worker. Raises BadFrame."""
        frames: list[Result] = []
        while self.result_open:
            try:
                data = self.channels.result.recv(_READ_BYTES)
            except OSError:
                break
            if not data:
                self.result_open = False
                break
            try:
                frames += self.reader.feed(data, self._alive_us)
            except BadFrame as error:
                raise BadFrame(str(error), frames + error.before) from None
        return frames

    @property
    def _alive_us(self) -> int:
        return (time.monotonic_ns() - self.spawned_ns) // 1000

    def look(self) -> Look:
        """Reads the page."""
        return self.page.look()

    def ask_to_stop(self) -> None:
        """Asks it to finish what is in its channel, call `shutdown()` and leave."""
        self.retiring = True
        self.send(shutdown_packet())

    def ask_where(self) -> None:
        """Makes it write the stacks of its threads to stderr, which takes a moment. If it cannot, it just ends."""
        try:
            signal.pidfd_send_signal(self.pidfd, WHERE_SIGNAL)
        except OSError:
            pass

    def kill(self) -> None:
        """Kills the process, its process group and its control group. Harmless if it is dead: until it is reaped, its
        pid is not reused.
        """
        if self._process is None or self._process.returncode is not None:
            return
        if self.group is not None:
            self.group.kill()
        for kill in (os.killpg, os.kill):
            try:
                # Also the process itself: its script may have moved it to another group.
                kill(self.pid, signal.SIGKILL)
            except OSError:
                pass

    def died_of(self) -> int:
        """The signal that ended a process that is not reaped yet; 0 if none has."""
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return 0
        return ended.si_status if ended is not None and ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED) else 0

    def reap(self) -> Exit:
        """Reaps a process whose pidfd reports its death, after it has killed the rest of its group."""
        process = self._process
        assert process is not None
        self.kill()
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        # Orphans of the group are our children now, since we are the subreaper.
        while True:
            try:
                pid, _ = os.waitpid(-self.pid, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
        return Exit(signal=-code) if code < 0 else Exit(code=code)

    def close(self) -> None:
        """Closes descriptors and the page. The output files stay."""
        self.channels.close()
        self.requests.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        self.page.close()
        self.stdout.end()
        self.stderr.end()


def _why_not(error: OSError, python: str, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"No worker could be started: no space is left on the disk of {folder}. Free some space on this node"
    if error.errno == errno.ENOEXEC:
        return f"This machine cannot run {python}. Choose a Python interpreter with --python PATH"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "No worker could be started: too many open files. Raise the limit of open files (ulimit -n) of the agent"
    why = error.strerror
    if error.filename is not None and error.filename != python:
        return (
            f"No worker could be started: {error.filename} could not be opened ({why}). Check the disk and the "
            f"permissions of {folder.parent}"
        )
    if error.errno in (errno.ENOENT, errno.EACCES):
        return f"The Python interpreter {python} could not be started ({why}). Choose another one with --python PATH"
    return f"No worker could be started with {python}: {error}"
