"""Scripts in a sandbox: what a hostile one tries is denied, and what a harmless one does works.

Every run is a real one, `--sandbox strict`, on a kernel that can confine.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_run import DEADLINE_S, WINDROW, EmbeddedRun, check_words, wait_until
from served import Served
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI
from windrow_command import windrow

pytestmark = pytest.mark.skipif(
    kernel_abi() < STRICT_ABI, reason=f"this kernel has Landlock {kernel_abi()}; a strict sandbox needs {STRICT_ABI}"
)

HOSTILE = r"""
import ctypes, errno, json, os, resource, signal, socket, subprocess, sys

DENIED = (errno.EACCES, errno.EPERM, errno.EXDEV)
libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, mode="wb"):
    with open(path, mode) as file:
        file.write(b"harm")


def connect(name):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(name)


def look_into(pid):
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    mine = ctypes.create_string_buffer(16)
    call(libc.process_vm_readv(
        pid, ctypes.byref(Part(ctypes.addressof(mine), 16)), 1, ctypes.byref(Part(id(mine), 16)), 1, 0))


def by_link(path, link):
    os.symlink(path, link)
    read(link)


def by_child(path, **variables):
    done = subprocess.run(
        [sys.executable, "-c", f"print(open({path!r}).read())"], env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode and b"PermissionError" in done.stderr:
        raise PermissionError(errno.EACCES, "")


def mount():
    call(libc.unshare(0x10000000 | 0x20000))
    call(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None))


def attempts(place):
    secret, state, agent, pid = place["secret"], place["state"], os.getppid(), place["pid"]
    yield "read a key of the host", lambda: read(secret)
    yield "read a key by a link", lambda: by_link(secret, "link")
    yield "read a key in a child", lambda: by_child(secret)
    yield "read a key in a child with LD_PRELOAD", lambda: by_child(secret, LD_PRELOAD="libSegFault.so")
    yield "move a key away", lambda: os.rename(secret, "mine")
    yield "make a second name of a key", lambda: os.link(secret, "mine")
    yield "remove a key", lambda: os.unlink(secret)
    yield "list HOME of the host", lambda: os.listdir(os.path.dirname(secret))
    yield "list the state", lambda: os.listdir(state)
    yield "read the database", lambda: read(state + "/windrow.db")
    yield "write the database", lambda: write(state + "/windrow.db", "r+b")
    yield "write a file into the state", lambda: write(state + "/harm")
    yield "read the agent's log", lambda: read(state + "/agent/agent.log")
    yield "list the agent's folder", lambda: os.listdir(state + "/agent")
    yield "write into the agent's code", lambda: write(state + "/agent/code/harm.tar")
    yield "list the folders of workers", lambda: os.listdir(os.path.dirname(os.path.dirname(os.environ["HOME"])))
    yield "read its own policy", lambda: read(os.path.dirname(os.environ["HOME"]) + ".policy")
    yield "read the output of another job", lambda: read(place["other"])
    yield "write the output of another job", lambda: write(place["other"])
    yield "write its input", lambda: write(place["input"])
    yield "list /tmp", lambda: os.listdir("/tmp")
    yield "write to /tmp", lambda: write("/tmp/windrow-harm")
    yield "read the packets of others", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)
    yield "forge packets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    yield "make a device", lambda: os.mknod("disk", 0o60600, os.makedev(8, 0))
    yield "mount something", mount
    yield "signal the agent", lambda: os.kill(agent, 0)
    yield "signal another process", lambda: os.kill(pid, signal.SIGKILL)
    yield "limit the agent", lambda: resource.prlimit(agent, resource.RLIMIT_NOFILE, (0, 0))
    yield "limit another process", lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0))
    yield "trace the agent", lambda: call(libc.ptrace(16, agent, 0, 0))
    yield "trace another process", lambda: call(libc.ptrace(16, pid, 0, 0))
    yield "read memory of the agent", lambda: look_into(agent)
    yield "read memory of another process", lambda: look_into(pid)
    yield "open memory of the agent", lambda: read(f"/proc/{agent}/mem")
    yield "read the agent's variables", lambda: read(f"/proc/{agent}/environ")
    yield "read variables of another process", lambda: read(f"/proc/{pid}/environ")
    yield "go by the root of another process", lambda: read(f"/proc/{pid}/root{secret}")
    yield "connect to an abstract socket", lambda: connect(place["socket"])


