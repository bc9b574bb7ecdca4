"""Integers of plain files, from Arrow's arrays.

Reference: docs/reference/azure-ml/mltable.md#plain-files.
"""

from __future__ import annotations

from typing import Any

import numpy
import pandas

from windrow_worker.tables.frames import whole_numbers


def whole_numbers_of(array: Any, as_floats: bool) -> pandas.Series:
    """A column as `windrow_worker.tables.frames.whole_numbers` makes it. `array`: an Arrow array, or one of chunks, of
    integers of any width.
    """
    nulls = numpy.zeros(len(array), dtype="bool")
    if array.null_count:
        nulls = numpy.asarray(array.is_null())
        array = array.fill_null(0)
    return whole_numbers(numpy.array(array), nulls, as_floats)
