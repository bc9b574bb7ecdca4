"""The one mini-batch of a command step: a shell command instead of a script's `run()`
(docs/reference/azure-ml/parallel-job.md#command-steps).

It runs in the code folder. As in Azure ML, there is a folder `./outputs`, which leads to the output `artifacts`. It has
the environment, stdout and stderr of this process, and is in its process group, so that what ends the worker also ends
the command. `python` is the interpreter of the step.
"""

from __future__ import annotations

import os
import signal
import sys

from windrow_worker.script.entry_point import Script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Set, Tuple

OUTPUTS = "outputs"
TAIL_BYTES = 8 << 10
SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
"""The first one that exists is used. Azure ML's commands are for bash."""
_OF_OUTPUT = "AZURE_ML_OUTPUT_"
"""What the names of variables begin with that have the paths of outputs."""


class CommandFailed(Exception):
    """The command failed; `detail` is the end of its stderr.

    Not the `CommandFailed` of the master, which is about a command to its core.
    """

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


def as_script(command: str, output_files: Dict[str, str], artifacts: str, unmade: Dict[str, str]) -> Script:
    """A Script whose `run()` runs the command. `output_files`: the file that it must write for each output.
    `artifacts`: the folder of that output, "" if the step has none. `unmade`: the paths of outputs that the command
    makes itself, as a folder or a file.
    """

    def run(mini_batch: List[object]) -> Tuple[object, ...]:
        before = _make_outputs(artifacts)
        for path in unmade.values():
            _unmake(path)
        try:
            _run(command)
        except CommandFailed as error:
            raise _with_hint(error, unmade) from None
        for path in unmade.values():
            if not os.path.lexists(path):
                # Whoever reads the output finds a folder without files.
                os.mkdir(path)
        if not artifacts:
            _tell_lost(before)
        for name, path in output_files.items():
            if not os.path.exists(path):
                raise CommandFailed(
                    f"The command ended with exit code 0, but did not write its output {name!r}: {path} does not "
                    "exist. Make it write there, or remove the output",
                    "",
                )
        return ()

    return Script(None, run, None, False)


def _with_hint(error: CommandFailed, unmade: Dict[str, str]) -> CommandFailed:
    """The error, which says so if it is about an output that the command has not made."""
    for name, path in unmade.items():
        if path in error.detail and not os.path.lexists(path):
            text = "%s. The folder of its output %r is not there before it makes it: os.makedirs(PATH, exist_ok=True)"
            return CommandFailed(text % (error, name), error.detail)
    for variable, path in os.environ.items():
        name = variable[len(_OF_OUTPUT) :]
        if (
            variable.startswith(_OF_OUTPUT)
            and name not in unmade
            and path in error.detail
            and not os.path.lexists(path)
        ):
            text = (
                "%s. The command removed the folder of its output %r, which a mount of Azure ML survives. Remove what "
                "is in it: rm -rf ${{outputs.%s}}/*"
            )
            return CommandFailed(text % (error, name, name), error.detail)
    return error


def _unmake(path: str) -> None:
    """Removes the empty folder of an output. What an earlier try has left in it stays."""
    try:
        os.rmdir(path)
    except OSError:
        pass


def _make_outputs(artifacts: str) -> Set[str]:
    """Makes `./outputs`; returns the files in it that belong to the code. Raises OSError."""
    if not artifacts:
        os.makedirs(OUTPUTS, exist_ok=True)
        return _files_in(OUTPUTS)
    import shutil

    # In a folder of that name, since later steps read `${{inputs.before}}/outputs/model.pkl`.
    kept = os.path.join(artifacts, OUTPUTS)
    os.makedirs(kept, exist_ok=True)
    if os.path.islink(OUTPUTS):
        os.unlink(OUTPUTS)
    elif os.path.isdir(OUTPUTS):
        shutil.copytree(OUTPUTS, kept, dirs_exist_ok=True)
        shutil.rmtree(OUTPUTS)
    os.symlink(kept, OUTPUTS)
    return set()


def _tell_lost(before: Set[str]) -> None:
    written = sorted(_files_in(OUTPUTS) - before)
    if written:
        sys.stderr.write(
            "windrow: the command wrote to ./%s, which is not kept: %s%s. Give the step an output of type uri_folder "
            "and the name `artifacts`, which keeps it, or have it write to another output.\n"
            % (OUTPUTS, written[0], " and %d more" % (len(written) - 1) if len(written) > 1 else "")
        )
        sys.stderr.flush()


def _files_in(folder: str) -> Set[str]:
    return {os.path.join(at, name) for at, _, names in os.walk(folder) for name in names}


def _run(command: str) -> None:
    """Raises CommandFailed, OSError."""
    # Not at the top: parallel steps do not need it.
    import subprocess

    shell = next((path for path in SHELLS if os.path.exists(path)), "sh")
    environment = dict(os.environ)
    # Not resolved: in a virtual environment it is a link, and its programs are beside the link.
    own = os.path.dirname(os.path.abspath(sys.executable))
    environment["PATH"] = own + os.pathsep + environment.get("PATH", os.defpath)
    begin = _stderr_size()
    code = subprocess.call([shell, "-c", command], env=environment)
    if code:
        tail = _stderr_since(begin)
        last = tail.splitlines()[-1].strip() if tail else ""
        raise CommandFailed(f"The command {_ended(code)}{': ' + last if last else ''}", tail)


def _ended(code: int) -> str:
    if code > 128 and code - 128 in _SIGNALS:
        # This is how a shell reports a program that was ended by a signal.
        code = 128 - code
    if code >= 0:
        hint = {126: " (not executable)", 127: " (no such program)"}.get(code, "")
        return f"ended with exit code {code}{hint}"
    why = " (perhaps for lack of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {_SIGNALS.get(-code, f'signal {-code}')}{why}"


_SIGNALS = {int(number): number.name for number in signal.Signals}


def _stderr_size() -> int:
    try:
        return os.fstat(2).st_size
    except OSError:
        return 0


def _stderr_since(begin: int) -> str:
    """What was written to stderr since, at most the last TAIL_BYTES; "" if it is not a readable file."""
    try:
        with open("/proc/self/fd/2", "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(begin, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
