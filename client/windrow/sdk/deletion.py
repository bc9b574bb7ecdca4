"""Jobs that were deleted, or would be, as plain frozen values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.sdk.job import moment_of

if TYPE_CHECKING:
    from datetime import datetime

    from windrow.rpc.v1 import job_service_pb2 as pb


class Deletion(NamedTuple):
    """What became of a job that was to be deleted; after a dry run, what would. `size`: of its files in the state
    folder, in bytes. `losses`: what is lost with it, in words.
    """

    job_id: str
    end_time: datetime | None
    size: int
    losses: tuple[str, ...]
    outputs_gone: tuple[str, ...]
    """Outputs that go with it, since only the state folder holds them."""
    outputs_kept: tuple[str, ...]
    """Outputs that stay where they are."""
    refusal: str
    """Why it stays, and what to do; empty if it does not stay."""
    may_be_forced: bool
    """`force` would delete it all the same."""
    deleted: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**self._asdict(), "end_time": None if self.end_time is None else self.end_time.isoformat()}


def deletion_from_message(message: pb.JobDeletion) -> Deletion:
    """Make a deletion from its message."""
    return Deletion(
        job_id=message.job_id,
        end_time=moment_of(message, "end_time"),
        size=message.bytes,
        losses=tuple(message.losses),
        outputs_gone=tuple(message.outputs_gone),
        outputs_kept=tuple(message.outputs_kept),
        refusal=message.refusal,
        may_be_forced=message.may_be_forced,
        deleted=message.deleted,
    )
