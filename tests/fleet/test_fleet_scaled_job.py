"""The triggers of ScaledJobs, and how many agents each is to have."""

from __future__ import annotations

import pytest
from windrow.fleet.provider import Shape
from windrow.fleet.scaled_job import AGENTS_MAX, BadTrigger, ScaledJob, Wanted, read, wanted
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import node_pb2

FOUR = ScaledJob("ml/agents", Shape(4), "gpu")


def test_a_trigger_says_what_an_agent_offers_and_kedas_own_keys_are_left_alone() -> None:
    given = {"slots": "8", "memory": "32GiB", "gpus": "1", "pool": "gpu", "lifetime": "12h"}
    kedas = {"scalerAddress": "windrow-scaler.ml:6000", "enableTLS": "true", "unsafeSsl": "false", "caCert": "x"}
    assert read("ml", "agents", given | kedas) == ScaledJob("ml/agents", Shape(8, 32 << 30, 1), "gpu", 43200)
    assert read("ml", "agents", {"slots": "1"}) == ScaledJob("ml/agents", Shape(1))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "slots is missing"),
        ({"slots": "0"}, 'slots is "0"'),
        ({"slots": "many"}, 'slots is "many"'),
        ({"slots": "1.5"}, 'slots is "1.5"'),
        ({"slots": "4097"}, 'slots is "4097"'),
        ({"slots": "9" * 5000}, "slots is"),
        ({"slots": "2", "gpus": "-1"}, 'gpus is "-1"'),
        ({"slots": "2", "memory": "32"}, 'memory is "32"'),
        ({"slots": "2", "lifetime": "0h"}, 'lifetime is "0h"'),
        ({"slots": "2", "lifetime": "soon"}, 'lifetime is "soon"'),
        ({"slots": "2", "pool": "a b"}, 'pool is "a b"'),
        ({"slots": "2", "pol": "gpu"}, 'does not know "pol" in the metadata of the trigger of ml/agents. Did you mean'),
        ({"slots": "2", "queueLength": "5"}, "It knows slots, memory, gpus, pool, lifetime."),
    ],
)
def test_wrong_metadata_are_named_with_what_is_right(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadTrigger) as refused:
        read("ml", "agents", given)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_trigger_of_nobody_is_refused() -> None:
    with pytest.raises(BadTrigger, match="named no ScaledJob"):
        read("ml", "", {"slots": "1"})


def waits(seconds: float = 0.0, ready: int = 1000, pool: str = "gpu", slots: float = 1, **more: int) -> pb.Demand:
    """Mini-batches that take so many seconds together."""
    worker = pb.AgentShape(slots=slots)
    most = more.pop("workers_max", 1_000_000)
    return pb.Demand(pool=pool, worker=worker, ready=ready, ready_seconds=seconds, workers_max=most, **more)


def serve(count: int, pool: str = "gpu", slots: int = 4) -> pb.OtherAgents:
    return pb.OtherAgents(pool=pool, shape=pb.AgentShape(slots=slots), count=count)


def node(state: node_pb2.NodeState, label: str = "ml/agents", slots: int = 4) -> node_pb2.Node:
    return node_pb2.Node(
        node_id="agents-x", state=state, labels={"scaled-job": label}, resources=node_pb2.NodeResources(slots=slots)
    )


READY, LOST = node_pb2.NODE_STATE_READY, node_pb2.NODE_STATE_LOST


def test_without_agents_all_that_are_wanted_are_told_of() -> None:
    # 20 workers would be done with 2,400 s in two minutes: 5 agents of 4 slots.
    assert wanted(FOUR, pb.SyncFleetResponse(demands=[waits(2400.0)]), []) == Wanted(5)
    assert wanted(FOUR, pb.SyncFleetResponse(), []) == Wanted(0)


def test_agents_of_others_are_taken_off_and_its_own_are_not() -> None:
    answer = pb.SyncFleetResponse(demands=[waits(2400.0)], others=[serve(2)])
    assert wanted(FOUR, answer, []) == Wanted(3)
    assert wanted(FOUR, answer, [node(READY, "ml/others")] * 2) == Wanted(3)
    # KEDA takes off the Jobs that run: 5 are wanted, and it starts 3.
    assert wanted(FOUR, answer, [node(READY)] * 2) == Wanted(5)
    assert wanted(FOUR, answer, [node(READY)]) == Wanted(4)
    # Its agents are counted wherever they are: the trigger may name no pool, or another.
    elsewhere = pb.SyncFleetResponse(demands=[waits(2400.0)], others=[serve(2, pool="")])
    assert wanted(FOUR, elsewhere, [node(READY)] * 2) == Wanted(5)


def test_agents_that_take_nothing_new_are_stood_in_for_while_their_jobs_run() -> None:
    answer = pb.SyncFleetResponse(demands=[waits(2400.0)])
    draining = node(node_pb2.NODE_STATE_DRAINING)
    cordoned = node(READY)
    cordoned.cordoned = True
    ending = node(READY)
    ending.lifetime.FromSeconds(30)
    assert wanted(FOUR, answer, [draining, cordoned, ending, node(LOST)]) == Wanted(8)
    # Nobody stands in where there is nothing to do.
    assert wanted(FOUR, pb.SyncFleetResponse(), [draining, cordoned]) == Wanted(0)
    # One that is away for a moment has its work, and comes back.
    assert wanted(FOUR, answer, [node(node_pb2.NODE_STATE_DISCONNECTED)]) == Wanted(5)


def test_what_its_agents_cannot_run_is_not_counted_and_said() -> None:
    answer = pb.SyncFleetResponse(demands=[waits(2400.0, slots=8), waits(2400.0, pool="cpu")])
    found = wanted(FOUR, answer, [])
    assert found.agents == 0
    assert "Steps need 8 processors for a worker, and an agent has 4 processors." in found.reasons
    # Agents that live for an hour are no use to mini-batches that take two.
    long = waits(2400.0)
    long.longest_seconds = 7200.0
    assert wanted(FOUR._replace(lifetime_s=3600.0), pb.SyncFleetResponse(demands=[long]), []).agents == 0
    assert wanted(FOUR, pb.SyncFleetResponse(demands=[long]), []).agents == 5


def test_a_step_that_begins_on_several_nodes_gets_them_and_no_number_is_beyond_the_most() -> None:
    assert wanted(FOUR, pb.SyncFleetResponse(demands=[waits(1.0, min_nodes=3)]), []) == Wanted(3)
    assert wanted(FOUR, pb.SyncFleetResponse(demands=[waits(1e12, ready=10**9)]), []) == Wanted(AGENTS_MAX)
