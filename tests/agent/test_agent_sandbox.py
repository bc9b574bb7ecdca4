"""What a worker is given: the policy that the agent makes, and how a process keeps to it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from windrow.common.beneath import LinkRefused, make_folder
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AgentConfig, BadConfig
from windrow_agent.node.gpus import GpuIndices
from windrow_agent.sandbox import confinement
from windrow_agent.sandbox.confinement import around, handled_rights, kernel_abi
from windrow_agent.sandbox.policy import NotPermitted, Sandbox, needs_new_start, protection, real_paths
from windrow_agent.sandbox.raw_devices import raw_devices
from windrow_agent.sandbox.service_sockets import service_sockets
from windrow_agent.sandbox.system_calls import filter_program
from windrow_agent.sandbox.temporary import PATH_MAX, TemporaryFolders
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import Step
from windrow_agent.supervision.worker_config import boot_path
from windrow_agent.supervision.workforce import NodeFacts, Workforce

LANDLOCK = pytest.mark.skipif(not kernel_abi(), reason="this kernel has no Landlock")


def step_of(folder: Path, **fields: Any) -> Step:
    """A step with these fields of its specification."""
    return Step.open(work.StepSpec(step_id=1, **fields), folder / "agent", "node", 1, 0, Lineage())


def sandbox_of(
    folder: Path, mode: str = "strict", environment: Mapping[str, str] | None = None, **fields: Any
) -> Sandbox:
    """The sandbox of an agent in `folder/agent`, whose master keeps its state in `folder/state`."""
    closed = (str(folder / "state"),)
    config = AgentConfig(folder / "agent", ("unix:/nowhere/m",), sandbox=mode, closed_paths=closed, **fields)
    return Sandbox(config, environment or {})


def test_a_folder_that_holds_a_closed_one_is_given_without_it(tmp_path: Path) -> None:
    """The entries beside it are; a link among them is not, and neither is the folder itself."""
    closed = tmp_path / "a" / "state"
    for folder in (closed, tmp_path / "a" / "data", tmp_path / "b"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(closed)
    found = around(str(tmp_path), [str(closed)])
    assert sorted(found) == [str(tmp_path / "a" / "data"), str(tmp_path / "b")]
    assert around(str(tmp_path / "b"), [str(closed)]) == [str(tmp_path / "b")]
    assert around(str(closed / "below"), [str(closed)]) == [str(closed / "below")]


def test_places_of_windrow_are_not_given_as_inputs_or_outputs(tmp_path: Path) -> None:
    """Whatever a job names; default places of outputs in the state are."""
    state = tmp_path / "state"
    given = sandbox_of(tmp_path).of_step(
        step_of(
            tmp_path,
            read_paths=[
                *(str(tmp_path / "data"), str(state / "windrow.db"), str(state / "jobs" / "j" / "1" / "rows")),
                *(str(state / "map"), str(state / "map" / "f" / "items.jsonl")),
            ],
            write_paths=[str(tmp_path / "out"), str(state / "outputs" / "j" / "o"), str(tmp_path / "agent" / "code")],
        )
    )
    items = str(state / "map" / "f" / "items.jsonl")
    assert given.read == [str(tmp_path / "data"), str(state / "jobs" / "j" / "1" / "rows"), items]
    assert given.write == [str(tmp_path / "out"), str(state / "outputs" / "j" / "o")]
    assert given.notes == []


@pytest.mark.parametrize(("mode", "is_written"), [("strict", False), ("given", True)])
def test_an_output_that_holds_the_state_is_told(tmp_path: Path, mode: str, is_written: bool) -> None:
    """Under strict it cannot be written; under given it can, and so can the state."""
    given = sandbox_of(tmp_path, mode).of_step(step_of(tmp_path, write_paths=[str(tmp_path)]))
    assert (str(tmp_path) in given.write) == is_written
    (note,) = given.notes
    assert str(tmp_path / "agent") in note


def test_a_link_in_the_place_of_an_output_is_not_given(tmp_path: Path) -> None:
    """An earlier step may have left it there, to reach what it leads to; the log tells."""
    (tmp_path / "out").symlink_to(tmp_path)
    given = sandbox_of(tmp_path).of_step(step_of(tmp_path, write_paths=[str(tmp_path / "out")]))
    assert given.write == []
    assert "a link" in given.notes[0]


class ReadOnly:
    """`os.access` for a user who may write in some folders only."""

    def __init__(self, *writable: Path) -> None:
        self._writable = {str(path) for path in writable}

    def __call__(self, path: str, mode: int) -> bool:
        """Whether the folder is one of these."""
        return str(path) in self._writable


def test_auto_closes_folders_that_scripts_make_nothing_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step notices it: what is below the state is given if it is the step's own, the rest is not asked for."""
    monkeypatch.setattr(os, "access", ReadOnly())
    sandbox = sandbox_of(tmp_path, "auto", job_paths=())
    given = sandbox.of_step(
        step_of(
            tmp_path,
            read_paths=["/data", str(tmp_path / "state" / "windrow.db")],
            write_paths=["/data/out", str(tmp_path / "state" / "outputs" / "j")],
            allowed_paths=["/anything"],
        )
    )
    policy = sandbox.policy(given, {}, None)
    assert policy["all"] == [*("/", "/proc/self")[: 2 - bool(os.geteuid())], str(tmp_path / "state" / "outputs" / "j")]
    own = ["/proc", "/sys"] if os.geteuid() == 0 else ["/sys/fs/cgroup"]
    assert policy["closed"] == [str(tmp_path / "agent"), str(tmp_path / "state"), "/nowhere/m.key", *own]
    assert policy["read"] == own
    assert sandbox.protection().startswith("auto: ")


