"""`windrow.map`: functions of modules and of programs; results, rows, failures, and a kill in the middle."""

from __future__ import annotations

import csv
import pickle
import subprocess
import sys
import textwrap
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from embedded_run import wait_until
from windrow.sdk.mapping.confined import NotPlainData, plain_data

HELPERS = "def twice(x):\n    return 2 * x\n"
MODULE = """\
import os
import time
from helpers import twice

def work(x):
    return twice(x) + 1

def size(path):
    return os.path.basename(path), os.path.getsize(path)

def row(values):
    return {"n": values["n"], "text": values["text"].upper()}

def gated(x):
    while x >= 10 and os.path.exists("GATE"):
        time.sleep(0.005)
    with open("SEEN", "a") as seen:
        seen.write("x")
    return x
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = MODULE.replace("GATE", str(tmp_path / "gate")).replace("SEEN", str(tmp_path / "seen"))
    (tmp_path / "own.py").write_text(text)
    (tmp_path / "helpers.py").write_text(HELPERS)
    return tmp_path


def python(folder: Path, program: str, *, fails: bool = False) -> str:
    """Run a program with `python -c`; what it printed, or its last line of errors."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode != 0) is fails, done.stderr
    return done.stderr if fails else done.stdout


def test_functions_of_a_module_and_of_a_cell(folder: Path) -> None:
    said = python(
        folder,
        """
        import math, windrow
        from own import work
        FACTOR = 10
        def inner(x):
            return FACTOR * x
        def cell(x, more=1):
            return [inner(value) + more for value in range(x)], math.sqrt(x)
        print(windrow.map(work, range(50)) == [2 * x + 1 for x in range(50)])
        print(windrow.map(cell, iter([0, 4])))
        names = set()
        print(windrow.map(lambda text: work(len(text)), ["a", "bb"], workers=1))
        windrow.map(work, [1], retry_delay=1, on_progress=lambda job: names.add((job.display_name, job.steps[0].name)))
        print(names)
        print(windrow.map(len, []))
        """,
    )
    assert said == "True\n[([], 0.0), ([1, 11, 21, 31], 2.0)]\n[3, 5]\n{('work', 'work')}\n[]\n"


def test_what_a_function_uses_reaches_the_workers_as_it_is(folder: Path) -> None:
    said = python(
        folder,
        """
        import functools, logging, xml.dom.minidom, windrow
        log = logging.getLogger(__name__)
        SETTINGS = {"script": "__main__.py"}
        seen = {}
        def put(x):
            seen[x] = SETTINGS["script"]
        def share(x):
            put(x)
            return seen
        def add(x, k):
            return x + k
        @functools.lru_cache(maxsize=7)
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
        def local(x):
            class Own:
                value = x
            return Own.value, __name__, log.name
        def rooted(text):
            return xml.dom.minidom.parseString(text).documentElement.tagName
        def counted(n):
            return fibonacci(n), fibonacci.cache_info().maxsize
        print(windrow.map(share, [1]))
        print(windrow.map(functools.partial(add, k=5), [1]))
        print(windrow.map(fibonacci, [60]), windrow.map(counted, [10]))
        print(windrow.map(local, [3]))
        print(windrow.map(rooted, ["<a/>"]))
        """,
    )
    assert said.splitlines() == [
        "[{1: '__main__.py'}]",
        "[6]",
        "[1548008755920] [(55, 7)]",
        "[(3, '__main__', '__main__')]",
        "['a']",
    ]


def test_items_are_sent_as_what_a_function_uses(folder: Path) -> None:
    (folder / "shapes.py").write_text("class Square:\n    side = 3\n")
    said = python(
        folder,
        """
        import functools, math, shapes, windrow
        def twice(x):
            return 2 * x
        def power(x, of):
            return x ** of
        print(windrow.map(lambda f: f(4), [twice, functools.partial(power, of=3), math.sqrt]))
        print(windrow.map(lambda one: one.side, [shapes.Square()]))
        """,
    )
    assert said == "[8, 64, 2.0]\n[3]\n"


