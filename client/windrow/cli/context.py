"""`windrow context`: masters by name, with what it takes to reach them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from windrow.cli import completion, exit_codes
from windrow.cli.options import Output, OutputForm, guarded
from windrow.cli.tables import out, print_json, print_table
from windrow.errors import UsageError
from windrow.rpc.contexts import Access, Contexts, access_from_json, find_access, read_text

app = typer.Typer(
    help="Name masters, with address, certificates and client token.",
    no_args_is_help=True,
    epilog="Example: docker compose run --rm -T client context export | windrow context add local -",
)

ContextName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=completion.context_names)
]


@app.command("add", epilog="Example: windrow context add prod --master gpu1:8470 --ca-file ca.pem --token-file token")
@guarded
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")],
    exported: Annotated[
        str | None, typer.Argument(metavar="FILE", help="What `windrow context export` wrote; - for standard input.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="ADDRESS", help="Instead of a file: the address of the master, host:port."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="With --master: certificates that vouch for it, in PEM."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="With --master: the client token.")
    ] = None,
) -> int:
    """Add or replace a context. The first one is in use at once."""
    if (exported is None) == (master is None):
        raise UsageError("Give either an exported context (a file, or -) or --master ADDRESS.")
    if exported is not None:
        if ca_file or token_file:
            raise UsageError("--ca-file and --token-file belong to --master; an exported context holds both.")
        text = sys.stdin.read() if exported == "-" else read_text(exported, "The exported context is in")
        access = access_from_json(text)
    else:
        ca = read_text(ca_file, "--ca-file names") if ca_file else ""
        token = read_text(token_file, "--token-file names") if token_file else ""
        access = Access(master or "", ca, token).check()
    contexts = Contexts()
    contexts.add(name, access)
    used = ", and in use" if contexts.current == name else f". To use it: windrow context use {name}"
    out(f"Context {name} ({access.address}) added{used}")
    return exit_codes.DONE


@app.command("use", epilog="Example: windrow context use prod")
@guarded
def use(name: ContextName) -> int:
    """Choose the master that commands use by default.

    `none`: commands go to runs on this machine.
    """
    contexts = Contexts()
    contexts.use(name)
    access = contexts.in_use()
    out(f"Context {name} ({access.address}) is in use" if access else "No context is in use")
    return exit_codes.DONE


@app.command("list", epilog="Example: windrow context list")
@guarded
def list_contexts(output: Output = OutputForm.TEXT) -> int:
    """List the contexts. A star marks the one in use."""
    contexts = Contexts()
    rows = [
        {
            "name": name,
            "in_use": name == contexts.current,
            "address": access.address,
            "tls": bool(access.ca),
            "token": bool(access.token),
        }
        for name, access in sorted(contexts.all.items())
    ]
    if output is OutputForm.JSON:
        print_json(rows)
    elif not rows:
        out("There is no context yet. Add one with: windrow context add NAME --master ADDRESS")
    else:
        print_table(
            ("", "NAME", "ADDRESS", "TLS", "TOKEN"),
            [
                (
                    "*" if row["in_use"] else "",
                    str(row["name"]),
                    str(row["address"]),
                    "yes" if row["tls"] else "no",
                    "yes" if row["token"] else "no",
                )
                for row in rows
            ],
        )
    return exit_codes.DONE


@app.command("remove", epilog="Example: windrow context remove prod")
@guarded
def remove(name: ContextName) -> int:
    """Forget a context."""
    contexts = Contexts()
    was_in_use = contexts.current == name
    contexts.remove(name)
    more = ", and none is in use now" if was_in_use else ""
    if was_in_use and contexts.all:
        more += f": windrow context use {'|'.join(sorted(contexts.all))}"
    out(f"Context {name} is removed{more}")
    return exit_codes.DONE


@app.command("export", epilog="Example: windrow context export > prod.context")
@guarded
def export(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the context [default: $WINDROW_MASTER, else the one in use].",
            autocompletion=completion.context_names,
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            envvar="WINDROW_PUBLIC_ADDRESS",
            metavar="ADDRESS",
            help="Address under which others reach the master, if that differs.",
        ),
    ] = None,
) -> int:
    """Print a context, for `windrow context add NAME -` elsewhere.

    It holds the client token: keep it secret.
    """
    access = Contexts().get(name) if name is not None else find_access(None, os.environ)
    if access is None:
        raise UsageError("Which context? Give its name, or use one: windrow context use NAME")
    out((access._replace(address=address).check() if address else access).to_json())
    return exit_codes.DONE
