"""`python -m windrow_master.setup`: what `windrow setup` starts."""

from __future__ import annotations

import argparse
import ipaddress
import re
import secrets
import socket
import sys
from pathlib import Path

from windrow.common.command_line import CommandLine

from windrow_master.files.durable import make_durable
from windrow_master.setup.owned_files import NotWritable, Owner, give_data, give_state, read_if_there, write_secret

EVERYBODY = 0o444
STAGES = ("begin", "switch", "finish")
"""Of replacing the authority."""
NEXT, BEFORE = "authority-next.pem", "authority-before.pem"
"""The authorities that are trusted beside the one in use, while it is replaced."""
TOKEN = re.compile(rb"[!-~]+\s*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class WrongStage(Exception):
    """The authority is not replaced in this order; the text says what comes first."""


def command_line() -> CommandLine:
    """The options of `windrow setup`."""
    parser = CommandLine(
        "windrow setup",
        description="Make certificates and tokens for a master, its agents and its clients, in four folders: "
        "authority, master, agent, client. If run again, it keeps what exists and renews what "
        "expires soon.",
        epilog="Example: windrow setup --folder /etc/windrow --name gpu1.example. Then: windrow master "
        "--tls-file /etc/windrow/master/tls.pem --join-token-file /etc/windrow/master/join-token "
        "--client-token-file /etc/windrow/master/client-token ...",
    )
    parser.add_argument(
        "--folder", required=True, type=Path, metavar="DIR", help="The folder in which to make the four folders."
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="HOST",
        help="Name or IP address of the master. Repeatable, or several with commas. [default: those of the "
        "current certificate, else this host's name]",
    )
    parser.add_argument(
        "--days", type=int, default=397, metavar="N", help="Validity of the certificate. [default: %(default)s]"
    )
    parser.add_argument(
        "--new-tokens",
        action="store_true",
        help="Replace both tokens, and the key and certificate of the master. A running master notices.",
    )
    parser.add_argument(
        "--new-authority",
        choices=STAGES,
        help="Replace the authority, in three stages: begin makes another, and both are trusted from then on (hand out "
        "ca.pem and contexts); switch makes the master's certificate by the new one; finish forgets the old one.",
    )
    parser.add_argument("--owner", metavar="UID[:GID]", help="Owner of the master's and the client's files.")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="Also change the owner of this state folder and everything in it (with --owner).",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="Also make this data folder writable for the owner (with --owner)."
    )
    return parser


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; exits with 2 and a message when it is wrong."""
    parser = command_line()
    given = parser.parse_args(arguments)
    given.name = [name for text in given.name for name in text.replace(",", " ").split()]
    for name in given.name:
        if not _is_host(name):
            parser.error(f"--name {name}: give a host name or an IP address, without a port")
    if given.days < 1:
        parser.error(f"--days {given.days}: at least 1")
    if given.owner is not None:
        match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", given.owner)
        if not match:
            parser.error(f"--owner {given.owner}: say UID or UID:GID, in numbers")
        given.owner = Owner(int(match[1]), int(match[2] or match[1]))
    elif given.state or given.data:
        parser.error("--state and --data require --owner")
    return given


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return NAME.fullmatch(name) is not None
    return True


def main() -> int:
    """Exit codes: 0 done, 1 it could not be done, 2 bad usage."""
    given = parse(sys.argv[1:])
    try:
        from windrow_master.setup.authority import AuthorityUnusable
    except ImportError:
        print(
            "windrow setup: the package cryptography is missing. Install it: pip install 'windrow[setup]'",
            file=sys.stderr,
        )
        return 1
    try:
        told = set_up(
            given.folder,
            given.name,
            given.days,
            given.owner,
            new_tokens=given.new_tokens,
            new_authority=given.new_authority or "",
        )
        print("\n".join(told))
        if given.state is not None:
            give_state(given.state, given.owner)
        if given.data is not None:
            give_data(given.data, given.owner)
    except NotWritable as error:
        print(f"windrow setup: {error}", file=sys.stderr)
        return 1
    except WrongStage as error:
        print(f"windrow setup: {error}", file=sys.stderr)
        return 2
    except AuthorityUnusable as error:
        print(
            f"windrow setup: {given.folder / 'authority' / 'authority.pem'} cannot be used: {error}. Restore it "
            "from a backup; or delete it, and give the new ca.pem and contexts to all agents and clients.",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"windrow setup: {error.filename or given.folder}: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


def set_up(
    folder: Path,
    names: list[str],
    days: int,
    owner: Owner | None,
    *,
    new_tokens: bool = False,
    new_authority: str = "",
) -> list[str]:
    """Make or renew everything, and report what was done. Raises OSError, AuthorityUnusable, WrongStage.

    If `owner` is None, existing files keep their owners. `new_authority`: one of STAGES.

    The folder `authority` holds the originals, for the user who runs this; the others get copies of what they need.
    """
    from windrow_master.setup.authority import Authority, names_of

    told: list[str] = []
    originals = folder / "authority"
    make_durable(originals)
    originals.chmod(0o700)
    pem = read_if_there(originals / "authority.pem")
    if new_authority:
        told += _replace_authority(originals, new_authority)
        pem = read_if_there(originals / "authority.pem")
    authority = Authority(pem) if pem is not None else Authority.make()
    if pem is None:
        write_secret(originals / "authority.pem", authority.pem, None)
        told.append("Made a private certificate authority.")
    tls = read_if_there(originals / "tls.pem")
    names = names or (names_of(tls) if tls is not None else []) or [socket.gethostname()]
    names = list(dict.fromkeys([*names, "localhost", "127.0.0.1", "::1"]))
    why = authority.why_renew(tls, names) if tls is not None else "there was none"
    if new_tokens and tls is not None:
        why = why or "a new key was asked for"
    if tls is None or why:
        tls = authority.issue(names, days)
        write_secret(originals / "tls.pem", tls, None)
        told.append(f"Made a certificate of {days} days for the master ({why}): {', '.join(names)}.")
    tokens: dict[str, bytes] = {}
    for name in ("join-token", "client-token"):
        token = read_if_there(originals / name)
        # One that is empty, or no text, would be refused by who reads it.
        if new_tokens or token is None or not TOKEN.fullmatch(token):
            token = secrets.token_hex(32).encode()
            write_secret(originals / name, token, None)
            told.append(f"Made a {name.replace('-', ' ')}.")
        tokens[name] = token
    others = [Authority(other).certificate_pem for name in (NEXT, BEFORE) if (other := read_if_there(originals / name))]
    certificate = authority.certificate_pem + b"".join(others)
    # An agent is started by who runs this, and becomes another user once it has read its token: no script can read it.
    for role, name, content, whose, mode in (
        ("master", "tls.pem", tls, owner, 0o400),
        ("master", "ca.pem", certificate, owner, EVERYBODY),
        ("master", "join-token", tokens["join-token"], owner, 0o400),
        ("master", "client-token", tokens["client-token"], owner, 0o400),
        ("agent", "ca.pem", certificate, None, EVERYBODY),
        ("agent", "join-token", tokens["join-token"], None, 0o400),
        ("client", "ca.pem", certificate, owner, EVERYBODY),
        ("client", "client-token", tokens["client-token"], owner, 0o400),
    ):
        write_secret(folder / role / name, content, whose, mode)
    return told or ["All files exist, and the certificates are valid for long enough."]


def _replace_authority(originals: Path, stage: str) -> list[str]:
    """One stage of replacing the authority. Raises OSError, AuthorityUnusable, WrongStage."""
    from windrow_master.setup.authority import Authority

    current, following, before = (read_if_there(originals / name) for name in ("authority.pem", NEXT, BEFORE))
    if stage == "begin":
        if current is None:
            raise WrongStage("--new-authority begin: there is no authority yet. Run `windrow setup` without it.")
        if following is not None or before is not None:
            left = "switch" if following is not None else "finish"
            raise WrongStage(f"--new-authority begin: this has begun already. Next: --new-authority {left}.")
        write_secret(originals / NEXT, Authority.make().pem, None)
        return ["Made another authority. Both are in ca.pem: give it, and new contexts, to all agents and clients."]
    if stage == "switch":
        if following is None or current is None:
            raise WrongStage("--new-authority switch: there is no other authority. First: --new-authority begin.")
        Authority(following)
        # In this order, a loss of power between two steps leaves both authorities trusted, and the same step to do.
        if current != following:
            write_secret(originals / BEFORE, current, None)
            write_secret(originals / "authority.pem", following, None)
        (originals / NEXT).unlink()
        return ["The new authority is in use; the old one is still trusted, until --new-authority finish."]
    if before is None or following is not None:
        raise WrongStage("--new-authority finish: the old authority is still in use. First: --new-authority switch.")
    (originals / BEFORE).unlink()
    return ["Forgot the old authority: ca.pem holds the new one only."]


if __name__ == "__main__":
    sys.exit(main())