def test_paths_tables_and_outputs(folder: Path) -> None:
    (folder / "data").mkdir()
    for number in range(7):
        (folder / "data" / f"{number}.bin").write_bytes(b"x" * number)
    (folder / "t.csv").write_text("n,text\n" + "".join(f"{n},row {n}\n" for n in range(100)))
    said = python(
        folder,
        """
        import own, windrow
        print(windrow.map(own.size, "data"))
        ended = windrow.map(own.row, "t.csv", "out.csv")
        print(ended.succeeded, ended.job.items.ok)
        """,
    )
    assert said.splitlines()[0] == str([(f"{number}.bin", number) for number in range(7)])
    assert said.splitlines()[1] == "True 100"
    assert (folder / "out.csv").read_text() == "n,text\n" + "".join(f"{n},ROW {n}\n" for n in range(100))


def test_failing_items(folder: Path) -> None:
    said = python(
        folder,
        """
        import os, windrow
        def bad(x):
            if x == 3:
                raise ValueError("no three")
            if x == 5:
                os._exit(1)
            return {"x": x}
        try:
            windrow.map(bad, range(4), max_retries=0)
        except windrow.ItemsFailed as error:
            print(str(error).splitlines()[0], [one.index for one in error.failed], error.results)
        found = windrow.map(bad, range(6), max_retries=0, check=False, mini_batch_size=1)
        print(found[:3], type(found[3]).__name__, found[3].error, found[4], found[5].error)
        try:
            windrow.map(bad, range(4), "rows.jsonl", max_retries=0)
        except windrow.ItemsFailed as error:
            print(str(error).splitlines()[0])
        print(open("rows.jsonl").read())
        """,
    )
    lines = said.splitlines()
    assert lines[0] == ("1 of 4 items failed; first, item 3: ValueError: no three [3] [{'x': 0}, {'x': 1}, {'x': 2}]")
    assert lines[1] == "[{'x': 0}, {'x': 1}, {'x': 2}] Failed ValueError {'x': 4} NoResult"
    assert lines[2] == "1 of 4 items failed; first, item 3: ValueError: no three"
    assert lines[3:6] == ['{"x":0}', '{"x":1}', '{"x":2}']


FAILING = """
import os, sys, windrow
import pandas as pd
def work(x):
    if x == 1:
        return {"x": 1 / 0}
    if x == 2:
        sys.exit(3)
    if x == 3:
        os.abort()
    if x == 4:
        return open("settings.txt")
    if x == 5:
        return pd.DataFrame({"x": [5, 5]})
    if x == 6:
        return windrow.map(work, [1])
    return {"x": x}
def mixed(x):
    return {"x": x, "more": x} if x == 3 else {"x": x}
def tell(function, *given, **options):
    try:
        windrow.map(function, *given, max_retries=0, **options)
    except windrow.ItemsFailed as error:
        print(str(error).splitlines()[0])
        for one in error.failed:
            print(one.index, one, *one.traceback.splitlines()[1:2])
if __name__ == "__main__":
    """


def failing(folder: Path, calls: str) -> list[str]:
    """Lines of a program that tells which items of the calls have failed."""
    (folder / "program.py").write_text(FAILING.lstrip() + calls)
    return python(folder, "import runpy; runpy.run_path('program.py', {}, '__main__')").splitlines()


