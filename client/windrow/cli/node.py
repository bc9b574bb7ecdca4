"""`windrow node`: the nodes of a master."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer

from windrow.cli.display.figures import duration, size
from windrow.cli.options import Master, Output, OutputForm, State, guarded, open_client, warn_read_only
from windrow.cli.tables import out, print_json, print_table
from windrow.node import Node

_Value = TypeVar("_Value")

app = typer.Typer(help="The nodes of a master.", no_args_is_help=True, epilog="example: windrow node list")


@app.command("list", epilog="example: windrow node list --master 127.0.0.1:8470")
@guarded
def list_nodes(master: Master = None, state: State = None, output: Output = OutputForm.TEXT) -> int:
    """List the nodes: what they offer and use, and how they are."""
    with open_client(master, state) as client:
        nodes = list(client.list_nodes())
        warn_read_only(client)
    if output is OutputForm.JSON:
        print_json([node.to_dict() for node in nodes])
    elif not nodes:
        out("No node has registered with this master. Start one with: windrow agent --master ADDRESS")
    else:
        print_table(
            (
                "NODE",
                "STATE",
                ">WORKERS",
                ">LEASES",
                ">CPU",
                ">MEMORY",
                ">DISK FREE",
                ">GPUS",
                ">SILENT",
                "VERSION",
                "WHY",
            ),
            [_row(node) for node in nodes],
        )
    return 0


def _row(node: Node) -> tuple[str, ...]:
    return (
        node.node_id,
        node.state,
        f"{_told(node.workers, str)}/{node.slots}",
        f"{node.leases:,}",
        f"{_told(node.cpu_percent, '{:.0f}%'.format)} of {node.cpu_count}",
        f"{_told(node.memory_used_bytes, size)} of {size(node.memory_bytes)}",
        _told(node.disk_free_bytes or None, size),
        str(node.gpu_count),
        _told(node.silent_s, duration),
        node.windrow_version,
        node.message,
    )


def _told(value: _Value | None, form: Callable[[_Value], str]) -> str:
    """A figure of the last heartbeat, in words; "-" where there was none."""
    return "-" if value is None else form(value)
