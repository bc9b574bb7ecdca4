"""`windrow context`: masters by name, with what it takes to reach them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Output, OutputForm
from windrow.cli.tables import out, print_json, print_table
from windrow.errors import UsageError
from windrow.rpc.contexts import Access, Contexts, access_from_json, find_access, read_text

ContextName = Annotated[
    str, Argument(metavar="NAME", help="Name of the context.", autocompletion=completion.context_names)
]


@command(epilog="Example: windrow context add prod --master gpu1:8470 --ca-file ca.pem --token-file token")
def add(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the context.")],
    exported: Annotated[
        str | None, Argument(metavar="FILE", help="What `windrow context export` wrote; - for standard input.")
    ] = None,
    master: Annotated[
        str | None,
        Option("--master", metavar="ADDRESS", help="Instead of a file: the address of the master, host:port."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        Option("--ca-file", metavar="FILE", help="With --master: certificates that vouch for it, in PEM."),
    ] = None,
    token_file: Annotated[
        Path | None, Option("--token-file", metavar="FILE", help="With --master: the client token.")
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


@command(epilog="Example: windrow context use prod")
def use(name: ContextName) -> int:
    """Choose the master that commands use by default.

    `none`: commands go to runs on this machine.
    """
    contexts = Contexts()
    contexts.use(name)
    access = contexts.in_use()
    out(f"Context {name} ({access.address}) is in use" if access else "No context is in use")
    return exit_codes.DONE


@command(epilog="Example: windrow context list")
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


@command(epilog="Example: windrow context remove prod")
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


@command(epilog="Example: windrow context export > prod.context")
def export(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME",
            help="Name of the context [default: $WINDROW_MASTER, else the one in use].",
            autocompletion=completion.context_names,
        ),
    ] = None,
    address: Annotated[
        str | None,
        Option(
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
    out((access._replace(address=address).check() if address else access).to_json(), whole=True)
    return exit_codes.DONE
