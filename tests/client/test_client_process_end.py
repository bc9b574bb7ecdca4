"""A process that ends without taking the interpreter apart does all that others rely on."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import atexit, concurrent.futures, os, sys, tempfile, threading, weakref
from windrow.common.process_end import end_process

class Thing:
    pass

thing, told = Thing(), threading.Event()
weakref.finalize(thing, print, "finalized")
atexit.register(print, "registered")
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(lambda: (told.wait(10), os.write(1, b"pool\\n")))
threading.Thread(target=lambda: (told.wait(10), os.write(1, b"thread\\n"))).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
sys.stdout.write("unflushed\\n")
told.set()
end_process(7)
"""


def test_threads_are_waited_for_and_exit_functions_run() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""
    assert sorted(done.stdout.split()) == ["finalized", "pool", "registered", "thread", "unflushed"]


def test_a_reader_that_is_gone_changes_no_exit_code() -> None:
    program = "from windrow.common.process_end import end_process\nprint('x' * 100)\nend_process(3)"
    command = [sys.executable, "-c", program]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 3