def run(mini_batch):
    place = json.loads(read(mini_batch[0]))
    place["input"] = mini_batch[0]
    rows = ["early: " + getattr(sys, "early", "not run")]
    for name, attempt in attempts(place):
        try:
            attempt()
        except OSError as error:
            rows.append(f"{name}: {'denied' if error.errno in DENIED else error}")
        else:
            rows.append(f"{name}: done")
    return ["; ".join(rows)]
"""

EARLY = """
import os, sys
try:
    sys.early = open(os.environ["EARLY"]).read()
except OSError as error:
    sys.early = type(error).__name__
"""


@pytest.fixture(scope="module")
def attempted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedRun, dict[str, str]]]:
    """A run of the hostile script, and what became of each of its attempts."""
    folder = tmp_path_factory.mktemp("hostile")
    secret = folder / "home" / ".ssh" / "id_ed25519"
    secret.parent.mkdir(parents=True)
    secret.write_text("the key")
    other = folder / "other-job" / "out.txt"
    other.parent.mkdir()
    other.write_text("rows")
    name = f"\0windrow-test-{os.getpid()}"
    victim = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    settings = f"environment_variables: {{PYTHONPATH: ., EARLY: {secret}}}"
    # Its rows go to a folder that also holds the state: the common case of a run on this machine.
    run = EmbeddedRun(folder / "job", HOSTILE, 1, settings=settings)
    (run.folder / "code" / "sitecustomize.py").write_text(EARLY)
    place = {"secret": str(secret), "state": str(run.state), "other": str(other), "socket": name, "pid": victim.pid}
    (run.folder / "data" / "f00000").write_text(json.dumps(place))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        code, text = run.run("--sandbox", "strict")
        assert code == 0, text
        assert victim.poll() is None
        victim.communicate()
    yield run, dict(one.split(": ", 1) for one in run.output.read_text().strip().split("; "))


def test_what_a_hostile_script_tries_is_denied(attempted: tuple[EmbeddedRun, dict[str, str]]) -> None:
    """Reading, writing, signals, memory, sockets; and its job has its row."""
    _, found = attempted
    early = found.pop("early")
    assert len(found) == 39
    assert {name: how for name, how in found.items() if how != "denied"} == {}
    assert early == "PermissionError", "a module of the job's code ran before the process was confined"


def test_nothing_has_changed(attempted: tuple[EmbeddedRun, dict[str, str]]) -> None:
    """The key, the other output and the state are as they were."""
    run, _ = attempted
    assert (run.folder.parent / "home" / ".ssh" / "id_ed25519").read_text() == "the key"
    assert (run.folder.parent / "other-job" / "out.txt").read_text() == "rows"
    assert not (run.state / "harm").exists()
    assert not Path("/tmp/windrow-harm").exists()


def test_the_log_of_the_job_says_what_protects_it(attempted: tuple[EmbeddedRun, dict[str, str]]) -> None:
    """And which folder its script could not write to, since the state is in it."""
    run, _ = attempted
    (log,) = run.state.glob("jobs/*/logs/score/sys/node/*/process000.txt")
    text = log.read_text()
    # Partly, where this user may open Docker's socket.
    assert re.search(r"sandbox: strict(?: \(partly\))?: Landlock", text)
    assert f"the script cannot write to the folder {run.folder}" in text


HARMLESS = r"""
import concurrent.futures, multiprocessing, os, resource, shutil, sqlite3, subprocess, sys, tempfile, threading
from multiprocessing import shared_memory


def double(number):
    return 2 * number


def in_processes(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(double, [1, 2, 3])


def through_a_manager():
    with multiprocessing.get_context("spawn").Manager() as manager:
        shared = manager.dict()
        shared["a"] = 1
        return dict(shared)


def through_shared_memory():
    block = shared_memory.SharedMemory(create=True, size=16)
    try:
        block.buf[:2] = b"ab"
        again = shared_memory.SharedMemory(block.name)
        return bytes(again.buf[:2])
    finally:
        block.close()
        block.unlink()


def in_a_database():
    with sqlite3.connect(os.path.join(tempfile.gettempdir(), "cache.db")) as database:
        database.execute("CREATE TABLE IF NOT EXISTS t (a)")
        database.execute("INSERT INTO t VALUES (1)")
        return database.execute("SELECT max(a) FROM t").fetchone()[0]


def cached_at_home():
    folder = os.path.expanduser("~/.config/matplotlib")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "fontlist.json"), "w") as file:
        file.write("{}")
    return os.path.exists(os.path.join(folder, "fontlist.json"))


