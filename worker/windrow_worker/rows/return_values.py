"""Checks of what `run()` returned, before it becomes rows."""

from __future__ import annotations

import sys
from contextlib import nullcontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ContextManager


class BadReturn(Exception):
    """What `run()` returned cannot be used; the message is for the user."""


def is_dataframe(value: Any) -> bool:
    """Whether it is a DataFrame. Does not import pandas: a script that returns one has imported it."""
    pandas = sys.modules.get("pandas")
    kind = getattr(pandas, "DataFrame", None)
    return kind is not None and isinstance(value, kind)


CLEANING = 'Clean such strings, for example with text.encode("utf-8", "replace").decode()'
"""Advice for texts that no file can hold."""


def unwritable_character(error: UnicodeEncodeError) -> str:
    """Names the first character that could not be written."""
    code = ord(error.object[error.start])
    return ("the lone surrogate" if is_surrogate(error) else "the character") + f" U+{code:04X}"


def is_surrogate(error: UnicodeEncodeError) -> bool:
    """Whether that character is a lone surrogate, which no encoding has."""
    return 0xD800 <= ord(error.object[error.start]) <= 0xDFFF


def whole_arrays() -> ContextManager[Any]:
    """While it lasts, numpy writes all elements of an array as text, not only the first and last three of more than
    1,000. What a script has set itself stays."""
    numpy = sys.modules.get("numpy")
    if numpy is None or numpy.get_printoptions()["threshold"] != _NUMPYS_OWN:
        return nullcontext()
    options: ContextManager[Any] = numpy.printoptions(threshold=sys.maxsize)
    return options


_NUMPYS_OWN = 1000


def encode_text(text: str, index: int) -> bytes:
    """Encodes a text as UTF-8. Surrogate escapes, as in file names that are not UTF-8, become the original bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadReturn(
            f"Element {index} of what run() returned holds {unwritable_character(error)}, which no text file can hold. "
            + CLEANING
        ) from error