def test_auto_closes_what_lies_in_a_closed_folder_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the agent's folder does in the state of a run on one machine, which its user can write."""
    monkeypatch.setattr(os, "access", ReadOnly(tmp_path / "state"))
    state = str(tmp_path / "state")
    config = AgentConfig(tmp_path / "state" / "agent", ("h:1",), sandbox="auto", closed_paths=(state,))
    assert Sandbox(config, {}).closed == (state,)
    assert Sandbox(config, {}).reachable == {}


def test_auto_leaves_open_what_lies_where_scripts_make_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they could make none there, since no rule gives a folder without one in it. The node says so."""
    monkeypatch.setattr(os, "access", ReadOnly(tmp_path))
    sandbox = sandbox_of(tmp_path, "auto")
    assert sandbox.closed == ("/nowhere/m.key",)
    assert sandbox.reachable == {str(tmp_path / name): str(tmp_path) for name in ("agent", "state")}
    assert f"{tmp_path / 'agent'} of Windrow's is open" in sandbox.protection()


def test_what_the_operator_allows_holds_nothing_of_windrow(tmp_path: Path) -> None:
    """To write, too: what is beside it is given; a folder of Windrow's itself is not, and the log tells."""
    for name in ("state", "data"):
        (tmp_path / name).mkdir()
    sandbox = sandbox_of(tmp_path, allowed_paths=(f"{tmp_path}:rw", f"{tmp_path / 'state'}"))
    given = sandbox.of_step(step_of(tmp_path))
    assert given.write == [str(tmp_path / "data")]
    assert given.execute == []
    assert "--allow-path" in given.notes[0]


def test_a_link_that_a_script_may_have_laid_on_the_way_to_an_output_is_not_followed(tmp_path: Path) -> None:
    """Below what a script was given to write; a link elsewhere is the user's."""
    secrets, first = tmp_path / "secrets", tmp_path / "disk" / "first"
    secrets.mkdir()
    first.mkdir(parents=True)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    sandbox = sandbox_of(tmp_path)
    assert sandbox.of_step(step_of(tmp_path, write_paths=[f"{tmp_path}/data/first"])).notes == []
    (first / "below").symlink_to(secrets)
    given = sandbox.of_step(step_of(tmp_path, write_paths=[f"{tmp_path}/data/first/below/out", f"{tmp_path}/data/b"]))
    assert given.write == [f"{tmp_path}/disk/b"]
    assert f"{first}/below is a link" in given.notes[0]


def test_an_input_or_output_is_in_the_datastores_wherever_links_lead(tmp_path: Path) -> None:
    """A script of another node may have laid them. Links into and within the datastores are followed."""
    store, secrets = tmp_path / "disk", tmp_path / "secrets"
    (store / "mine").mkdir(parents=True)
    secrets.mkdir()
    (tmp_path / "store").symlink_to(store)
    (store / "out").symlink_to(secrets)
    (store / "in").symlink_to(store / "mine")
    datastores = [os.fsencode(tmp_path / "store")]
    paths = [f"{tmp_path}/store/{name}" for name in ("out", "out/below", "in", "mine")]
    given = sandbox_of(tmp_path).of_step(step_of(tmp_path, read_paths=paths, datastores=datastores))
    assert given.read == [f"{store}/mine"] * 2
    assert [f"leads to {secrets}" in note for note in given.notes] == [True, True]
    given = sandbox_of(tmp_path).of_step(
        step_of(tmp_path, write_paths=[f"{tmp_path}/store/{name}" for name in ("out/x", "in/x")], datastores=datastores)
    )
    assert given.write == given.outputs == [f"{store}/mine/x"]
    assert f"leads to {secrets}/x, outside the datastores" in given.notes[0]


def test_no_output_is_what_the_master_keeps_for_all(tmp_path: Path) -> None:
    """It can be read, not written: models, for example, also by a link."""
    kept = tmp_path / "store" / ".models"
    kept.mkdir(parents=True)
    (tmp_path / "store" / "link").symlink_to(kept)
    for name in (".models", ".models/net", "", "link/net"):
        step = step_of(tmp_path, write_paths=[f"{tmp_path}/store/{name}"], kept_folders=[os.fsencode(kept)])
        given = sandbox_of(tmp_path).of_step(step)
        assert given.write == []
        assert f"{kept} for all jobs" in given.notes[0]


