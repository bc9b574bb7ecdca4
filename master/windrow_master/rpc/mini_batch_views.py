"""Mini-batches and their attempts, as they are stored and as they are leased now, as messages of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from windrow.rpc.v1 import mini_batch_pb2 as pb
from windrow.rpc.v1 import node_pb2

from windrow_master.core.bounds import TIME_US_MAX
from windrow_master.core.records import AttemptRow
from windrow_master.core.states import AttemptState, Cause, MiniBatchState
from windrow_master.core.statuses import category_of, process_of, status_of
from windrow_master.store.records import MiniBatchRow

if TYPE_CHECKING:
    from windrow_master.core.commands import Moment
    from windrow_master.core.leases import Lease

ENDED_BY_ITSELF = (AttemptState.SUCCEEDED, AttemptState.FAILED)


def mini_batch_message(
    step_name: str, row: MiniBatchRow, attempts: Sequence[AttemptRow], lease: pb.MiniBatchAttempt | None
) -> pb.MiniBatch:
    """Make the message of a mini-batch. `attempts`: all that are stored, oldest first; `lease`: its present lease."""
    failed = next((one for one in reversed(attempts) if one.state == AttemptState.FAILED and one.cause), None)
    state = MiniBatchState.LEASED if lease is not None else MiniBatchState(row.state)
    message = pb.MiniBatch(
        step_name=step_name,
        mini_batch_index=row.mini_batch,
        state=int(state) + 1,  # type: ignore[arg-type]
        tries=sum(one.state in ENDED_BY_ITSELF for one in attempts),
        cause=failed.cause if failed is not None else Cause.NONE,  # type: ignore[arg-type]
        item_first=row.item_first,
        item_count=row.items_counted or row.item_count,
        ok_count=row.ok_count,
        row_count=row.row_count,
    )
    if lease is not None:
        message.last_attempt.CopyFrom(lease)
    elif attempts:
        message.last_attempt.CopyFrom(attempt_message(attempts[-1], row.lease_id))
    return message


def attempt_message(row: AttemptRow, lease_that_counts: int, logs: Sequence[str] = ()) -> pb.MiniBatchAttempt:
    """Make the message of a stored attempt. `lease_that_counts`: the lease of the attempt whose outcome is the
    mini-batch's; 0 if there is none.
    """
    message = pb.MiniBatchAttempt(
        lease_id=row.lease_id,
        node_id=row.node_id,
        node_incarnation=row.node_incarnation,
        state=row.state,  # type: ignore[arg-type]
        cause=row.cause,  # type: ignore[arg-type]
        status=status_of(row.state, row.cause, row.phase),
        error_category=category_of(row.cause, row.phase) if row.state == AttemptState.FAILED else "",
        phase=row.phase,  # type: ignore[arg-type]
        elapsed_us=row.elapsed_us,
        run_us=row.run_us,
        cpu_us=row.cpu_us,
        peak_rss_kib=row.peak_rss_kib,
        item_count=row.item_count,
        result_count=row.result_count,
        message=row.message,
        detail=row.detail,
        counts=bool(lease_that_counts) and row.lease_id == lease_that_counts,
        logs=logs,
    )
    if row.start_unix_us:
        message.start_time.FromMicroseconds(min(max(row.start_unix_us, 0), TIME_US_MAX))
    if reached_a_worker(row):
        message.process_number = row.process_number
    return message


def reached_a_worker(row: AttemptRow) -> bool:
    """Whether the attempt may have reached a worker. If its node was lost, it may have waited in a worker that is
    not known.
    """
    told = row.elapsed_us or row.peak_rss_kib or row.phase
    return bool(told) and process_of(row.phase, row.process_number) is not None


def lease_message(
    lease: Lease, node_incarnation: str, worker: node_pb2.WorkerStatus | None, now: Moment
) -> pb.MiniBatchAttempt:
    """Make the message of a present lease. `worker`: the one that its node last reported to work on it."""
    message = pb.MiniBatchAttempt(
        lease_id=lease.lease_id,
        node_id=lease.node_id,
        node_incarnation=node_incarnation,
        state=pb.ATTEMPT_STATE_RUNNING,
        status=status_of(AttemptState.RUNNING, 0, 0),
    )
    since_s = now.monotonic_s - lease.granted_s
    if worker is not None:
        message.process_number = worker.process_number
        message.phase = worker.phase
    message.start_time.FromMicroseconds(int((now.wall_s - max(0.0, since_s)) * 1e6))
    return message


def workers_by_lease(nodes: Sequence[node_pb2.Node]) -> Mapping[int, node_pb2.WorkerStatus]:
    """The workers that the nodes' last heartbeats reported, by the lease that they work on."""
    return {worker.lease_id: worker for node in nodes for worker in node.workers if worker.lease_id}
