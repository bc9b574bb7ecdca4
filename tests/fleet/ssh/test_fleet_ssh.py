"""The provider of machines that ssh reaches, with real OpenSSH servers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ssh_machines import SSHD, Machines, machines
from windrow.fleet import provider_kit
from windrow.fleet.provider import AgentCommand, Refused, Request, Seen, Shape, State, Unreachable
from windrow.fleet.providers.ssh import ssh_provider
from windrow.fleet.providers.ssh.ssh_provider import SshProvider

pytestmark = pytest.mark.skipif(SSHD is None, reason="there is no OpenSSH server: apt-get install openssh-server")

PREFIX = "f-g-abcdef-"
STAYS = ("sleep", "3600")
DEADLINE_S = 120.0
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def request(name: str, *words: str, folder: str = "", **environment: str) -> Request:
    return Request(PREFIX + name, Shape(1), None, AgentCommand(words, environment, folder))


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Machines]:
    with machines(tmp_path, ("red", "blue")) as made:
        yield made
        for machine in made.all.values():
            if machine._server is None:
                machine.up()
            # What tests leave, by what is written of it.
            for file in machine.home.glob("state/fleet/*/pid"):
                number, start, boot = file.read_text().split()
                if (start, boot) == (start_of(int(number)), BOOT):
                    os.kill(int(number), signal.SIGKILL)


def start_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""


@pytest.fixture
def provider(two: Machines) -> SshProvider:
    return SshProvider(two.settings(), PREFIX)


def pid_of(seen: Seen) -> int:
    return int(seen.engine_id.split()[1])


def host_of(engine_id: str) -> str:
    return engine_id.rpartition(" ")[2]


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_machines_by_ssh_keep_the_contract_of_providers(
    two: Machines, check: Callable[[provider_kit.Engine], None]
) -> None:
    settings = two.settings()
    check(provider_kit.Engine(make=lambda prefix: SshProvider(settings, prefix), wait_s=DEADLINE_S))


def test_agents_go_where_most_room_is_and_no_machine_gets_more_than_it_has(provider: SshProvider) -> None:
    hosts = [host_of(provider.submit(request(f"x{number}", *STAYS))) for number in range(4)]
    assert hosts == ["red", "blue", "red", "blue"]
    with pytest.raises(Refused, match=r"All places on the machines in ssh\.hosts are taken"):
        provider.submit(request("x4", *STAYS))


def test_words_and_variables_arrive_as_they_are(provider: SshProvider) -> None:
    odd = 'it\'s "$HOME" `id` \\ *'
    provider.submit(request("x1", "sh", "-c", 'printf "%s|%s" "$1" "$WHO"', "sh", odd, WHO=odd))
    until(lambda: one(provider).state is State.COMPLETED, "it has ended")
    assert provider.why(one(provider)) == f"{odd}|{odd}"


def one(provider: SshProvider) -> Seen:
    (seen,) = provider.allocations()
    return seen


def test_a_silent_machine_keeps_its_agents_until_it_answers(two: Machines, provider: SshProvider) -> None:
    ids = {provider.submit(request(f"x{number}", *STAYS)) for number in range(2)}
    assert {host_of(one) for one in ids} == {"red", "blue"}
    before = list(provider.allocations())
    two.all["red"].down()
    during = list(provider.allocations())
    assert [seen._replace(reason="") for seen in during] == before
    (silent,) = [seen for seen in during if seen.reason]
    assert host_of(silent.engine_id) == "red"
    assert "red cannot be reached" in silent.reason
    assert host_of(provider.submit(request("x2", *STAYS))) == "blue", "others are still asked"
    os.kill(pid_of(silent), signal.SIGKILL)
    two.all["red"].up()
    (ended,) = [seen for seen in provider.allocations() if seen.state.has_ended]
    assert (ended.name, ended.state) == (silent.name, State.FAILED)
    assert ended.reason == "Its process was ended by SIGKILL."


def test_machines_that_are_all_silent_are_no_machines_without_agents(two: Machines, provider: SshProvider) -> None:
    provider.submit(request("x1", *STAYS))
    for machine in two.all.values():
        machine.down()
    with pytest.raises(Unreachable, match=r"blue cannot be reached: .*; red cannot be reached: "):
        provider.allocations()
    with pytest.raises(Unreachable):
        provider.submit(request("x2", *STAYS))


def test_a_new_fleet_takes_no_list_while_a_machine_may_have_agents_that_it_does_not_know(
    two: Machines, provider: SshProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.submit(request("x1", *STAYS))
    two.all["red"].down()
    new = SshProvider(two.settings(), PREFIX)
    with pytest.raises(Unreachable, match="red cannot be reached"):
        new.allocations()
    monkeypatch.setattr(ssh_provider, "UNHEARD_S", 0.0)
    assert new.allocations() == [], "after some time the machine is given up, and the others are used"


def test_a_number_that_another_process_has_now_is_no_sign_of_life_and_is_not_signalled(
    two: Machines, provider: SshProvider
) -> None:
    folder = two.all["red"].home / "state" / "fleet" / f"{PREFIX}x1"
    folder.mkdir(parents=True)
    for file in ("keeper", "pid"):
        (folder / file).write_text(f"{os.getpid()} 1 {BOOT}\n")
    seen = one(provider)
    assert (seen.state, seen.reason) == (State.FAILED, "It was killed, with its keeper.")
    assert not provider.cancel(seen, only_queued=False)


def test_what_ran_before_a_machine_was_started_anew_was_taken_away(two: Machines, provider: SshProvider) -> None:
    folder = two.all["red"].home / "state" / "fleet" / f"{PREFIX}x1"
    folder.mkdir(parents=True)
    (folder / "pid").write_text(f"{os.getpid()} {start_of(os.getpid())} another-boot\n")
    seen = one(provider)
    assert (seen.state, seen.reason) == (State.PREEMPTED, "red was started anew.")


def test_an_agent_whose_keeper_was_killed_lives_on_and_is_cancelled(two: Machines, provider: SshProvider) -> None:
    provider.submit(request("x1", *STAYS))
    (keeper,) = two.all["red"].home.glob("state/fleet/*/keeper")
    os.kill(int(keeper.read_text().split()[0]), signal.SIGKILL)
    assert one(provider).state is State.STARTED
    assert provider.cancel(one(provider), only_queued=False)
    until(lambda: one(provider).state is State.CANCELLED, "it has ended")


def test_what_has_ended_long_ago_is_removed_with_the_folder_of_its_agent(
    two: Machines, provider: SshProvider, tmp_path: Path
) -> None:
    scratch = tmp_path / f"windrow-{PREFIX}x1"
    scratch.mkdir()
    other = tmp_path / "somebody's"
    other.mkdir()
    provider.submit(request("x1", "true", folder=str(scratch)))
    provider.submit(request("x2", "true", folder=str(other)))
    until(lambda: all(seen.state.has_ended for seen in provider.allocations()), "both have ended")
    for machine in two.all.values():
        for folder in machine.home.glob("state/fleet/*"):
            long_ago = time.time() - 7200
            os.utime(folder, (long_ago, long_ago))
    assert provider.allocations() == []
    assert not scratch.exists()
    assert other.exists(), "only folders that a fleet named are removed"


def test_a_program_that_is_not_there_is_told(provider: SshProvider) -> None:
    provider.submit(request("x1", "/nonexistent/windrow", "agent"))
    until(lambda: one(provider).state.has_ended, "it has ended")
    assert one(provider).reason == "Its process ended with exit code 127."
    assert "/nonexistent/windrow" in provider.why(one(provider))


def test_what_a_script_writes_on_its_machine_says_nothing_of_other_allocations(
    two: Machines, provider: SshProvider
) -> None:
    for name in ("x1", "x2"):
        provider.submit(request(name, *STAYS, TOKEN="it"))
    until(lambda: all(pid_of(seen) for seen in provider.allocations()), "both are known")
    before = {seen.name: seen for seen in provider.allocations()}
    of_one = before[f"{PREFIX}x1"]
    machine = two.all[host_of(of_one.engine_id)]
    folder = machine.home / "state/fleet" / of_one.name
    assert not (folder / "agent").exists(), "its variables are not left for scripts"
    # A second allocation there, and words of its end that speak of others.
    forged = folder.with_name(f"{PREFIX}x2")
    forged.mkdir()
    for place in (folder, forged):
        (place / "ended").write_text(f"exit 0x1\n{PREFIX}x2 1 exit 1\n{PREFIX}x3 1 exit 1\n")
    for name in ("-p", "no name", "UP"):
        (folder.with_name(f"{PREFIX}{name}")).mkdir()
    found = {seen.name: seen for seen in provider.allocations()}
    assert found[f"{PREFIX}x2"] == before[f"{PREFIX}x2"]
    assert found[f"{PREFIX}x1"].state is State.FAILED
    assert f"{PREFIX}x3" not in found and all(name.isascii() and " " not in name for name in found)