def test_later_workers_of_a_step_get_what_its_first_one_got(tmp_path: Path) -> None:
    """Although a worker of it may write where the link to its input is, and could have laid that one."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    sandbox = sandbox_of(tmp_path, allowed_paths=(f"{tmp_path}:rw",))
    (tmp_path / "agent").mkdir()
    step = step_of(tmp_path, read_paths=[f"{tmp_path}/data"])
    assert sandbox.of_step(step).read == [f"{tmp_path}/disk"]
    (tmp_path / "data").unlink()
    (tmp_path / "data").symlink_to(tmp_path / "other")
    assert sandbox.of_step(step).read == [f"{tmp_path}/disk"]


def test_registered_models_are_given_where_jobs_may_ask_for_them(tmp_path: Path) -> None:
    """Others are told, in the log."""
    text = json.dumps({"m": {"1": f"{tmp_path}/models/m.pt", "2": "s3://b/m.pt"}, "n": {"1": f"{tmp_path}/n.pt"}})
    sandbox = sandbox_of(tmp_path, job_paths=(f"{tmp_path}/models",))
    given = sandbox.of_step(step_of(tmp_path, environment_variables={"WINDROW_MODELS": text}))
    assert given.read == [f"{tmp_path}/models/m.pt"]
    (note,) = given.notes
    assert f"{tmp_path}/n.pt" in note
    assert "--job-paths" in note
    broken = sandbox.of_step(step_of(tmp_path, environment_variables={"WINDROW_MODELS": "[1"}))
    assert (broken.read, broken.notes) == ([], [])


def test_jobs_get_the_paths_that_the_operator_permits(tmp_path: Path) -> None:
    """Below the named folders, links followed; others are refused in words."""
    models, secrets = tmp_path / "models", tmp_path / "secrets"
    models.mkdir()
    secrets.mkdir()
    (models / "out").symlink_to(secrets)
    sandbox = sandbox_of(tmp_path, job_paths=(str(models),), allowed_paths=(str(tmp_path / "all") + ":rw",))
    given = sandbox.of_step(step_of(tmp_path, allowed_paths=[f"{models}/a", f"{models}/b:rw"]))
    assert given.execute == [f"{models}/a"]
    assert given.write == [str(tmp_path / "all"), f"{models}/b"]
    for asked in (str(secrets), f"{models}/out", f"{models}/../secrets"):
        with pytest.raises(NotPermitted, match="--allow_path") as refused:
            sandbox.of_step(step_of(tmp_path, allowed_paths=[asked]))
        assert "--job-paths" in str(refused.value)


def test_nobody_permits_a_folder_of_windrow(tmp_path: Path) -> None:
    """Not even where it lies below a folder that jobs may ask for."""
    sandbox = sandbox_of(tmp_path, job_paths=(str(tmp_path),))
    for asked in (tmp_path, tmp_path / "state", tmp_path / "agent" / "staged"):
        with pytest.raises(NotPermitted, match="Windrow"):
            sandbox.of_step(step_of(tmp_path, allowed_paths=[str(asked)]))


@pytest.mark.parametrize(
    ("variables", "agent", "anew"),
    [
        ({"MODEL": "x"}, {"PYTHONPATH": "/opt/lib"}, False),
        ({"PYTHONPATH": "lib"}, {}, True),
        ({"LD_PRELOAD": "./evil.so"}, {}, True),
        ({"HOME": "/home/me"}, {}, True),
        ({}, {"PYTHONPATH": "/opt/lib:"}, True),
    ],
)
def test_what_lets_a_folder_run_code_at_the_start_waits(
    variables: dict[str, str], agent: dict[str, str], anew: bool
) -> None:
    """The interpreter starts anew for it, confined."""
    assert needs_new_start(variables, agent) == anew


def test_what_a_kernel_can_is_told() -> None:
    """In a line that begins with the mode."""
    for mode in ("auto", "given"):
        assert protection(mode, 0).startswith(f"{mode} (nothing): ")
        assert protection(mode, 4).startswith(f"{mode} (partly): ")
        assert "signals" in protection(mode, 4)
    assert protection("auto", 1).startswith("auto (nothing): ")
    assert protection("auto", 7).startswith("auto: ")
    partly = protection("auto", 7, {"/home/me/agent": "/home/me"})
    assert partly.startswith("auto (partly): ")
    assert "/home/me/agent" in partly
    assert protection("strict", 7).startswith("strict: ")
    for abi in (0, 5):
        assert protection("strict", abi).startswith("strict (nothing runs): no script starts, since the kernel has ")


def test_rights_are_those_of_the_version() -> None:
    """As in the kernel's linux/landlock.h."""
    assert [handled_rights(abi) for abi in (1, 2, 3, 4, 5, 6)] == [0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF]


