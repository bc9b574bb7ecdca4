"""What a look at one thing came to."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"
ASK_S = 60.0


class Finding(NamedTuple):
    """`area` and `name` say what was looked at; `level` is OK, WARN (it works, or may not matter) or FAIL (a run would
    fail); `advice` is what to do about it, "" where there is nothing."""

    area: str
    name: str
    level: str
    seen: str
    advice: str = ""


class Unanswered(Exception):
    """A process that was asked gave no answer; the text is what it said instead."""


def ask(module: str, *arguments: str, patience_s: float | None = ASK_S) -> dict[str, Any]:
    """The JSON document that `python -m MODULE ARGUMENT...` writes. Raises Unanswered. `patience_s`: how long that may
    take; None: as long as it does."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience_s,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unanswered(str(error)) from error
    except ValueError:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise Unanswered(words[-1] if words else f"{module} ended with exit code {done.returncode}") from None
    return answer
