"""Scripts that raise, leave, crash, fork, close what is not theirs: nothing hangs, nothing is said twice."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from worker_driver import PACKET, STOPPED, Start, WorkerGone, wait_until

OK = "    return ['ok']\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('bad item')", ["run() raised ValueError: bad item", "score.py, line 3"]),
        ("raise SystemExit", ["SystemExit", "sys.exit(None)"]),
        ("import sys; sys.exit('done')", ["sys.exit(done)"]),
        ("raise KeyboardInterrupt", ["KeyboardInterrupt"]),
        ("raise GeneratorExit", ["GeneratorExit"]),
        ("raise type('Odd', (BaseException,), {})('x')", ["Odd: x"]),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda s: 1 / 0})()",
            ["Mute", "its str() raised ZeroDivisionError"],
        ),
        ("raise ValueError('y' * 10**7)", ["yyy", "characters left out"]),
        ("raise ValueError('lone \\ud800 surrogate')", ["\\ud800"]),
        ("raise ValueError('\\x1b[31mred\\0\\x9b')", ["\\x1b[31mred\\x00\\x9b"]),
        ("f = lambda: f()\n        f()", ["RecursionError"]),
        ("bytearray(1 << 62)", ["MemoryError"]),
        ("import os; os.kill(os.getpid(), 2)\n        while True: pass", ["KeyboardInterrupt"]),
        ("async def f(): pass\n        raise RuntimeError from OSError('deeper')", ["RuntimeError"]),
    ],
)
def test_whatever_leaves_run_fails_that_mini_batch_only(start: Start, body: str, words: list[str]) -> None:
    worker = start(f"def run(b):\n    if b[0] == '/data/bad':\n        {body}\n{OK}")
    worker.ready()
    worker.send(1, ["bad", "x"])
    worker.send(2, ["good"])
    frame = worker.failed()
    assert (frame.lease_id, frame.cause, frame.item_count, frame.result_count) == (1, "exception", 2, 0)
    assert [word for word in words if word not in frame.message] == [], frame.message
    assert len(frame.message.encode()) <= 4096
    assert len(str(frame.side["detail"]).encode()) <= 65536
    assert "windrow_worker" not in str(frame.side["detail"])
    assert worker.done().lease_id == 2


def test_a_bad_return_fails_that_mini_batch_only(start: Start) -> None:
    worker = start(f"def run(b):\n    if b[0] == '/data/bad':\n        return None\n{OK}")
    worker.ready()
    worker.send(1, ["bad"])
    frame = worker.failed()
    assert frame.cause == "bad_return"
    assert "NoneType" in frame.message
    assert worker.run(["good"]).rows == b"ok\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_a_worker_that_dies_leaves_the_page_telling_what_it_had_started(start: Start, body: str, code: int) -> None:
    worker = start(f"def run(b):\n    print('last words')\n    {body}\n")
    worker.ready()
    worker.send(41, ["a", "b"], index=9)
    worker.send(42, ["c"])
    with pytest.raises(WorkerGone):
        worker.frame()
    assert worker.wait() == code
    look = worker.look()
    assert (look.phase, look.lease_id, look.items, look.mini_batch_index, look.completed) == ("running", 41, 2, 9, 0)
    assert worker.output() == "last words\n"
    # What it had not read can be taken back.
    assert PACKET.unpack_from(worker.far_work.recv(1 << 16))[4] == 42


def test_the_page_shows_each_phase(start: Start) -> None:
    gate = "import os\ndef hold(name):\n    os.mkfifo(name)\n    open(name).close()\n"
    worker = start(
        gate + "def init():\n    hold('init')\n"
        "class Slow:\n    def __str__(self):\n        hold('returning')\n        return 'slow'\n"
        "def run(b):\n    hold('running')\n    return [Slow()]\n"
        "def shutdown():\n    hold('stopping')\n"
    )

    def let_go(name: str) -> None:
        wait_until((worker.code / name).exists)
        (worker.code / name).write_text("")

    before = worker.wait_for_phase("init")
    let_go("init")
    worker.ready()
    assert worker.wait_for_phase("idle").completed == 0
    worker.send(5, ["a", "b", "c"], index=3)
    running = worker.wait_for_phase("running")
    assert (running.lease_id, running.items, running.mini_batch_index) == (5, 3, 3)
    assert running.phase_start_ns > before.phase_start_ns
    let_go("running")
    assert worker.wait_for_phase("returning").lease_id == 5
    let_go("returning")
    done = worker.done()
    assert done.elapsed_us >= done.run_us > 0
    assert worker.wait_for_phase("idle").completed == 1
    worker.shut_down()
    worker.wait_for_phase("stopping")
    let_go("stopping")
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0


@pytest.mark.parametrize(
    "close",
    [
        "os.closerange(0, 256)",
        "os.closerange(3, 1024)",
        "for f in (0, 1, 2):\n        try:\n            os.close(f)\n        except OSError:\n            pass",
        "os.dup2(os.open('/dev/null', 2), 1)",
        "os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])",
    ],
)
@pytest.mark.parametrize("limit", [None, 1024])
def test_closing_what_a_script_may_think_is_its_own_does_no_harm(start: Start, close: str, limit: int | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit is None and "getrlimit" in close and soft > 8192:
        pytest.skip("with a limit this high every number is within reach")
    if limit is not None and hard < limit:
        pytest.skip("the limit cannot be set")
    try:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        worker = start(f"import os, resource\ndef run(b):\n    {close}\n    open('/dev/null')\n{OK}")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    worker.ready()
    for lease in (1, 2):
        assert worker.run(["a"], lease_id=lease).rows == b"ok\n"
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0


@pytest.mark.parametrize(
    "take",
    [
        "[os.close(int(f)) for f in os.listdir('/proc/self/fd') if int(f) > 200]",
        "[os.dup2(0, int(f)) for f in os.listdir('/proc/self/fd') if int(f) > 200]",
    ],
)
def test_a_script_that_takes_our_descriptors_is_told_and_the_worker_leaves(start: Start, take: str) -> None:
    worker = start(
        # Without a limit below the numbers of the descriptors, over which none can be put.
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
        "def run(b):\n    for f in os.listdir('/proc/self/fd'):\n        pass\n"
        f"    try:\n        {take}\n    except OSError:\n        pass\n{OK}"
    )
    worker.ready()
    worker.send(1, ["a"])
    with pytest.raises(WorkerGone):
        worker.frame()
    assert worker.wait() == 192
    assert "has closed descriptors that it did not open" in worker.errors()
    assert (worker.look().phase, worker.look().lease_id) == ("returning", 1)


@pytest.mark.parametrize(
    ("child", "code"), [("return ['from the child']", 0), ("sys.exit(3)", 3), ("raise ValueError('in the child')", 1)]
)
@pytest.mark.parametrize("fork", ["os.fork()", "ctypes.CDLL(None).fork()"])
def test_a_forked_child_that_comes_back_says_nothing(start: Start, child: str, code: int, fork: str) -> None:
    worker = start(
        "import ctypes, os, sys\n"
        "def run(b):\n"
        f"    pid = {fork}\n"
        f"    if pid == 0:\n        {child}\n"
        "    return [os.WEXITSTATUS(os.waitpid(pid, 0)[1])]\n"
    )
    worker.ready()
    for lease in (1, 2):
        frame = worker.run(["a"], lease_id=lease)
        assert frame.rows == f"{code}\n".encode()
    assert worker.wait_for_phase("idle").completed == 2
    worker.shut_down()
    assert worker.frame().type == STOPPED


def test_a_child_forked_in_init_or_import_says_nothing(start: Start) -> None:
    worker = start(
        "import os\nif os.fork():\n    os.wait()\n"
        "def init():\n    if os.fork():\n        os.wait()\n"
        "def run(b):\n    return ['ok']\n"
    )
    worker.ready()
    assert worker.run(["a"]).rows == b"ok\n"


def test_a_child_that_lives_on_does_not_hold_the_channels(start: Start) -> None:
    worker = start(
        "import os, time\n"
        "def run(b):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        os.read(os.pipe()[0], 1)\n"
        "    return [pid]\n"
    )
    worker.ready()
    worker.run(["a"])
    worker.process.kill()
    with pytest.raises(WorkerGone):
        worker.frame()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_inside_run(start: Start, method: str) -> None:
    worker = start(
        "import multiprocessing, os\n"
        "from azureml_user.parallel_run import EntryScript\n"
        "class Point:\n    def __init__(self, x):\n        self.x = x\n"
        "def square(p):\n    return Point(p.x * p.x), EntryScript().agent_name, os.getpid()\n"
        "def run(b):\n"
        f"    with multiprocessing.get_context({method!r}).Pool(2) as pool:\n"
        "        results = pool.map(square, [Point(n) for n in range(4)])\n"
        "    assert os.getpid() not in [pid for _, _, pid in results]\n"
        "    return [(p.x, name) for p, name, _ in results]\n"
    )
    worker.ready()
    expected = b"".join(b"(%d, 'process007')\n" % (n * n) for n in range(4))
    for lease in (1, 2):
        worker.send(lease, ["a"])
        frame = worker.frame()
        assert frame.rows == expected, frame.side
    worker.shut_down()
    assert worker.frame().type == STOPPED


@pytest.mark.parametrize("entry", ["score.py", "sub/score.py", "sub.score"])
def test_joblib_works_inside_run(start: Start, tmp_path: Path, entry: str) -> None:
    files = {
        entry.replace(".score", "/score.py") if not entry.endswith(".py") else entry: (
            "import os\n"
            "from azureml_user.parallel_run import EntryScript\n"
            "from joblib import Parallel, delayed\n"
            "from helper import tell\n"
            "class Point:\n    def __init__(self, x):\n        self.x = x\n"
            "def square(p):\n    return Point(p.x * p.x), EntryScript().agent_name, os.getpid()\n"
            "def run(b):\n"
            "    results = Parallel(n_jobs=2)(delayed(square)(Point(n)) for n in range(4))\n"
            "    assert os.getpid() not in [pid for _, _, pid in results]\n"
            "    told = Parallel(n_jobs=2)([delayed(tell)()])\n"
            "    return [(p.x, name) for p, name, _ in results] + told\n"
        ),
        "helper.py": "from azureml_user.parallel_run import EntryScript\ndef tell(): return EntryScript().agent_name\n",
    }
    for name, text in files.items():
        path = tmp_path / "prepared" / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    worker = start(folder=tmp_path / "prepared", entry_script=entry)
    worker.ready()
    worker.send(1, ["a"])
    frame = worker.frame()
    assert frame.rows == b"".join(b"(%d, 'process007')\n" % (n * n) for n in range(4)) + b"process007\n", frame.side


def test_a_relative_import_of_the_script_is_told_as_python_does(start: Start) -> None:
    worker = start("from . import helper\n" + "def run(b):\n    return b\n")
    assert "attempted relative import with no known parent package" in worker.frame().message


def test_spawned_processes_can_use_a_dotted_entry_script(start: Start, tmp_path: Path) -> None:
    package = tmp_path / "prepared" / "code" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "main.py").write_text(
        "import multiprocessing\ndef double(n):\n    return 2 * n\n"
        "def run(b):\n    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        return pool.map(double, [1, 2])\n"
    )
    worker = start(folder=tmp_path / "prepared", entry_script="package.main")
    worker.ready()
    assert worker.run(["a"]).rows == b"2\n4\n"


@pytest.mark.parametrize(
    "mess",
    [
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; sys.stdout.close()",
        "import sys, threading; sys.excepthook = threading.excepthook = None",
        "import os, shutil; shutil.rmtree(os.getcwd())",
        "import threading; threading.Thread(target=threading.Event().wait).start()",
        "import sys, io; sys.stdout = io.StringIO()",
        "import os; os.chdir('/')",
        "import sys; sys.setrecursionlimit(60)",
        "import locale; locale.setlocale(locale.LC_ALL, 'C')",
        "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
        "import socket; socket.setdefaulttimeout(0.001)",
        "import os; os.environ.clear()",
        "import sys; sys.argv.clear(); sys.path.clear(); sys.meta_path.clear()",
        "import os; os.write = os.close = os.fstat = os.getpid = os._exit = None",
        "import builtins; builtins.open = None",
        # An attempt this long has its memory measured at its end, from /proc.
        "import builtins, time; builtins.open = None; end = time.process_time() + 0.02\n"
        "        while time.process_time() < end:\n            pass",
        "import gc; gc.disable()",
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "import warnings; warnings.simplefilter('error')",
        "import sys; del sys.modules['windrow_worker']",
        "import os; os.umask(0o777)",
        "import decimal, json; json.dumps = None",
    ],
)
def test_what_a_script_changes_in_its_process_does_not_stop_the_host(start: Start, mess: str) -> None:
    worker = start(
        f"def run(b):\n    if b[0] == '/data/mess':\n        {mess}\n    return ['y' * 20] * 20\n",
        inline_rows_bytes_max=100,
    )
    worker.ready()
    for lease, name in enumerate(["mess", "after", "again"], start=1):
        assert worker.run([name], lease_id=lease).row_count == 20
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0


def test_printing_much_does_not_block(start: Start) -> None:
    worker = start(
        "def run(b):\n    line = 'z' * 999\n    for _ in range(20_000):\n        print(line)\n    return ['ok']\n"
    )
    worker.ready()
    worker.run(["a"])
    assert worker.stdout.stat().st_size == 20_000_000


def test_a_timer_that_goes_off_between_mini_batches_is_survived(start: Start) -> None:
    worker = start(
        "import signal\n"
        "def late(*_):\n    open('rung', 'w').close()\n    raise TimeoutError('too late')\n"
        "def run(b):\n"
        "    signal.signal(signal.SIGALRM, late)\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "    return ['ok']\n"
    )
    worker.ready()
    assert worker.run(["a"]).rows == b"ok\n"
    wait_until((worker.code / "rung").exists)
    assert worker.run(["a"]).rows == b"ok\n"
    assert "ignored: TimeoutError: too late" in worker.errors()


def test_an_interrupt_between_mini_batches_is_survived(start: Start) -> None:
    worker = start(f"def run(b):\n{OK}")
    worker.ready()
    worker.wait_for_phase("idle")
    os.kill(worker.process.pid, signal.SIGINT)
    wait_until(lambda: "KeyboardInterrupt" in worker.errors())
    assert worker.run(["a"]).rows == b"ok\n"