CONFINED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import confinement
policy = json.loads(sys.argv[2])
try:
    print(confinement.confine(policy))
except confinement.CannotConfine as error:
    sys.exit(str(error))
exec(sys.argv[3])
"""


def confined(policy: dict[str, Any], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code under a policy."""
    system = real_paths("/usr", "/lib", "/lib64")
    document = {"abi": 1, "closed": [], "read": [], "execute": system, "write": [], **policy}
    command = [sys.executable, "-c", CONFINED, str(Path(confinement.__file__).parent), json.dumps(document), code]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@LANDLOCK
def test_a_process_keeps_to_its_policy(tmp_path: Path) -> None:
    """It reads what it may read, and writes what it may write."""
    for name in ("read", "write", "neither"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); print(open('read/file').read()); open('write/new', 'w')\n"
        "for path, mode in (('read/file', 'w'), ('read/new', 'w'), ('neither/file', 'r')):\n"
        "    try: open(path, mode)\n"
        "    except PermissionError: print('denied')\n"
        "    else: print(path)\n"
    )
    done = confined({"read": [str(tmp_path / "read")], "write": [str(tmp_path / "write")]}, code)
    assert done.stdout.splitlines()[1:] == ["read", "denied", "denied", "denied"], done.stderr
    assert (tmp_path / "write" / "new").exists()


@LANDLOCK
@pytest.mark.parametrize("mode", ["auto", "given", "strict"])
@pytest.mark.parametrize("swapped", ["the place", "above it"])
def test_a_link_that_is_laid_after_the_check_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, swapped: str
) -> None:
    """Between the agent's look at an input, an output or a permitted path, and the kernel's rule for it."""
    secret = tmp_path / "state" / "windrow.db"
    for folder in (secret.parent, *(tmp_path / "job" / kind / "sub" for kind in ("in", "out", "asked"))):
        folder.mkdir(parents=True)
    secret.write_text("secret")
    # What may be closed under `auto`.
    monkeypatch.setattr(os, "access", ReadOnly())
    sandbox = sandbox_of(tmp_path, mode, job_paths=(f"{tmp_path}/job",))
    step = step_of(
        tmp_path,
        read_paths=[f"{tmp_path}/job/in/sub"],
        write_paths=[f"{tmp_path}/job/out/sub"],
        allowed_paths=[f"{tmp_path}/job/asked/sub:rw"],
    )
    given = sandbox.of_step(step)
    for kind in ("in", "out", "asked"):
        place = tmp_path / "job" / kind / ("sub" if swapped == "the place" else "")
        place.rename(tmp_path / f"{kind}-aside")
        target = tmp_path / "state"
        if swapped == "above it":
            (target / "sub").mkdir(exist_ok=True)
        place.symlink_to(target)
    code = (
        f"for path, mode in (({str(secret)!r}, 'r'), ({str(secret)!r}, 'a'), ({str(secret.parent / 'new')!r}, 'w'),\n"
        f"                   ({str(secret.parent / 'sub' / 'new')!r}, 'w')):\n"
        "    try: open(path, mode)\n"
        "    except OSError as error: print(error.errno in (2, 13))\n"
        "    else: print(path, mode)\n"
    )
    policy = sandbox.policy(given, {}, None)
    done = confined(policy, code)
    assert done.stdout.splitlines()[1:] == ["True"] * 4, done.stdout + done.stderr


@LANDLOCK
def test_a_link_that_a_worker_lays_among_its_fetched_files_is_not_given_to_the_next(tmp_path: Path) -> None:
    """Where workers get copies, which they may change, one may replace a side input that the next worker reads."""
    secret = tmp_path / "secrets" / "key"
    secret.parent.mkdir()
    secret.write_text("secret")
    sandbox = sandbox_of(tmp_path)
    step = step_of(tmp_path, side_inputs=[work.SideInput(name="m", writable=True)])
    step.fetched.mkdir()
    (step.fetched / "m").symlink_to(secret.parent)
    step.side_inputs["m"] = step.fetched / "m"
    done = confined(sandbox.policy(sandbox.of_step(step), {}, None), f"print(open({str(secret)!r}).read())")
    assert "PermissionError" in done.stderr, done.stdout


