"""A ScaledJob of KEDA: what its trigger says, and how many agents it is to have. Pure.

KEDA starts as many Jobs as this number exceeds that of the ScaledJob's Jobs that have not ended (strategy `default`).
So the number is that of all agents that it is to have, not of those that are missing: a Job whose agent has not joined
yet counts for KEDA, and no other one is started for the same work. The ScaledJob's own agents are known by a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from windrow.common.quantities import bytes_in, seconds_in
from windrow.fleet.demand import match
from windrow.fleet.messages import demand_of, others_of, shape_of
from windrow.fleet.provider import Shape
from windrow.fleet.settings import GroupSettings
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow.rpc.v1 import node_pb2
from windrow.spec.naming.names import NAME
from windrow.spec.reading.problems import did_you_mean

LABEL = "scaled-job"
"""The label of its agents; its value is NAMESPACE/NAME."""
AGENTS_MAX = 10_000
"""No ScaledJob is told of more agents."""
LEAVING_S = 60.0
"""An agent that lives no longer takes nothing new, as the master sees it."""
KEYS = ("slots", "memory", "gpus", "pool", "lifetime")
KEDAS_KEYS = frozenset(
    {"scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsCertFile", "tlsClientCert", "tlsClientKey"}
)
"""How KEDA reaches a scaler: it sends them along."""
_UNAVAILABLE = {node_pb2.NODE_STATE_DRAINING, node_pb2.NODE_STATE_QUARANTINED}


class BadTrigger(ValueError):
    """The metadata of a trigger are wrong; the text says what to do."""


class ScaledJob(NamedTuple):
    """What one of its agents offers, and how its agents are known."""

    label: str
    """NAMESPACE/NAME of the ScaledJob: the value of the label LABEL of its agents."""
    shape: Shape
    pool: str = ""
    """The pool of its agents; "": none, so that they serve all steps."""
    lifetime_s: float | None = None
    """How long one of them lives; None: without an end."""


class Wanted(NamedTuple):
    """How many agents a ScaledJob is to have."""

    agents: int
    """All of them, those that it has included."""
    reasons: tuple[str, ...] = ()
    """Why some of what waits gets none of its agents, in sentences."""


def read(namespace: str, name: str, metadata: Mapping[str, str]) -> ScaledJob:
    """Read the metadata of a ScaledJob's trigger. Raises BadTrigger."""
    if not namespace or not name:
        raise BadTrigger("KEDA named no ScaledJob: the name or the namespace is missing.")
    for key in metadata:
        if key not in KEYS and key not in KEDAS_KEYS:
            raise BadTrigger(
                f'Windrow\'s scaler does not know "{key[:64]}" in the metadata of the trigger of {namespace}/{name}.'
                f"{did_you_mean(key[:64], KEYS)} It knows {', '.join(KEYS)}."
            )
    if "slots" not in metadata:
        raise _bad("slots", "is missing", "a number of slots, as its agents have with --slots", "8")
    slots, gpus = _number(metadata["slots"], 4096), _number(metadata.get("gpus", "0"), 64)
    if not slots:
        raise _bad("slots", _is(metadata["slots"]), "a number of slots from 1 to 4096", "8")
    if gpus is None:
        raise _bad("gpus", _is(metadata["gpus"]), "a number of GPUs from 0 to 64", "1")
    memory = bytes_in(metadata["memory"]) if "memory" in metadata else 0
    if memory is None:
        raise _bad("memory", _is(metadata["memory"]), "a size", "32GiB")
    lifetime_s = seconds_in(metadata["lifetime"]) if "lifetime" in metadata else None
    if "lifetime" in metadata and not lifetime_s:
        raise _bad("lifetime", _is(metadata["lifetime"]), "a time", "12h")
    pool = metadata.get("pool", "")
    if pool and not NAME.fullmatch(pool):
        raise _bad("pool", _is(pool), "the name of a pool, as its agents have with --pool", "gpu")
    return ScaledJob(f"{namespace}/{name}", Shape(slots, memory, gpus), pool, lifetime_s)


def _number(text: str, most: int) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= most else None


def _is(value: str) -> str:
    return f'is "{value[:64]}"'


def _bad(key: str, how: str, wanted: str, example: str) -> BadTrigger:
    return BadTrigger(f'In the metadata of the trigger, {key} {how}. Give {wanted}, such as "{example}" (a string).')


def wanted(job: ScaledJob, answer: pb.SyncFleetResponse, nodes: Iterable[node_pb2.Node]) -> Wanted:
    """How many agents a ScaledJob is to have, as the master sees it. `answer`: of a look at no fleet, so `others` are
    all agents that serve. `nodes`: all nodes, of about the same moment.
    """
    own = [node for node in nodes if node.labels.get(LABEL) == job.label]
    group = GroupSettings("agents", "keda", job.shape, 0, AGENTS_MAX, job.pool, lifetime_s=job.lifetime_s)
    found = match(
        [group],
        [demand_of(one) for one in answer.demands],
        others_of(_without(own, job.pool, answer)),
        {group.name: AGENTS_MAX},
    )[group.name]
    if not found.more:
        return Wanted(0, found.reasons)
    # Their Jobs count for KEDA, and they take nothing new: others have to stand in for them.
    unavailable = sum(map(_is_unavailable, own))
    return Wanted(min(found.more + unavailable, AGENTS_MAX), found.reasons)


def _is_unavailable(node: node_pb2.Node) -> bool:
    if node.state == node_pb2.NODE_STATE_LOST:
        return False  # nor has it a Job, in all likelihood
    is_ending = node.HasField("lifetime") and node.lifetime.ToTimedelta().total_seconds() < LEAVING_S
    return node.state in _UNAVAILABLE or node.cordoned or is_ending


def _without(own: Iterable[node_pb2.Node], pool: str, answer: pb.SyncFleetResponse) -> pb.SyncFleetResponse:
    """The answer with the ScaledJob's own agents taken off those that serve. Nodes do not say in which pool they are:
    those of its pool are taken first.
    """
    serving = Counter(
        Shape(node.resources.slots, node.resources.memory_bytes, node.resources.gpu_count)
        for node in own
        if node.state == node_pb2.NODE_STATE_READY and not _is_unavailable(node)
    )
    rest = pb.SyncFleetResponse()
    for one in sorted(answer.others, key=lambda other: other.pool != pool):
        taken = min(one.count, serving[shape_of(one.shape)])
        serving[shape_of(one.shape)] -= taken
        if one.count > taken:
            rest.others.add(pool=one.pool, shape=one.shape, count=one.count - taken)
    return rest
