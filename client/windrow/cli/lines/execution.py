"""Executes a command whose line was read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from windrow.cli.messages import report
from windrow.cli.options.declared import Function, options_of
from windrow.cli.options.shared import OutputForm
from windrow.errors import UsageError


def execute(function: Function, values: Mapping[str, Any]) -> int:
    """Call a command, and report foreseeable errors without a traceback. Returns the exit code."""
    try:
        _check_excluded(function, values)
        code = function(**values)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader of the output is gone (`| head`). Python's flush at exit must not complain.
        sys.stdout = None
        code = 0
    except Exception as error:
        code = report(error, "json" if OutputForm.JSON in values.values() else "text")
    return code or 0


def _check_excluded(function: Function, values: Mapping[str, Any]) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    for name, option in options_of(function).items():
        for other, why in option.declared.excludes.items():
            if values.get(name) and values.get(other):
                raise UsageError(why)
