"""Two nodes that work on one step: one where everything fails, and one that does well."""

from __future__ import annotations

from typing import Any

from core_driver import CoreDriver, completion
from windrow_master.core.ids import NodeId
from windrow_master.core.state import Step
from windrow_master.core.states import Cause


def succeed(driver: CoreDriver, name: str) -> None:
    """What a node holds at the moment succeeds."""
    driver.complete(name, *(completion(lease.lease_id) for lease in driver.held(name)))


def fail_all(driver: CoreDriver, name: str, cause: Cause = Cause.EXCEPTION) -> int:
    """What a node holds at the moment fails; returns how many that were."""
    held = driver.held(name)
    driver.complete(name, *(completion(lease.lease_id, cause, message="broken") for lease in held))
    return len(held)


def doubted(driver: CoreDriver, count: int = 100, **settings: Any) -> Step:
    """A step on two nodes of five slots: all that `bad` got has failed, and `good` is still at its own."""
    step = driver.running([1] * count, **settings)
    driver.join_slots("bad", 5)
    driver.join_slots("good", 5)
    assert fail_all(driver, "bad") == 5
    return step


def set_aside(driver: CoreDriver, count: int = 100, **settings: Any) -> Step:
    """The same, when `good` has done its own, and then what had failed on `bad`, which is set aside for that."""
    step = doubted(driver, count, **settings)
    for _ in range(2):
        succeed(driver, "good")
    assert step.nodes.standings[NodeId("bad")].asides == 1 and not driver.held("bad")
    return step
