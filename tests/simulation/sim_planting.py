"""How faults are planted: each a small patch of the core, the tables or the simulated writer that some rule must find.

A fault is a context manager; everything is put back at its end. They stand for mistakes that are easily made: when one
of them is no longer found, a checker or the chaos has gone blind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from windrow_master.core import core
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import OutcomeRow
from windrow_master.core.states import MiniBatchState


class Broken(AssertionError):
    """A rule does not hold."""


Fault = Callable[[], AbstractContextManager[Any]]
FAULTS: dict[str, Fault] = {}


def fault(plant: Callable[[], Iterator[None]]) -> Fault:
    """Register a fault under its name."""
    made = contextmanager(plant)
    FAULTS[plant.__name__] = made
    return made


def handler(command: type, replacement: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Another handler for a command."""
    return patch.dict(core.HANDLERS, {command: replacement})


def outcome_of(step_id: int, mini_batch: int, lease_id: int) -> OutcomeRow:
    """A success that nobody asked the core about."""
    return OutcomeRow(StepId(step_id), mini_batch, MiniBatchState.SUCCEEDED, 1, 1, 1, LeaseId(lease_id), -1, 0, 0.0)
