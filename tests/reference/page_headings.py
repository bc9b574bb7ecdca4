"""The headings of a page, as links name them."""

from __future__ import annotations

import functools
import re
from pathlib import Path


@functools.cache
def headings(page: Path) -> frozenset[str]:
    """The anchors that a page has for its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)", text, re.M)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found)