def test_failing_items_of_an_output_are_told_each_with_its_reason(folder: Path) -> None:
    said = failing(folder, "tell(work, range(8), 'work.csv', mini_batch_size=1)")
    assert len(said) == 7
    assert said[0] == "6 of 8 items failed; first, item 1: ZeroDivisionError: division by zero"
    assert said[1] == '1 ZeroDivisionError: division by zero   File "program.py", line 5, in work'
    assert said[2] == '2 SystemExit: 3   File "program.py", line 7, in work'
    assert said[3].startswith("3 The worker process was killed by SIGABRT")
    assert said[3].rstrip().endswith("(program.py, line 9)")
    assert said[4].startswith("4 FileNotFoundError: ") and said[4].count("give the function an absolute path") == 1
    assert said[5].startswith("5 TypeError: the function returned a DataFrame") and "iloc[0].to_dict()" in said[5]
    assert said[6].startswith("6 UsageError: windrow.map was called by a function of windrow.map")
    with (folder / "failed_items.csv").open(newline="") as file:
        listed = {row["item"].rpartition("line ")[2]: row["message"] for row in csv.DictReader(file)}
    assert listed["2"] == "item 1: ZeroDivisionError: division by zero"
    assert listed["3"] == "item 2: SystemExit: 3"


def test_items_with_other_columns_and_failing_items_of_a_job_without_any_result(folder: Path) -> None:
    said = failing(
        folder,
        "tell(mixed, range(5), 'mixed.csv', mini_batch_size=1, workers=1)\n"
        "    tell(work, [1, 3, 3], 'none.csv')\n"
        "    print(windrow.map(work, [3], check=False, max_retries=0))",
    )
    assert (folder / "mixed.csv").read_text() == "x,more\n0,\n1,\n2,\n3,3\n4,\n"
    assert len(said) == 5
    assert said[0] == "3 of 3 items failed; first, item 0: ZeroDivisionError: division by zero"
    assert said[1].startswith("0 ZeroDivisionError:")
    assert all(line[2:].startswith("The worker process was killed") for line in said[2:4])
    assert said[4].startswith("[Failed(index=0, error='NoResult', message='The worker process was killed by SIGABRT")


def test_failed_items_count_as_failed(folder: Path) -> None:
    said = python(
        folder,
        """
        import windrow
        def bad(x):
            if x % 10 == 3:
                raise ValueError(f"not {x}")
            return x if x % 10 != 4 else lambda: x
        moments = []
        try:
            windrow.map(bad, range(50), max_retries=0, on_progress=moments.append, mini_batch_size=20)
        except windrow.ItemsFailed as error:
            print(len(error.failed), error.job.items.ok, error.job.items.failed, error.job.state.label)
        print("40 of 50 items ok, 10 failed" in moments[-1]._repr_html_(), moments[-1].mini_batches.total)
        # Also where all do, and each mini-batch has many.
        found = windrow.map(bad, [3] * 50_000, max_retries=0, workers=1, check=False, on_progress=moments.append)
        print(moments[-1].items.failed, len(found), {str(one) for one in found})
        try:
            windrow.map(bad, [3, 13], "rows.txt", max_retries=0)
        except windrow.ItemsFailed as error:
            print(str(error).splitlines()[0])
        """,
    )
    assert said.splitlines() == [
        "10 40 10 CompletedWithFailures",
        "True 3",
        "50000 50000 {'ValueError: not 3'}",
        "2 of 2 items failed; first, item 0: ValueError: not 3",
    ]


@pytest.mark.parametrize("kind", ["paths", "rows"])
def test_of_files_and_rows_exactly_those_that_fail_have_no_result(folder: Path, kind: str) -> None:
    (folder / "data").mkdir()
    for number in range(20):
        (folder / "data" / f"{number:02}.txt").write_text(str(number))
    (folder / "table.csv").write_text("n\n" + "".join(f"{number}\n" for number in range(20)))
    (folder / "program.py").write_text(
        textwrap.dedent("""
        import os, sys, windrow
        def work(given):
            number = given["n"] if isinstance(given, dict) else int(open(given).read())
            if number == 7:
                raise ValueError("no seven")
            if number == 13:
                os._exit(1)
            return number * 2
        if __name__ == "__main__":
            found = windrow.map(work, sys.argv[1], check=False, max_retries=0)
            print([n for n, one in enumerate(found) if one != 2 * n], len(found))
            print(found[7].traceback)
            print(found[13])
        """)
    )
    given = {"paths": str(folder / "data"), "rows": str(folder / "table.csv")}[kind]
    said = python(
        folder, f"import sys, runpy; sys.argv = ['', {given!r}]; runpy.run_path('program.py', {{}}, '__main__')"
    )
    lines = said.splitlines()
    assert lines[0] == "[7, 13] 20"
    # The traceback begins in the function, and names its file.
    assert lines[1:3] == ["Traceback (most recent call last):", '  File "program.py", line 6, in work']
    assert "The worker process ended with exit code 1 in run()" in said


