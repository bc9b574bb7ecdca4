"""`windrow token`: the tokens by which a master knows its clients, and admits nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import say
from windrow.cli.options.declared import Argument, Option, command
from windrow.cli.options.shared import Master, Output, OutputForm, open_served
from windrow.cli.tables import local_time, out, print_json, print_table
from windrow.common.quantities import seconds_in
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.token import Token

NOT_HERE = "Runs on this machine have no tokens: they belong to whoever may use their state folder."
TokenName = Annotated[str, Argument(metavar="NAME", help="Name of the token.")]


class Role(StrEnum):
    """What a token allows."""

    VIEW = "view"
    SUBMIT = "submit"
    OPERATE = "operate"
    ADMIN = "admin"


@command(
    epilog="Example: windrow token create ci --role submit --project vision --expires 90d > ci.token",
)
def create(
    name: TokenName,
    role: Annotated[
        Role | None,
        Option(
            help="What it allows: view reads jobs; submit also submits, cancels and retries them; operate also drains, "
            "cordons and removes nodes; admin also makes tokens."
        ),
    ] = None,
    project: Annotated[
        str,
        Option(
            metavar="NAME", help="The only project whose jobs it sees, and to which it submits [default: all projects]."
        ),
    ] = "",
    join: Annotated[bool, Option("--join", help="Instead of a role: it admits nodes (windrow agent).")] = False,
    expires: Annotated[
        str | None, Option(metavar="TIME", help="How long it is good, such as 12h or 30d [default: for ever].")
    ] = None,
    uses: Annotated[
        int | None,
        Option(min=1, max=1_000_000, metavar="N", help="With --join: how many nodes it admits [default: any]."),
    ] = None,
    master: Master = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Make a token, which is good at once.

    It is written to standard output, and can never be shown again: the master keeps only a digest of it.
    """
    if join == (role is not None):
        raise UsageError("Give either --role view|submit|operate|admin, for clients, or --join, for nodes.")
    if join and project:
        raise UsageError("--project belongs to --role: a join token admits nodes, which work for all projects.")
    if uses is not None and not join:
        raise UsageError("--uses belongs to --join.")
    lifetime = None if expires is None else _lifetime(expires)
    with open_served(master, NOT_HERE) as client:
        if role is None:
            token, secret = client.tokens.create_join(name, expires=lifetime, uses=uses)
        else:
            token, secret = client.tokens.create(name, role.value, project=project, expires=lifetime)
    if output is OutputForm.JSON:
        print_json(token.to_dict() | {"token": secret})
        return exit_codes.DONE
    say(f"Made the token {token.name}, {_what(token)}. This is the only time that it is shown:")
    out(secret)
    if join:
        say("An agent reads it from a file: windrow agent --join-token-file FILE")
    else:
        say("A client reads it from a file: windrow context add NAME --master … --ca-file ca.pem --token-file FILE")
    return exit_codes.DONE


@command(epilog="Example: windrow token list --format json")
def list_tokens(master: Master = None, output: Output = OutputForm.TEXT) -> int:
    """List the tokens that were not revoked, with their last use."""
    with open_served(master, NOT_HERE) as client:
        tokens = list(client.tokens.list())
    if output is OutputForm.JSON:
        print_json([token.to_dict() for token in tokens])
    elif not tokens:
        out("This master has no tokens: it asks nobody for one.")
    else:
        print_table(
            ("NAME", "ROLE", "PROJECT", "MADE", "EXPIRES", ">USES LEFT", "LAST USE"),
            [
                (
                    token.name,
                    token.role or token.kind,
                    token.project or ("all" if token.role else ""),
                    local_time(token.create_time),
                    _end(token),
                    "" if token.uses_left is None else str(token.uses_left),
                    local_time(token.last_use_time) or "never",
                )
                for token in tokens
            ],
        )
    return exit_codes.DONE


@command(epilog="Example: windrow token revoke ci")
def revoke(name: TokenName, master: Master = None, output: Output = OutputForm.TEXT) -> int:
    """End a token at once, with the calls that are made with it.

    Nodes that a join token has admitted stay: `windrow node remove --force` ends them.
    """
    with open_served(master, NOT_HERE) as client:
        client.tokens.revoke(name)
    if output is OutputForm.JSON:
        print_json({"name": name, "revoked": True})
    else:
        out(f"The token {name} was revoked.")
    return exit_codes.DONE


def _lifetime(text: str) -> timedelta:
    seconds = seconds_in(text)
    if not seconds:
        raise UsageError(f"--expires {text} is not a time. Write how long the token is good: 12h, 30d or 52w.")
    try:
        return timedelta(seconds=seconds)
    except OverflowError as error:
        raise UsageError(f"--expires {text}: a token is good for at most a hundred years.") from error


def _what(token: Token) -> str:
    """What a token is for, in words."""
    until = f", until {local_time(token.expire_time)}" if token.expire_time is not None else ""
    if token.kind == "join":
        return f"which admits {'nodes' if token.uses_left is None else f'{token.uses_left} nodes'}{until}"
    return (
        f"with the role {token.role} for {f'the project {token.project}' if token.project else 'all projects'}{until}"
    )


def _end(token: Token) -> str:
    if token.expire_time is None:
        return "never"
    over = token.expire_time <= datetime.now(UTC)
    return f"{local_time(token.expire_time)}{' (expired)' if over else ''}"
