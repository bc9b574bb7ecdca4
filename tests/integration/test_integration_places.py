"""Files, outputs and state folders that are in the way, wrong, elsewhere, or in use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import TYPED, WINDROW, EmbeddedRun, check_counts, check_words, wait_until

Make = Callable[..., EmbeddedRun]

ECHO = "import os\ndef run(mini_batch):\n    return [os.path.basename(path) for path in mini_batch]\n"
EXPECTED = "f00000\nf00001\nf00002\nf00003\n"
GATED = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while not os.path.exists(os.environ['GATE']):\n"
    "        time.sleep(0.01)\n"
    "    return [os.path.basename(path) for path in mini_batch]\n"
)


def gated(make: Make) -> tuple[EmbeddedRun, Path]:
    """A run that waits for a file."""
    run = make(GATED)
    gate = run.folder / "gate"
    job = run.folder / "job.yml"
    job.write_text(
        job.read_text().replace("    task:\n", f"    environment_variables: {{GATE: '{gate}'}}\n    task:\n")
    )
    return run, gate


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bad.yml", b"type: pipeline\n  jobs: [\n", ["bad.yml:2", "not valid YAML"]),
        ("empty.yml", b"", ["empty.yml", "is empty"]),
        ("binary.yml", b"name: \x80\x81", ["binary.yml", "UTF-8"]),
        ("text.yml", b"just words\n", ["text.yml"]),
        ("list.yml", b"- a\n- b\n", ["list.yml"]),
        ("nowhere.yml", None, ["nowhere.yml"]),
    ],
)
def test_a_bad_job_file_is_told_and_nothing_is_left(
    make: Make, name: str, content: bytes | None, words: list[str]
) -> None:
    run = make(ECHO)
    if content is not None:
        (run.folder / name).write_bytes(content)
    process = subprocess.run(
        [WINDROW, "run", name], cwd=run.folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert process.returncode == 2
    check_words(process.stderr, words)
    assert process.stdout == ""


@pytest.mark.parametrize(
    ("prepare", "path", "words"),
    [
        (lambda folder: (folder / "taken").mkdir(), "./taken", ["is a folder", "uri_file"]),
        (lambda folder: (folder / "file").touch(), "./file/sub/out.txt", ["file is a file, not a folder"]),
    ],
    ids=["a_folder", "below_a_file"],
)
def test_an_output_that_cannot_be_is_a_bad_file(
    make: Make, prepare: Callable[[Path], object], path: str, words: list[str]
) -> None:
    run = make(ECHO)
    prepare(run.folder)
    code, text = run.run("--set", f"outputs.result.path={path}")
    assert code == 2, text
    check_words(text, [*words, "outputs.result"])


def test_somebody_elses_output_is_refused_before_any_work(make: Make) -> None:
    run = make(ECHO)
    run.output.write_text("mine")
    code, text = run.run()
    assert code == 1, text
    check_words(text, [str(run.output), "exists already", "does not touch it", "Move it away"])
    assert run.output.read_text() == "mine"
    assert check_counts(run)["planned"] == 0
    run.output.unlink()
    code, text = run.run()
    assert code == 0, text
    # One's own output is replaced, until somebody changes it.
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == EXPECTED
    run.output.write_text("changed")
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["was changed since Windrow wrote it"])
    assert run.output.read_text() == "changed"


def test_a_job_file_elsewhere(make: Make, tmp_path: Path) -> None:
    run = make(ECHO)
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    done = subprocess.run(
        [WINDROW, "run", str(run.folder / "job.yml"), "--no-progress"],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.output.read_text() == EXPECTED
    assert (elsewhere / ".windrow" / "windrow.db").is_file()
    assert not run.state.exists()


@pytest.mark.parametrize(
    "name",
    ["a state of mine", "new\nline", "ünï", "not \udcff utf-8", "/".join(["d" * 60] * 4)],
    ids=["spaces", "newline", "letters", "bytes", "long"],
)
def test_a_state_folder_of_any_name(make: Make, tmp_path: Path, name: str) -> None:
    run = make(ECHO)
    run.state = tmp_path / name
    code, text = run.run("--state", str(run.state))
    assert code == 0, text
    assert run.output.read_text() == EXPECTED
    assert (run.state / "windrow.db").is_file()


def test_a_state_folder_that_cannot_be(make: Make, small_disk: Path) -> None:
    run = make(ECHO)
    subprocess.check_call(["mount", "-o", "remount,ro", small_disk])
    for state in (small_disk, small_disk / "below", run.folder / "job.yml"):
        code, text = run.run("--state", str(state))
        assert code == 2, text
        check_words(text, [str(state), "--state", "Choose "])


def test_the_same_job_twice_at_once_is_one_run(make: Make) -> None:
    run, gate = gated(make)
    first = run.start()
    wait_until(lambda: len(run.pids("worker")) == 2, "workers")
    second = run.start()
    assert second.stdout is not None
    lines = []
    for line in second.stdout:
        lines.append(line)
        if "Attached to" in line:
            break
    gate.touch()
    first_text, _ = first.communicate(timeout=240)
    code, text = run.finish()
    assert (first.returncode, code) == (0, 0), first_text + "".join(lines) + text
    assert run.output.read_text() == EXPECTED
    assert len(run.counters()) == 1, "one job"


def test_another_job_in_a_state_folder_in_use_runs_beside(make: Make) -> None:
    run, gate = gated(make)
    first = run.start()
    wait_until(lambda: len(run.pids("worker")) == 2, "workers")
    other = make(ECHO)
    gate.touch()
    code, text = other.run("--state", str(run.state))
    assert code == 0, text
    assert other.output.read_text() == EXPECTED
    first_text, _ = first.communicate(timeout=240)
    assert first.returncode == 0, first_text
    assert run.output.read_text() == EXPECTED


def fill(folder: Path) -> Path:
    """A file that takes all that is left."""
    path = folder / "fill"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    return path


def test_a_full_disk_under_the_state_is_waited_for(make: Make, small_disk: Path) -> None:
    """The rows of the job need more than is left: nothing is lost, and it goes on when there is room."""
    run = make(
        "import os\ndef run(mini_batch):\n    return [os.path.basename(path) + 'x' * 20000 for path in mini_batch]\n",
        files=600,
        size=10,
    )
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (16 << 20))
    run.state = small_disk / "state"
    process = run.start("--state", str(run.state))
    assert process.stdout is not None
    told = ""
    for told in process.stdout:
        if "accepts no changes" in told:
            break
    # Rows or database, whichever finds no room first.
    check_words(told, ["The master accepts no changes", "Free some space", "resumes automatically"])
    assert "No space left on device" in told or "is full" in told
    assert run.process is not None
    assert run.process.poll() is None
    ballast.unlink()
    code, text = run.finish()
    assert code == 0, text
    assert text.count("accepts no changes") == 0, "said once"
    assert run.output.read_text() == "".join(f"f{number:05d}{'x' * 20000}\n" for number in range(600))
    assert check_counts(run)["items_ok"] == 600


def test_a_replay_on_a_full_disk_is_told(make: Make, small_disk: Path) -> None:
    run = make(ECHO)
    assert run.run()[0] == 0
    (job,) = (path.name for path in (run.folder / ".windrow" / "jobs").iterdir())
    keep = str(small_disk / "kept")
    command = [WINDROW, "mb", "replay", job, "0", "--keep", keep]
    fill(small_disk)
    done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    check_words(done.stderr, [keep, "No space left on device", "--keep"])


def test_a_full_disk_under_the_output_is_waited_for(make: Make, small_disk: Path) -> None:
    run = make(ECHO)
    filler = fill(small_disk)
    process = run.start("--set", f"outputs.result.path={small_disk / 'out.txt'}")
    assert process.stdout is not None
    told = ""
    for told in process.stdout:
        if "disk is full" in told:
            break
    check_words(told, [str(small_disk / "out.txt"), "disk is full", "Free some space", "nothing needs to run again"])
    filler.unlink()
    code, text = run.finish()
    assert code == 0, text
    assert (small_disk / "out.txt").read_text() == EXPECTED
    assert check_counts(run)["retries"] == 0


def test_out_of_memory_is_told_apart(make: Make) -> None:
    group = Path("/sys/fs/cgroup/memory") / f"windrow-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(500 << 20))
    except OSError:
        pytest.skip("needs root and the memory controller of cgroup v1")
    run = make(
        "import os\n"
        "def run(mini_batch):\n"
        "    if mini_batch[0].endswith('1'):\n"
        "        hoard = bytearray(2 << 30)\n"
        "        hoard[::4096] = b'x' * len(hoard[::4096])\n"
        "    return [os.path.basename(path) for path in mini_batch]\n",
        settings="max_concurrency_per_instance: 1",
    )
    try:
        join = f"echo $$ > {group}/cgroup.procs && exec {TYPED} run job.yml --no-progress --strict"
        done = subprocess.run(
            ["sh", "-c", join], cwd=run.folder, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 3, done.stdout + done.stderr
        check_words(
            done.stdout,
            ["failed with too little memory, in 3 attempts", "for lack of memory in run()", "smaller mini-batches"],
        )
        assert run.output.read_text() == "f00000\nf00002\nf00003\n"
        assert ",oom," in (run.folder / "failed_items.csv").read_text()
    finally:
        wait_until(lambda: not run.strays(), "no stray process")
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


UNREADABLE: dict[str, tuple[str, int, list[str]]] = {
    "job_file": ("job.yml", 2, ["job.yml", "cannot be read", "Permission denied"]),
    "code_folder": ("code", 2, ["job.yml", "entry.py", "Permission denied"]),
    "script": ("code/entry.py", 2, ["code/entry.py", "Permission denied"]),
    "input_folder": ("data", 1, ["data of the input cannot be read", "Permission denied", "chmod a+rx"]),
    "item": ("data/f00001", 1, ["1 item failed", "PermissionError", "data/f00001"]),
}


def not_allowed_all() -> list[str]:
    """Before a command: root reads everything, unless the capability for that is taken away."""
    if os.geteuid() != 0:
        return []
    before = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    if subprocess.call([*before, "true"], stderr=subprocess.DEVNULL) != 0:
        pytest.skip("root reads everything here")
    return before


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_may_not_be_read_is_told(make: Make, what: str) -> None:
    path, code, words = UNREADABLE[what]
    run = make(
        "def run(mini_batch):\n    return [open(path).read() for path in mini_batch]\n", settings="error_threshold: 0"
    )
    command = [*not_allowed_all(), WINDROW, "run", "job.yml", "--no-progress"]
    (run.folder / path).chmod(0)
    try:
        done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, timeout=240, check=False)
    finally:
        (run.folder / path).chmod(0o755)
    assert done.returncode == code, done.stdout + done.stderr
    check_words(done.stdout + done.stderr, words)
    assert not run.output.exists()


ASKING = ["job list", "job show last", "job rows last", "mb list last", "top --once", "run job.yml --dry-run"]


@pytest.mark.parametrize("line", ASKING)
def test_a_state_folder_that_may_not_be_read_is_told(make: Make, line: str) -> None:
    run = make("def run(mini_batch):\n    return mini_batch\n")
    run.state.mkdir(mode=0)
    command = [*not_allowed_all(), WINDROW, *line.split()]
    done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, timeout=240, check=False)
    run.state.chmod(0o700)
    told = f"windrow: The state folder {run.state} cannot be read: Permission denied. Run the command as the user who"
    assert done.returncode == 2 and done.stderr.startswith(told), done.stderr


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2> /dev/full"])
def test_closed_or_full_streams_do_not_stop_a_run(make: Make, streams: str) -> None:
    run = make(ECHO)
    done = subprocess.run(
        ["sh", "-c", f"exec {TYPED} run job.yml {streams}"],
        cwd=run.folder,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.output.read_text() == EXPECTED
    assert b"Traceback" not in done.stderr


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && exec {TYPED} run {tmp_path}/job.yml"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stderr
    check_words(done.stderr, ["current folder no longer exists", "Change to an existing folder"])


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_words_that_cannot_be_written_end_without_a_traceback(tmp_path: Path, unbuffered: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {TYPED} --help > /dev/full"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "No space left on device" in done.stderr
