"""`windrow node`: the nodes of a master."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from windrow.cli import exit_codes
from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.cli.tables import out, print_json, print_table, shortened
from windrow.common.quantities import counted, duration, first_few, size
from windrow.sdk.node import Node, WorkerGpu

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.master import Master as FoundMaster

POLL_S = 0.25
USERS_NAMED = 2
USER_WIDTH = 16
GPUS_SHOWN = 64
WORKERS_NAMED = 4
IDLE_SHOWN_S = 60.0
NO_RUN = (
    "No run is live over this state folder. A run on this machine brings its own node, which ends with it; for a "
    "master that runs elsewhere, add --master ADDRESS."
)

_Value = TypeVar("_Value")


NodeName = Annotated[str, Argument(metavar="NODE", help="Name of the node.", autocompletion=completion.node_names)]


@command(epilog="Example: windrow node list --master 127.0.0.1:8470")
def list_nodes(master: Master = None, state: State = None, output: Output = OutputForm.TEXT) -> int:
    """List the nodes with what they offer, use and report.

    Warns of certificates that expire soon.
    """
    with open_client(master, state) as client:
        nodes = list(client.list_nodes())
        found, alone = warn_read_only(client), client.runs_nothing
    if output is OutputForm.JSON:
        ends = found.certificate_good_until
        shared = {"master_certificate_good_until": ends.isoformat() if ends is not None else None}
        print_json([node.to_dict() | shared for node in nodes])
    elif not nodes and alone:
        out(NO_RUN)
    elif not nodes:
        out("This master has no nodes. Start one: windrow agent --master ADDRESS (with Docker: docker compose up -d)")
    else:
        columns = [one for one in _COLUMNS if not one.is_shown or any(map(one.is_shown, nodes))]
        print_table(
            [column.title for column in columns],
            [[_cell(node, column) for column in columns] for node in nodes],
        )
        _tell_gpus(nodes)
        if alone:
            out(f"These are nodes of runs that have ended. {NO_RUN}")
    for note in _expiring(found, nodes, datetime.now(UTC)):
        say(f"{coloured('warning:', YELLOW, sys.stderr)} {note}")
    return exit_codes.DONE


@command(epilog="Example: windrow node drain gpu-3 --wait")
def drain(
    node: NodeName,
    wait: Annotated[bool, Option("--wait", help="Return when its agent has left. Ctrl-C stops waiting.")] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Ask a node to leave.

    The node hands back what has not started and finishes what runs, within its agent's grace period. Then the agent
    ends. If it is started again, the node gets no work until `windrow node uncordon`.
    """
    with open_client(master, state) as client:
        found = client.drain_node(node)
        told = _drained(found)
        if wait and found.state != "lost":
            try:
                found, told = _wait_until_left(client, found)
            except KeyboardInterrupt:
                say(f"{node} is still draining; `windrow node list` shows when it has left.")
                return exit_codes.INTERRUPTED
    _answer(found, told, output)
    return exit_codes.DONE


@command(epilog="Example: windrow node cordon gpu-3")
def cordon(node: NodeName, master: Master = None, state: State = None, output: Output = OutputForm.TEXT) -> int:
    """Give a node no new work. It finishes what it has, and stays.

    A cordon belongs to the node's name: it outlives restarts of the agent and of the master, until `windrow node
    uncordon`.
    """
    with open_client(master, state) as client:
        found = client.cordon_node(node)
    _answer(found, f"{node} is cordoned: it gets no new work until `windrow node uncordon {node}`.", output)
    return exit_codes.DONE


@command(epilog="Example: windrow node uncordon gpu-3")
def uncordon(node: NodeName, master: Master = None, state: State = None, output: Output = OutputForm.TEXT) -> int:
    """Give a node work again."""
    with open_client(master, state) as client:
        found = client.cordon_node(node, cordoned=False)
    told = {
        "lost": f"{node} is no longer cordoned. It is gone, and its name is forgotten until it comes back.",
        "draining": f"{node} is no longer cordoned. It is still draining, and gets work when it comes back.",
    }
    _answer(found, told.get(found.state, f"{node} is no longer cordoned: it gets work."), output)
    return exit_codes.DONE


