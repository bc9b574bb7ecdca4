"""The command line of a master."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from windrow.common.command_line import CommandLine
from windrow.common.quantities import seconds_in
from windrow.rpc.address import stays_here
from windrow.spec.naming.datastores import DEFAULT, BadDatastore, read_datastores
from windrow.storage.urls import is_remote

from windrow_master.datastores import Datastores
from windrow_master.limits import BadLimit, Limits, read_limits

JOB_LOGS_MAX = 4 << 30
_LISTEN = re.compile(r"unix:.+|.*:[0-9]{1,5}", re.DOTALL)


class Retained(NamedTuple):
    """Which ended jobs are kept: those that ended less than `seconds` ago, and the `last` ones. Both None: all."""

    seconds: float | None = None
    last: int | None = None


ALL_RETAINED = Retained()


@dataclass(frozen=True)
class MasterConfig:
    """The master's configuration: the place of its state, its address, and what it may read."""

    state: Path
    listen: str
    embedded: bool = False
    datastores: dict[str, Path] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    """Datastores in remote storage: their addresses."""
    join_token_file: Path | None = None
    client_token_file: Path | None = None
    tls_file: Path | None = None
    job_logs_max: int = JOB_LOGS_MAX
    """Bytes that are kept of the logs of one job."""
    limits: Limits = field(default_factory=Limits)
    cancel: str = ""
    """The job to cancel in the state folder, in place of serving; "" to serve."""
    retained: Retained = ALL_RETAINED
    """Which ended jobs a served master keeps."""
    scripts_run_in: str = ""
    """Of the embedded mode: the one agent's Python, and whether it builds environments, as a text to compare; "" where
    agents have each their own."""
    has_agent: bool = True
    """Of the embedded mode: False if no agent is started beside this master, which then only answers questions."""

    @property
    def places(self) -> Datastores:
        """All datastores, those in folders and those in remote storage."""
        return Datastores({**self.datastores, **self.stores})

    @property
    def takes_agents(self) -> bool:
        """Whether agents may register."""
        return self.has_agent or not self.embedded

    @property
    def outputs(self) -> Path:
        """Default place of outputs: the default datastore, if there is one."""
        default = self.datastores.get(DEFAULT)
        return (default if default is not None else self.state) / "outputs"

    def join_token(self) -> str:
        """The secret that admits nodes; empty if none is required. Raises OSError if its file cannot be used."""
        return _secret(self.join_token_file)

    def client_token(self) -> str:
        """The secret that clients bring; empty if none is required.

        Raises OSError if its file cannot be used, or if the secret also admits nodes: what a node holds must not submit
        jobs.
        """
        token = _secret(self.client_token_file)
        if token and token == self.join_token():
            raise OSError(
                f"The client token in {self.client_token_file} is also the join token: anyone who can run an "
                "agent could submit jobs. Write another secret into one of the files."
            )
        return token