def test_an_output_folder_is_made_through_no_link(tmp_path: Path) -> None:
    """It is made where it was looked for, or not at all."""
    make_folder(f"{tmp_path}/a/b/c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "secrets").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "secrets")
    with pytest.raises(LinkRefused):
        make_folder(f"{tmp_path}/a/link/d")
    assert not list((tmp_path / "secrets").iterdir())


@LANDLOCK
def test_of_the_systems_settings_a_script_gets_what_every_user_may_read(tmp_path: Path) -> None:
    """Root could read the rest: hashes of passwords, keys, what `windrow setup` has made."""
    for name, mode in {
        "hosts": 0o644,
        "shadow": 0o640,
        "ssh/config": 0o644,
        "ssh/key": 0o600,
        "private/key": 0o644,
        "windrow/ca.pem": 0o644,
        "whole/a/b": 0o644,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    (tmp_path / "private").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "shadow")
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); print(sorted(os.listdir('.')))\n"
        "for path in ('hosts', 'ssh/config', 'whole/a/b', 'shadow', 'ssh/key', 'private/key', 'windrow/ca.pem',\n"
        "             'link'):\n"
        "    try: open(path)\n"
        "    except PermissionError: print(path, 'denied')\n"
        "    else: print(path)\n"
    )
    policy = {"public": [str(tmp_path)], "list": [str(tmp_path)], "closed": [str(tmp_path / "windrow")]}
    done = confined(policy, code)
    denied = ["shadow denied", "ssh/key denied", "private/key denied", "windrow/ca.pem denied", "link denied"]
    assert done.stdout.splitlines()[2:] == ["hosts", "ssh/config", "whole/a/b", *denied], done.stderr


@LANDLOCK
@pytest.mark.parametrize("mode", ["given", "strict"])
def test_a_script_of_root_reads_no_secret_of_its_host(tmp_path: Path, mode: str) -> None:
    """Of this machine's own /etc, whichever there are; what programs need of it can be read."""
    secrets = [
        str(path)
        for path in Path("/etc").rglob("*")
        if path.is_file() and not path.is_symlink() and not path.stat().st_mode & 0o004
    ]
    code = (
        "import pwd, ssl; pwd.getpwuid(0); open('/etc/hosts'); ssl.create_default_context()\n"
        f"for path in {secrets!r}:\n"
        "    try: open(path)\n"
        "    except PermissionError: pass\n"
        "    else: print(path)\n"
        "print('end')\n"
    )
    sandbox = sandbox_of(tmp_path, mode)
    done = confined(sandbox.policy(sandbox.of_step(step_of(tmp_path)), {}, None), code)
    assert done.stdout.splitlines()[1:] == ["end"], done.stdout + done.stderr


def test_what_setup_has_made_beside_the_join_token_is_closed(tmp_path: Path) -> None:
    """The authority's key and the tokens of other roles are as secret; the default folder of setup is closed anyway."""
    for role in ("authority", "master", "agent", "client"):
        (tmp_path / "setup" / role).mkdir(parents=True)
    token = str(tmp_path / "setup" / "agent" / "join-token")
    config = AgentConfig(tmp_path / "agent", ("h:1",), sandbox="strict", closed_paths=(token,))
    closed = Sandbox(config, {}).closed
    assert {str(tmp_path / "setup" / role) for role in ("authority", "master", "client")} <= set(closed)
    assert "/etc/windrow" in closed


@LANDLOCK
@pytest.mark.skipif(os.geteuid() != 0, reason="other users cannot set up the kernel anyway")
def test_a_script_of_root_does_not_set_up_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `auto`: no program for crashes, for example. What a process may set of itself, it may."""
    monkeypatch.setattr(os, "access", ReadOnly())
    sandbox = sandbox_of(tmp_path, "auto")
    code = (
        "import os, glob\n"
        "for path in ('/proc/sys/kernel/core_pattern', '/sys/kernel/mm/transparent_hugepage/enabled'):\n"
        "    if os.path.exists(path):\n"
        "        open(path).read()\n"
        "        try: open(path, 'r+')\n"
        "        except OSError as error: print(error.errno in (13, 30))\n"
        "        else: print(path)\n"
        "        break\n"
        "with open('/proc/self/comm', 'w') as file: file.write('me')\n"
        "print(os.popen('cat /proc/self/comm').read().strip())\n"
    )
    done = confined(sandbox.policy(sandbox.of_step(step_of(tmp_path)), {}, None), code)
    assert done.stdout.splitlines()[1:] == ["True", "cat"], done.stdout + done.stderr


@LANDLOCK
@pytest.mark.skipif(not raw_devices(), reason="this user opens no disk anyway")
def test_a_script_of_root_opens_no_disk_and_no_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `auto`: what is in a closed folder could be read there. Other devices work as ever."""
    raw_devices(str(tmp_path))  # nothing is remembered of an earlier test
    disks = [path for path in raw_devices() if not Path(path).is_dir()]
    monkeypatch.setattr(os, "access", ReadOnly(*map(Path, disks)))
    raw_devices(str(tmp_path))  # nothing is remembered of an earlier test
    sandbox = sandbox_of(tmp_path, "auto")
    code = (
        "import os, multiprocessing, sys\n"
        f"for path in {disks!r}:\n"
        "    for flags in (os.O_RDONLY, os.O_RDWR):\n"
        "        try: os.open(path, flags)\n"
        "        except OSError as error: print(error.errno == 13 or path)\n"
        "        else: print(path)\n"
        "open('/dev/null', 'w').write(open('/dev/zero').read(1) + str(os.urandom(1)))\n"
        "os.openpty(); multiprocessing.Lock(); open('/dev/stdout', 'w').write('written'); os.listdir('/dev')\n"
    )
    done = confined(sandbox.policy(sandbox.of_step(step_of(tmp_path)), {}, None), code)
    found = done.stdout.splitlines()[1:]
    assert set(found[:-1]) == {"True"} and found[-1] == "written", done.stdout + done.stderr


