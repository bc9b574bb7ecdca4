"""Options that several commands share, and the client that they lead to."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windrow.cli.messages import YELLOW, coloured, say
from windrow.cli.options import completion
from windrow.cli.options.declared import Argument, Option
from windrow.cli.options.master_choice import choose_master
from windrow.embedded import state_folder
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.sdk.client import Client
    from windrow.sdk.master import Master as FoundMaster


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
    GIVEN = "given"
    STRICT = "strict"


SandboxChoice = Annotated[
    SandboxMode | None,
    Option(
        "--sandbox",
        envvar="WINDROW_SANDBOX",
        help="What scripts can reach. off: what the agent's user can. auto: that, but neither Windrow's own files nor "
        "other processes. given: what their step was given. Both as far as the kernel can confine them. strict: as "
        "given; where it cannot, no script starts. [default: auto for agents, off for runs on this machine]",
    ),
]


class ControlGroupMode(str, Enum):  # noqa: UP042  as above
    """Whether each worker has a control group."""

    OFF = "off"
    AUTO = "auto"
    REQUIRED = "required"


class Environments(str, Enum):  # noqa: UP042  as above
    """What happens to the environments that steps ask for. Not the agent's `Environments`, which builds them."""

    BUILD = "build"
    OWN = "own"


EnvironmentsChoice = Annotated[
    Environments,
    Option(
        "--environments",
        envvar="WINDROW_ENVIRONMENTS",
        help="build: make the conda or pip environments that steps ask for. own: run all scripts in one Python "
        "(implied by --python).",
    ),
]
Master = Annotated[
    str | None,
    Option(
        "--master",
        envvar="WINDROW_MASTER",
        metavar="MASTER",
        help="A running master: host:port, unix:/path, or the name of a context [default: the context in use].",
        autocompletion=completion.context_names,
    ),
]
State = Annotated[
    Path | None,
    Option(
        "--state",
        envvar="WINDROW_STATE",
        metavar="DIR",
        help="Instead of a master: the state folder of runs on this machine [default: .windrow].",
    ),
]
Since = Annotated[
    str,
    Option(
        metavar="JOB",
        help="Take over the results of an earlier job: its name, a beginning of it, or last for the newest of this "
        "file. Only mini-batches that are new, changed or without a result run.",
        autocompletion=completion.job_names,
    ),
]
CodeChange = Annotated[
    CodeChangeChoice,
    Option(
        "--code-change",
        help="If the code or settings of the job of --since were others: ask (without a terminal: refuse), rerun all, "
        "or mix its results with new ones.",
    ),
]
STRICT_HELP = "Exit with code 3 if failures were tolerated, or values of a table did not fit its columns."


STRICT_OR_TOLERATE = (
    "--strict and --tolerate contradict each other: one makes failures exit code 3, the other 0. Leave one out."
)
Strict = Annotated[bool, Option("--strict", help=STRICT_HELP, excludes={"tolerate": STRICT_OR_TOLERATE})]
Tolerate = Annotated[
    bool,
    Option(
        "--tolerate",
        help="Exit with code 0, not 3, also if items failed in a step that sets no threshold.",
    ),
]
Notify = Annotated[
    list[str] | None,
    Option(
        "--notify",
        metavar="TARGET",
        help="When the job ends: run this command line (it gets WINDROW_JOB, WINDROW_STATE_WORD and WINDROW_SUMMARY), "
        "post JSON to this http(s) address, or show it on the desktop (desktop). Repeatable.",
    ),
]
Output = Annotated[OutputForm, Option("--format", help="json: one JSON document on standard output.")]
JobName = Annotated[
    str,
    Argument(
        metavar="JOB",
        help="The job: its name, an unambiguous beginning of it, or last for the newest.",
        autocompletion=completion.job_names,
    ),
]
JobOrStep = Annotated[
    str,
    Argument(
        metavar="JOB[:STEP]",
        help="The job: its name, an unambiguous beginning of it, or last for the newest. JOB:STEP means one step.",
        autocompletion=completion.job_and_step_names,
    ),
]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a setting of the job file, for example inputs.data.path=./other. Repeatable.",
    ),
]


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
def open_served(master: str | None, not_here: str) -> Iterator[Client]:
    """A client of a served master. `not_here`: why runs on this machine do without what is asked for, a sentence.
    Raises UsageError for those.
    """
    if state_of(master, None) is not None:
        raise UsageError(f"{not_here} Name a master with --master, or use its context (windrow context use).")
    with open_client(master, None) as client:
        yield client


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
