"""What `run()` gave back, looked at before it is made into rows."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BadReturn(Exception):
    """What `run()` returned cannot be used; the message is for the user."""


def is_dataframe(value: Any) -> bool:
    """Without importing pandas: a script that returns a DataFrame has imported it."""
    pandas = sys.modules.get("pandas")
    kind = getattr(pandas, "DataFrame", None)
    return kind is not None and isinstance(value, kind)


CLEANING = 'Clean such texts, for example by text.encode("utf-8", "replace").decode()'
"""What to do about texts that no file can hold."""


def unwritable_letter(error: UnicodeEncodeError) -> str:
    """The first letter that could not be written, in words."""
    code = ord(error.object[error.start])
    return ("the lone surrogate" if is_surrogate(error) else "the letter") + f" U+{code:04X}"


def is_surrogate(error: UnicodeEncodeError) -> bool:
    """Whether that letter is half of one: no encoding has it."""
    return 0xD800 <= ord(error.object[error.start]) <= 0xDFFF


def encode_text(text: str, index: int) -> bytes:
    """A text in UTF-8; bytes of file names that are no UTF-8 come out as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadReturn(
            f"Element {index} of what run() returned holds {unwritable_letter(error)}, which no text file can hold. "
            + CLEANING
        ) from error
