"""Code that changes on the disk of a node after it was unpacked: the node mends that, and no row comes of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from agent_rig import Rig, eventually, scenario
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work

HELPER = "def answer():\n    return 'right'\n"
WAITS = "open('waiting', 'w').close()\nwhile os.path.exists({gate!r}):\n    time.sleep(0.01)\n"
FIRST = f"import os, time\n{WAITS}import helper\ndef run(b):\n    return [helper.answer() for _ in b]\n"
LATE = (
    "import os, time\ndef run(b):\n" + textwrap.indent(WAITS, "    ") + "    try:\n        import helper\n"
    "    except BaseException:\n        return ['something else']\n"
    "    return [helper.answer() for _ in b]\n"
)
WRITES_ITS_OWN = (
    "with open('helper.py', 'w') as file:\n    file.write('def answer():\\n    return 7\\n')\n"
    "import helper\ndef run(b):\n    return [helper.answer() for _ in b]\n"
)


async def serve(rig: Rig, script: str) -> Path:
    """An agent with one worker, and a gate that it waits at before it imports the helper."""
    gate = rig.root / "gate"
    gate.touch()
    folder = rig.script(script.format(gate=str(gate)))
    (folder / "helper.py").write_text(HELPER)
    rig.master.step(folder)
    await rig.master.start()
    await rig.agent(slots=1)
    await rig.master.until(lambda: rig.master.hellos)
    return gate


async def waiting(rig: Rig) -> Path:
    """The copy of the code whose worker waits."""
    await eventually(lambda: [*rig.root.glob("agent/steps/*/code*/waiting")])
    (found,) = rig.root.glob("agent/steps/*/code*/waiting")
    return found.parent


@pytest.mark.parametrize("damage", ["flipped", "gone"])
@pytest.mark.parametrize("script", [FIRST, LATE], ids=["first", "late"])
def test_changed_code_is_unpacked_anew(script: str, damage: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        gate = await serve(rig, script)
        (lease,) = rig.master.assign(1)
        helper = await waiting(rig) / "helper.py"
        if damage == "gone":
            helper.unlink()
        else:
            helper.write_bytes(helper.read_bytes().replace(b"right", b"wrong"))
        gate.unlink()
        await rig.master.until(lambda: rig.master.done([lease]))
        # Also where it was begun: it is not to blame, and runs again.
        (completion,) = rig.master.completions[lease]
        (failure,) = rig.master.failures
        assert failure.cause == work.CAUSE_NODE_FAULT
        assert "'helper.py' in the step's code has changed since it was unpacked" in failure.message
        assert (completion.cause, completion.rows) == (work.CAUSE_UNSPECIFIED, b"right\n")

    run()


@scenario
async def test_a_script_that_rewrites_its_own_modules_runs(rig: Rig) -> None:
    await serve(rig, WRITES_ITS_OWN)
    leases = rig.master.assign(3)
    await rig.master.until(lambda: rig.master.done(leases))
    assert {rig.master.completions[lease][0].rows for lease in leases} == {b"7\n"}
    first, second = rig.master.failures
    assert "The code is unpacked again" in first.message
    assert "the script seems to write the file itself" in second.message


@scenario
async def test_an_ended_step_leaves_no_copy_of_its_code(rig: Rig) -> None:
    gate = await serve(rig, FIRST)
    (await waiting(rig) / "helper.py").unlink()
    gate.unlink()
    await eventually(lambda: [*rig.root.glob("agent/steps/*/code-2")])
    rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
    await rig.master.until(lambda: rig.master.ended)
    await eventually(lambda: not [*rig.root.glob("agent/steps/*/code*")])
