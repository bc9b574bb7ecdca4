"""Contexts: masters by name, each with its address, the certificates that vouch for it, and the client token.

One JSON file, readable only by its user, holds them: `$WINDROW_CONTEXTS`, else `windrow/contexts.json` in
`$XDG_CONFIG_HOME` or `~/.config`. Commands that name no master go to the context in use.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windrow.errors import UsageError
from windrow.rpc.contexts_file import contexts_file

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
NONE = "none"
"""The name that stands for no context: runs on this machine."""

PEM = "-----BEGIN CERTIFICATE-----"


class Access(NamedTuple):
    """How a master is reached. `ca`: certificates in PEM, "" for a connection without TLS; `token`: "" for none."""

    address: str
    ca: str = ""
    token: str = ""

    def __repr__(self) -> str:
        """Show everything but the token."""
        return f"Access({self.address!r}, tls={bool(self.ca)}, token={'...' if self.token else ''!r})"

    def check(self) -> Access:
        """Return itself. Raises UsageError for parts that are invalid, or do not go together."""
        from windrow.rpc.address import grpc_target, stays_here

        grpc_target(self.address)
        if self.ca:
            check_certificates(self.ca, f"The CA certificate for the master at {self.address}")
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise UsageError(
                f"The client token for {self.address} contains invalid characters. Copy it again, unchanged."
            )
        if self.token and not self.ca and not stays_here(self.address):
            raise UsageError(
                f"A token leaves this machine over TLS only. Give the CA certificate of the master at {self.address}, "
                f"its ca.pem, in WINDROW_CA_FILE or by `windrow context add NAME --ca-file FILE`."
            )
        return self

    def to_json(self) -> str:
        """The text that `windrow context add NAME -` reads. It holds the token."""
        return json.dumps(self._asdict(), indent=2)


def check_certificates(ca: str, what: str) -> None:
    """Raises UsageError unless a text holds only certificates in PEM. gRPC itself would not say what is wrong."""
    import ssl  # only where there is TLS

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise UsageError(
            f"{what} is not a certificate, or is damaged: it must be PEM, beginning with {PEM}. "
            f"Copy the master's ca.pem again, unchanged."
        ) from error


def access_from_json(text: str | bytes) -> Access:
    """Read the text that `windrow context export` wrote. Raises UsageError."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not text.strip():
        raise UsageError("The exported context is empty. The command that wrote it may have failed.")
    if not isinstance(document, dict) or not isinstance(document.get("address"), str):
        raise UsageError(
            "This is not an exported context. Make one with `windrow context export`, and give all of its output to "
            "`windrow context add NAME -`."
        )
    return _access(document).check()


def find_access(master: str | None, environment: Mapping[str, str]) -> Access | None:
    """How to reach a master, named by its address or a context [default: $WINDROW_MASTER, else the context in use].

    The files that WINDROW_CA_FILE and WINDROW_TOKEN_FILE name belong to an address. None if nothing names a master.
    Raises UsageError.
    """
    address = master or environment.get("WINDROW_MASTER")
    if not address:
        return Contexts().in_use()
    if ":" not in address:
        return Contexts().get(address, f" If you mean a host, give its port, too: {address}:8470")
    files = {name: environment.get(name) for name in ("WINDROW_CA_FILE", "WINDROW_TOKEN_FILE")}
    ca, token = (read_text(file, f"{name} names") if file else "" for name, file in files.items())
    return Access(address, "" if address.startswith("unix:") else ca, token).check()


def read_text(file: str | os.PathLike[str], who: str) -> str:
    """The text of a file, stripped. `who` names the file in an error. Raises UsageError."""
    try:
        text = Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{who} {os.fspath(file)}, which cannot be read: {why}.") from error
    if not text:
        raise UsageError(f"{who} {os.fspath(file)}, which is empty.")
    return text


class Contexts:
    """The contexts of a user. The file is read once, and each change is written at once."""

    def __init__(self, file: Path | None = None) -> None:
        """Raises UsageError if the file cannot be read, or is not a contexts file."""
        self.file = file or Path(contexts_file())
        self.current = ""
        self.all: dict[str, Access] = {}
        try:
            text = self.file.read_text()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The contexts file {self.file} cannot be read: {error}.") from error
        try:
            document = json.loads(text)
            self.all = {str(name): _access(entry) for name, entry in document["contexts"].items()}
            self.current = str(document.get("current") or "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"The contexts file {self.file} is damaged ({error}). Repair it, or delete it and add the "
                "contexts again."
            ) from error

    def get(self, name: str, hint: str = "") -> Access:
        """The context of a name. Raises UsageError, with the hint, if there is none."""
        if name not in self.all:
            names = ", ".join(sorted(self.all)) or "none yet; add one with `windrow context add`"
            raise UsageError(f"There is no context named {name!r}. Existing contexts: {names}.{hint}")
        return self.all[name]

    def in_use(self) -> Access | None:
        """The context in use, if any."""
        return self.all.get(self.current)

    def add(self, name: str, access: Access) -> None:
        """Add or replace a context. The first one is in use at once. Raises UsageError."""
        if not NAME.fullmatch(name) or name == NONE:
            raise UsageError(
                f"{name!r} cannot be the name of a context: use letters, digits, '_', '.' and '-' (and not {NONE!r})."
            )
        if not self.all:
            self.current = name
        self.all[name] = access
        self._write()

    def use(self, name: str) -> None:
        """Use a context from now on; NONE: no context. Raises UsageError."""
        if name != NONE:
            self.get(name)
        self.current = "" if name == NONE else name
        self._write()

    def remove(self, name: str) -> None:
        """Remove a context. Raises UsageError."""
        self.get(name)
        del self.all[name]
        if self.current == name:
            self.current = ""
        self._write()

    def _write(self) -> None:
        document = {
            "current": self.current,
            "contexts": {name: access._asdict() for name, access in sorted(self.all.items())},
        }
        partial = self.file.with_name(f".contexts-{os.urandom(8).hex()}")
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                # 0600 from the beginning: tokens are in it.
                descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(descriptor, "w") as out:
                    json.dump(document, out, indent=2)
                partial.replace(self.file)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"The contexts file {self.file} cannot be written: {error.strerror}.") from error


def _access(entry: Mapping[str, Any]) -> Access:
    return Access(str(entry["address"]), str(entry.get("ca") or ""), str(entry.get("token") or ""))
