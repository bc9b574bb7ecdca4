"""What ``run()`` gave back, looked at before it is made into rows."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class BadReturn(Exception):
    """What ``run()`` returned cannot be used; the message is for the user."""


def is_dataframe(value: Any) -> bool:
    """Without importing pandas: a script that returns a DataFrame has imported it."""
    pandas = sys.modules.get("pandas")
    kind = getattr(pandas, "DataFrame", None)
    return kind is not None and isinstance(value, kind)


def encode_text(text: str, index: int) -> bytes:
    """A text in UTF-8; bytes of file names that are no UTF-8 come out as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise BadReturn(
            f"Element {index} of what run() returned holds the lone surrogate "
            f"U+{ord(error.object[error.start]):04X}, which no text file can hold. "
            'Clean such texts, for example by text.encode("utf-8", "replace").decode()'
        ) from error
