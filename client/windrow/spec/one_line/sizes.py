"""The size of a mini-batch, if none is given: small enough that a small input keeps all workers busy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from windrow.common.quantities import counted, size
from windrow.spec.one_line.inputs import ASSET, DEFINED, FILES, Given, is_parquet, local_files

MINI_BATCHES_PER_WORKER = 4
"""The minimum, if the input is large enough, so that all workers finish at about the same time."""

FILES_MAX = 10
BYTES_MAX = 1024 * 1024
"""The sizes that a step has by default: a larger input gets these."""

_BYTES_MIN = 1024
_KB = 1024


class Chosen(NamedTuple):
    """`text`: the setting `mini_batch_size`; "" if the step's default is best. `words`: what a mini-batch holds."""

    text: str
    words: str


def choose_size(given: Sequence[Given], workers: int, previous: str = "") -> Chosen:
    """A size for these inputs. `previous`: what was chosen for the same command before; it stays while it fits, because
    another size would be another run.
    """
    wanted = max(1, MINI_BATCHES_PER_WORKER * workers)
    known = not any(one.is_address for one in given)
    if all(one.is_list for one in given):
        if not known:
            return Chosen("", f"{FILES_MAX} files in each mini-batch")
        most = FILES_MAX * wanted
        count = sum(1 for _ in islice((file for one in given for file in local_files(one)), most))
        files = _kept(previous, min(FILES_MAX, max(1, count // wanted)))
        amount = counted(count, "file") if count < most else f"at least {most:,} files"
        return Chosen(str(files), f"{amount}, {files:,} in each mini-batch")
    if not known or any(one.holds in (DEFINED, ASSET) or is_parquet(one) for one in given):
        return Chosen("", "")
    total = 0
    most = BYTES_MAX * wanted
    for one in given:
        for file in local_files(one):
            total += os.path.getsize(file) if os.path.isfile(file) else 0
            if total >= most:
                break
    kilobytes = min(BYTES_MAX, max(_BYTES_MIN, total // wanted)) // _KB
    kilobytes = _kept(previous.removesuffix("kb"), kilobytes)
    amount = size(total) if total < most else f"at least {size(most)}"
    return Chosen(f"{kilobytes}kb", f"{amount}, about {size(kilobytes * _KB)} in each mini-batch")


def _kept(previous: str, best: int) -> int:
    before = int(previous) if previous.isascii() and previous.isdecimal() else 0
    return before if before and best <= 4 * before and before <= 2 * best else best


def what(given: Sequence[Given]) -> str:
    """What `run()` gets."""
    return "paths of files" if all(one.holds == FILES for one in given) else "DataFrames"
