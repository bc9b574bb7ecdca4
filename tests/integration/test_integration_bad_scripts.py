"""Scripts that are wrong in every way: a clear end in the right words, no hang, no process left, right counts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_counts, check_words

Make = Callable[..., EmbeddedRun]

ECHO = "def run(mini_batch):\n    return mini_batch\n"


NEVER_READY: dict[str, tuple[str, list[str]]] = {
    "no_run": (
        "def go(mini_batch):\n    return mini_batch\n",
        ["entry.py", "does not define a run() function", "Define run("],
    ),
    "run_is_no_function": ("run = 3\n", ["run is of type int, not a function"]),
    "syntax": ("def run(b: return b\n", ["SyntaxError", "entry.py, line 1"]),
    "import": (
        "import no_such_module\n" + ECHO,
        ["No module named 'no_such_module'", "entry.py, line 1", "Install it for", "--python"],
    ),
    "import_of_another_version": (
        "import html.no_such_part\n" + ECHO,
        ["No module named 'html.no_such_part'", "html is there, but has no such part", "--python"],
    ),
    "import_of_azureml_s_other_packages": (
        "from azureml.core import Run\nfrom azureml.opendatasets import Diabetes\n" + ECHO,
        ["'azureml.opendatasets'", "is of the package azureml-opendatasets", "Leave the import out", "--python"],
    ),
    "init_raises": ("def init():\n    raise RuntimeError('no model')\n" + ECHO, ["init()", "RuntimeError: no model"]),
    "init_exits": ("import os\ndef init():\n    os._exit(5)\n" + ECHO, ["exit code 5 in init()"]),
    "import_exits_at_once": (
        "import os\nos._exit(6)\n" + ECHO,
        ["starts of a worker failed; cause", "while its script was imported"],
    ),
    "init_exits_without_a_word": ("import os\ndef init():\n    os._exit(0)\n" + ECHO, ["exit code 0 in init()"]),
    "init_exits_politely": (
        "import sys\ndef init():\n    sys.exit()\n" + ECHO,
        ["init()", "sys.exit(None) was called"],
    ),
    "init_interrupts": ("def init():\n    raise KeyboardInterrupt\n" + ECHO, ["init()", "KeyboardInterrupt"]),
    "import_exits": ("import sys\nsys.exit(0)\n" + ECHO, ["could not be loaded", "sys.exit(0) was called"]),
    "init_segfaults": ("import ctypes\ndef init():\n    ctypes.string_at(0)\n" + ECHO, ["SIGSEGV in init()"]),
}


@pytest.mark.parametrize("name", NEVER_READY)
def test_a_script_that_never_gets_ready_fails_the_job(make: Make, name: str) -> None:
    script, words = NEVER_READY[name]
    run = make(script)
    code, text = run.run()
    assert code == 1, text
    check_words(text, [*words, "no worker could be made ready", "windrow job logs"])
    assert text.splitlines()[-1].startswith("Failed: Step 'score' failed:")
    assert "mini-batch" not in text.replace("each mini-batch", ""), "no mini-batch was ever run"
    counters = check_counts(run)
    assert counters["cancelled"] == counters["planned"] == 4
    assert not run.output.exists()


def test_a_missing_script_is_a_bad_file_before_anything_runs(make: Make) -> None:
    run = make(ECHO)
    (run.folder / "code" / "entry.py").rename(run.folder / "code" / "score.py")
    code, text = run.run()
    assert code == 2, text
    check_words(text, ["entry.py", "entry_script", "job.yml"])


NEVER_RIGHT: dict[str, tuple[str, str, list[str]]] = {
    "none": ("    return None\n", "bad_return", ["type of output is NoneType", "Return one element"]),
    "number": ("    return 42\n", "bad_return", ["type of output is int"]),
    "text": ("    return 'row'\n", "bad_return", ["type of output is str"]),
    "raises": ("    raise ValueError('bad item')\n", "exception", ["ValueError: bad item", "entry.py, line 3"]),
    "sys_exit": ("    import sys; sys.exit('bye')\n", "exception", ["sys.exit(bye) was called"]),
    "exit": ("    import os; os._exit(3)\n", "crash", ["exit code 3 in run()", "must return, not exit"]),
    "segfault": ("    import ctypes; ctypes.string_at(0)\n", "crash", ["SIGSEGV in run()"]),
    "closed": (
        "    import os; os.closerange(3, 1 << 20)\n",
        "crash",
        ["closed", "Close only what the script has opened"],
    ),
    "never_returns": ("    while True: pass\n", "timeout", ["run() took longer than 1 s", "Raise the timeout"]),
}


@pytest.mark.parametrize("name", ["none", "segfault", "never_returns"])
def test_a_script_that_fails_always_fails_the_job_and_says_why(make: Make, name: str) -> None:
    body, cause, words = NEVER_RIGHT[name]
    run = make(
        f"def run(mini_batch):\n    print('hello')\n{body}", settings="retry_settings: {max_retries: 0, timeout: 1}"
    )
    code, text = run.run()
    assert code == 1, text
    check_words(text, [*words, cause, "no item has a result (4 failed), so there are no rows to write"])
    counters = check_counts(run)
    assert (counters["failed"], counters["items_failed"]) == (4, 4)
    assert not run.output.exists()


@pytest.mark.parametrize("name", NEVER_RIGHT)
def test_one_bad_mini_batch_costs_only_itself(make: Make, name: str) -> None:
    body, cause, words = NEVER_RIGHT[name]
    indented = "    " + body
    run = make(
        f"def run(mini_batch):\n    if mini_batch[0].endswith('2'):\n{indented}    return mini_batch\n",
        settings="retry_settings: {max_retries: 0, timeout: 1}",
    )
    code, text = run.run("--strict")
    assert code == 3, text
    check_words(text, [*words, cause, "CompletedWithFailures: 1 of 4 items failed"])
    counters = check_counts(run)
    assert (counters["failed"], counters["items_failed"], counters["items_ok"]) == (1, 1, 3)
    assert run.output.read_text().splitlines() == [str(run.folder / "data" / f"f0000{n}") for n in (0, 1, 3)]
    report = (run.folder / "failed_items.csv").read_text()
    assert "f00002" in report
    assert cause in report


@pytest.mark.parametrize(
    ("returned", "settings", "code", "ok", "rows"),
    [
        ("mini_batch[:1]", "error_threshold: -1", 0, 2, 2),
        ("mini_batch[:1]", "error_threshold: 1", 1, 2, None),
        ("mini_batch * 3", "error_threshold: 0", 0, 4, 12),
        ("[]", "error_threshold: -1", 1, 0, None),
    ],
    ids=["too_few", "too_few_for_the_threshold", "too_many", "empty"],
)
def test_results_are_counted_against_items(
    make: Make, returned: str, settings: str, code: int, ok: int, rows: int | None
) -> None:
    run = make(f"def run(mini_batch):\n    return {returned}\n", size=2, settings=settings)
    got, text = run.run()
    assert got == code, text
    counters = check_counts(run)
    assert counters["items_ok"] <= ok
    assert rows is None or len(run.output.read_text().splitlines()) == rows
    assert run.output.exists() == (rows is not None)


def test_a_worker_that_dies_right_behind_its_result_has_not_failed_to_start(make: Make) -> None:
    run = make(
        """
