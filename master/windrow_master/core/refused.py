"""The reply to what the state does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Refused(NamedTuple):
    """The reply to a command that the state does not allow. `reason` is an ErrorInfo reason of the protocol."""

    reason: str
    message: str
    metadata: Mapping[str, str] = MappingProxyType({})


def job_unknown(job_id: str) -> Refused:
    """There is no such job."""
    return Refused("JOB_UNKNOWN", f"There is no job named {job_id!r}. `windrow job list` names them.")


def job_ended(job_id: str) -> Refused:
    """Why a job cannot be changed any more."""
    return Refused("JOB_ENDED", f"Job {job_id} has ended: nothing of it waits, so there is nothing to change.")
