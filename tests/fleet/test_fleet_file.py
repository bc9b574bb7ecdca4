"""The file of a fleet: what it says, and everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from windrow.fleet.agent_command import request_of
from windrow.fleet.file import load_fleet_file
from windrow.fleet.names import new_name, prefix_of, stays
from windrow.fleet.provider import Shape
from windrow.fleet.providers import registry
from windrow.fleet.settings import FleetSettings, GroupSettings
from windrow.spec import JobFileError

WHOLE = """\
name: site
defaults:
  provider: process
  max: 10
  lifetime: 4h
  agent: {join_token_file: /etc/windrow/join-token, environment: {LANG: C}}
groups:
  small: {slots: 4, min: 1}
  gpu:
    pool: gpu
    slots: 8
    memory: 60GB
    gpus: 2
    max: 3
    exit_idle: 5min
    submissions_per_minute: 6
    submissions_at_once: 2
    price_per_hour: 2.5
    budget_per_day: 100
    agent: {command: [/opt/windrow/bin/windrow], environment: {TZ: UTC}, options: [--sandbox, strict]}
"""


def read(tmp_path: Path, text: str) -> FleetSettings:
    file = tmp_path / "fleet.yml"
    file.write_text(text)
    return load_fleet_file(file).fleet


def wrong(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(JobFileError) as raised:
        read(tmp_path, text)
    return [f"{problem.line}: {problem.key}: {problem.message}" for problem in raised.value.problems]


def test_a_group_has_what_the_defaults_say_and_it_does_not(tmp_path: Path) -> None:
    fleet = read(tmp_path, WHOLE)
    small, gpu = fleet.groups
    assert (fleet.name, small.name, gpu.name) == ("site", "small", "gpu")
    assert (small.provider, small.shape, small.min, small.max) == ("process", Shape(4), 1, 10)
    assert (small.exit_idle_s, small.lifetime_s, small.submissions_per_minute) == (120, 4 * 3600, 30)
    assert gpu.shape == Shape(8, 60 * 10**9, 2)
    assert (gpu.pool, gpu.max, gpu.exit_idle_s, gpu.submissions_per_minute, gpu.submissions_at_once) == (
        *("gpu", 3, 300),
        *(6, 2),
    )
    assert (gpu.price_per_hour, gpu.budget_per_day) == (2.5, 100)
    # Mappings are merged key by key.
    assert gpu.agent.join_token_file == "/etc/windrow/join-token"
    assert gpu.agent.environment == {"LANG": "C", "TZ": "UTC"}


def test_all_that_is_wrong_is_said_at_once_with_its_line_and_what_to_do(tmp_path: Path) -> None:
    text = """\
name: no good
groups:
  a b: {provider: process, slots: 1, max: 1}
  c: {provider: slurmm, slots: 0, max: 2, min: 3, memory: 12, lifetime: 4}
  d: {slots: 2, budget_per_day: 3, pool: p q}
  e:
  f:
    provider: command
    slots: 1
    max: 1
    agent: {folder: here, ca_file: ca.pem, options: [--slots=3], master: [nowhere]}
    command: {submit: [sub], timeout: soon}
"""
    found = wrong(tmp_path, text)
    for line, key, words in (
        (1, "name", '"no good" is not a valid name of a fleet'),
        (3, "groups.a b", "is not a valid name of a group"),
        (4, "groups.c.provider", 'there is no provider "slurmm". Did you mean "slurm"?'),
        (4, "groups.c.slots", "is 0; it must be a whole number from 1 to 4096"),
        (4, "groups.c.min", "is more than max, 2. Lower it, or raise that."),
        (4, "groups.c.memory", "is 12; it must be a size such as 500MB"),
        (4, "groups.c.lifetime", "is 4; it must be a time such as 90s"),
        (5, "groups.d.provider", "is missing; it names the engine. Available: command, docker, kubernetes, process"),
        (5, "groups.d.max", "is missing; it says the most agents."),
        (5, "groups.d.budget_per_day", "needs price_per_hour"),
        (5, "groups.d.pool", "is not a valid name of a pool"),
        (6, "groups.e", "is empty; write its provider, slots and max."),
        (11, "groups.f.agent.folder", "it must be an absolute path"),
        (11, "groups.f.agent.ca_file", "it must be an absolute path"),
        (11, "groups.f.agent.options", "the fleet itself gives"),
        (11, "groups.f.agent.master", "is not a master address"),
        (12, "groups.f.command.list", "is missing; write the command as a list of words."),
        (12, "groups.f.command.cancel", "is missing"),
        (12, "groups.f.command.timeout", "it must be a time such as 30s"),
    ):
        assert any(one.startswith(f"{line}: {key}: ") and words in one for one in found), (line, key, words, found)
    assert len(found) == 19, found


def test_a_file_without_groups_or_name_says_so(tmp_path: Path) -> None:
    assert wrong(tmp_path, "defaults: {max: 1}\n") == [
        "1: name: is missing; give the fleet a name, such as site.",
        "1: groups: has no group; write one below it, by its name.",
    ]


def test_unknown_keys_and_those_of_another_provider_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yml"
    file.write_text("name: s\ngroups: {g: {provider: process, slots: 1, max: 1, exit_ilde: 1min, command: {}}}\n")
    assert [f"{one.key} {one.message}" for one in load_fleet_file(file).warnings] == [
        'groups.g.exit_ilde is unknown here and has no effect. Did you mean "exit_idle"?',
        "groups.g.command has no effect: the provider of the group is process.",
    ]


def test_the_command_of_an_agent_has_all_that_the_group_says() -> None:
    group = GroupSettings("gpu", "process", Shape(8, 60 * 10**9, 2), 0, 3, "gpu", 300.0, 3600.0)
    agent = group.agent._replace(ca_file="/ca.pem", join_token_file="/token", options=("--sandbox", "strict"))
    group = group._replace(agent=agent)
    request = request_of(group, "s-gpu-x1", "10.0.0.5:8470", stays=False)
    assert " ".join(request.agent.arguments) == (
        "windrow agent --master 10.0.0.5:8470 --ca-file /ca.pem --join-token-file /token --allocation s-gpu-x1 "
        "--node-id s-gpu-x1 --folder /tmp/windrow-s-gpu-x1 --lifetime 3600s --exit-idle 300s --slots 8 --gpus 2 "
        "--memory 60000MB --pool gpu --sandbox strict"
    )
    assert (request.lifetime_s, request.agent.folder) == (3600.0, "/tmp/windrow-s-gpu-x1")
    staying = request_of(group._replace(lifetime_s=None), "s", "10.0.0.5:8470", stays=True)
    assert not {"--exit-idle", "--lifetime"} & set(staying.agent.arguments)


def test_names_begin_like_those_of_their_group_alone_and_fit_every_engine() -> None:
    pairs = [("site", "gpu"), ("site-gpu", "x"), ("Site", "gpu"), ("a" * 64, "b" * 64), ("...", "_"), ("si", "te-gpu")]
    prefixes = [prefix_of(*pair) for pair in pairs]
    for prefix in prefixes:
        assert not [other for other in prefixes if other != prefix and other.startswith(prefix)]
        for stay in (True, False):
            name = new_name(prefix, stays=stay)
            assert stays(name) is stay and len(name) <= 40
            assert name[0].isalnum() and name.replace("-", "").isalnum() and name == name.lower()


def test_an_unknown_kind_names_those_that_there_are() -> None:
    with pytest.raises(Exception, match=r"no provider nomad. Available: command, docker, kubernetes, process"):
        registry.load("nomad")
