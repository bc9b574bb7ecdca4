"""The provider of agents on machines that are reached by ssh."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from windrow.common.allocation_name import is_allocation_name
from windrow.common.signal_names import signal_name
from windrow.fleet.provider import Refused, Request, Seen, State, Unreachable
from windrow.fleet.providers.ssh import commands, scripts
from windrow.fleet.providers.ssh.settings import SshSettings

AT_ONCE = 16
"""So many machines are asked at a time."""
UNHEARD_S = 300.0
"""For so long nothing is known of the group while a machine has not answered once since the program began: agents from
before may run there. Later, what the master knows of them decides.
"""
_CODE = re.compile("[0-9]{1,3}")
_SIGNALLED = 128
_SIGNALS = range(1, 65)


class SshProvider:
    """Keeps the contract of `windrow.fleet.provider.Provider` with processes of other machines.

    They are started in sessions of their own and go on when the connection ends. What is known of them is on their
    machine (`scripts`). Of a machine that does not answer, the allocations are listed as they were.
    """

    def __init__(self, settings: SshSettings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix
        self._known: dict[str, list[Seen]] = {}
        """The allocations of each machine that has answered once."""
        self._homes: dict[str, str] = {}
        """The machine of each allocation. What another machine says of it is not believed: scripts may write there."""
        self._silent: dict[str, str] = {}
        """Machines that did not answer last, with why."""
        self._began_s = time.monotonic()

    def submit(self, request: Request) -> str:
        """Start an agent on the machine with the most room. Returns process and machine in words."""
        self._ask_all()
        rooms = {
            host: room - sum(not seen.state.has_ended for seen in self._known.get(host, ()))
            for host, room in self._settings.hosts.items()
            if host not in self._silent
        }
        if not rooms:
            raise Unreachable(self._why_silent())
        host = max(rooms, key=lambda one: rooms[one])
        if rooms[host] <= 0:
            silent = f" {self._why_silent()}" if self._silent else ""
            raise Refused(f"All places on the machines in ssh.hosts are taken: add some, or lower max.{silent}")
        try:
            number = commands.run(self._settings, host, scripts.submit(self._settings.folder, request)).strip()
        except commands.Failed as error:
            raise Refused(str(error)) from None
        self._homes[request.name] = host
        return _engine_id(number, host)

    def allocations(self) -> Sequence[Seen]:
        """The group's agents on all machines, and those that have ended within the last hour."""
        self._ask_all()
        unheard = [host for host in self._silent if host not in self._known]
        if len(self._silent) == len(self._settings.hosts) or (unheard and time.monotonic() - self._began_s < UNHEARD_S):
            raise Unreachable(self._why_silent())
        found = []
        for host in self._settings.hosts:
            for seen in self._known.get(host, ()):
                silent = host in self._silent and not seen.state.has_ended
                found.append(seen._replace(reason=self._silent[host]) if silent else seen)
        return found

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        """Ask an agent to drain; nothing is ever queued on these machines."""
        if only_queued:
            return False
        try:
            script = scripts.cancel(self._settings.folder, seen.name)
            return commands.run(self._settings, _host_of(seen), script).strip() == "yes"
        except commands.Failed:
            return False

    def why(self, seen: Seen) -> str:
        """How an agent ended, and the last lines that it wrote."""
        try:
            log = commands.run(self._settings, _host_of(seen), scripts.log(self._settings.folder, seen.name)).strip()
        except commands.Failed:
            log = ""
        return "\n".join(filter(None, (seen.reason, log)))

    def _ask_all(self) -> None:
        """Ask all machines at the same time: one that is silent takes as long as it may."""
        hosts = list(self._settings.hosts)
        with ThreadPoolExecutor(min(AT_ONCE, len(hosts))) as pool:
            answers = pool.map(self._ask, hosts)
            for host, answer in zip(hosts, answers, strict=True):
                if isinstance(answer, str):
                    self._silent[host] = answer
                else:
                    self._silent.pop(host, None)
                    self._known[host] = [seen for seen in answer if self._homes.setdefault(seen.name, host) == host]
        there = {seen.name for known in self._known.values() for seen in known}
        self._homes = {name: host for name, host in self._homes.items() if name in there or host in self._silent}

    def _ask(self, host: str) -> list[Seen] | str:
        """The allocations of a machine, or why they are not known."""
        try:
            told = commands.run(self._settings, host, scripts.list_all(self._settings.folder, self._prefix))
        except (Unreachable, commands.Failed) as error:
            return str(error)
        seen = (_seen(line, host) for line in told.splitlines() if line.startswith(self._prefix))
        return [one for one in seen if one is not None]

    def _why_silent(self) -> str:
        return "; ".join(self._silent[host] for host in sorted(self._silent))


def _seen(line: str, host: str) -> Seen | None:
    """An allocation, of a line of `scripts.list_all`; None if it is none."""
    name, number, state = (*line.split(" ", 2), "", "")[:3]
    if not is_allocation_name(name):
        return None
    number = number if number.isdecimal() else "-"
    cancelled, words = state.startswith("cancelled "), state.removeprefix("cancelled ").split()
    engine_id = _engine_id(number, host)
    match words:
        case ["started"]:
            return Seen(name, engine_id, State.STARTED)
        case ["exit", "0"]:
            found = Seen(name, engine_id, State.COMPLETED)
        case ["exit", code] if _CODE.fullmatch(code):
            signalled = int(code) - _SIGNALLED
            how = f"was ended by {signal_name(signalled)}" if signalled in _SIGNALS else f"ended with exit code {code}"
            found = Seen(name, engine_id, State.FAILED, f"Its process {how}.")
        case ["rebooted"]:
            found = Seen(name, engine_id, State.PREEMPTED, f"{host} was started anew.")
        case _:
            found = Seen(name, engine_id, State.FAILED, "It was killed, with its keeper.")
    return found._replace(state=State.CANCELLED) if cancelled else found


def _engine_id(number: str, host: str) -> str:
    return f"process {number} on {host}"


def _host_of(seen: Seen) -> str:
    return seen.engine_id.rpartition(" on ")[2]


def shown(settings: SshSettings, request: Request) -> str:
    """What a machine would be asked for a request, for people."""
    host = next(iter(settings.hosts))
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(request.agent.environment.items())]
    words = [*variables, shlex.join(request.agent.arguments)]
    return f"{shlex.join(commands.command(settings, host))}  # or another machine with room\n{' '.join(words)}"