def test_devices_that_get_round_what_is_closed_are_told_from_others(tmp_path: Path) -> None:
    for name in ("mapper", "bsg", "shm", "pts"):
        (tmp_path / name).mkdir()
    names = ["sda", "nvme0", "sg0", "mem", "null", "nvidia0", "mtd0", "ng0n1", "tty", "tty1", "ttyUSB0", "vcsa1"]
    if os.geteuid() == 0:
        try:
            for name in names:
                os.mknod(tmp_path / name, (stat.S_IFBLK if name == "sda" else stat.S_IFCHR) | 0o600, os.makedev(1, 3))
        except PermissionError:
            names = []
    else:
        names = []
    raw = {"mapper", "bsg", *(name for name in names if name not in ("null", "nvidia0", "tty", "ttyUSB0"))}
    assert {Path(path).name for path in raw_devices(str(tmp_path))} == raw
    assert raw_devices(str(tmp_path / "nowhere")) == []


@pytest.fixture
def run_folder(tmp_path: Path) -> Iterator[Path]:
    """As /run, with sockets of services, one of which all users may open, and a file that is none."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    with contextlib.ExitStack() as open_ones:
        for name in ("docker.sock", "podman/podman.sock", "dbus/system_bus_socket", "user/7/bus", "ours.sock"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            open_ones.enter_context(socket.socket(socket.AF_UNIX)).bind(str(folder / name))
            (folder / name).chmod(0o666 if name.startswith(("podman", "dbus")) else 0o600)
        (folder / "lxd.socket").touch()
        yield folder
    shutil.rmtree(folder)


def test_sockets_by_which_a_script_has_programs_started_are_told(run_folder: Path) -> None:
    """No sandbox closes them, so no node with one says that it confines scripts."""
    shown = [path.removeprefix(f"{run_folder}/") for path in service_sockets(run=run_folder, user=0)]
    assert shown == ["docker.sock", "podman/podman.sock", "dbus/system_bus_socket"]
    shown = [path.removeprefix(f"{run_folder}/") for path in service_sockets(run=run_folder, user=7)]
    assert shown == ["docker.sock", "podman/podman.sock", "user/7/bus"]
    shown = [path.removeprefix(f"{run_folder}/") for path in service_sockets(job_users=True, run=run_folder)]
    assert shown == ["podman/podman.sock"]
    for mode in ("auto", "given", "strict"):
        told = protection(mode, 7, sockets=["/run/docker.sock"])
        assert told.startswith(f"{mode} (partly): ") and "/run/docker.sock" in told and "--job-users" in told


def test_auto_says_that_scripts_can_change_the_code_of_windrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs some of it before it is confined. A user who can write none of it is told nothing."""
    package = Path(confinement.__file__).parent.parent
    monkeypatch.setattr(os, "access", ReadOnly(package))
    assert sandbox_of(tmp_path, "auto").protection().startswith("auto (partly): ")
    assert f"can write to {package}" in sandbox_of(tmp_path, "auto").protection()
    assert "can write to" not in sandbox_of(tmp_path, "strict").protection()
    monkeypatch.setattr(os, "access", ReadOnly())
    assert sandbox_of(tmp_path, "auto").protection().startswith("auto: ")


