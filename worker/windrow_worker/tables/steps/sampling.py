"""Which rows a sample takes: decided for each row alone, from the seed, its file and its place there.

So the same rows are taken however the data is cut, on whichever node.
Reference: docs/reference/azure-ml/mltable.md#samples.
"""

from __future__ import annotations

from typing import Any, Dict

import numpy

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def sampled(step: Dict[str, Any], salt: int, positions: numpy.ndarray) -> numpy.ndarray:
    """Which of the rows at these places of a file are in the sample, as an array of bool."""
    # The number distinguishes two samples of one table with the same seed.
    key = _mixed(_mixed(_mixed(step["seed"] & _MASK) ^ step["number"]) ^ salt)
    state = positions.astype("uint64") * numpy.uint64(_GOLDEN) + numpy.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> numpy.uint64(shift))) * numpy.uint64(factor)
    state ^= state >> numpy.uint64(31)
    chance = (state >> numpy.uint64(11)) / numpy.float64(2**53)
    return (chance >= step["from"]) & (chance < step["to"])  # type: ignore[no-any-return]


def _mixed(value: int) -> int:
    """A number from splitmix64: the same for the same input on every machine, unrelated for neighbouring inputs."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
