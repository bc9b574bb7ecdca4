"""Between the agent and a worker: results in their time, packets taken back, and a good end."""

from __future__ import annotations

import socket

import pytest
from worker_driver import PACKET, STOPPED, Start, wait_until

OK = "    return ['ok']\n"


def test_it_leaves_when_the_agent_is_gone(start: Start) -> None:
    worker = start(f"def run(b):\n{OK}def shutdown():\n    print('not called')\n")
    worker.ready()
    worker.work.close()
    assert worker.wait() == 191
    assert worker.output() == ""


def test_it_leaves_when_the_results_cannot_be_delivered(start: Start) -> None:
    worker = start(f"def run(b):\n{OK}")
    worker.ready()
    worker.results.shutdown(socket.SHUT_RDWR)
    worker.send(1, ["a"])
    assert worker.wait() == 191


def test_a_slow_agent_is_waited_for(start: Start) -> None:
    worker = start("def run(b):\n    return ['x' * 1000] * 200\n")
    worker.ready()
    for lease in range(1, 21):
        worker.send(lease, ["a"])
    # 4 MB of results do not fit the channel: the worker waits in the middle of a frame.
    wait_until(lambda: worker.look().phase == "returning")
    assert [worker.done().lease_id for _ in range(20)] == list(range(1, 21))


def test_results_do_not_wait_for_later_mini_batches(start: Start) -> None:
    worker = start(
        "import os\ndef run(b):\n    if b[0] == '/data/slow':\n"
        "        os.mkfifo('gate')\n        open('gate').close()\n    return b\n"
    )
    worker.ready()
    worker.send(1, ["quick"])
    worker.send(2, ["slow"])
    worker.wait_for_phase("running")
    wait_until((worker.code / "gate").exists)
    assert worker.done().lease_id == 1
    (worker.code / "gate").write_text("")
    assert worker.done().lease_id == 2


def test_packets_can_be_taken_back_and_each_is_read_once(start: Start) -> None:
    worker = start(
        "import os\ndef run(b):\n    os.mkfifo('gate')\n    open('gate').close()\n    os.unlink('gate')\n    return b\n"
    )
    worker.ready()
    for lease in (1, 2, 3):
        worker.send(lease, ["a"])
    wait_until((worker.code / "gate").exists)
    taken = [PACKET.unpack_from(worker.far_work.recv(1 << 16))[4] for _ in range(2)]
    assert taken == [2, 3]
    with pytest.raises(BlockingIOError):
        worker.far_work.recv(1 << 16)
    (worker.code / "gate").write_text("")
    assert worker.done().lease_id == 1
    worker.shut_down()
    assert worker.frame().type == STOPPED


def test_ends_in_good_order(start: Start) -> None:
    worker = start(
        "import atexit, threading\n"
        "def init():\n"
        "    atexit.register(print, 'at exit')\n"
        "    threading.Thread(target=finish).start()\n"
        "def finish():\n    ended.wait()\n    print('thread done')\n"
        "ended = threading.Event()\n"
        "def run(b):\n    return b\n"
        "def shutdown():\n    print('shutdown', end=' ')\n    ended.set()\n"
    )
    worker.ready()
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.output().split() == ["shutdown", "thread", "done", "at", "exit"]
    assert worker.wait() == 0


def test_a_thread_that_never_ends_is_left_behind_and_named(start: Start) -> None:
    worker = start(
        "import threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def init():\n"
        "    threading.Thread(target=threading.Event().wait, name='poller').start()\n"
        "    ThreadPoolExecutor(1, 'pool').submit(threading.Event().wait)\n"
        "def run(b):\n    return b\n"
    )
    worker.ready()
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0
    for name in ("poller", "pool_0"):
        assert f"The thread '{name}' still runs" in worker.errors()


def test_a_failing_shutdown_is_reported_and_ends(start: Start) -> None:
    worker = start("def run(b):\n    return b\ndef shutdown():\n    raise SystemExit(3)\n")
    worker.ready()
    worker.shut_down()
    frame = worker.frame()
    assert frame.type == STOPPED
    assert "shutdown() raised SystemExit" in frame.message
    assert worker.wait() == 0


@pytest.mark.parametrize(
    ("packet", "words"), [(b"\x01\x00", "shorter than its header"), (PACKET.pack(9, 0, 0, 0, 0, 0, 0, 0), "type 9")]
)
def test_a_packet_that_is_none_ends_the_worker(start: Start, packet: bytes, words: str) -> None:
    worker = start(f"def run(b):\n{OK}")
    worker.ready()
    worker.work.send(packet)
    assert worker.wait() == 193
    assert words in worker.errors()


def test_a_configuration_that_cannot_be_used_is_explained(start: Start) -> None:
    worker = start(f"def run(b):\n{OK}", arguments=(), process_number="seven")
    assert worker.wait() == 193
    assert "'process_number' must be of type int" in worker.errors()
