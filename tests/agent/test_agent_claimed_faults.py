"""A worker says that its node is at fault: the agent looks for itself, since a script can say so, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from agent_rig import AgentProcess, Rig, scenario
from scripted_master import STEP
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.node.disks import try_disk

OF_SCRIPT = "this counts as the script's failure, not as this node's"
LARGE = "return ['x' * (1 << 20)] * int(b[0])"


async def ended(rig: Rig, recipe: bytes) -> work.Completion:
    """How a mini-batch ends, to which another one that goes well is added."""
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (lease,) = rig.master.assign(1, recipe=recipe)
    await rig.master.until(lambda: rig.master.done([lease]))
    (after,) = rig.master.assign(1, recipe=b"1")
    await rig.master.until(lambda: rig.master.done([after]))
    (good,) = rig.master.completions[after]
    assert good.cause == work.CAUSE_UNSPECIFIED, good.message
    (completion,) = rig.master.completions[lease]
    return completion


SCRATCH = """\
import gc, os, shutil
host = [one for one in gc.get_objects() if type(one).__name__ == 'Host'][0]
scratch = host._configuration.scratch_folder
def spoil(folder):
    shutil.move(folder, folder + '-away')
    open(folder, 'w').close()
def run(b):
    if os.path.isfile({folder}):
        os.unlink({folder})
        shutil.move({folder} + '-away', {folder})
    if b == ['2']: spoil({folder})
    return ['x' * (1 << 20)]
"""


@scenario
async def test_a_script_that_takes_its_own_folder_away_is_at_fault_itself(rig: Rig) -> None:
    await rig.serve(SCRATCH.format(folder="scratch"), slots=1)
    completion = await ended(rig, b"2")
    assert completion.cause == work.CAUSE_OUTPUT_FAILED
    assert "could not be written" in completion.message and OF_SCRIPT in completion.message


@scenario
async def test_a_folder_of_the_agent_that_is_gone_is_the_fault_of_the_node(rig: Rig) -> None:
    await rig.serve(SCRATCH.format(folder="os.path.dirname(scratch)"), slots=1)
    completion = await ended(rig, b"2")
    assert completion.cause == work.CAUSE_NODE_FAULT
    assert "The agent cannot write beside that folder either" in completion.message


@scenario
async def test_a_recipe_that_a_script_lets_nobody_write_is_no_fault_of_the_node(rig: Rig) -> None:
    await rig.serve(SCRATCH.format(folder="scratch").replace("b == ['2']", "b == ['1']"), slots=1)
    await rig.master.until(lambda: rig.master.capacities.get(STEP))
    (first,) = rig.master.assign(1, recipe=b"1")
    await rig.master.until(lambda: rig.master.done([first]))
    (lease,) = rig.master.assign(1, recipe=b"\0".join(b"%08d" % number for number in range(10_000)))
    await rig.master.until(lambda: rig.master.done([lease]))
    (completion,) = rig.master.completions[lease]
    assert completion.cause == work.CAUSE_LOAD_FAILED
    assert "could not be passed to a worker" in completion.message and OF_SCRIPT in completion.message


def test_a_disk_that_is_full_is_the_fault_of_the_node(small_disk: Path) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        folder = small_disk / "agent"
        rig.master.step(rig.script(f"def run(b):\n    {LARGE}\n"))
        await rig.master.start()
        rig.agents.append(AgentProcess(rig.master, folder, slots=1))
        await rig.agents[0].start()
        # What does not fit is removed only when the agent has looked; then there is room for the next one.
        completion = await ended(rig, b"64")
        assert completion.cause == work.CAUSE_NODE_FAULT
        assert "No space left on device" in completion.message
        assert not list(folder.glob("steps/*/scratch/*/rows-*"))

    run()


FILLER = """\
import os
def run(b):
    path = {path!r}
    if b != ["2"]:
        os.path.exists(path) and os.unlink(path)
        return b
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 12)): pass
        except OSError:
            pass
    {then}
"""


@pytest.mark.parametrize(
    ("then", "cause"),
    [
        ("return ['x' * (1 << 20)]", work.CAUSE_NODE_FAULT),
        ("raise ValueError('after the disk was full')", work.CAUSE_EXCEPTION),
    ],
)
def test_what_fails_while_the_disk_is_full_is_handed_in(
    small_disk: Path, then: str, cause: work.Cause.ValueType
) -> None:
    """Though the logs cannot say so then, as they are on that disk, too."""

    @scenario
    async def run(rig: Rig) -> None:
        rig.master.step(rig.script(FILLER.format(path=str(small_disk / "filler"), then=then)))
        await rig.master.start()
        rig.agents.append(AgentProcess(rig.master, small_disk / "agent", slots=1))
        await rig.agents[0].start()
        completion = await ended(rig, b"2")
        assert completion.cause == cause, completion.message

    run()


def test_a_disk_that_nobody_can_write_is_found_out(small_disk: Path) -> None:
    (small_disk / "scratch").mkdir()
    try_disk(small_disk / "scratch")
    assert not list((small_disk / "scratch").iterdir())
    subprocess.check_call(["mount", "-o", "remount,ro", small_disk])
    with pytest.raises(OSError, match="Read-only"):
        try_disk(small_disk / "scratch")


def test_a_disk_that_is_nearly_full_is_found_out(small_disk: Path) -> None:
    (small_disk / "scratch").mkdir()
    space = os.statvfs(small_disk)
    with (small_disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, space.f_bavail * space.f_frsize - (256 << 10))
    with pytest.raises(OSError, match="No space"):
        try_disk(small_disk / "scratch")


def test_a_link_in_the_place_of_a_folder_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "scratch").symlink_to("elsewhere")
    with pytest.raises(OSError, match="is a link"):
        try_disk(tmp_path / "scratch")


@scenario
async def test_a_script_that_ends_like_changed_code_is_charged_after_two_copies(rig: Rig) -> None:
    await rig.serve("import os\ndef run(b):\n    if b == ['2']: os._exit(195)\n    return b\n", slots=1)
    completion = await ended(rig, b"2")
    assert completion.cause == work.CAUSE_CRASH
    assert "exit code 195 in run()" in completion.message
    first, second = rig.master.failures
    assert "The code is unpacked again" in first.message
    assert "the script seems to write the file itself" in second.message


@scenario
async def test_what_a_script_leaves_instead_of_the_name_of_a_changed_file_does_not_stop_the_agent(rig: Rig) -> None:
    script = (
        "import os, signal\n"
        "def run(b):\n"
        "    if b == ['2']:\n"
        "        left = os.getcwd() + '.changed'\n"
        "        if os.path.exists(left): os.unlink(left)\n"
        "        os.mkfifo(left)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return b\n"
    )
    await rig.serve(script, slots=1)
    completion = await ended(rig, b"2")
    assert completion.cause == work.CAUSE_CRASH