def test_the_same_call_continues_after_a_kill(folder: Path) -> None:
    gate, seen = folder / "gate", folder / "seen"
    gate.touch()
    program = "import own, windrow; print(windrow.map(own.gated, range(40), mini_batch_size=1))"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=folder)
    wait_until(lambda: seen.exists() and len(seen.read_text()) >= 10, "ten items are done")
    process.kill()
    process.wait()
    gate.unlink()
    assert python(folder, program) == f"{list(range(40))}\n"
    assert 40 <= len(seen.read_text()) <= 60


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def make(n):\n    return lambda x: x + n\nwindrow.map(make(1), [1])", "keeps variables of that one (n)"),
        ("import threading; lock = threading.Lock()\nwindrow.map(lambda x: lock, [1])", "lock cannot be sent"),
        ("class A: pass\na = A()\nwindrow.map(lambda x: a, [1])", "its class is defined in this session"),
        (
            "class A: pass\nwindrow.map(lambda x: A(), [1])",
            "A cannot be sent to the workers: it is defined in this session",
        ),
        (
            "class A: pass\nL = [A()]\nwindrow.map(lambda x: L, [1])",
            "L cannot be sent to the workers: the class A in it is",
        ),
        (
            "import collections\nP = collections.namedtuple('P', 'x')\nwindrow.map(lambda p: p.x, [P(1)])",
            "Item 0, of type P, cannot be sent to the workers: its class is defined in this session",
        ),
        (
            "import enum\nclass E(enum.Enum):\n    A = 1\nwindrow.map(str, [[E.A]])",
            "Item 0, of type list, cannot be sent to the workers: the class E in it is defined in this session",
        ),
        ("windrow.map(3, [1])", "3 cannot be called"),
        ("windrow.map(len, [open('own.py')])", "Item 0, of type TextIOWrapper, cannot be sent"),
        ("windrow.map(len, 'nope')", '"nope" does not exist'),
        ("windrow.map(len, [1], 'a.xls')", 'the suffix ".xls" is not supported'),
    ],
)
def test_what_cannot_be_sent_is_said(folder: Path, program: str, expected: str) -> None:
    assert expected in python(folder, f"import windrow\n{program}", fails=True)


def test_calls_of_two_threads_and_a_callback_that_raises(folder: Path) -> None:
    """Calls that cannot be told apart at once are an error; others are right. An error of a callback ends its call."""
    said = python(
        folder,
        """
        import os, signal, threading, time, windrow
        from concurrent.futures import ThreadPoolExecutor
        from windrow.embedded import state_folder

        begun, go = threading.Event(), os.path.abspath("go")

        def call(function, **more):
            return windrow.map(function, range(6), workers=2, mini_batch_size=1, progress=False, **more)

        def double(x):
            return 2 * x

        def tell(job):
            if job.mini_batches.leased:
                begun.set()

        def fail(job):
            if job.mini_batches.leased:
                raise KeyError("mine")

        handler = signal.getsignal(signal.SIGINT)
        waiting = lambda x: ([time.sleep(0.01) for _ in iter(lambda: os.path.exists(go), True)], x)[1]
        try:
            call(waiting, on_progress=fail, state="other")
        except KeyError as error:
            print(error)
        children = open(f"/proc/self/task/{threading.get_native_id()}/children").read()
        print([children, signal.getsignal(signal.SIGINT) is handler, state_folder.is_owned(os.path.abspath("other"))])
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(call, waiting, on_progress=tell)
            begun.wait(60)
            second = pool.submit(call, lambda x: -x)
            print(second.exception(60))
            third = pool.submit(call, double)
            open(go, "w").close()
            print(first.result(), third.result())
        print(call(waiting, state="other"))
        """,
    )
    raised, left, refused, *found = said.splitlines()
    assert (raised, left) == ("'mine'", "['', True, False]")
    assert refused.startswith("Another call of windrow.map with a function named lambda and without an output is at")
    assert "define each function under a name of its own (def name, not lambda)" in refused
    assert found == ["[0, 1, 2, 3, 4, 5] [0, 2, 4, 6, 8, 10]", "[0, 1, 2, 3, 4, 5]"]


