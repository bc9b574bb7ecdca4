"""The causes of failures are numbered in three places that cannot import each other; they must agree."""

from __future__ import annotations

from windrow.rpc.v1 import work_pb2 as work
from windrow.sdk.job import CAUSES
from windrow_master.core.states import Cause


def test_protocol_master_and_client_number_the_causes_alike() -> None:
    protocol = {number: name.removeprefix("CAUSE_").lower() for name, number in work.Cause.items()}
    assert dict(enumerate(CAUSES)) == protocol
    assert {int(cause): cause.name.lower() for cause in Cause if cause} == {
        number: name for number, name in protocol.items() if number
    }