def moved_to_the_output(folder):
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write("whole")
    shutil.move(file.name, os.path.join(folder, "moved"))
    os.replace(os.path.join(folder, "moved"), os.path.join(folder, "final"))
    return open(os.path.join(folder, "final")).read()


def read_as_a_frame(path):
    import numpy, pandas, pyarrow.parquet
    frame = pandas.DataFrame({"a": numpy.arange(3), "path": open(path).read()})
    place = os.path.join(tempfile.gettempdir(), "frame.parquet")
    frame.to_parquet(place)
    return pyarrow.parquet.read_table(place).num_rows


def in_a_thread():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(double, 4).result()


def limited():
    first = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first[0] - 1, first[1]))
    resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, first)
    return first[0] - resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)[0] <= 0


def signalled():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    child.kill()
    return child.wait()


def run(mini_batch):
    output = os.environ["AZUREML_BI_OUTPUT_PATH"]
    return [repr([
        in_processes("fork"), in_processes("spawn"), in_processes("forkserver"), through_a_manager(),
        through_shared_memory(), in_a_database(), cached_at_home(), moved_to_the_output(output),
        read_as_a_frame(mini_batch[0]), in_a_thread(), limited(), signalled(),
        subprocess.run("echo $((40 + 2)) > answer; cat answer", shell=True, stdout=subprocess.PIPE).stdout,
        threading.active_count(),
    ])]
"""


@pytest.mark.parametrize("mode", ["auto", "given", "strict"])
def test_what_harmless_scripts_do_works(tmp_path: Path, mode: str) -> None:
    """Processes by all methods, shared memory, temporary files, a cache in HOME, frames, an output folder."""
    run = EmbeddedRun(tmp_path / "job", HARMLESS, 1)
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("./out.txt", "./results/out.txt"))
    code, text = run.run("--sandbox", mode)
    assert code == 0, text
    expected = [[2, 4, 6]] * 3 + [{"a": 1}, b"ab", 1, True, "whole", 3, 8, True, -9, b"42\n", 1]
    assert (run.folder / "results" / "out.txt").read_text().strip() == repr(expected), text
    assert (run.folder / "results" / "final").read_text() == "whole"


AT_A_TERMINAL = r"""
import errno, fcntl, os, termios


def tried(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"


def run(mini_batch):
    types = tried(lambda: fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCSTI, b"\n"))
    return [types + " " + tried(os.openpty)]
