"""Asks the code of another role, which the client does not import, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

ASK_S = 60.0
END_S = 5.0
"""How long to wait for a process that was asked to end. It may run on."""


class Unanswered(Exception):
    """The process gave no answer; the text is what it printed instead."""


def ask(module: str, *arguments: str, patience_s: float | None = ASK_S) -> dict[str, Any]:
    """Return the JSON document that `python -m MODULE ARGUMENT...` prints. `patience_s`: how long that may take; None:
    as long as it takes. Raises Unanswered.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            said, errors = process.communicate(timeout=patience_s)
        except BaseException:
            # Not killed, as `subprocess.run` does a quarter of a second after Ctrl-C: it removes what it has made,
            # perhaps the copy of a large database.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            raise
        answer: dict[str, Any] = json.loads(said)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unanswered(str(error)) from error
    except ValueError:
        words = errors.decode(errors="replace").strip().splitlines()
        raise Unanswered(words[-1] if words else f"{module} ended with exit code {process.returncode}") from None
    return answer
