"""Reads results that come out of a sandbox.

A pickle may call whatever it names. Where a sandbox confines the function, a value that it returns must not get out of
it by that: only plain data is read, and numpy's arrays. Anything else is refused, and nothing of it is called.
"""

from __future__ import annotations

import io
import os
import pickle
from typing import Any, Final

_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray")
ALLOWED: Final = frozenset(
    {
        *(("builtins", name) for name in ("bytearray", "complex", "frozenset", "range", "set", "slice")),
        *(("builtins", name) for name in ("bool", "bytes", "dict", "float", "int", "list", "str", "tuple")),
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("uuid", "SafeUUID")),
        *(("pathlib", name) for name in ("Path", "PosixPath", "PurePath", "PurePosixPath")),
        *((module, name) for module in _ARRAYS for name in ("_reconstruct", "scalar")),
        *(("numpy", name) for name in ("dtype", "ndarray")),
    }
)
"""What may be called: the module and the name of each. None of them reads, writes or runs anything."""


class NotPlainData(Exception):
    """A result that is more than plain data. The text names what it is."""


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise NotPlainData(f"{module}.{name}")
        return super().find_class(module, name)


def is_confined() -> bool:
    """Whether `windrow.map` runs functions in a sandbox."""
    return os.environ.get("WINDROW_SANDBOX", "off") not in ("", "off")


def plain_data(content: bytes) -> Any:
    """The value of a pickle. Raises NotPlainData, and what broken pickles raise."""
    return _PlainData(io.BytesIO(content)).load()
