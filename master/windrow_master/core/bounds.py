"""Bounds of what a node reports about an attempt.

The numbers are made in a process where the script runs, which may write what it likes. Whoever reads them later adds
them up, stores them in 64 bits and shows them as times: within these bounds that works, however many there are. A
number beyond its bound is made to fit, since it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from windrow_master.core.attempt_result import AttemptResult

DURATION_US_MAX: Final = 366 * 86_400 * 1_000_000
"""A year."""
CPU_US_MAX: Final = 1024 * DURATION_US_MAX
"""A year on 1,024 processors."""
TIME_US_MAX: Final = 4_102_444_800_000_000
"""The year 2100. A node's clock may be wrong by years, but has to make a date."""
MEMORY_KIB_MAX: Final = 1 << 40
MISFITS_MAX: Final = 1 << 32
"""Values of one column in one mini-batch; it has no more rows."""

LARGEST: Final[Mapping[str, int]] = MappingProxyType(
    {
        "start_unix_us": TIME_US_MAX,
        "elapsed_us": DURATION_US_MAX,
        "run_us": DURATION_US_MAX,
        "cpu_us": CPU_US_MAX,
        "peak_rss_kib": MEMORY_KIB_MAX,
        "retry_after_us": DURATION_US_MAX,
    }
)
_STARTS = dict.fromkeys(("prepare_us", "start_us", "init_us"), DURATION_US_MAX)


def keep_in_bounds(result: AttemptResult, row_format: str) -> None:
    """Make every number of a result fit that is only counted or shown. `row_format`: that of its step.

    All others (items, results, causes, phases, pieces) are checked where they are used.
    """
    # Written out: this is done for every result, and a loop takes three times as long.
    if not (
        0 <= result.start_unix_us <= TIME_US_MAX
        and 0 <= result.elapsed_us <= DURATION_US_MAX
        and 0 <= result.run_us <= DURATION_US_MAX
        and 0 <= result.cpu_us <= CPU_US_MAX
        and 0 <= result.peak_rss_kib <= MEMORY_KIB_MAX
        and 0 <= result.retry_after_us <= DURATION_US_MAX
    ):
        _fit(result, LARGEST)
    # Each row of text is a byte at least. A Parquet file may have any number of rows that are all null.
    if row_format != "parquet" and result.row_count > result.rows_length:
        _fit(result, {"row_count": result.rows_length})
    if result.HasField("worker_start"):
        _fit(result.worker_start, _STARTS)
    if misfits := result.misfits:  # to begin a loop over an empty field costs more than all before
        for misfit in misfits:
            _fit(misfit, {"count": MISFITS_MAX})


def _fit(part: object, largest: Mapping[str, int]) -> None:
    for name, most in largest.items():
        number = getattr(part, name)
        if not 0 <= number <= most:
            setattr(part, name, min(max(0, number), most))
