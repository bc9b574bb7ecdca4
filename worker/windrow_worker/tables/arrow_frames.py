"""DataFrames of Arrow's arrays, with the integers of plain files as these have them.

Reference: docs/reference/azure-ml/mltable.md#plain-files.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

import numpy
import pandas
import pyarrow

from windrow_worker.tables.frames import whole_numbers


def frame_of(names: List[str], arrays: List[Any], whole: Mapping[str, bool], exact_integers: bool) -> pandas.DataFrame:
    """Columns as a DataFrame. `whole`: the integers of plain files, and of each whether it holds floats.
    `exact_integers`: integers beside nulls stay integers, in columns of objects.
    """
    held: Dict[str, pandas.Series] = {}
    for at, name in enumerate(names):
        if name in whole and not exact_integers and (whole[name] or arrays[at].null_count):
            held[name] = _whole_numbers_of(arrays[at], whole[name])
            # Not converted twice.
            arrays[at] = pyarrow.nulls(len(arrays[at]), pyarrow.float64())
    # Without the metadata of pandas: an index that was stored is a column like the others.
    made = pyarrow.Table.from_arrays(arrays, names=names).to_pandas(integer_object_nulls=exact_integers)
    return made.assign(**held) if held else made


def _whole_numbers_of(array: Any, as_floats: bool) -> pandas.Series:
    """A column as `windrow_worker.tables.frames.whole_numbers` makes it. `array`: an Arrow array, or one of chunks, of
    integers of any width.
    """
    nulls = numpy.zeros(len(array), dtype="bool")
    if array.null_count:
        nulls = numpy.asarray(array.is_null())
        array = array.fill_null(0)
    return whole_numbers(numpy.array(array), nulls, as_floats)
