"""Whatever anybody sends to a master: it answers in words, lives on, and keeps its jobs whole."""

from __future__ import annotations

from pathlib import Path

from fuzzing import ROLES, fuzz, siege
from protocol import RPCS
from windrow_master.identity.needs import NEEDS

MESSAGES = 3_000


def test_every_call_of_the_protocol_is_fuzzed_and_has_its_needs() -> None:
    found = {rpc.path for rpc in RPCS}
    assert found <= set(NEEDS)
    # The list of health checks is served by newer packages of gRPC only.
    assert set(NEEDS) - found <= {"/grpc.health.v1.Health/List"}


def test_a_master_takes_whatever_is_sent(tmp_path: Path) -> None:
    with siege(tmp_path) as (under_fire, known):
        fuzz(under_fire, known, MESSAGES, RPCS)
        tried = {(name, role) for name, role, _ in under_fire.outcomes}
        assert tried == {(rpc.name, role) for rpc in RPCS for role in ROLES}
        well = {name for name, _, code in under_fire.outcomes if code in ("OK", "left")}
        assert len(well) > len(RPCS) / 2, "most of what was sent did not get through to the services"
