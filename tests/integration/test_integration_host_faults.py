"""The worker's own code fails, or its channel is spoilt: a named end in bounded time, and no neighbour harmed.

Faults are planted by the script in the modules of the process that hosts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from embedded_run import EmbeddedRun, check_counts
from windrow_master.core.states import Cause

Make = Callable[..., EmbeddedRun]

FILES = 12
SCRIPT = """\
import gc, os, socket, struct, threading
from windrow_worker.protocol import channels, page
from windrow_worker import host

STRUCK = False

def result_fd():
    # The one stream socket at a high number.
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            with socket.socket(fileno=os.dup(number)) as found:
                if number > 100 and found.type == socket.SOCK_STREAM:
                    return number
        except OSError:
            pass

def once():
    global STRUCK
    STRUCK, was = False, STRUCK
    return was

def spoil(module, name):
    def change(spoilt):
        old = getattr(module, name)
        setattr(module, name, lambda self, *given: spoilt(old, self, *given))
    return change

{at_top}
def run(mini_batch):
    global STRUCK
    rows = [os.path.basename(path) for path in mini_batch]
    if rows[0] == "f00002":
        STRUCK = True
{in_run}
    return rows
"""


class Fault(NamedTuple):
    """Code at the top of the script, or in `run()` of one of the mini-batches; what is told of its crash."""

    words: str
    at_top: str = ""
    in_run: str = "pass"


OWN_CODE = "failed in its own code"
SEND = "@spoil(channels.ResultChannel, 'send')\ndef send(old, self, frame):\n    {}\n    return old(self, frame)\n"
HEAD = "struct.pack('<IIBBHQIIIIqQQQQQI', 0x57524F57, 0, 3, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, {}, 0)"

FAULTS = {
    "before_run": Fault(
        OWN_CODE + " while it loaded",
        "@spoil(page.Page, 'enter')\ndef enter(old, self, phase, *given):\n"
        "    if phase == page.RUNNING and given[1] == 2: raise NameError('planted')\n"
        "    return old(self, phase, *given)\n",
    ),
    "after_run": Fault(
        OWN_CODE + " while it wrote",
        "@spoil(host.Host, '_send_done')\ndef send_done(old, self, *given):\n"
        "    if once(): raise NameError('planted')\n    return old(self, *given)\n",
    ),
    "while_sending": Fault(OWN_CODE + " while it wrote", SEND.format("if once(): raise NameError('planted')")),
    "half_a_frame_and_a_fault": Fault(
        OWN_CODE + " while it wrote",
        SEND.format("if once(): old(self, bytes(frame)[:50]); raise NameError('planted')"),
    ),
    "half_a_frame_and_silence": Fault(
        # Lost, or, where another result follows, garbage.
        "the worker's own channel",
        SEND.format("if once(): return old(self, bytes(frame)[:50])"),
    ),
    "half_a_frame_and_a_halt": Fault(
        "Writing what run() returned took longer than",
        SEND.format("if once(): old(self, bytes(frame)[:50]); threading.Event().wait()"),
    ),
    "no_frame": Fault("A result of the worker process was lost", SEND.format("if once(): return None")),
    "a_frame_that_swallows_others": Fault(
        "A result of the worker process was lost", in_run=f"os.write(result_fd(), {HEAD.format('20 << 20')})"
    ),
    "garbage": Fault("Something other than results came", in_run="os.write(result_fd(), b'garbage' * 20)"),
    "a_frame_without_an_end": Fault(
        "Something other than results came", in_run=f"os.write(result_fd(), {HEAD.format('60 << 40')})"
    ),
    "half_a_frame_and_an_exit": Fault("exit code 0 in run()", in_run="os.write(result_fd(), b'WORW'); os._exit(0)"),
    "no_page": Fault(
        OWN_CODE + " in run()", in_run="[one.close() for one in gc.get_objects() if type(one).__name__ == 'mmap']"
    ),
    "no_clock": Fault(OWN_CODE + " while it wrote", in_run="host.monotonic_ns = None"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_host_costs_its_mini_batch_alone(make: Make, name: str) -> None:
    fault = FAULTS[name]
    script = SCRIPT.format(at_top=fault.at_top, in_run=f"        {fault.in_run}")
    run = make(script, files=FILES, settings="retry_settings: {max_retries: 0, timeout: 20}")
    arguments = "entry.py\n      program_arguments: --task_overhead_timeout 2\n"
    job = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(job.replace("entry.py\n", arguments))
    code, text = run.run("--strict")
    assert code == 3, text
    assert fault.words in text, text
    assert run.output.read_text().split() == [f"f{n:05d}" for n in range(FILES) if n != 2]
    counters = check_counts(run)
    assert (counters["failed"], counters["items_failed"]) == (1, 1)
    cause = Cause.TIMEOUT if "longer than" in fault.words else Cause.CRASH
    assert set(counters["failed_attempts"]) == {str(int(cause))}  # type: ignore[call-overload]
