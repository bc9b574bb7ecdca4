"""What a worker is given: the policy that the agent makes, and how a process keeps to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.config import AgentConfig, BadConfig
from windrow_agent.sandbox import confinement
from windrow_agent.sandbox.confinement import around, handled_rights, kernel_abi
from windrow_agent.sandbox.policy import NotPermitted, Sandbox, needs_new_start, protection
from windrow_agent.sandbox.temporary import PATH_MAX, TemporaryFolders
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.step import Step

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
            read_paths=[str(tmp_path / "data"), str(state / "windrow.db"), str(state / "jobs" / "j" / "1" / "rows")],
            write_paths=[str(tmp_path / "out"), str(state / "outputs" / "j" / "o"), str(tmp_path / "agent" / "code")],
        )
    )
    assert given.read == [str(tmp_path / "data"), str(state / "jobs" / "j" / "1" / "rows")]
    assert given.write == [str(tmp_path / "out"), str(state / "outputs" / "j" / "o")]
    assert given.notes == []


@pytest.mark.parametrize(("mode", "is_written"), [("strict", False), ("auto", True)])
def test_an_output_that_holds_the_state_is_told(tmp_path: Path, mode: str, is_written: bool) -> None:
    """Under strict it cannot be written; under auto it can, and so can the state."""
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
    assert protection("auto", 0).startswith("auto (nothing): ")
    assert protection("auto", 4).startswith("auto (partly): ")
    assert "signals" in protection("auto", 4)
    assert protection("strict", 7).startswith("strict: ")


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
    document = {"abi": 1, "closed": [], "read": [], "execute": ["/usr", "/lib", "/lib64"], "write": [], **policy}
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
    folders = TemporaryFolders(tmp_path)
    place = folders.make("1", far)
    assert len(os.fsencode(place)) <= PATH_MAX
    assert place.is_dir()
    assert place.parent.stat().st_mode & 0o77 == 0
    again = TemporaryFolders(tmp_path)
    assert not place.parent.exists()
    kept = again.make("1", far)
    again.close()
    assert not kept.parent.exists()


def test_a_wrong_setting_is_named() -> None:
    """Of the agent's configuration."""
    for setting in ({"sandbox": "hard"}, {"allowed_paths": ["data"]}):
        with pytest.raises(BadConfig, match=next(iter(setting))):
            AgentConfig.parse(json.dumps({"folder": "/f", "master_addresses": ["unix:/m"], **setting}))
