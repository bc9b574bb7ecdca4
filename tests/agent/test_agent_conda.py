"""Conda lists with packages that PyPI does not have: built from a channel, whole or not at all, with the solver's words
where that fails; from PyPI where a node has no builder."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_rig import ECHO, AgentProcess, Rig, eventually, scenario
from conda_channel import CondaChannel
from package_index import PackageIndex, package_index
from scripted_master import STEP
from windrow.rpc.v1 import agent_service_pb2 as rpc
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI

SCRIPT = """
import os, subprocess, sys

def run(mini_batch):
    import pebble
    try:
        said = subprocess.run(["Rscript", "-e", "1"], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        said = "no Rscript"
    names = ("CONDA_PREFIX", "VIRTUAL_ENV", "AWS_SECRET_ACCESS_KEY", "RATTLER_AUTH_FILE")
    return [" ".join([said, pebble.colour, sys.prefix, *(str(os.environ.get(name)) for name in names)])]
"""


def wanted(channel: str, *specs: str, requirements: Sequence[str] = (), pip: Sequence[str] = ()) -> work.Environment:
    conda = work.CondaList(specs=specs, channels=[channel], pip=pip)
    return work.Environment(requirements=[*requirements, *pip], conda=conda)


async def start(
    rig: Rig,
    index: PackageIndex | None = None,
    name: str = "agent",
    config: Mapping[str, Any] | None = None,
    **variables: str,
) -> AgentProcess:
    """An agent with caches of its own."""
    agent = AgentProcess(
        rig.master, rig.root / name, python=None, environments_folder=str(rig.root / "environments"), **(config or {})
    )
    rig.agents.append(agent)
    await agent.start(
        **{
            "UV_DEFAULT_INDEX": "" if index is None else index.url,
            "UV_CACHE_DIR": str(rig.root / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "RATTLER_CACHE_DIR": str(rig.root / "rattler"),
            "RATTLER_AUTH_FILE": str(rig.root / "credentials.json"),
            "VIRTUAL_ENV": "",
            "PYTHONPATH": "/nowhere",
            "AWS_SECRET_ACCESS_KEY": "secret",
            **variables,
        }
    )
    return agent


def whole(rig: Rig) -> list[Path]:
    return [note.with_suffix("") for note in (rig.root / "environments").glob("*.json")]


def log_of(rig: Rig) -> str:
    return rig.master.logs[rpc.LOG_KIND_ENVIRONMENT, 0].decode()


async def row(rig: Rig) -> str:
    """What the script returns once a node takes mini-batches of the step."""
    await rig.master.until(lambda: STEP in rig.master.capacities and rig.master.capacities[STEP].leases_max)
    (lease,) = rig.master.assign()
    await rig.master.until(lambda: rig.master.done([lease]))
    return rig.master.completions[lease][0].rows.decode().strip()


async def failure(rig: Rig, environment: work.Environment) -> rpc.WorkerFailure:
    """How a node gives up a step with this environment."""
    rig.master.step(rig.script(ECHO), environment=environment)
    await rig.master.start()
    await start(rig)
    await rig.master.until(lambda: rig.master.failures and rig.master.capacities[STEP].given_up)
    assert whole(rig) == []
    return rig.master.failures[0]


@scenario
async def test_scripts_find_the_programs_and_libraries_of_the_list(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    channel.add("pebble", "1.0", {"site-packages/pebble.py": "colour = 'pink'\n"}, depends=["python"], noarch=True)
    channel.add("proj", "9.0", {"etc/conda/activate.d/proj.sh": "export PROJ_DATA=/x\n"})
    rig.master.step(rig.script(SCRIPT), environment=wanted(channel.url, "r-base=4.3", "pebble", "proj"))
    await rig.master.start()
    await start(rig)
    said = await row(rig)
    (folder,) = whole(rig)
    assert said == f"R says -e 1 pink {folder} {folder} None None None"
    await rig.master.until(lambda: "+ r-base==4.3" in log_of(rig))
    await rig.master.until(lambda: "Not run, since the environment is not activated: proj.sh" in log_of(rig))


def modes() -> list[str]:
    """How a node may confine builders here."""
    return ["auto", "strict"] if kernel_abi() >= STRICT_ABI else ["auto"]


@pytest.mark.parametrize("mode", modes())
def test_lines_for_pip_are_installed_into_it(mode: str) -> None:
    @scenario
    async def run(rig: Rig) -> None:
        with package_index() as index:
            channel = CondaChannel(rig.root / "channel")
            rig.master.step(rig.script(SCRIPT), environment=wanted(channel.url, "r-base", pip=["pebble<2"]))
            await rig.master.start()
            # The channel is a folder of this machine: the operator gives it.
            await start(rig, index, config={"sandbox": mode, "allowed_paths": [str(rig.root / "channel")]})
            assert (await row(rig)).startswith("R says -e 1 grey ")

    run()


@pytest.mark.parametrize("pip", [[], ["gravel"]], ids=["conda", "conda-and-pip"])
def test_what_scripts_import_is_compiled_once_when_it_is_built(pip: list[str]) -> None:
    """Workers cannot write there: each would compile it. A file that is no Python, as templates are, is left alone."""

    @scenario
    async def compiled(rig: Rig) -> None:
        with package_index() as index:
            index.add("gravel", "1.0")
            channel = CondaChannel(rig.root / "channel")
            modules = {"site-packages/pebble.py": "colour = 'pink'\n", "site-packages/template.py": "class {name}:\n"}
            channel.add("pebble", "1.0", modules, depends=["python"], noarch=True)
            rig.master.step(rig.script(SCRIPT), environment=wanted(channel.url, "r-base", "pebble", pip=pip))
            await rig.master.start()
            await start(rig, index)
            await row(rig)
            (folder,) = whole(rig)
            assert {"pebble", *pip} <= {file.name.split(".")[0] for file in folder.rglob("__pycache__/*.pyc")}

    compiled()


@scenario
async def test_without_the_builder_pypi_s_packages_are_taken_with_a_warning(rig: Rig) -> None:
    """Once a node has the builder, the list is built again."""
    hooks = rig.root / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text("import sys\nsys.modules['rattler'] = None\n")
    with package_index() as index:
        channel = CondaChannel(rig.root / "channel")
        rig.master.step(rig.script(SCRIPT), environment=wanted(channel.url, "r-base", pip=["pebble"]))
        await rig.master.start()
        agent = await start(rig, index, PYTHONPATH=str(hooks))
        said = await row(rig)
        (folder,) = whole(rig)
        assert said == f"no Rscript white {folder} None {folder} None None"
        await rig.master.until(lambda: "pip install 'windrow[conda]'" in log_of(rig))
        await agent.kill()
        rig.master.capacities.clear()
        await start(rig, index)
        assert (await row(rig)).startswith("R says -e 1 white ")
        assert len(whole(rig)) == 2


@scenario
async def test_a_killed_build_is_begun_anew(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    channel.add("pebble", "1.0", {"site-packages/pebble.py": "colour = 'pink'\n"}, depends=["python"], noarch=True)
    with channel.served() as address:
        channel.gate.clear()
        rig.master.step(rig.script(SCRIPT), environment=wanted(address, "r-base", "pebble"))
        await rig.master.start()
        agent = await start(rig)
        await eventually(lambda: channel.asked)
        await agent.kill()
        (place,) = (path.parent for path in (rig.root / "environments").glob("*/conda.json"))
        assert whole(rig) == []
        # The builder outlives its agent, and may still write: the next waits for it, whatever it leaves.
        (place / "left-over").touch()
        channel.gate.set()
        await start(rig)
        assert (await row(rig)).startswith("R says -e 1 pink ")
        assert not (place / "left-over").exists()


@scenario
async def test_a_step_that_ends_ends_its_build(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    with channel.served() as address:
        channel.gate.clear()
        rig.master.step(rig.script(ECHO), environment=wanted(address, "r-base"))
        await rig.master.start()
        await start(rig)
        await eventually(lambda: channel.asked)
        rig.master.specs.clear()
        rig.master.send(rpc.WorkResponse(ended_step_ids=[STEP]))
        await rig.master.until(lambda: rig.master.ended)
        await eventually(lambda: not list((rig.root / "environments").glob("*/conda.json")), "nothing is left of it")


@scenario
async def test_a_builder_that_is_killed_is_told(rig: Rig) -> None:
    """As the kernel does, for lack of memory."""
    channel = CondaChannel(rig.root / "channel")
    with channel.served() as address:
        channel.gate.clear()
        rig.master.step(rig.script(ECHO), environment=wanted(address, "r-base"))
        await rig.master.start()
        await start(rig)
        await eventually(lambda: channel.asked)
        (builder,) = builders(rig)
        os.kill(builder, signal.SIGKILL)
        await rig.master.until(lambda: rig.master.failures)
        assert "rattler was killed by SIGKILL" in rig.master.failures[0].message


def builders(rig: Rig) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(rig.root) in words and "conda_install" in words:
            found.append(int(path.parent.name))
    return found


@scenario
async def test_a_package_that_is_not_there_is_the_list_s_fault(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    failed = await failure(rig, wanted(channel.url, "r-base=5", requirements=["numpy"]))
    assert failed.cause == work.CAUSE_INIT_FAILED
    for words in ("its conda packages", "No candidates were found for r-base 5.*", "in the conda_file"):
        assert words in failed.message


@scenario
async def test_packages_that_exclude_each_other_are_told_in_the_solver_s_words(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    channel.add("ca-certificates", "1.0", {})
    channel.add("ca-certificates", "2.0", {})
    channel.add("apex", "1.0", {}, depends=["ca-certificates <2"])
    channel.add("apse", "1.0", {}, depends=["ca-certificates >=2"])
    failed = await failure(rig, wanted(channel.url, "apex", "apse"))
    assert failed.cause == work.CAUSE_INIT_FAILED
    assert "incompatible" in failed.message and "ca-certificates <2" in failed.message


@pytest.mark.parametrize(("status", "cause"), [(404, work.CAUSE_INIT_FAILED), (503, work.CAUSE_NODE_FAULT)])
def test_a_channel_that_cannot_be_read_is_told(status: int, cause: work.Cause.ValueType) -> None:
    @scenario
    async def told(rig: Rig) -> None:
        channel = CondaChannel(rig.root / "channel")
        channel.status = status
        with channel.served() as address:
            failed = await failure(rig, wanted(f"{address}/t/secret/ours", "r-base"))
        assert failed.cause == cause
        assert str(status) in failed.message and "/ours" in failed.message and "secret" not in failed.message
        assert ("RATTLER_AUTH_FILE" in failed.message) is (status == 503)

    told()


@scenario
async def test_a_package_whose_installation_script_fails_is_told(rig: Rig) -> None:
    channel = CondaChannel(rig.root / "channel")
    channel.add("stubborn", "1.0", {"bin/.stubborn-post-link.sh": "#!/bin/sh\nexit 3\n"})
    failed = await failure(rig, wanted(channel.url, "stubborn"))
    assert failed.cause == work.CAUSE_INIT_FAILED
    assert "the installation script of stubborn failed" in failed.message


@scenario
async def test_a_link_that_a_conda_package_lays_leads_the_agent_nowhere(rig: Rig) -> None:
    """The agent writes the lines for pip into the environment after conda's packages, which may hold anything."""
    victim = rig.root / "victim"
    victim.write_text("precious")
    with package_index() as index:
        channel = CondaChannel(rig.root / "channel")
        channel.add("ivy", "1.0", {}, links={"requirements.txt": str(victim)})
        environment = wanted(channel.url, "r-base", "ivy", pip=["pebble<2"])
        rig.master.step(rig.script(SCRIPT), environment=environment)
        await rig.master.start()
        await start(rig, index)
        assert (await row(rig)).startswith("R says -e 1 grey ")
    assert victim.read_text() == "precious"