@LANDLOCK
def test_no_script_takes_the_place_of_a_socket_by_which_others_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under `auto`, where scripts write to /tmp, sockets lie in the closed folder of the agent. They can be reached."""
    (tmp_path / "agent").mkdir()
    monkeypatch.setattr(os, "access", ReadOnly())
    config = AgentConfig(tmp_path / "agent", ("h:1",), sandbox="auto", control_groups="off")
    force = Workforce(config, NodeFacts("node", "1", 2, boot_path(), 256), GpuIndices([]), {"TMPDIR": str(tmp_path)})
    own = force._sockets.open()
    code = (
        "import os, socket\n"
        f"path = {str(own.path)!r}\n"
        "folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)\n"
        "end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "end.connect(f'/proc/self/fd/{folder}/{os.path.basename(path)}')\n"
        "for attempt in (lambda: os.unlink(path), lambda: os.rename(path, path + 'x'),\n"
        "                lambda: os.rename(os.path.dirname(path), os.environ['HOME'] + '/x'),\n"
        "                lambda: socket.socket(socket.AF_UNIX).bind(f'/proc/self/fd/{folder}/new')):\n"
        "    try: attempt()\n"
        "    except OSError as error: print(error.errno in (1, 13, 18))\n"
        "    else: print('done')\n"
    )
    sandbox = Sandbox(config, {})
    done = confined(sandbox.policy(sandbox.of_step(step_of(tmp_path)), {}, None), code)
    assert done.stdout.splitlines()[1:] == ["True"] * 4, done.stdout + done.stderr
    own.close()
    force.close()
    assert not own.path.parent.exists()


@LANDLOCK
def test_the_agent_makes_no_folder_of_an_output_by_way_of_a_link(tmp_path: Path) -> None:
    """Its own rights reach further than those of the script that has laid the link."""
    store, secrets = tmp_path / "store", tmp_path / "secrets"
    for folder in (tmp_path / "agent" / "workers", store, secrets):
        folder.mkdir(parents=True)
    (store / "link").symlink_to(secrets)
    output = str(store / "link" / "new")
    config = AgentConfig(tmp_path / "agent", ("h:1",), sandbox="given", control_groups="off")
    force = Workforce(config, NodeFacts("node", "1", 2, boot_path(), 256), GpuIndices([]), os.environ)
    step = step_of(
        tmp_path,
        write_paths=[output],
        output_path=output,
        output_folders=[output],
        datastores=[os.fsencode(store)],
    )
    step.code.mkdir()
    worker = force.start(step)
    try:
        assert not list(secrets.iterdir())
        assert not (store / "new").exists()
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        force.bury(step, worker)
        force.close()


@LANDLOCK
def test_everything_is_given_but_a_closed_folder(tmp_path: Path) -> None:
    """Files are made, moved and removed as ever; above the closed one, names are seen, and nothing is made."""
    closed, beside = tmp_path / "above" / "closed", tmp_path / "above" / "beside"
    for folder in (closed / "own", closed / "other", beside):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    code = (
        "import os, tempfile\n"
        f"os.chdir({str(tmp_path / 'above')!r})\n"
        "tempfile.TemporaryFile().write(b'x'); os.listdir('/'); os.listdir(os.path.expanduser('~'))\n"
        "open('beside/new', 'w').close(); os.rename('beside/new', 'closed/own/new'); os.mkdir('closed/own/folder')\n"
        "os.rename('closed/own/file', 'beside/moved'); os.link('beside/moved', 'closed/own/file')\n"
        "print(sorted(os.listdir('.')))\n"
        "tries = {\n"
        "    'read': lambda: open('closed/other/file'), 'write': lambda: open('closed/other/file', 'w'),\n"
        "    'remove': lambda: os.unlink('closed/other/file'), 'make': lambda: open('closed/new', 'w'),\n"
        "    'move': lambda: os.rename('closed/other', 'beside/other'), 'above': lambda: open('new', 'w'),\n"
        "}\n"
        "for name, attempt in tries.items():\n"
        "    try: attempt()\n"
        "    except OSError as error: print(name, error.errno in (1, 13, 18))\n"
        "    else: print(name, 'done')\n"
    )
    policy = {"abi": 0, "all": ["/", str(closed / "own")], "closed": [str(closed)], "execute": []}
    done = confined(policy, code)
    assert done.stdout.splitlines()[1:] == [
        "['beside', 'closed']",
        *(f"{name} True" for name in ("read", "write", "remove", "make", "move", "above")),
    ], done.stderr
    assert (closed / "own" / "new").exists()


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel makes of a seccomp filter: its return value for a system call."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *arguments, *[0] * (6 - len(arguments)))
    place, held = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("HBBI", program, 8 * place)
        place += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif code == 0x15:
            place += yes if held == value else no
        elif code == 0x45:
            place += yes if held & value else no
        else:
            assert code == 0x06
            return int(value)


@pytest.mark.parametrize(
    ("machine", "architecture", "number"),
    [
        ("x86_64", 0xC000003E, 302),
        ("x86_64", 0xC000003E, 0x40000000 | 302),
        ("x86_64", 0x40000003, 340),
        ("aarch64", 0xC00000B7, 261),
        ("aarch64", 0x40000028, 369),
    ],
)
def test_only_limits_of_other_processes_are_forbidden(machine: str, architecture: int, number: int) -> None:
    """As in linux/audit.h and the tables of system calls, for 64-bit programs and others. Limits can be read."""
    program = filter_program(machine, own=70)
    allowed, refused = 0x7FFF0000, 0x00050001
    assert verdict(program, architecture, number, 71, 7, 0x7FFF_1000) == refused
    assert verdict(program, architecture, number, 71, 7, 0x7FFF_0000_0000) == refused
    for arguments in ((0, 7, 0x1000), (70, 7, 0x1000), (71, 7, 0)):
        assert verdict(program, architecture, number, *arguments) == allowed
    assert verdict(program, architecture, number + 1, 71, 7, 0x1000) == allowed
    assert verdict(program, 0xC0000016, number, 71, 7, 0x1000) == allowed


@pytest.mark.parametrize(
    ("machine", "architecture", "modes", "opens"),
    [
        # chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat; open, openat: each with the place of the mode.
        ("x86_64", 0xC000003E, {90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2}, {2: 2, 257: 3}),
        ("x86_64", 0x40000003, {15: 1, 94: 1, 306: 2, 452: 2, 8: 1, 14: 1, 297: 2}, {5: 2, 295: 3}),
        ("aarch64", 0xC00000B7, {52: 1, 53: 2, 452: 2, 33: 2}, {56: 3}),
        ("aarch64", 0x40000028, {15: 1, 94: 1, 333: 2, 452: 2, 8: 1, 14: 1, 324: 2}, {5: 2, 322: 3}),
    ],
)
def test_no_file_is_made_set_user_id(
    machine: str, architecture: int, modes: dict[int, int], opens: dict[int, int]
) -> None:
    program, plain = filter_program(machine, own=70, set_user=True), filter_program(machine, own=70)
    allowed, refused, absent = 0x7FFF0000, 0x00050001, 0x00050000 | errno.ENOSYS

    def of(number: int, at: int, mode: int, flags: int = 0) -> int:
        arguments = [0xFFFF_FFFF_0000] * at + [mode]
        if flags is not None and number in opens:
            arguments[at - 1] = flags
        assert verdict(plain, architecture, number, *arguments) == allowed
        return verdict(program, architecture, number, *arguments)

    for number, at in modes.items():
        assert of(number, at, 0o4755) == of(number, at, 0o104755) == refused
        assert of(number, at, 0o2755) == of(number, at, 0o1777) == allowed
    for number, at in opens.items():
        assert of(number, at, 0o4755, os.O_CREAT | os.O_WRONLY) == refused
        assert of(number, at, 0o4755, os.O_TMPFILE | os.O_RDWR) == refused
        assert of(number, at, 0o644, os.O_CREAT | os.O_WRONLY) == allowed
        assert of(number, at, 0o4755, os.O_RDONLY) == allowed, "without a file to make, there is no mode"
    for number in (437, 425):
        assert verdict(program, architecture, number) == absent
        assert verdict(plain, architecture, number) == allowed
    if architecture == 0xC000003E:
        assert verdict(program, architecture, 0x40000000 | 90, 0, 0o4755) == refused


FORBIDS = """
import ctypes, os, sys
sys.path.insert(0, FOLDER)
import system_calls
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
system_calls.forbid(set_user=True)
make = os.O_CREAT | os.O_WRONLY
tries = {
    "chmod": lambda: os.chmod("made", 0o4755),
    "fchmod": lambda: os.fchmod(os.open("made", os.O_RDONLY), 0o4755),
    "at": lambda: os.chmod("made", 0o4755, dir_fd=os.open(".", os.O_RDONLY)),
    "open": lambda: os.open("new", make, 0o4755),
    "mknod": lambda: os.mknod("node", 0o104755),
    "plain": lambda: os.chmod("made", 0o2755),
    "read": lambda: os.read(os.open("made", os.O_RDONLY), 1),
    "made": lambda: os.open("other", make, 0o755),
}
open("made", "w").close()
for name, attempt in tries.items():
    try: attempt()
    except OSError as error: print(name, error.errno)
    else: print(name, "done")