def _secret(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        token = file.read_text().strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isascii() or not token.isprintable():
        # An empty token would admit everybody; other characters cannot be sent.
        raise OSError(
            f"The token file {file} does not contain plain text. Write a secret into it: `windrow setup` makes one."
        )
    return token


def command_line() -> CommandLine:
    """The options of `windrow master`."""
    parser = CommandLine(
        "windrow master",
        description="Run a master, which owns the queue of mini-batches and gathers their rows.",
        epilog="Example: windrow master --state /var/lib/windrow --listen 127.0.0.1:8470 --datastore default=/data",
    )
    parser.add_argument(
        "--state", required=True, type=Path, metavar="DIR", help="State folder, on a local file system."
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:8470", metavar="ADDRESS", help="host:port or unix:/path. [default: %(default)s]"
    )
    parser.add_argument("--embedded", action="store_true", help="Serve one machine through a unix socket.")
    parser.add_argument(
        "--datastore",
        action="append",
        default=[],
        metavar="NAME=PLACE",
        help="What azureml://datastores/NAME means: a folder, or a place in storage (s3://…). Repeatable.",
    )
    parser.add_argument("--join-token-file", type=Path, metavar="FILE", help="Token that agents must bring.")
    parser.add_argument("--client-token-file", type=Path, metavar="FILE", help="Token that clients must bring.")
    parser.add_argument(
        "--tls-file", type=Path, metavar="FILE", help="Serve over TLS only, with this key and certificate (PEM)."
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="Listen for other machines although TLS or a token is missing: whoever reaches the port may use it.",
    )
    parser.add_argument(
        "--job-logs-max",
        type=int,
        default=JOB_LOGS_MAX,
        metavar="BYTES",
        help="Keep at most this many bytes of logs per job. [default: %(default)s]",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="Change one of the limits that docs/reference/settings.md lists. Repeatable.",
    )
    parser.add_argument(
        "--cancel",
        default="",
        metavar="JOB",
        help="Serve nothing: cancel a job in the state folder, whose master is not running, and end.",
    )
    parser.add_argument(
        "--retain",
        metavar="AGE",
        help="Delete jobs that ended longer ago, such as 30d or 12h. [default: keep all]",
    )
    parser.add_argument(
        "--retain-last",
        type=int,
        metavar="N",
        help="Delete all but the N jobs that ended last; with --retain: spare these N. [default: keep all]",
    )
    # Both are given by the embedded mode; the first as `own:/usr/bin/python3`.
    parser.add_argument("--scripts-run-in", default="", help=argparse.SUPPRESS)
    parser.add_argument("--no-agent", action="store_true", help=argparse.SUPPRESS)
    return parser


def parse(arguments: list[str]) -> MasterConfig:
    """Read the command line. If it is wrong, print a message and exit with 2."""
    parser = command_line()
    given = parser.parse_args(arguments)
    if given.job_logs_max < 0:
        parser.error(f"--job-logs-max {given.job_logs_max}: give a number of bytes, or 0 to keep none")
    if given.retain is not None and seconds_in(given.retain) is None:
        parser.error(f"--retain {given.retain}: give a number with a unit: 12h, 30d or 8w")
    if given.retain_last is not None and given.retain_last < 0:
        parser.error(f"--retain-last {given.retain_last}: give a number of jobs, from 0")
    if given.embedded and not (given.retain is None and given.retain_last is None):
        parser.error("--retain and --retain-last are for served masters; on one machine: windrow job prune")
    if not _LISTEN.fullmatch(given.listen):
        parser.error(f"--listen {given.listen}: give HOST:PORT (as in 127.0.0.1:8470) or unix:/PATH")
    try:
        places = read_datastores(given.datastore)
    except BadDatastore as error:
        parser.error(str(error))
    try:
        limits = read_limits(given.limit)
    except BadLimit as error:
        parser.error(str(error))
    for option in ("join_token_file", "client_token_file", "tls_file"):
        file = getattr(given, option)
        if file is not None and not file.is_file():
            parser.error(f"--{option.replace('_', '-')} {file}: there is no such file")
    if given.tls_file is not None and given.listen.startswith("unix:"):
        parser.error(f"--tls-file {given.tls_file}: a unix socket needs no TLS; its folder guards it. Leave it out")
    if not stays_here(given.listen):
        _check_guards(parser, given)
    if not given.embedded:
        _check_datastores(parser, given, places)
    return MasterConfig(
        given.state.absolute(),
        given.listen,
        given.embedded,
        {name: Path(place) for name, place in places.items() if not is_remote(place)},
        {name: place for name, place in places.items() if is_remote(place)},
        given.join_token_file,
        given.client_token_file,
        given.tls_file,
        given.job_logs_max,
        limits,
        given.cancel,
        Retained(None if given.retain is None else seconds_in(given.retain), given.retain_last),
        given.scripts_run_in,
        not given.no_agent,
    )


def _check_guards(parser: CommandLine, given: argparse.Namespace) -> None:
    """End the process if other machines could reach a master that TLS and tokens do not guard."""
    files = {"--tls-file": given.tls_file, "--join-token-file": given.join_token_file}
    if given.client_token_file is not None and given.tls_file is None:
        parser.error(
            f"--client-token-file {given.client_token_file}: clients send it to other machines over TLS only. "
            "Add --tls-file"
        )
    missing = [name for name, file in {**files, "--client-token-file": given.client_token_file}.items() if file is None]
    if missing and not given.insecure:
        parser.error(
            f"--listen {given.listen}: other machines can reach this address, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Anyone there could run code on the agents, or read "
            "tokens and data on their way. Make what is missing with `windrow setup`, or listen on this machine only "
            "(127.0.0.1). In a network where everybody is trusted, add --insecure"
        )


def _check_datastores(parser: CommandLine, given: argparse.Namespace, places: Mapping[str, str]) -> None:
    """End the process if jobs could reach the state, or what admits others, by a datastore: they read and write all of
    it. Datastores may lie in each other, since what the master keeps in one is closed by its path.
    """
    state = os.path.realpath(given.state)
    for name, place in places.items():
        if is_remote(place):
            continue
        where = "is" if place == state else "is in" if _is_in(place, state) else "holds" if _is_in(state, place) else ""
        if where:
            parser.error(
                f"--datastore {name}={place}: this folder {where} the state folder {state}, and jobs read and write "
                "all that is in a datastore: they could change other jobs, and the state. Give the datastore a "
                "folder beside it, or the state another place (--state)"
            )
        for option in ("join_token_file", "client_token_file", "tls_file"):
            file = getattr(given, option)
            if file is not None and _is_in(os.path.realpath(file), place):
                parser.error(
                    f"--{option.replace('_', '-')} {file}: it is in the datastore {name} ({place}), and jobs read all "
                    "that is there: it would no longer be a secret. Put it elsewhere"
                )


def _is_in(path: str, folder: str) -> bool:
    """Whether a path without links lies below a folder."""
    return path.startswith(folder.rstrip("/") + "/")
