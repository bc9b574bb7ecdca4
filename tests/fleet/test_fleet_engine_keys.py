"""The keys of engines in a fleet's file: what is wrong with them, and what they lead to."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from windrow.fleet.agent_command import request_of
from windrow.fleet.file import load_fleet_file
from windrow.fleet.provider import AgentCommand, Request, Shape
from windrow.fleet.providers import registry
from windrow.fleet.providers.ssh import scripts
from windrow.spec import JobFileError

ENGINE = """\
name: site
groups:
  one:
    provider: {kind}
    slots: 1
    max: 2
    {kind}: {{{keys}}}
"""


@pytest.mark.parametrize(
    ("kind", "keys", "told"),
    [
        ("docker", "network: n", "groups.one.docker.image: is missing"),
        ("docker", "image: i, mounts: [./here:/there]", 'groups.one.docker.mounts: holds "./here:/there"'),
        ("docker", "image: i, host: 'ssh://node1'", "ssh://node1 is no address of a Docker engine"),
        ("docker", "image: i, like_service: s", "is that of the service in like_service"),
        ("docker", "image: i, stop_timeout: soon", "it must be a time such as 45s"),
        ("ssh", "folder: f", "groups.one.ssh.hosts: names no machines"),
        ("ssh", "hosts: {node1: many}", "groups.one.ssh.hosts.node1"),
        ("ssh", "hosts: {-oProxyCommand=x: 1}", "which is no name of a machine"),
        ("ray", "resources: {scratch: much}", "groups.one.ray.resources.scratch"),
    ],
)
def test_what_is_wrong_for_an_engine_is_said(tmp_path: Path, kind: str, keys: str, told: str) -> None:
    (tmp_path / "fleet.yml").write_text(ENGINE.format(kind=kind, keys=keys))
    with pytest.raises(JobFileError) as refused:
        load_fleet_file(tmp_path / "fleet.yml")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "keys", "told"),
    [
        ("docker", "image: i, mounts: ['/a:/b:ro', 'v:/c'], cpus: 1.5", '"/a:/b:ro"'),
        ("docker", "like_service: fleet-agent", "as the service fleet-agent of its project"),
        ("ssh", "hosts: {node1: 2, ann@node2: 1}, options: [-F, config]", "ssh -F config -T"),
        ("ray", "resources: {scratch: 1}", '"scratch": 1.0'),
    ],
)
def test_what_an_engine_would_be_asked_for_is_shown(tmp_path: Path, kind: str, keys: str, told: str) -> None:
    (tmp_path / "fleet.yml").write_text(ENGINE.format(kind=kind, keys=keys))
    (group,) = load_fleet_file(tmp_path / "fleet.yml").fleet.groups
    shown = registry.load(kind).show(group.engine, request_of(group, "site-one-abcdef-x1", "master:1", stays=False))
    assert told in shown
    assert "--allocation" in shown


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ('environment: {"A;touch pwned;B": x}', "which is no name of a variable"),
        ('environment: {"1A": x}', "which is no name of a variable"),
        ('environment: {A: "x\\0y"}', "holds a NUL character"),
        ('options: ["--log\\0level"]', "holds a NUL character"),
    ],
)
@pytest.mark.parametrize("kind", ["slurm", "process"])
def test_what_could_be_no_variable_of_an_agent_is_refused(tmp_path: Path, kind: str, agent: str, told: str) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text(f"name: s\ngroups: {{g: {{provider: {kind}, slots: 1, max: 1, agent: {{{agent}}}}}}}\n")
    with pytest.raises(JobFileError) as refused:
        load_fleet_file(file)
    assert told in str(refused.value)


def test_no_value_of_a_variable_is_run_by_the_machines_that_ssh_reaches(tmp_path: Path) -> None:
    pwned, agent_saw = tmp_path / "pwned", tmp_path / "saw"
    value = f"x\nEND-OF-THE-WINDROW-SCRIPT\ntouch '{pwned}'\n$(touch '{pwned}')"
    words = ("sh", "-c", f"printf %s \"$A\" >'{agent_saw}'")
    script = scripts.submit(
        str(tmp_path / "state"), Request("s-g-abcdef-x1", Shape(1), None, AgentCommand(words, {"A": value}, "/none"))
    )
    subprocess.run(["sh", "-s"], input=script.encode(), check=True, stdout=subprocess.DEVNULL)
    ended = tmp_path / "state" / "s-g-abcdef-x1" / "ended"
    deadline = time.monotonic() + 120
    while not ended.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert agent_saw.read_text() == value and not pwned.exists()
