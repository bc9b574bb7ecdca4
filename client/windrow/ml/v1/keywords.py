"""Keyword arguments that are not carried out: told, or refused, and never dropped."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from windrow.errors import UsageError
from windrow.spec.reading.problems import did_you_mean, listed


def refuse_unknown(call: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses the keywords of a call that it does not have. `known`: those that it has. Raises UsageError."""
    for name in given:
        raise UsageError(f"{call} has no {name!r}.{did_you_mean(name, known)} It takes: {listed(known)}")


def tell_no_effect(what: str, why: str) -> None:
    """A JobWarning that something accepted has no effect."""
    from windrow.ml.operations.jobs import JobWarning

    warnings.warn(f"{what} has no effect: {why}.", JobWarning, stacklevel=3)
