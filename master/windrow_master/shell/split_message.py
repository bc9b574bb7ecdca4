"""How a mini-batch is split, as a message of the protocol."""

from __future__ import annotations

from windrow.common.failure_kinds import within
from windrow.rpc.v1 import work_pb2

from windrow_master.core.pace import split_rate
from windrow_master.core.settings import StepSettings
from windrow_master.core.splitting import RUNS_MAX, Split

MESSAGE_CHARS_MAX = 200
"""An order of as many given-up items as there may be fits into a packet to a worker."""


def split_message(split: Split, settings: StepSettings) -> work_pb2.Split:
    """The order to a worker."""
    # 1 / inf is 0: no limit.
    unit_s = 1 / split_rate(settings.rate_per_s, settings.split)
    return work_pb2.Split(
        cuts=split.cuts,
        given_up=[
            work_pb2.FailedItems(
                first=one.first,
                count=one.count,
                cause=int(one.cause),  # type: ignore[arg-type]
                message=within(one.message, MESSAGE_CHARS_MAX),
                place=one.place,
            )
            for one in split.given_up
        ],
        suspects=split.suspects,
        runs_max=RUNS_MAX,
        call_s=0.0 if settings.rate_counts_items else unit_s,
        item_s=unit_s if settings.rate_counts_items else 0.0,
    )