"""


@pytest.mark.parametrize(("mode", "opens"), [("auto", "done"), ("given", "EACCES"), ("strict", "EACCES")])
def test_a_script_types_nothing_into_a_terminal_of_its_user(tmp_path: Path, mode: str, opens: str) -> None:
    """Nor does it read there. Where it gets only what it is given, it opens none at all: all are its user's."""
    run = EmbeddedRun(tmp_path, AT_A_TERMINAL, 1)
    command = [WINDROW, "run", "job.yml", "--sandbox", mode]
    at_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command]
    subprocess.run(at_terminal, cwd=run.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    assert run.output.read_text().split() == ["ENXIO", opens]


WHO = """
import os
def run(mini_batch):
    confined = "NoNewPrivs: 1" in open("/proc/self/status").read().replace("\\t", " ")
    return [os.environ["HOME"] + " " + os.environ.get("TMPDIR", "-") + " " + str(int(confined))]
"""


@pytest.mark.parametrize(("mode", "confined"), [("off", "0"), ("auto", "1"), ("given", "1"), ("strict", "1")])
def test_each_mode_does_what_it_says(tmp_path: Path, mode: str, confined: str) -> None:
    """Off, nothing is confined; HOME is a worker's own only where it gets nothing else."""
    run = EmbeddedRun(tmp_path, WHO, 1)
    code, text = run.run("--sandbox", mode)
    assert code == 0, text
    home, temporary, told = run.output.read_text().split()
    assert told == confined
    assert (home == os.environ["HOME"]) == (mode in ("off", "auto"))
    assert mode in ("off", "auto") or (not Path(home).exists() and not Path(temporary).exists()), (
        "they end with their worker"
    )


def test_a_wrong_mode_is_refused(tmp_path: Path) -> None:
    """It names what is allowed."""
    run = EmbeddedRun(tmp_path, WHO, 1)
    code, text = run.run("--sandbox", "hard")
    assert code == 2
    check_words(text, ["hard", "off", "auto", "given", "strict"])


WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
# A seccomp filter as a container's: system call 444 is not there.
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050026), (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
header = ctypes.create_string_buffer(struct.pack("HL", len(code), ctypes.addressof(program)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, header, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(("mode", "works"), [("strict", False), ("given", True), ("auto", True)])
def test_where_the_kernel_cannot(tmp_path: Path, mode: str, works: bool) -> None:
    """Under strict no script starts, and the step says what is missing; under auto its log says so."""
    run = EmbeddedRun(tmp_path, WHO, 1)
    command = [sys.executable, "-c", WITHOUT_LANDLOCK, WINDROW, "run", "job.yml", "--no-progress", "--sandbox", mode]
    done = subprocess.run(
        command,
        cwd=run.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode == 0) == works, done.stderr
    if works:
        (log,) = run.state.glob("jobs/*/logs/score/sys/node/*/process000.txt")
        assert f"sandbox: {mode} (nothing)" in log.read_text()
    else:
        check_words(done.stdout + done.stderr, ["--sandbox strict", "no Landlock", "--sandbox auto"])
        assert not run.output.exists()


@pytest.mark.parametrize(("settings", "said"), [({}, "auto"), ({"sandbox": "strict"}, "strict: Landlock")])
def test_a_node_says_how_it_confines_scripts(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    """In `windrow node list`, and to programs; `auto` where it was told nothing."""
    served = Served(tmp_path)
    try:
        served.start_master()
        served.start_agent("n1", **settings)
        with served.client() as client:
            wait_until(lambda: any(node.protection for node in client.list_nodes()), "a heartbeat")
            (node,) = client.list_nodes()
        # Whether there are control groups, or a socket of Docker's that this user may open, depends on the machine.
        found = node.protection.replace(" + control groups", "")
        assert found.replace(" (partly)", "").startswith(said)
        assert ("docker.sock" in found) == os.access("/run/docker.sock", os.W_OK)
        listed = windrow("node", "list", "--master", served.address, cwd=tmp_path)
        assert "SANDBOX" in listed.stdout
        assert said.partition(":")[0] in listed.stdout
    finally:
        served.close()


READS = """
import os
def run(mini_batch):
    return [open(os.environ["ASKED"]).read()]
"""


@pytest.mark.parametrize(("how", "works"), [("permitted", True), ("refused", False), ("given to all", True)])
def test_a_job_gets_what_it_asks_for_if_the_operator_permits_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, works: bool
) -> None:
    """Otherwise the step says what was refused, and how to permit it."""
    model = tmp_path / "shared" / "model"
    model.parent.mkdir()
    model.write_text("weights")
    given = {"permitted": ("JOB_PATHS", model.parent), "given to all": ("ALLOW_PATH", model)}
    if how in given:
        name, path = given[how]
        monkeypatch.setenv(f"WINDROW_{name}", str(path))
    run = EmbeddedRun(tmp_path / "job", READS, 1, settings=f"environment_variables: {{ASKED: {model}}}")
    if how != "given to all":
        job = run.folder / "job.yml"
        entry = "entry_script: entry.py"
        job.write_text(job.read_text().replace(entry, f"{entry}\n      program_arguments: --allow_path {model.parent}"))
    code, text = run.run("--sandbox", "strict")
    assert (code == 0) == works, text
    if works:
        assert run.output.read_text() == "weights\n"
    else:
        check_words(text, [f"--allow_path {model.parent}", "does not permit", "--job-paths"])


@pytest.mark.parametrize("works", [True, False])
def test_a_command_asks_for_a_path_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    """As a parallel step does by an argument."""
    model = tmp_path / "shared" / "model"
    model.parent.mkdir()
    model.write_text("weights")
    if works:
        monkeypatch.setenv("WINDROW_JOB_PATHS", str(model.parent))
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.yml").write_text(
        "type: pipeline\njobs:\n  show:\n    type: command\n"
        f"    command: cat {model} > ${{{{outputs.x}}}}/seen\n"
        f"    environment_variables: {{WINDROW_ALLOW_PATH: {model}}}\n"
        "    outputs: {x: {path: ./x}}\n"
    )
    done = windrow("run", "job.yml", "--no-progress", "--sandbox", "strict", cwd=folder)
    assert (done.returncode == 0) == works, done.stdout + done.stderr
    if works:
        assert (folder / "x" / "seen").read_text() == "weights"
    else:
        check_words(done.stdout + done.stderr, [f"--allow_path {model}", "does not permit", "--job-paths"])


CALLS = r"""
import os
import grpc
def run(mini_batch):
    sockets = [line.split()[-1] for line in open("/proc/net/unix") if os.environ["RUNS"] in line and "master" in line]
    path = sockets[0]
    found = []
    for name in ("key", "made up"):
        try:
            key = open(path + ".key").read() if name == "key" else "0" * 64
        except OSError as error:
            found.append(type(error).__name__)
            continue
        for method in ("JobService/ListJobs", "AgentService/Register", "AgentService/Work"):
            with grpc.insecure_channel("unix:" + path) as channel:
                call = channel.stream_stream("/windrow.rpc.v1." + method)
                try:
                    list(call(iter([b""]), metadata=[("authorization", "Bearer " + key)], timeout=30))
                except grpc.RpcError as error:
                    found.append(error.code().name)
                else:
                    found.append("answered")
    return [" ".join(found)]
"""


@pytest.mark.parametrize("mode", ["given", "strict"])
def test_a_confined_script_is_no_client_of_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """It may connect to the socket; without the key beside it, its calls are refused and logged."""
    with tempfile.TemporaryDirectory(prefix="windrow-test-") as runs:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runs)
        run = EmbeddedRun(tmp_path / "job", CALLS, 1, settings=f"environment_variables: {{RUNS: {runs}}}")
        code, text = run.run("--sandbox", mode)
    assert code == 0, text
    assert run.output.read_text().split() == ["PermissionError", *["UNAUTHENTICATED"] * 3]
    refused = [line for line in (run.state / "master.log").read_text().splitlines() if "a call was refused" in line]
    assert len(refused) == 3


def test_a_script_without_a_sandbox_can_read_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As all that its user can: the test above tells apart what it is about."""
    with tempfile.TemporaryDirectory(prefix="windrow-test-") as runs:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runs)
        run = EmbeddedRun(tmp_path / "job", CALLS, 1, settings=f"environment_variables: {{RUNS: {runs}}}")
        code, text = run.run("--sandbox", "off")
    assert code == 0, text
    assert run.output.read_text().split()[0] == "answered"


def test_the_items_of_a_map_are_given_to_its_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the state folder, which is closed otherwise."""
    monkeypatch.setenv("WINDROW_SANDBOX", "strict")
    script = tmp_path / "script.py"
    script.write_text(
        "import windrow\ndef double(n):\n    return 2 * n\nprint(windrow.map(double, [1, 2], progress=False))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert done.stdout == "[2, 4]\n", done.stderr


FOLLOWS = """
import sys
with open(sys.argv[2] + "/seen", "w") as seen:
    try:
        seen.write(open(sys.argv[1] + "/key").read())
    except OSError as error:
        seen.write(error.strerror)
"""


def test_a_link_that_is_laid_after_the_submission_gives_nothing(tmp_path: Path) -> None:
    """A script of another node replaces a folder in its output, once the master has taken a job that reads it."""
    store, secret = tmp_path / "store", tmp_path / "secret"
    for folder in (secret, store / "first" / "sub"):
        folder.mkdir(parents=True)
    (secret / "key").write_text("the key")
    code = tmp_path / "job" / "code"
    code.mkdir(parents=True)
    (code / "follows.py").write_text(FOLLOWS)
    job = code.parent / "job.yml"
    job.write_text(
        f"type: pipeline\ninputs: {{x: {{type: uri_folder, path: {store}/first/sub}}}}\n"
        "jobs:\n  follow:\n    type: command\n    code: ./code\n"
        "    inputs: {x: '${{parent.inputs.x}}'}\n"
        f"    outputs: {{o: {{type: uri_folder, path: {store}/out}}}}\n"
        "    command: python follows.py ${{inputs.x}} ${{outputs.o}}\n"
    )
    served = Served(tmp_path, store)
    try:
        served.start_master()
        with served.client() as client:
            job_id = client.submit(job).job_id
            (store / "first" / "sub").rmdir()
            (store / "first" / "sub").symlink_to(secret)
            served.start_agent("n1", sandbox="strict")
            client.wait(job_id, timeout_s=DEADLINE_S)
        assert (store / "out" / "seen").read_text() == "Permission denied"
        said = f"leads to {secret}, outside the datastores of the master"
        logs = "jobs/*/logs/follow/**/process000.txt"
        wait_until(lambda: any(said in log.read_text() for log in served.state.glob(logs)), "the log of the worker")
    finally:
        served.close()