import os
import sys

def init():
    channel = sys.modules["windrow_worker.protocol.channels"].ResultChannel
    send = channel.send
    results = []

    def send_and_die(self, frame):
        send(self, frame)
        results.append(frame)
        if len(results) > 1:  # the first one says that init() is done
            os._exit(3)

    channel.send = send_and_die

def run(mini_batch):
    return mini_batch
"""
    )
    code, text = run.run()
    assert code == 0, text
    assert "init_failed" not in text
    counters = check_counts(run)
    assert (counters["succeeded"], counters["retries"]) == (4, 0)
    assert not counters.get("failed_attempts")


def test_a_flood_on_stdout_blocks_nothing_and_fills_no_disk(make: Make) -> None:
    run = make(
        "LINE = 'x' * 1023\n"
        "def run(mini_batch):\n"
        "    for _ in range(300 * 1024):\n"
        "        print(LINE)\n"
        "    print('the last words')\n"
        "    return mini_batch\n",
        files=1,
    )
    code, text = run.run()
    assert code == 0, text
    logs = list(run.state.rglob("*.stdout.txt"))
    assert logs
    assert sum(path.stat().st_blocks * 512 for path in logs) < 100 << 20
    assert all(path.read_bytes().endswith(b"the last words\n") for path in logs)


def test_children_of_a_script_do_not_outlive_the_job(make: Make, tmp_path: Path) -> None:
    mark = f"WINDROW_TEST_CHILD={os.getpid()}-{time.time_ns()}"
    run = make(
        "import os, subprocess\n"
        "def run(mini_batch):\n"
        "    for session in (True, False):\n"
        "        subprocess.Popen(['sleep', '600'], start_new_session=session)\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            os.execvp('sleep', ['sleep', '600'])\n"
        "        os._exit(0)\n"
        "    return mini_batch\n",
        settings=f"environment_variables: {{{mark.replace('=', ': ')}}}",
    )
    code, text = run.run()
    assert code == 0, text
    assert len(run.output.read_text().splitlines()) == 4
    assert marked(mark) == []


def marked(mark: str) -> list[int]:
    """Live processes with this in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_an_init_that_never_returns_fails_the_job_after_one_deadline(make: Make) -> None:
    """The limit is 3 x the run timeout + 30 s (docs/reference/azure-ml/parallel-job.md#lost-workers-and-nodes): waited
    for once, not for three tries of every worker."""
    run = make(
        "import time\ndef init():\n    time.sleep(1000)\n" + ECHO,
        settings="retry_settings: {max_retries: 0, timeout: 1}",
    )
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["init() took longer than 33 s", "raise retry_settings.timeout", "no worker could be made ready"])
    errors = [path for path in run.state.rglob("*") if path.match("user/stdout/*/*.stdout.txt")]
    assert len(errors) <= 2, "one worker a slot was tried"
    assert check_counts(run)["cancelled"] == 4
