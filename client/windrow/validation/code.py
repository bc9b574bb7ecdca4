"""Checks the code of a job's steps: can it be packed, and is its entry script usable?

The Python that would run the script reads it, but never imports it: importing may take long, and have effects.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.common.archives import ArchiveError, not_packed
from windrow.spec.one_line.request import is_one_line
from windrow.spec.reading.nodes import Place, source_label
from windrow.spec.reading.problems import Problem, StepCode
from windrow.transfer.code_archive import measure
from windrow.transfer.data_in_code import data_in

if TYPE_CHECKING:
    from windrow.spec import LoadedJob

LOOK = Path(__file__).with_name("script_probe.py")
LOOK_S = 30.0
_CORE = ("Dataset", "Datastore", "Environment", "Experiment", "Keyvault", "Model", "Run", "Workspace")
PROVIDED = (
    "azureml_user",
    *(f"azureml.core.{name}" for name in _CORE),
    *(f"azureml.core.{name.lower()}.{name}" for name in _CORE),
    "windrow_entry",
)
"""Modules and names that every worker can import, whatever its Python has.

Reference: docs/reference/azure-ml/parallel-job.md#workers.
"""

DISTRIBUTIONS = {
    "attr": "attrs",
    "azureml": "azureml-core",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages of modules that have another name."""


class CodeFindings:
    """What is wrong with the code of steps."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []


def check_codes(
    codes: Sequence[StepCode], python: str | None, elsewhere: Collection[str] = (), loaded: LoadedJob | None = None
) -> CodeFindings:
    """Check the code of all steps, each folder and script once. `python`: the interpreter of the scripts, or None.
    `elsewhere`: steps whose scripts run in a separate Python, which this check does not know; only their scripts
    are read. `loaded`: the job, if it could be loaded: its data is not code.
    """
    found = CodeFindings()
    packed: set[tuple[str, str]] = set()
    looked_at: set[tuple[str, str, str, bool]] = set()
    for code in codes:
        required = code.entry_script if code.entry_script.endswith(".py") else ""
        if (code.folder, required) not in packed:
            packed.add((code.folder, required))
            _check_packable(code, required, found, loaded)
        look = (code.folder, code.entry_script, repr(sorted(code.variables.items())), code.step in elsewhere)
        # Of another file than a Python script, the job file's own error says all.
        is_script = code.entry_script.endswith(".py") or not Path(code.folder, code.entry_script).is_file()
        if code.entry_script and is_script and python is not None and look not in looked_at:
            looked_at.add(look)
            _check_script(code, python, found, own_packages=code.step not in elsewhere)
    return found


def _check_packable(code: StepCode, required: str, found: CodeFindings, loaded: LoadedJob | None) -> None:
    if required and not Path(code.folder, required).is_file():
        required = ""  # the job file's own error
    data = data_in(code.folder, loaded) if loaded is not None else ()
    with_logs = loaded is None or not is_one_line(loaded.job.job_file)
    try:
        measure(code.folder, required=[required] if required else [], left_out=data, with_logs=with_logs)
    except ArchiveError as error:
        found.errors.append(_at(code.folder_place, code.folder_key, str(error)))
    except OSError as error:
        found.errors.append(_at(code.folder_place, code.folder_key, not_packed(code.folder, error)))


def _check_script(code: StepCode, python: str, found: CodeFindings, *, own_packages: bool) -> None:
    for kind, file, line, column, text in _look(code, python):
        path = Path(code.folder, file)
        place = (source_label(str(path)), line, column, code.script_key)
        if kind == "missing":
            if own_packages:
                package = DISTRIBUTIONS.get(text, text)
                message = (
                    f"imports {text}, which is neither in the code folder nor in the Python that runs it ({python}). "
                    f"Install it there ({shlex.quote(python)} -m pip install {package}), or run scripts in another "
                    "Python (--python PATH)."
                )
                found.warnings.append(Problem(*place, message))
        elif kind == "syntax":
            found.errors.append(Problem(*place, f"cannot be read by {python}: {text}. Correct the script."))
        else:
            found.errors.append(Problem(*place, f"{text}."))


def _look(code: StepCode, python: str) -> list[Any]:
    """The findings of the probe; none if that Python does not answer, which is reported elsewhere."""
    try:
        done = subprocess.run(
            [python, str(LOOK), code.folder, code.entry_script, *PROVIDED],
            cwd=code.folder,
            env={**os.environ, **code.variables, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    # A `sitecustomize` may print as well: the probe's answer is the last line.
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.startswith("windrow: ")]
    if done.returncode != 0 or not lines:
        return []
    findings: list[Any] = json.loads(lines[-1].removeprefix("windrow: "))["findings"]
    return findings


def _at(place: Place, key: str, message: str) -> Problem:
    return Problem(place.source.label, place.line, place.column, key, message)