LEAVES = """
    import os, pathlib, windrow
    def leave(x):
        class Leaves:
            def __reduce__(self):
                return os.system, ("touch 'ESCAPED'",)
        return [Leaves()] if x == 1 else {"x": x, "path": pathlib.Path("/data")}
    found = windrow.map(leave, [0, 1, 2], check=False, progress=False)
    print(found[0], found[2])
    print(found[1].error if isinstance(found[1], windrow.Failed) else type(found[1]))
    print(found[1].message if isinstance(found[1], windrow.Failed) else "")
"""


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_what_comes_out_of_a_sandbox_calls_nothing_outside_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str
) -> None:
    monkeypatch.setenv("WINDROW_SANDBOX", sandbox)
    escaped = folder / "escaped"
    said = python(folder, LEAVES.replace("ESCAPED", str(escaped)))
    plain = "{'x': 0, 'path': PosixPath('/data')} {'x': 2, 'path': PosixPath('/data')}\n"
    assert said.startswith(plain)
    assert escaped.exists() == (sandbox == "off")
    if sandbox != "off":
        assert "\nResultNotRead\nIts result holds posix.system, which is not plain data." in said


@pytest.mark.parametrize(
    "value",
    [
        {1: (2.5, b"x", None, True)},
        [datetime(2026, 5, 31, tzinfo=UTC), timedelta(1), Decimal("1.5"), Fraction(1, 3), UUID(int=7)],
        defaultdict(list, {"a": [1]}),
        np.array([[1.5, 2]]),
        np.array(["a", None], dtype=object),
        np.float64(2.5),
        {frozenset([1]), complex(1, 2), range(3)},
    ],
)
def test_plain_data_and_arrays_come_out_of_a_sandbox(value: Any) -> None:
    found = plain_data(pickle.dumps(value, 4))
    assert repr(found) == repr(value)


@pytest.mark.parametrize("value", [getattr, eval, subprocess.run, Path.home, np.load])
def test_nothing_that_can_be_called_comes_out_of_a_sandbox(value: Any) -> None:
    with pytest.raises(NotPlainData):
        plain_data(pickle.dumps(value, 4))


def test_what_a_worker_takes_bounds_how_many_run(folder: Path) -> None:
    program = """
        import os, windrow
        print(windrow.map(abs, [-1, -2, -3], cpus_per_worker=os.cpu_count() or 1, memory_per_worker="16mb",
                          idle_gpu_timeout=60))
        for wrong in ({"cpus_per_worker": 0}, {"gpus_per_worker": 1.5}, {"memory_per_worker": "much"},
                      {"idle_gpu_timeout": 0}):
            try:
                windrow.map(abs, [1], **wrong)
            except windrow.UsageError as error:
                print(error)
    """
    told = python(folder, program).splitlines()
    assert told[0] == "[1, 2, 3]"
    named = ["cpus_per_worker", "gpus_per_worker", "memory_per_worker", "idle_gpu_timeout"]
    assert [line.partition("=")[0] for line in told[1:]] == named
