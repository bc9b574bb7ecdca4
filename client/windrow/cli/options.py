"""Options that several commands share, and the client that they lead to."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from windrow.cli import completion
from windrow.cli.master_choice import choose_master
from windrow.cli.messages import YELLOW, coloured, report, say
from windrow.embedded import state_folder
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.master import Master as FoundMaster

P = ParamSpec("P")
APP_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    # Plain help: rich would take [default: …] for markup, and costs 50 ms.
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""Of every typer application of `windrow`."""


class CodeChangeChoice(str, Enum):  # noqa: UP042  the same
    """What happens if the code has changed since the job whose results are taken over."""

    ASK = "ask"
    RERUN = "rerun"
    MIX = "mix"


class OutputForm(str, Enum):  # noqa: UP042  typer shows the values of a plain str Enum
    """The form of a command's output."""

    TEXT = "text"
    JSON = "json"


class Kind(str, Enum):  # noqa: UP042  as above
    """What the inputs of a run without a job file are."""

    AUTO = "auto"
    FILES = "files"
    TABLE = "table"


class SandboxMode(str, Enum):  # noqa: UP042  as above
    """How workers are confined."""

    OFF = "off"
    AUTO = "auto"
    STRICT = "strict"


SandboxChoice = Annotated[
    SandboxMode | None,
    typer.Option(
        "--sandbox",
        envvar="WINDROW_SANDBOX",
        help="What scripts can reach. off: what the agent's user can. auto: what their step was given, as far as the "
        "kernel can confine them. strict: the same; where it cannot, no script starts. [default: off]",
    ),
]


class Environments(str, Enum):  # noqa: UP042  as above
    """What happens to the environments that steps ask for. Not the agent's `Environments`, which builds them."""

    BUILD = "build"
    OWN = "own"


EnvironmentsChoice = Annotated[
    Environments,
    typer.Option(
        "--environments",
        envvar="WINDROW_ENVIRONMENTS",
        help="build: make the conda or pip environments that steps ask for. own: run all scripts in one Python "
        "(implied by --python).",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="WINDROW_MASTER",
        metavar="MASTER",
        help="A running master: host:port, unix:/path, or the name of a context [default: the context in use].",
        autocompletion=completion.context_names,
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="WINDROW_STATE",
        metavar="DIR",
        help="Instead of a master: the state folder of runs on this machine [default: .windrow].",
    ),
]
Since = Annotated[
    str,
    typer.Option(
        metavar="JOB",
        help="Take over the results of an earlier job: its name, a beginning of it, or last for the newest of this "
        "file. Only mini-batches that are new, changed or without a result run.",
        autocompletion=completion.job_names,
    ),
]
CodeChange = Annotated[
    CodeChangeChoice,
    typer.Option(
        "--code-change",
        help="If the code or settings of the job of --since were others: ask (without a terminal: refuse), rerun all, "
        "or mix its results with new ones.",
    ),
]
STRICT_HELP = "Exit with code 3 if failures were tolerated, or values of a table did not fit its columns."


def _not_both(context: typer.Context, value: bool) -> bool:
    """Refuse --strict with --tolerate: whichever comes second finds the first."""
    if value and (context.params.get("strict") or context.params.get("tolerate")):
        raise typer.BadParameter(
            "--strict and --tolerate contradict each other: one makes failures exit code 3, the other 0. Leave one out."
        )
    return value


Strict = Annotated[bool, typer.Option("--strict", help=STRICT_HELP, callback=_not_both)]
Tolerate = Annotated[
    bool,
    typer.Option(
        "--tolerate",
        help="Exit with code 0, not 3, also if items failed in a step that sets no threshold.",
        callback=_not_both,
    ),
]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="TARGET",
        help="When the job ends: run this command line (it gets WINDROW_JOB, WINDROW_STATE_WORD and WINDROW_SUMMARY), "
        "post JSON to this http(s) address, or show it on the desktop (desktop). Repeatable.",
    ),
]
Output = Annotated[OutputForm, typer.Option("--format", help="json: one JSON document on standard output.")]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job: its name, an unambiguous beginning of it, or last for the newest.",
        autocompletion=completion.job_names,
    ),
]
JobOrStep = Annotated[
    str,
    typer.Argument(
        metavar="JOB[:STEP]",
        help="The job: its name, an unambiguous beginning of it, or last for the newest. JOB:STEP means one step.",
        autocompletion=completion.job_and_step_names,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a setting of the job file, for example inputs.data.path=./other. Repeatable.",
    ),
]


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Make a command end with its return value as exit code, and report foreseeable errors without a traceback."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            # The reader of the output is gone (`| head`). Python's flush at exit must not complain.
            sys.stdout = None
            code = 0
        except Exception as error:
            if isinstance(error, (typer.Exit, typer.Abort, typer.BadParameter)):
                raise
            code = report(error, "json" if OutputForm.JSON in kwargs.values() else "text")
        raise typer.Exit(code or 0)

    return wrapper


def warn_read_only(client: Client) -> FoundMaster:
    """Warn if the master accepts no changes at the moment. Returns the master."""
    master = client.master()
    if master.read_only_reason:
        say(f"{coloured('warning:', YELLOW, sys.stderr)} the master accepts no changes: {master.read_only_reason}")
    return master


def state_of(master: str | None, state: Path | None) -> Path | None:
    """The state folder that the options mean, as `open_client` reads them; None if they mean a master."""
    from windrow.rpc.contexts import Contexts

    master, state = choose_master(master, state)
    if state is None and not master and Contexts().in_use() is None and state_folder.has_state(state_folder.DEFAULT):
        return Path(state_folder.DEFAULT)
    return state


@contextmanager
def open_client(master: str | None, state: Path | None, *, live: bool = False, make: bool = False) -> Iterator[Client]:
    """A client of the master that the options name; by default of the context in use, else of the runs in this folder.

    `live`: the command asks for work, so a running master is needed. `make`: a state folder may not exist yet. Raises
    UsageError, and what `Client` raises.
    """
    from windrow.rpc.contexts import Contexts
    from windrow.sdk.client import Client

    master, state = choose_master(master, state)
    if not master and state is None and Contexts().in_use() is None:
        if not make and not state_folder.has_state(state_folder.DEFAULT):
            raise UsageError(
                "Which master? Give --master ADDRESS (or set WINDROW_MASTER, or use a context: windrow context add), "
                "or --state DIR for runs on this machine. There is no .windrow folder here."
            )
        state = Path(state_folder.DEFAULT)
    if live and state is not None and state_folder.read_endpoint(str(state)) is None:
        raise UsageError(
            f"No run is live over the state folder {state}, so the job would not run. "
            f"Use `windrow run JOB_FILE --state {shlex.quote(str(state))}`, or start a master and give its address "
            "with --master."
        )
    with Client(master if state is None else None, state=state, new=make) as client:
        client.connection.on_wait = say
        # If the run ends meanwhile, refuse work; a stand-in master would never run it.
        client.stands_in = not live
        yield client