"""


def test_the_kernel_lets_no_file_become_set_user_id(tmp_path: Path) -> None:
    folder = Path(confinement.__file__).parent
    code = FORBIDS.replace("FOLDER", repr(str(folder)))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    refused = [f"{name} {errno.EPERM}" for name in ("chmod", "fchmod", "at", "open", "mknod")]
    assert done.stdout.splitlines() == [*refused, "plain done", "read done", "made done"], done.stderr
    assert not [path for path in tmp_path.iterdir() if path.stat().st_mode & stat.S_ISUID]


def test_a_process_that_cannot_be_confined_says_what_is_missing() -> None:
    """A version that no kernel has."""
    done = confined({"abi": 1000}, "print('ran')")
    assert done.returncode == 1
    assert "ran" not in done.stdout
    assert "Landlock" in done.stderr


def test_a_temporary_folder_has_a_short_path(tmp_path: Path) -> None:
    """Else the sockets of libraries do not fit; what a killed agent leaves there, the next one removes."""
    near, far = tmp_path / "n", tmp_path / ("f" * PATH_MAX)
    near.mkdir()
    far.mkdir()
    folders = TemporaryFolders(tmp_path, {})
    place = folders.make("1", far)
    assert len(os.fsencode(place)) <= PATH_MAX
    assert place.is_dir()
    assert place.parent.stat().st_mode & 0o77 == 0
    again = TemporaryFolders(tmp_path, {})
    assert not place.parent.exists()
    kept = again.make("1", far)
    again.close()
    assert not kept.parent.exists()


def test_a_wrong_setting_is_named() -> None:
    """Of the agent's configuration."""
    for setting in ({"sandbox": "hard"}, {"allowed_paths": ["data"]}):
        with pytest.raises(BadConfig, match=next(iter(setting))):
            AgentConfig.parse(json.dumps({"folder": "/f", "master_addresses": ["unix:/m"], **setting}))
