"""Distinct types for the numbers and names that must never be mixed up."""

from __future__ import annotations

import hashlib
from typing import NewType

JobKey = NewType("JobKey", int)
"""A job's number: counted, unique forever in one state."""

StepId = NewType("StepId", int)
"""A step's number: counted, unique forever in one state; below 2**31."""

LeaseId = NewType("LeaseId", int)
"""A lease's number: the attempt's key and token. High 31 bits: drawn at random by each master incarnation and distinct
from all earlier ones; low 32 bits: counted. Positive in 63 bits; 0 means none."""

NodeId = NewType("NodeId", str)
"""A node's host name."""

DEFAULT_PROJECT = "default"
"""The project of a job that was submitted without a token, or with one for all projects."""

LEASE_PREFIX_SHIFT = 32
LEASE_ID_MAX = (1 << 63) - 1
MINI_BATCH_SHIFT = 32


def mini_batch_key(step_id: StepId, index: int) -> int:
    """The key of a mini-batch over all steps: `step_id << 32 | index`."""
    return step_id << MINI_BATCH_SHIFT | index


def step_identity(
    job_id: str, request_id: str, create_time: float, generation: int, document: bytes, ordinal: int
) -> int:
    """The identity of a step, whatever its number: 64 bits, never 0.

    A state that is restored from a backup assigns numbers again that its lost future had assigned to other steps.
    Agents may still hold work of that future; it must not be mistaken for the step that has the number now.
    """
    what = "\0".join((job_id, request_id, create_time.hex(), str(generation), str(ordinal), ""))
    digest = hashlib.sha256(what.encode(errors="surrogatepass") + document).digest()
    return int.from_bytes(digest[:8], "big") or 1
