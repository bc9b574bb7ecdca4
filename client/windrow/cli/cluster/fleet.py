"""`windrow fleet`: programs that get agents from an engine, as the queue needs them."""

from __future__ import annotations

import csv
import io
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from windrow.cli import exit_codes
from windrow.cli.messages import RawOutput, say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, open_served
from windrow.cli.tables import ago, local_time, out, print_fields, print_json, print_table
from windrow.common.hidden_process import hide_process
from windrow.common.quantities import brief_duration, counted, duration, size
from windrow.common.spreadsheet_cells import as_texts
from windrow.errors import MasterUnreachable, UsageError

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.fleet import Allocation, Fleet, FleetGroup

NOT_HERE = "Runs on this machine have no fleets: they bring their own agent."
PATIENCE_S = 2.0
FILE_BOUND = "file"


class FleetForm(str, Enum):  # noqa: UP042  typer shows the values of a plain str Enum
    """The form of what is shown of fleets."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


Form = Annotated[
    FleetForm, Option("--format", "-o", help="json: one JSON document on standard output. csv: a table, with a header.")
]
FleetName = Annotated[str, Argument(metavar="FLEET", help="Name of the fleet.")]


@command(epilog="Example: windrow fleet run fleet.yml --dry-run")
def run(
    file: Annotated[Path, Argument(metavar="FILE", help="The fleet's file (YAML).")],
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be submitted now, in the engine's words; submit nothing.")
    ] = False,
    master: Master = None,
) -> int:
    """Get agents from an engine as the queue needs them.

    The program may be ended or killed at any time: its agents go on, and the next program of the fleet takes them
    over. Ends with 6 if another program has taken the fleet; then do not start it again. Needs a token with the role
    operate for all projects.
    """
    from windrow.fleet.file import load_fleet_file

    hide_process()  # it has a token that admits it everywhere, and scripts may run here as its user
    read = load_fleet_file(file)
    for warning in read.warnings:
        say(f"warning: {warning}")
    with _open_for_program(master) as client:
        connection = client.connection
        for group in read.fleet.groups:
            if connection.secure and not group.agent.ca_file:
                raise UsageError(
                    f"The master at {client.address} uses TLS, and agents of group {group.name} have no certificate to "
                    f"know it by. Write agent: {{ca_file: /path/to/ca.pem}} into {file}, with the path on the machines "
                    "where agents run."
                )
        from windrow.fleet import dry_run as dry
        from windrow.fleet.program import FleetProgram

        if dry_run:
            try:
                for line in dry.lines(read.fleet, connection, client.address):
                    out(line, whole=True)
            except MasterUnreachable:
                for line in dry.examples(read.fleet, client.address):
                    out(line, whole=True)
                raise
            return exit_codes.DONE
        return _run_program(lambda: FleetProgram(read.fleet, connection, client.address))


@command(epilog="Example: windrow fleet scaler --listen 0.0.0.0:6000 --tls-file tls.pem")
def scaler(
    listen: Annotated[str, Option("--listen", metavar="ADDRESS", help="host:port where KEDA asks.")] = "127.0.0.1:6000",
    tls_file: Annotated[
        Path | None,
        Option("--tls-file", metavar="FILE", help="Key and certificates of this server, in PEM."),
    ] = None,
    insecure: Annotated[bool, Option("--insecure", help="Serve other machines without TLS.")] = False,
    master: Master = None,
) -> int:
    """Tell KEDA how many agents a ScaledJob is to have.

    An external scaler for clusters of Kubernetes that scale with KEDA: it starts the agents instead of a fleet. The
    program may be ended at any time; KEDA then starts nothing until it is back. Needs a token with the role operate for
    all projects.
    """
    from windrow.fleet.scaler import ScalerProgram, check_guards

    hide_process()
    check_guards(listen, tls_file, insecure=insecure)
    with _open_for_program(master) as client:

        def make() -> ScalerProgram:
            try:
                return ScalerProgram(client.connection, listen, tls_file)
            except OSError as error:
                raise UsageError(str(error)) from error

        return _run_program(make)


class _Program(Protocol):
    def stop(self) -> None:
        """End soon."""

    def run(self) -> int:
        """Run until `stop`; return the exit code."""


@contextmanager
def _open_for_program(master: str | None) -> Iterator[Client]:
    """A client for a program that has a token for all projects, and says itself when the master is away."""
    with open_served(master, NOT_HERE) as client:
        client.connection.patience_s = PATIENCE_S
        client.connection.on_wait = lambda message: None
        yield client


def _run_program(make: Callable[[], _Program]) -> int:
    """Run a program until a signal ends it; return its exit code."""
    from windrow.common.journal import log_to_console

    log_to_console()
    program = make()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: program.stop())
    return program.run()


@command(epilog="Example: windrow fleet list --format json")
def list_fleets(master: Master = None, form: Form = FleetForm.TEXT) -> int:
    """List what the groups of all fleets want, have and wait for.

    WANTED: agents that a group wants alive. QUEUED: asked for, and not started. STARTED: by the engine. ALIVE: agents
    that serve. BUSY: agents that have something to do.
    """
    with open_served(master, NOT_HERE) as client:
        fleets = client.fleets.list()
    if form is FleetForm.JSON:
        print_json([fleet.to_dict() for fleet in fleets])
    elif form is FleetForm.CSV:
        names = ("wanted", "begun", "queued", "started", "alive", "busy", "min", "max", "reason")
        rows = [
            [fleet.name, group.name, group.provider, group.pool, *(getattr(group, name) for name in names)]
            for fleet in fleets
            for group in fleet.groups
        ]
        _print_csv(("fleet", "group", "provider", "pool", *names), rows)
    elif not fleets:
        out("This master has no fleets. Start one: windrow fleet run FILE")
    else:
        print_table(
            (
                *("FLEET", "GROUP", "PROVIDER", "POOL", ">WANTED", ">QUEUED", ">STARTED", ">ALIVE", ">BUSY"),
                *(">MIN-MAX", "REASON"),
            ),
            [_row(fleet, group) for fleet in fleets for group in fleet.groups],
            folds=False,
        )
        for fleet in fleets:
            if warning := _silent(fleet):
                say(warning)
    return exit_codes.DONE


def _row(fleet: Fleet, group: FleetGroup) -> tuple[str, ...]:
    counts = (group.wanted, group.begun + group.queued, group.started, group.alive, group.busy)
    return (
        fleet.name,
        group.name,
        group.provider,
        group.pool,
        *(f"{count:,}" for count in counts),
        f"{group.min}-{group.max}",
        _reason(fleet, group),
    )


def _reason(fleet: Fleet, group: FleetGroup) -> str:
    """Why a group has not more; a pause counts before its program has heard of it."""
    if fleet.paused and not group.reason.startswith("Paused"):
        return f"Paused{f' by {fleet.paused_by}' if fleet.paused_by else ''}: windrow fleet resume {fleet.name}"
    if group.retry_time is None:
        return group.reason
    left_s = max(0.0, (group.retry_time - datetime.now(UTC)).total_seconds())
    return f"{group.reason} Next try in {duration(left_s)}."


SILENT_S = 15.0
LAST_WORDS = 3
"""Of so many agents."""


def _silent(fleet: Fleet) -> str:
    """A warning of a fleet whose program is not heard."""
    if fleet.silent_s is not None and fleet.silent_s < SILENT_S:
        return ""
    since = "since the master started" if fleet.silent_s is None else f"for {duration(fleet.silent_s)}"
    was = f" ({fleet.program})" if fleet.program else ""
    return (
        f"warning: The program of fleet {fleet.name}{was} has not been heard {since}, so it asks for no agents. "
        "Start it: windrow fleet run FILE"
    )


@command(epilog="Example: windrow fleet show site --ended 20")
def show(
    name: FleetName,
    ended: Annotated[int, Option("--ended", metavar="N", min=0, help="Show so many allocations that have ended.")] = 10,
    master: Master = None,
    form: Form = FleetForm.TEXT,
) -> int:
    """Show a fleet with its allocations, and why they wait.

    An allocation is what the fleet asks its engine for, such as a Slurm job; it holds one agent.
    """
    from windrow.sdk.fleet import ENDED_MAX

    with open_served(master, NOT_HERE) as client:
        fleet = client.fleets.get(name, ended_max=ENDED_MAX)
    costs = {group.name: fleet.cost_today(group.name) for group in fleet.groups}
    allocations = _shown(fleet.allocations or (), ended)
    if form is FleetForm.JSON:
        print_json(fleet._replace(allocations=allocations).to_dict() | {"cost_today": costs})
        return exit_codes.DONE
    if form is FleetForm.CSV:
        header = (
            "allocation",
            "group",
            "state",
            "engine_id",
            "node",
            "begin_time",
            "end_time",
            "alive",
            "busy",
            "reason",
        )
        _print_csv(
            header,
            [
                [
                    *(one.name, one.group, one.state, one.engine_id, one.node_id),
                    *(moment.isoformat() if moment else "" for moment in (one.begin_time, one.end_time)),
                    *(one.is_alive, one.is_busy, one.reason),
                ]
                for one in allocations
            ],
        )
        return exit_codes.DONE
    print_fields([("fleet", fleet.name), ("program", _program(fleet)), ("paused", _paused(fleet))])
    for group in fleet.groups:
        out("")
        print_fields(_fields(fleet, group, costs[group.name]))
    if allocations:
        out("")
        now = datetime.now(UTC)
        print_table(
            ("ALLOCATION", "GROUP", "STATE", "ENGINE ID", ">AGE", ">AGENT FOR", "AGENT", "REASON"),
            [
                (
                    one.name,
                    one.group,
                    one.state,
                    one.engine_id,
                    brief_duration((now - one.begin_time).total_seconds()) if one.begin_time else "",
                    brief_duration(((one.end_time or now) - one.start_time).total_seconds()) if one.start_time else "",
                    _agent(one),
                    one.reason.partition("\n")[0],
                )
                for one in allocations
            ],
            folds=False,
        )
    _print_last_words(allocations)
    return exit_codes.DONE


def _print_last_words(allocations: tuple[Allocation, ...]) -> None:
    """What the agents wrote last whose allocations ended badly: the newest few of them."""
    told = [(one.name, lines) for one in allocations if (lines := one.reason.splitlines()[1:])]
    for name, lines in told[:LAST_WORDS]:
        out("")
        out(f"Last lines of the agent in {name}:")
        for line in lines:
            out(f"  {line}")


def _shown(allocations: tuple[Allocation, ...], ended: int) -> tuple[Allocation, ...]:
    """Those that have not ended, and the last that have."""
    gone = [one for one in allocations if one.has_ended][:ended]
    return (*(one for one in allocations if not one.has_ended), *gone)


def _program(fleet: Fleet) -> str:
    if not fleet.program:
        return "none has been heard"
    silent = "" if fleet.silent_s is None else f", last heard {duration(fleet.silent_s)} ago"
    return f"{fleet.program}, since {local_time(fleet.program_time)}{silent}"


def _paused(fleet: Fleet) -> str:
    if not fleet.paused:
        return "no"
    by = f" by {fleet.paused_by}" if fleet.paused_by else ""
    return f"{ago(fleet.pause_time)}{by}; to go on: windrow fleet resume {fleet.name}"


def _fields(fleet: Fleet, group: FleetGroup, cost: float | None) -> list[tuple[str, str]]:
    offers = [counted(round(group.slots), "slot")]
    if group.memory_bytes:
        offers.append(size(group.memory_bytes))
    if group.gpus:
        offers.append(counted(group.gpus, "GPU"))
    life = "" if group.lifetime_s is None else f", at most for {duration(group.lifetime_s)}"
    bounds = "".join(
        f"; {word} {value} is set instead of the file's"
        for word, value in (("min", group.min_set), ("max", group.max_set))
        if value is not None
    )
    ended = ", ".join(f"{count:,} {state}" for state, count in group.ended.items())
    fields = [
        ("group", group.name),
        ("provider", group.provider),
        ("pool", group.pool or "none: its agents serve steps of all pools"),
        ("an agent", f"{', '.join(offers)}; stays {duration(group.exit_idle_s)} without work{life}"),
        ("agents", f"{group.min} to {group.max}{bounds}"),
        (
            "has",
            f"{group.wanted:,} wanted, {group.begun + group.queued:,} queued, {group.started:,} started, "
            f"{group.alive:,} alive, {group.busy:,} busy",
        ),
        ("has had", f"{ended}: allocations that have ended" if ended else ""),
        ("cost today", "" if cost is None else f"{cost:,.2f}"),
        ("reason", _reason(fleet, group)),
    ]
    return [(name, value) for name, value in fields if value]


def _agent(one: Allocation) -> str:
    if not one.is_alive:
        return "" if one.join_time is None else "gone"
    return "leaving" if one.is_leaving else "busy" if one.is_busy else "idle"


@command(epilog="Example: windrow fleet pause site")
def pause(name: FleetName, master: Master = None) -> int:
    """Have a fleet ask its engines for nothing more.

    Its agents stay, and leave by themselves when they are idle. Needs the role operate for all projects.
    """
    with open_served(master, NOT_HERE) as client:
        client.fleets.pause(name)
    out(f"Fleet {name} is paused: it asks for no more agents. To go on: windrow fleet resume {name}")
    return exit_codes.DONE


@command(epilog="Example: windrow fleet resume site")
def resume(name: FleetName, master: Master = None) -> int:
    """Have a fleet ask its engines again, at once.

    Also if nobody has paused it: what it has put off because asking failed, it tries at once. Needs the role operate
    for all projects.
    """
    with open_served(master, NOT_HERE) as client:
        client.fleets.resume(name)
    out(f"Fleet {name} asks for agents as they are needed.")
    return exit_codes.DONE


@command(epilog="Example: windrow fleet scale site cpu --max 20")
def scale(
    name: FleetName,
    group: Annotated[str, Argument(metavar="GROUP", help="Name of the group.")],
    least: Annotated[
        str | None, Option("--min", metavar="N", help=f"So many agents stay; {FILE_BOUND}: as its file says.")
    ] = None,
    most: Annotated[
        str | None, Option("--max", metavar="N", help=f"So many agents at most; {FILE_BOUND}: as its file says.")
    ] = None,
    master: Master = None,
) -> int:
    """Set how many agents a group may have, instead of its file.

    What is not given stays. Agents that are too many then leave when they are idle; those that were started to stay do
    not: drain them (windrow node drain). Needs the role operate for all projects.
    """
    if least is None and most is None:
        raise UsageError("Nothing is to be set. Give --min, --max or both.")
    bounds = {"min": _bound("--min", least), "max": _bound("--max", most)}
    with open_served(master, NOT_HERE) as client:
        fleet = client.fleets.scale(name, group, **bounds)
    found = next(one for one in fleet.groups if one.name == group)
    out(f"Group {group} of fleet {name}: {found.min} to {found.max} agents.")
    return exit_codes.DONE


def _bound(option: str, text: str | None) -> Any:
    """What an option sets: a number, the file's bound, or nothing. Raises UsageError."""
    from windrow.sdk.fleet import FROM_FILE

    if text is None:
        return None
    if text == FILE_BOUND:
        return FROM_FILE
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise UsageError(f"{option} {text}: expected a number of agents, or {FILE_BOUND} for the bound of the file.")
    return int(text)


@command(epilog="Example: windrow fleet delete site")
def delete(name: FleetName, master: Master = None) -> int:
    """Forget a fleet that has no program and no allocations.

    Needs the role operate for all projects.
    """
    with open_served(master, NOT_HERE) as client:
        client.fleets.delete(name)
    out(f"Fleet {name} is forgotten.")
    return exit_codes.DONE


def _print_csv(header: tuple[str, ...], rows: list[list[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(map(as_texts, rows))
    RawOutput().write_text(text.getvalue())
    sys.stdout.flush()
