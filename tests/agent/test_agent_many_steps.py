"""With more than 50 steps on a node, changes gather for a moment before workers are started and stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, json, os, sys
from pathlib import Path

from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AgentConfig
from windrow_agent.control.controller import Controller
from windrow_agent.node.gpus import GpuIndices
from windrow_agent.outgoing.outbox import Outbox
from windrow_agent.outgoing.queue import OutgoingQueue
from windrow_agent.results.row_uploads import RowUploads
from windrow_agent.steps.step import StepState
from windrow_agent.supervision.worker_config import boot_path
from windrow_agent.supervision.workforce import NodeFacts, Workforce

FOLDER = Path(sys.argv[1])
READER = json.dumps({"kind": "files", "root": ""}).encode()
ROWS = json.dumps({"action": "append_row", "dataframe_to_csv": {}, "dataframe_header": False}).encode()


def spec(number):
    return work.StepSpec(
        step_id=number, generation=1, job_id="job", step_name=f"step{number}", entry_script="score.py",
        code_digest="0" * 64, reader=READER, rows=ROWS, weight=1,
    )


async def unpack(digest, folder):
    folder.mkdir(parents=True)
    (folder / "score.py").write_text("def run(mini_batch):\\n    return mini_batch\\n")


async def after_all_timers():
    # Timers fire in the order of their times: whatever was due before has fired then.
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, over.set)
    await over.wait()


async def main():
    config = AgentConfig(FOLDER, ("unix:/nowhere",), python=sys.executable)
    node = NodeFacts("node-1", "1", 2, boot_path(), 256)
    workforce = Workforce(config, node, GpuIndices(()), os.environ)
    outgoing = OutgoingQueue(Outbox(FOLDER, memory_max=1 << 20, held_max=1 << 20))
    link = asyncio.get_running_loop().create_future
    uploads = RowUploads(link, outgoing.complete)
    controller = Controller(workforce, outgoing, FOLDER, unpack, uploads, link, 1 << 20)
    controller.take(rpc.WorkResponse(steps=[spec(number) for number in range(1, 61)]))
    while any(step.state is not StepState.SERVING for step in controller.steps.values()):
        await asyncio.sleep(0)
    if sys.argv[2] == "fail":
        await after_all_timers()
        workforce.allot = None  # a bug of ours
        controller.allot()
        await after_all_timers()
        try:
            controller.tick()
        except TypeError as error:
            print(error)
        del workforce.allot
        await after_all_timers()
        controller.tick()
    if sys.argv[2] == "serve":
        while len(workforce.workers) < 2:
            await after_all_timers()
    controller.allot()
    controller.kill_all()
    started = len(workforce.workers)
    await after_all_timers()
    print(started, len(workforce.workers))
    sys.stdout.flush()
    os._exit(0)


asyncio.run(main())
"""


def controller_script(folder: Path, mode: str) -> str:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder), mode], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_workers_are_started_after_the_moment(tmp_path: Path) -> None:
    assert controller_script(tmp_path, "serve") == "0 0"


def test_none_is_started_once_the_agent_has_ended(tmp_path: Path) -> None:
    assert controller_script(tmp_path, "end") == "0 0"


def test_a_failure_is_raised_by_the_next_tick_once(tmp_path: Path) -> None:
    assert controller_script(tmp_path, "fail") == "'NoneType' object is not callable\n0 0"