@command(epilog="Example: windrow node remove gpu-3")
def remove(
    node: NodeName,
    force: Annotated[
        bool, Option("--force", help="Also if it is connected: end its connection, and take its work back.")
    ] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Forget a node that is gone. Its work runs elsewhere at once, and its cordon ends.

    A connected node is refused: drain it first. With --force, its connection ends; its agent joins again if its join
    token is still good. To keep it out, revoke that token first (windrow token revoke).
    """
    with open_client(master, state) as client:
        client.remove_node(node, force=force)
    if output is OutputForm.JSON:
        print_json({"node_id": node, "removed": True})
    else:
        out(f"{node} was removed. Its mini-batches run on other nodes.")
    return exit_codes.DONE


def _drained(node: Node) -> str:
    if node.state == "lost":
        return f"{node.node_id} is already gone. Its name stays cordoned."
    return (
        f"{node.node_id} is leaving: it hands back what it has not started, and finishes the rest. "
        "Its name stays cordoned."
    )


def _wait_until_left(client: Client, asked: Node) -> tuple[Node, str]:
    """Wait until this incarnation of a node has left. Returns the node in its last state, and a sentence about how it
    left.
    """
    name = asked.node_id
    while True:
        found = next((node for node in client.list_nodes() if node.node_id == name), None)
        if found is None:
            return asked._replace(state="lost", cordoned=False), f"{name} has left, and its name is forgotten."
        if found.node_incarnation != asked.node_incarnation:
            return (
                found,
                f"{name} has left. Another agent has connected under its name; it gets no work while it is cordoned.",
            )
        if found.state == "lost":
            how = "has left" if found.message == "Left." else f"is gone: {found.message.rstrip('.')}"
            return found, f"{name} {how}. Its name stays cordoned."
        time.sleep(POLL_S)


def _answer(node: Node, told: str, output: OutputForm) -> None:
    if output is OutputForm.JSON:
        print_json(node.to_dict())
    else:
        out(told)


def _sandbox(node: Node) -> str:
    """What its scripts are confined by, in a word or two; empty if it has not said."""
    return node.protection.partition(":")[0]


def _data_cache(node: Node) -> str:
    """What its data cache holds, and how often that was of use; empty if it has none."""
    cache = node.data_cache
    if cache is None:
        return ""
    if cache.trouble:
        return "not used"
    asked = cache.hits + cache.misses
    hits = f", {100 * cache.hits // asked}% hits" if asked else ""
    return f"{size(cache.bytes_held)} of {size(cache.bytes_max)}{hits}"


def _gpus(node: Node) -> str:
    """How many GPUs it offers, and of how many if some cannot be used."""
    lost = sum(bool(gpu.trouble) for gpu in node.gpus)
    if lost:
        return f"{len(node.gpus) - lost} of {len(node.gpus)}"
    return str(node.gpu_count)


def _tell_gpus(nodes: Sequence[Node]) -> None:
    """Print what the GPUs of the nodes are and do, and what is wrong with them."""
    nodes = [node for node in nodes if node.state != "lost"]
    rows = [row for node in nodes for row in _rows_of_gpus(node)]
    for node in nodes if not rows else ():
        _tell_gpu_trouble(node)
    if not rows:
        return
    with_why = any(row[-1] for row in rows)
    out("")
    print_table(
        ("NODE", ">GPU", "MODEL", ">MEMORY", ">BUSY", "WORKERS", *["WHY NOT USED"] * with_why),
        [row if with_why else row[:-1] for row in rows[:GPUS_SHOWN]],
    )
    if len(rows) > GPUS_SHOWN:
        out(f"… and {len(rows) - GPUS_SHOWN:,} more. `windrow node list --format json` shows all.")
    for node in nodes:
        _tell_gpu_trouble(node)


def _tell_gpu_trouble(node: Node) -> None:
    """Print why GPUs of a node cannot be seen or measured."""
    if node.gpu_trouble:
        out(f"{node.node_id}: {node.gpu_trouble}.")


def _rows_of_gpus(node: Node) -> Iterator[tuple[str, ...]]:
    for place, gpu in enumerate(node.gpus):
        used = _figure(gpu.memory_used_bytes, size)
        yield (
            node.node_id,
            str(place),
            gpu.model or gpu.device,
            f"{used} of {size(gpu.memory_bytes)}" if gpu.memory_bytes else used,
            _figure(gpu.busy_percent, "{:.0f}%".format),
            first_few(list(_gpu_workers(node, place)), WORKERS_NAMED),
            gpu.trouble,
        )


def _gpu_workers(node: Node, place: int) -> Iterator[str]:
    """The workers that hold a GPU, and what they do with it: `process001 (50% of it, 3 GB, busy 40%)`."""
    for worker in node.processes:
        if worker.gpu is not None and place in worker.gpu.places:
            told = gpu_words(worker.gpu)
            yield f"process{worker.process_number:03d}" + (f" ({told})" if told else "")


def gpu_words(gpu: WorkerGpu) -> str:
    """What a worker has of its GPUs, and does with it; empty if nobody knows."""
    told = []
    if gpu.share < 1:
        told.append(f"{100 * gpu.share:.0f}% of it")
    if gpu.memory_bytes is not None:
        told.append(size(gpu.memory_bytes))
    if gpu.idle_s >= IDLE_SHOWN_S:
        told.append(f"idle for {duration(gpu.idle_s)}")
    elif gpu.busy_percent is not None:
        told.append(f"busy {gpu.busy_percent:.0f}%")
    return ", ".join(told)


def used_by(node: Node) -> str:
    """Whose workers it has: by project, or by job if all are of one project."""
    of_project = len({user.project for user in node.users}) > 1
    counts: Counter[str] = Counter()
    for user in node.users:
        counts[user.project if of_project or not user.job_id else user.job_id] += user.workers
    named = [f"{shortened(name, USER_WIDTH)} {workers:,}" for name, workers in counts.most_common()]
    return first_few(named, USERS_NAMED)


def _why(node: Node) -> str:
    """Why the node is not ready, and what to do about it; empty if it is ready."""
    if node.builds and not node.message:
        longest = duration(max(node.builds.values()))
        return f"Building {'an environment' if len(node.builds) == 1 else 'environments'}, for {longest} so far."
    if not node.cordoned:
        return node.message
    if node.state == "lost":
        cordoned = f"Its name stays cordoned; to forget it: windrow node remove {node.node_id}"
    else:
        cordoned = f"Cordoned: gets no new work until `windrow node uncordon {node.node_id}`."
    return f"{node.message} {cordoned}".strip()


def _expiring(master: FoundMaster, nodes: Sequence[Node], now: datetime) -> Iterator[str]:
    """Say which certificates expire soon or have expired, and what to do."""
    from windrow.rpc.certificates import NEW_AUTHORITY, RENEW

    if (ends := master.certificate_good_until) is not None and (when := _when(ends, now)):
        yield f"the certificate of the master {when}. {RENEW}"
    by_end: dict[datetime, list[str]] = {}
    for node in nodes:
        if node.ca_good_until is not None:
            by_end.setdefault(node.ca_good_until, []).append(node.node_id)
    for ends, names in sorted(by_end.items()):
        if when := _when(ends, now):
            know = "know" if len(names) > 1 else "knows"
            yield f"the authority by which {', '.join(names)} {know} the master {when}. {NEW_AUTHORITY}"


def _when(ends: datetime, now: datetime) -> str:
    """When a certificate expires, in words; empty while there is plenty of time."""
    from windrow.rpc.certificates import WARN_DAYS, days_left

    days = days_left(ends.timestamp(), now.timestamp())
    if ends <= now:
        return f"expired on {ends:%Y-%m-%d}"
    return f"expires on {ends:%Y-%m-%d} ({counted(days, 'day')} left)" if days < WARN_DAYS else ""


def _figure(value: _Value | None, form: Callable[[_Value], str]) -> str:
    """A figure of the last heartbeat, in words; "-" if there has been none."""
    return "-" if value is None else form(value)


class _Column(NamedTuple):
    """A column of the list of nodes. `title`: as `print_table` takes it. `is_shown`: whether a node has something for
    it; without one that has, it is left out. `of_lost`: it is filled in for nodes that are lost, too, which use and
    offer nothing.
    """

    title: str
    value: Callable[[Node], str]
    is_shown: Callable[[Node], bool] | None = None
    of_lost: bool = False


_COLUMNS = (
    _Column("NODE", lambda node: node.node_id, of_lost=True),
    _Column("STATE", lambda node: f"{node.state},cordoned" if node.cordoned else node.state, of_lost=True),
    _Column("POOL", lambda node: ",".join(node.pools), lambda node: bool(node.pools), of_lost=True),
    _Column(">WORKERS", lambda node: f"{_figure(node.workers, str)}/{node.slots}"),
    _Column(">LEASES", lambda node: f"{node.leases:,}"),
    _Column(">CPU", lambda node: f"{_figure(node.cpu_percent, '{:.0f}%'.format)} of {node.cpu_count}"),
    _Column(">MEMORY", lambda node: f"{_figure(node.memory_used_bytes, size)} of {size(node.memory_bytes)}"),
    _Column(">DISK FREE", lambda node: _figure(node.disk_free_bytes or None, size)),
    _Column(">GPUS", _gpus),
    _Column(">SILENT", lambda node: _figure(node.silent_s, duration)),
    _Column(">ENDS IN", lambda node: _figure(node.lifetime_s, duration), lambda node: node.lifetime_s is not None),
    _Column("ALLOCATION", lambda node: node.allocation, lambda node: bool(node.allocation)),
    _Column("SANDBOX", _sandbox, lambda node: _sandbox(node) not in ("", "off")),
    _Column("DATA CACHE", _data_cache, lambda node: node.data_cache is not None),
    _Column("VERSION", lambda node: node.windrow_version, of_lost=True),
    _Column("USED BY", used_by),
    _Column("WHY", _why, of_lost=True),
)


def _cell(node: Node, column: _Column) -> str:
    return column.value(node) if column.of_lost or node.state != "lost" else ""
