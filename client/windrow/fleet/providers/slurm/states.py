"""What Slurm's states of jobs mean for an allocation."""

from __future__ import annotations

from windrow.fleet.provider import State

_STATES = {
    # Slurm has it, and has not started it (again). CONFIGURING: its node is being booted.
    "PENDING": State.QUEUED,
    "CONFIGURING": State.QUEUED,
    "REQUEUED": State.QUEUED,
    "REQUEUE_FED": State.QUEUED,
    "REQUEUE_HOLD": State.QUEUED,
    "RESV_DEL_HOLD": State.QUEUED,
    "SPECIAL_EXIT": State.QUEUED,
    # The node is taken: the agent is there, or stopped, or its processes have not all ended yet.
    "RUNNING": State.STARTED,
    "COMPLETING": State.STARTED,
    "RESIZING": State.STARTED,
    "SIGNALING": State.STARTED,
    "STAGE_OUT": State.STARTED,
    "STOPPED": State.STARTED,
    "SUSPENDED": State.STARTED,
    # It has ended.
    "COMPLETED": State.COMPLETED,
    "PREEMPTED": State.PREEMPTED,
    "TIMEOUT": State.EXPIRED,
    "DEADLINE": State.EXPIRED,
    "CANCELLED": State.CANCELLED,
    "REVOKED": State.CANCELLED,
    "FAILED": State.FAILED,
    "BOOT_FAIL": State.FAILED,
    "LAUNCH_FAILED": State.FAILED,
    "NODE_FAIL": State.FAILED,
    "OUT_OF_MEMORY": State.FAILED,
    "RECONFIG_FAIL": State.FAILED,
}
_NO_REASON = ("", "None", "(null)", "N/A")


def state_of(word: str) -> State:
    """The state of an allocation whose job Slurm says is in a state, such as "RUNNING" or "CANCELLED by 1000".

    A word that no Slurm up to now has said counts as started: what may be there is not asked for again.
    """
    return _STATES.get(word.partition(" ")[0].rstrip("+"), State.STARTED)


def reason_of(word: str, reason: str) -> str:
    """Why a job is in a state, in Slurm's own words; "" for one that simply runs or has simply ended well."""
    reason = "" if reason.strip("()") in _NO_REASON else reason.strip("()")
    if word == "PENDING":
        return reason
    if word in ("RUNNING", "COMPLETED"):
        return ""
    return f"{word} ({reason})" if reason else word
