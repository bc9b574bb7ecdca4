"""Why an attempt or the start of a worker failed: the script, its data, or the node."""

from __future__ import annotations

import os
import sys

from windrow_worker import failures, process
from windrow_worker.loaded import InputChanged, InputMisread, MissingLibrary
from windrow_worker.rows.return_values import BadReturn
from windrow_worker.rows.writer import ScratchFailed
from windrow_worker.script import entry_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from windrow_worker.protocol.configuration import Configuration

# What was being done when a start failed.
ROWS = "The settings for returned rows cannot be used: "
INPUT = "The input cannot be read with {python}: "
SCRIPT = "The entry script {script!r} could not be loaded: "
INIT = "init() of the entry script {script!r} failed: "


class BadPacket(Exception):
    """A packet could not be understood: the node's fault."""


def start_failure(configuration: Configuration, error: BaseException, stage: str) -> bytes:
    """The side document of an INIT_FAILED frame. `stage`: one of the above."""
    if isinstance(error, (entry_point.BadScript, MissingLibrary)):
        return failures.encode_failure(failures.INIT_FAILED, str(error), str(error))
    message = stage.format(script=configuration.entry_script, python=sys.executable) + failures.describe(error)
    if isinstance(error, ModuleNotFoundError):
        message += f". {_remedy(configuration, error.name or '')}"
    said = process.end_of_stderr() if isinstance(error, SystemExit) and not isinstance(error.code, str) else ""
    if said:
        # That is the reason, not the way to sys.exit().
        last = said.splitlines()[-1]
        message += f". The last line of stderr: {last}"
        if "unrecognized arguments" in last:
            message += (
                ". If they are meant for the runtime, not for the script: parse with parse_known_args(), which ignores "
                "them"
            )
        return failures.encode_failure(failures.INIT_FAILED, message, f"The end of its stderr:\n{said}")
    return failures.encode_failure(failures.INIT_FAILED, message, failures.traceback_of(error))


def _remedy(configuration: Configuration, missing: str) -> str:
    """What to do if a module was not found."""
    package, _, part = missing.partition(".")
    named = configuration.entry_script
    place = os.path.dirname(named) if named.endswith(".py") else ""
    beside = os.path.join(configuration.code_folder, place, package)
    if place and package and (os.path.isfile(beside + ".py") or os.path.isdir(beside)):
        return (
            f"It is next to the script, in {place!r}, and only the root of the code folder is on sys.path: import "
            f"{place.replace(os.sep, '.')}.{package}, or add the folder of __file__ to sys.path first"
        )
    if package == "windrow":
        return (
            "It is for what submits jobs: leave it out of the script. What a notebook imports from windrow.ml.v1, a "
            "script imports from azureml, as before: from azureml.core import Run"
        )
    remedy = "Install it"
    if part and package in sys.modules:
        # For example, a model was pickled with an older version.
        remedy = f"{package} is there, but has no such part: install the version that has it"
    if part and package == "azureml":
        top = part.partition(".")[0]
        wanted = "azureml-core" if top.startswith("_") else "azureml-" + top
        remedy = (
            f"azureml.{top} is of the package {wanted}, which Windrow does not stand in for. Leave the import out if "
            f"the script does not use it, or install {wanted}"
        )
    hint = configuration.install_hint
    how = f": {hint}" if hint else ", or run scripts in another Python (--python)"
    return f"{remedy} for {sys.executable}{how}"


def load_failure(error: BaseException, index: int) -> List[str]:
    """Cause, message and detail of a mini-batch that could not be loaded."""
    detail = failures.traceback_of(error)
    if isinstance(error, BadPacket):
        return [failures.NODE_FAULT, f"Mini-batch {index} could not be loaded: {error}", detail]
    if isinstance(error, InputChanged):
        # The traceback has no line of the script, and the message says everything else.
        return [failures.INPUT_CHANGED, str(error), ""]
    if isinstance(error, InputMisread):
        return [failures.INPUT_MISREAD, str(error), ""]
    return [failures.LOAD_FAILED, f"Mini-batch {index} could not be loaded: {failures.describe(error)}", detail]


def run_failure(configuration: Configuration, error: BaseException) -> Tuple[str, str]:
    """Message and detail of an exception from `run()`."""
    if configuration.command:
        detail = getattr(error, "detail", None)
        return str(error), failures.traceback_of(error) if detail is None else detail
    return f"run() raised {failures.describe(error)}", failures.traceback_of(error)


def return_failure(error: BaseException) -> List[str]:
    """The cause, message and detail for a return value of `run()` that cannot be converted to rows."""
    if isinstance(error, ScratchFailed):
        return [failures.NODE_FAULT, str(error), str(error)]
    if isinstance(error, BadReturn):
        cause = error.__cause__
        return [failures.BAD_RETURN, str(error), failures.traceback_of(cause) if cause else str(error)]
    return [
        failures.BAD_RETURN,
        f"What run() returned could not be written as rows: {failures.describe(error)}",
        failures.traceback_of(error),
    ]
