"""The file of prices, as `windrow usage --prices` takes it: what an hour of one worker costs, by pool.

default: 0.08
gpu: 2.50
"""

from __future__ import annotations

import os
from typing import NamedTuple

from windrow.spec.reading.keys import read_scalar
from windrow.spec.reading.mapping_file import read_mapping_file
from windrow.spec.settings.fields import Field

DEFAULT = "default"
_PRICE = Field("number", 0, 1_000_000_000)


class Prices(NamedTuple):
    """What an hour of one worker costs. `default`: on nodes in no pool that has a price."""

    by_pool: dict[str, float]
    default: float = 0.0


def load_price_file(path: str | os.PathLike[str]) -> Prices:
    """Read a file of prices. Raises JobFileError with all that is wrong."""
    root, context = read_mapping_file(path, "prices", "a file of prices is a mapping: the pools, each with its price.")
    read = {pool: read_scalar(node, _PRICE, pool, context) for pool, node in root.entries.items()}
    context.problems.raise_errors()
    prices = {pool: float(price or 0) for pool, price in read.items()}
    return Prices(prices, prices.pop(DEFAULT, 0.0))
