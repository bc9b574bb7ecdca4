"""The tables of transitions are what the code does: no state changes elsewhere, and the pages are drawn from them."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
from core_driver import CoreDriver, completion
from windrow_master.core import commands, state, transitions
from windrow_master.core.ids import StepId
from windrow_master.core.leases import Lease
from windrow_master.core.settings import StepSettings
from windrow_master.core.states import JobState, MiniBatchState, NodeState, StepState
from windrow_master.core.transitions import MACHINES, IllegalTransition, InvariantBroken

ROOT = Path(__file__).parents[2]
CORE = Path(transitions.__file__).parent
CHANGES = {("state.py", "become"), ("mini_batches.py", "become")}
"""Where a state may be assigned: right behind the look into the table."""


def assigned_states(path: Path) -> list[tuple[str, str]]:
    """File and function of each assignment to a `.state`, or to an element of a `.states`."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                for target in node.targets if isinstance(node, ast.Assign) else ():
                    place = target.value if isinstance(target, ast.Subscript) else target
                    if isinstance(place, ast.Attribute) and place.attr in ("state", "states"):
                        found.append((path.name, function.name))
    return found


def test_states_change_only_where_the_tables_are_asked() -> None:
    found = [place for path in CORE.glob("*.py") for place in assigned_states(path)]
    assert set(found) >= CHANGES
    assert [place for place in found if place not in CHANGES and place != ("core.py", "__init__")] == []


def test_every_state_can_be_reached_and_every_machine_begins() -> None:
    for machine in MACHINES:
        states = type(machine.edges[0].after)
        reached = {edge.after for edge in machine.edges if edge.before is None}
        assert reached, machine.name
        for _ in states:
            reached |= {edge.after for edge in machine.edges if edge.before in reached}
        assert reached == set(states), machine.name


@pytest.mark.parametrize("machine", MACHINES, ids=[machine.name for machine in MACHINES])
def test_an_edge_that_is_not_listed_is_refused(machine: transitions.Machine) -> None:
    listed = {(edge.before, edge.after) for edge in machine.edges}
    states = type(machine.edges[0].after)
    for before in states:
        for after in states:
            if (before, after) in listed:
                machine.check(before, after)
            else:
                with pytest.raises(IllegalTransition, match=f"a {machine.name} cannot become {after.name}"):
                    machine.check(before, after)


def test_the_page_of_state_machines_is_drawn_from_the_tables() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "state_machines.py"))["page"]()
    assert (ROOT / "docs" / "state-machines.md").read_text() == page, "run `make docs` and commit the result"


def test_the_things_themselves_refuse_what_is_not_listed() -> None:
    job = state.Job(*[None] * 5, [], state=JobState.COMPLETED)  # type: ignore[arg-type]
    with pytest.raises(IllegalTransition):
        job.become(JobState.CANCELLING)
    step = state.Step(StepId(1), 1, 0, StepSettings("s"), StepState.CANCELLED)  # type: ignore[arg-type]
    with pytest.raises(IllegalTransition):
        step.become(StepState.COMPLETED)
    node = state.Node("n", "i", NodeState.LOST)  # type: ignore[arg-type]
    with pytest.raises(IllegalTransition):
        node.become(NodeState.READY)
    step.mini_batches.append(bytes(28))
    with pytest.raises(IllegalTransition):
        step.mini_batches.become(0, MiniBatchState.FAILED)


@pytest.fixture
def running() -> CoreDriver:
    """One step with mini-batches, one of them leased."""
    driver = CoreDriver()
    driver.running([1] * 3)
    driver.join(leases_max=1)
    assert len(driver.core.state.leases) == 1
    return driver


def test_a_lease_that_is_given_twice_is_noticed(running: CoreDriver) -> None:
    core = running.core.state
    (lease,) = core.leases.values()
    with pytest.raises(InvariantBroken, match="must not be given these leases"):
        core.add_leases([lease], core.nodes[lease.node_id], core.steps[lease.step_id])


def test_a_step_that_has_ended_gets_no_lease(running: CoreDriver) -> None:
    core = running.core.state
    (lease,) = core.leases.values()
    running.do(commands.CancelJob("job"))
    late = Lease(core.next_lease_ids(1)[0], lease.step_id, 1, 1, lease.node_id, 0.0)
    with pytest.raises(InvariantBroken, match="CANCELLED"):
        core.add_leases([late], core.nodes[lease.node_id], core.steps[lease.step_id])


def test_counters_that_do_not_add_up_are_noticed_with_the_next_result(running: CoreDriver) -> None:
    core = running.core.state
    (lease,) = core.leases.values()
    core.steps[StepId(1)].counters.succeeded = -2
    with pytest.raises(commands.StepsRaised) as raised:
        running.core.handle(commands.CompleteAttempts(lease.node_id, [completion(lease.lease_id)]), running.now)
    assert isinstance(raised.value.errors[StepId(1)], InvariantBroken)
