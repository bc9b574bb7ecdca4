"""How faults are planted: each a small patch of the core, the tables or the simulated writer that some rule must find.

A fault is a context manager; everything is put back at its end. They stand for mistakes that are easily made: when one
of them is no longer found, a checker or the chaos has gone blind. Each names the rules that must find it, so that a
fault which only makes the program raise (a patch that has not kept up with what it patches, say) counts as not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from windrow_master.core import core
from windrow_master.core.ids import LeaseId, StepId
from windrow_master.core.records import OutcomeRow
from windrow_master.core.states import MiniBatchState


class Broken(AssertionError):
    """A rule does not hold. `rule`: its number in `sim_checkers`."""

    def __init__(self, rule: int, what: object) -> None:
        super().__init__(f"rule {rule}: {what}")
        self.rule = rule


@contextmanager
def asserts(rule: int) -> Iterator[None]:
    """What fails an assertion within breaks this rule."""
    try:
        yield
    except AssertionError as error:
        raise Broken(rule, error) from error


class Fault(NamedTuple):
    """A planted fault. `rules`: any of them must break. `storm`: it is looked for in worlds of `draw_storm`."""

    plant: Callable[[], AbstractContextManager[Any]]
    rules: tuple[int, ...]
    storm: bool = False


FAULTS: dict[str, Fault] = {}


def fault(*rules: int, storm: bool = False) -> Callable[[Callable[[], Iterator[None]]], Fault]:
    """Register a fault under its name."""

    def register(plant: Callable[[], Iterator[None]]) -> Fault:
        made = Fault(contextmanager(plant), rules, storm)
        FAULTS[plant.__name__] = made
        return made

    return register


def handler(command: type, replacement: Callable[..., Any]) -> AbstractContextManager[Any]:
    """Another handler for a command."""
    return patch.dict(core.HANDLERS, {command: replacement})


def outcome_of(step_id: int, mini_batch: int, lease_id: int) -> OutcomeRow:
    """A success that nobody asked the core about."""
    return OutcomeRow(StepId(step_id), mini_batch, MiniBatchState.SUCCEEDED, 1, 1, 1, LeaseId(lease_id), -1, 0)
